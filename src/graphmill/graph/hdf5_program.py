"""The process that HDF5 runs in, `python -m graphmill.graph.hdf5_program read|write SECONDS`, and what is said to it.

HDF5 crashes on some damaged files, reads others without end or into all memory, and cannot close a file that a full
disk cut short. In a process of its own that is its end, and a message of the one that asked (`hdf5.py`).
"""

import fcntl
import os
import re
import resource
import select
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import numpy as np

from graphmill.base.json_text import parse_json
from graphmill.graph.arrays import UNREADABLE, reason

IDLE_S: Final = 2.0  # without a question, the reader ends
_SIZE: Final = struct.Struct("<Q")
_MEMORY: Final = (1 << 30, 4)  # bytes beside what Python has, and how often the file's own
_LONG: Final = 1000  # characters: longer attributes are pickles of pandas and the like


def put_words(file: IO[bytes], words: Mapping[str, Any]) -> None:
    """Write what is JSON, and numpy's arrays and numbers, for `take_words` at the other end."""
    import json

    arrays = {key: np.asarray(value) for key, value in words.items() if isinstance(value, np.ndarray | np.generic)}
    head = {"words": {key: value for key, value in words.items() if key not in arrays}}
    head["arrays"] = {key: [array.dtype.str, array.shape] for key, array in arrays.items()}
    text = json.dumps(head).encode()
    file.write(_SIZE.pack(len(text)) + text)
    for array in arrays.values():
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    file.flush()


def take_words(file: IO[bytes]) -> dict[str, Any]:
    """What `put_words` wrote. `EOFError`: the other end is gone."""
    head = parse_json(_exactly(file, _SIZE.unpack(_exactly(file, _SIZE.size))[0]))
    words: dict[str, Any] = head["words"]
    for key, (kind, shape) in head["arrays"].items():
        array = np.empty(shape, np.dtype(kind))
        bytes_of_it = array.reshape(-1).view(np.uint8).data
        if file.readinto(bytes_of_it) < len(bytes_of_it):  # type: ignore[attr-defined]  # of a pipe's reader
            raise EOFError
        words[key] = array[()]
    return words


def _exactly(file: IO[bytes], number: int) -> bytes:
    found = file.read(number)
    if len(found) < number:
        raise EOFError
    return found


