"""HDF5 files that others made, read by another process, and files written by one (`hdf5_program.py` says why).

Two kinds of error: `ValueError`, of what HDF5 says itself; `UserError`, where it crashed or did not end.
"""

import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.python import python_m
from graphmill.graph.hdf5_program import put_words, take_words

ANSWER_WITHIN_S: Final = 60
_FIX: Final = "it seems to be damaged: fetch or write the file again"


@dataclass(frozen=True, slots=True)
class Described:
    """A dataset, or a group, which has no shape."""

    attributes: Mapping[str, Any]  # text and numbers, of those that were asked for
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    kind: str = ""  # numpy's letter
    itemsize: int = 0
    stored: int = 0  # bytes in the file


def tree(path: Path) -> dict[str, list[str] | None]:
    """The keys of a file, each with the keys below it; None: it is a dataset."""
    found: dict[str, list[str] | None] = _reader.ask(path, "tree")["tree"]
    return found


def described(path: Path, names: Sequence[str], attributes: Sequence[str] = ()) -> dict[str, Described]:
    """Datasets and groups by name ("/": the whole), with some of their attributes."""
    found = _reader.ask(path, "described", names=list(names), attributes=list(attributes))["described"]
    shaped = {
        name: {**one, "shape": tuple(one["shape"])} if one.get("shape") is not None else one
        for name, one in found.items()
    }
    return {name: Described(**one) for name, one in shaped.items()}


def row(path: Path, names: Sequence[str], number: int, *, keep: bool) -> dict[str, Any]:
    """The entry of that number in each dataset: numbers, vectors, or text. `keep`: more is asked for soon."""
    return _reader.ask(path, "row", keep=keep, names=list(names), number=number)


@dataclass(frozen=True, slots=True)
class Rows:
    """A dataset to be sliced: numbers as an array, all else as text."""

    path: Path
    name: str
    length: int

    def __getitem__(self, at: slice) -> NDArray[Any] | list[str]:
        """Rows in order."""
        begin, end, _ = at.indices(self.length)
        found: NDArray[Any] | list[str] = _reader.ask(
            self.path, "rows", keep=end < self.length, name=self.name, begin=begin, end=end
        )["rows"]
        return found


@dataclass(slots=True)
class _ReaderProcess:
    """The process that reads, for all threads, which ask one after another: HDF5 has a lock of its own."""

    _process: "subprocess.Popen[bytes] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, path: Path, what: str, *, keep: bool = False, **words: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the answer of the process; ValueError if it answers with an error, `UserError` if it ends."""
        request = {"path": str(path.absolute()), "what": what, "keep": keep, **words}
        with self._lock:
            answer = self._answer(request)
            if answer is None:  # it had ended, for it was not asked for a while
                answer = self._answer(request)
        if answer is None:
            raise UserError(f"{path} cannot be read as HDF5: the process that reads it ends", fix=_FIX)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._process is None:
            self._process = _start("read")
        process = self._process
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        try:
            put_words(process.stdin, request)
            return take_words(process.stdout)
        except (BrokenPipeError, EOFError):
            self._process = None
            status = _ended(process)
            if status == 0:
                return None
            raise UserError(f"{request['path']} cannot be read as HDF5: {_how(status)}", fix=_FIX) from None
        except BaseException:  # half an answer may be on its way
            self._process = None
            process.kill()
            _ended(process)
            raise


_reader: Final = _ReaderProcess()


def write_columns(
    path: Path,
    columns: Mapping[str, str],
    attributes: Mapping[str, int],
    rows: Iterable[Mapping[str, Any]],
    length: int,
) -> None:
    """Write `length` rows, one at a time. `columns`: "<f8", "<f8 variable" (a vector a row), or "text".

    `OSError`: it could not be written; half a file may lie there.
    """
    process = _start("write")
    assert process.stdin is not None, "a pipe"
    assert process.stdout is not None, "a pipe"
    try:
        with suppress(BrokenPipeError):  # its answer says why
            head = {"path": str(path.absolute()), "columns": columns, "attributes": attributes, "length": length}
            put_words(process.stdin, head)
            for each in rows:
                put_words(process.stdin, each)
        answer = take_words(process.stdout)
    except EOFError:
        raise OSError(_how(_ended(process))) from None
    except BaseException:
        process.kill()
        raise
    finally:
        _ended(process)
    if "error" in answer:
        raise OSError(answer["error"])


def _start(what: str) -> "subprocess.Popen[bytes]":
    words = python_m("graphmill.graph.hdf5_program", what, str(ANSWER_WITHIN_S))
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _ended(process: "subprocess.Popen[bytes]") -> int:
    """Close the pipes of a process, wait until it has ended, and return its exit status."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    return process.wait()


def _how(status: int) -> str:
    if status == -signal.SIGALRM:
        return f"reading did not end within {ANSWER_WITHIN_S} s"
    return f"HDF5 {f'crashed ({signal.Signals(-status).name})' if status < 0 else f'ended with status {status}'}"
