"""Which code runs here: a checksum of the package's own files, so that hosts of one run can be compared."""

from pathlib import Path

import xxhash

import graphmill

_SUFFIXES = {".py", ".yaml", ".j2", ".json"}  # the compiled core may be built on each host, and is not compared


def code_checksum() -> str:
    """Of the names and contents of the source files this process would import, wherever they are installed."""
    package = Path(graphmill.__file__).parent
    state = xxhash.xxh3_64()
    for path in sorted(package.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file():
            state.update(f"{path.relative_to(package).as_posix()}\0".encode())
            state.update(path.read_bytes())
            state.update(b"\0")
    return state.hexdigest()