class _OpenFile:
    """File of HDF5 that stays open as long as more of it is asked for; there is one at a time."""

    def __init__(self) -> None:
        self._path = ""
        self._file: Any = None  # h5py is untyped

    def answer(self, path: str, what: str, *, keep: bool, **words: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
        """Answer one question about a file."""
        asked: dict[str, Callable[..., dict[str, Any]]] = {
            "tree": _tree, "described": _described, "row": _row, "rows": _rows,
        }  # fmt: skip
        try:
            return asked[what](self._opened(path), **words)
        finally:
            if not keep:
                self._close()

    def _opened(self, path: str) -> Any:  # noqa: ANN401  # h5py is untyped
        import h5py

        if self._file is None or path != self._path:
            self._close()
            _limit_memory(Path(path))
            self._path, self._file = path, h5py.File(path, "r")  # type: ignore[no-untyped-call,attr-defined]
            with suppress(OSError):  # nobody was writing it: who wants to does not wait until this is idle
                fcntl.flock(self._file.id.get_vfd_handle(), fcntl.LOCK_UN)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def _limit_memory(path: Path) -> None:
    mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    most = mapped + _MEMORY[0] + _MEMORY[1] * path.stat().st_size
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _tree(file: Any) -> dict[str, Any]:  # noqa: ANN401  # h5py is untyped
    return {"tree": {key: _below(file, key) for key in file}}


def _below(file: Any, key: str) -> list[str] | None:  # noqa: ANN401  # h5py is untyped
    try:
        one = _inside(file, key)
        return list(one) if hasattr(one, "keys") else None
    except UNREADABLE:  # a link to nothing: whoever wants it is told
        return None


def _inside(file: Any, name: str) -> Any:  # noqa: ANN401  # h5py is untyped
    """What is called so, if all of it is in this file: who made it may name any other that the reader may read."""
    one = file[name]
    if one.file.filename != file.filename or getattr(one, "external", None) or getattr(one, "is_virtual", False):
        raise ValueError(f"{name} is virtual, or lies in another file, which this one names")
    return one


def _described(file: Any, names: list[str], attributes: list[str]) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        one = _inside(file, name)
        found[name] = {"attributes": {key: _simple(one.attrs[key]) for key in attributes if key in one.attrs}}
        if hasattr(one, "shape"):
            stored = one.id.get_storage_size()
            found[name] |= {"shape": one.shape, "dtype": str(one.dtype), "kind": one.dtype.kind, "stored": stored}
            found[name]["itemsize"] = one.dtype.itemsize
    return {"described": found}


def _simple(value: Any) -> str | int | float | None:  # noqa: ANN401  # whatever an attribute holds
    if isinstance(value, bytes | str):
        return _text(value)[:_LONG]
    return value.item() if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf" else None


def _row(file: Any, names: list[str], number: int) -> dict[str, Any]:  # noqa: ANN401  # h5py is untyped
    row: dict[str, Any] = {}
    for name in names:
        try:
            value = _inside(file, name)[number]
        except UNREADABLE as error:
            raise ValueError(f"{name} cannot be read: {reason(error)}") from error
        if isinstance(value, bytes | str):
            row[name] = _text(value, errors="replace")
        else:
            row[name] = np.asarray(value) if np.asarray(value).dtype.kind in "biuf" else repr(value)[:_LONG]
    return row


def _rows(file: Any, name: str, begin: int, end: int) -> dict[str, Any]:  # noqa: ANN401  # h5py is untyped
    found = _inside(file, name)[begin:end]
    return {"rows": found if found.dtype.kind in "biuf" else [_text(value) for value in found]}


def _text(value: Any, errors: str = "strict") -> str:  # noqa: ANN401  # bytes, or what has a text
    return value.decode("utf-8", errors) if isinstance(value, bytes) else str(value)


def _read(requests: IO[bytes], answers: IO[bytes], seconds: int) -> None:
    reader = _OpenFile()
    while select.select([requests], [], [], IDLE_S)[0]:
        words = take_words(requests)
        signal.alarm(seconds)  # which ends a process without Python's help
        try:
            answer = reader.answer(**words)
        except UNREADABLE as error:
            answer = {"error": reason(error)}
        signal.alarm(0)
        put_words(answers, answer)


def _write(rows: IO[bytes], answers: IO[bytes]) -> NoReturn:
    """Datasets by key, then a row of each at a time, until one says that it was the last. The file is not closed in
    vain: where HDF5 could not write, it would try again."""
    import h5py

    try:
        head = take_words(rows)
        file: Any = h5py.File(head["path"], "w")  # type: ignore[no-untyped-call,attr-defined]
        datasets = {key: _dataset(file, key, head["length"], kind) for key, kind in head["columns"].items()}
        for key, value in head["attributes"].items():
            file.attrs[key] = value
        for number in range(head["length"]):
            for key, value in take_words(rows).items():
                datasets[key][number] = value
        file.flush()
        file.close()
        h5py.File(head["path"], "r").close()  # type: ignore[no-untyped-call,attr-defined]  # HDF5 looks at its length
        put_words(answers, {})
    except UNREADABLE as error:
        code = re.search(r"errno = (\d+)", str(error))
        put_words(answers, {"error": os.strerror(int(code[1])) if code else reason(error)})
    os._exit(0)


_CHUNK: Final = 1024  # rows


def _dataset(file: Any, key: str, length: int, kind: str) -> Any:  # noqa: ANN401  # h5py is untyped
    """What has a fixed length is checked by HDF5 when it is read; it has no checksum for references into its heap."""
    import h5py

    name, _, variable = kind.partition(" ")
    is_text = name == "text"
    dtype = h5py.string_dtype() if is_text else np.dtype(name)  # type: ignore[attr-defined]
    if variable:
        dtype = h5py.vlen_dtype(dtype)  # type: ignore[attr-defined]
    filters: dict[str, Any] = {"chunks": (min(_CHUNK, length),), "compression": "gzip", "shuffle": True}
    if not (is_text or variable):
        filters["fletcher32"] = True
    return file.create_dataset(key, (length,), dtype=dtype, **(filters if length else {}))


def main(words: list[str]) -> None:
    """Answer until the asking process ends, or write one file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that asks decides
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        if words[0] == "read":
            _read(asked, answers, int(words[1]))
        else:
            _write(asked, answers)
    except (EOFError, BrokenPipeError):  # who asked has ended
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
