"""Which code runs here: a checksum of the package's own files, so that hosts of one run can be compared."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import xxhash

import graphmill

_SUFFIXES = {".py", ".yaml", ".j2", ".json"}


@cache
def code_checksum() -> str:
    """SOURCES-CORE: checksums of the source files this process would import, and of the compiled core that it loads.

    Of names and contents, wherever they are installed. If each host builds the core itself, the same sources and
    compiler give the same bytes; a core of older sources, or of another compiler, computes other numbers. Read once in
    a process, which has most of them imported by then.
    """
    return f"{_sources_checksum()}-{_core_checksum()}"


def _sources_checksum() -> str:
    package = Path(graphmill.__file__).parent
    state = xxhash.xxh3_64()
    for path in sorted(package.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file():
            state.update(f"{path.relative_to(package).as_posix()}\0".encode())
            state.update(path.read_bytes())
            state.update(b"\0")
    return state.hexdigest()


def _core_checksum() -> str:
    spec = find_spec("graphmill._native")  # found, not loaded: in an editable install it lies outside the package
    assert spec is not None, "the compiled core is not installed"
    assert spec.origin is not None, "the compiled core is not a file"
    return xxhash.xxh3_64(Path(spec.origin).read_bytes()).hexdigest()
