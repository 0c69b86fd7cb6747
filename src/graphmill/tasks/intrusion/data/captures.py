"""Read captures: which layout a file has, its frames a block at a time, and what was wrong with the other lines."""

import io
import itertools
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.packed import open_packed
from graphmill.tasks.intrusion.data.frames import EXTENDED, LATE, Frames, Problems, joined
from graphmill.tasks.intrusion.data.layouts import LAYOUTS, Layout
from graphmill.tasks.intrusion.data.lines import BLOCK_BYTES, Fields, Lines, hex_bytes, read_lines
from graphmill.tasks.recognise import Look, named, shaped, weak

_TIME_NAMES: Final = frozenset({"timestamp", "time", "time_stamp", "abs_time", "t"})
_ID_NAMES: Final = frozenset({"arbitration_id", "can_id", "canid", "id", "identifier", "id_hex"})
_LOOKED_AT_BYTES: Final = 2**14
_TRIED: Final = 200  # lines from which the layout is told
_UNREADABLE: Final = (OSError, EOFError, zlib.error)
_THREADS: Final = 2
_A_CAPTURE: Final = "give a capture: a line for each frame"
_MOST_BAD: Final = 0.5  # share of lines without a frame from which on a file is not a capture


@dataclass(frozen=True, slots=True)
class Attack:
    """Which frames of an unlabelled capture are attacks, as ROAD's metadata say it."""

    begin_s: float
    """Seconds after the first frame."""
    end_s: float
    id: int | None
    """None: frames of any id (fuzzing)."""
    data: str
    """16 hexadecimal digits, X where any digit is an attack."""

    def labels(self, frames: Frames, first_time: float) -> NDArray[np.int8]:
        """Labels of `frames`: 1 for each that is an attack."""
        elapsed = frames.time - first_time
        is_attack = (elapsed >= self.begin_s) & (elapsed <= self.end_s)
        if self.id is not None:
            is_attack &= (frames.id & ~EXTENDED) == self.id
        value, mask = _pattern(self.data)
        is_attack &= ((frames.payload & mask) == value).all(axis=1)
        return is_attack.astype(np.int8)


def read_capture(path: Path, layout: str = "auto", attack: Attack | None = None) -> tuple[Frames, Problems]:
    """The whole capture at `path`; `iterate` needs no memory for all of it."""
    problems = Problems()
    return joined(list(iterate(path, problems, layout, attack))), problems


def iterate(
    path: Path, problems: Problems, layout: str = "auto", attack: Attack | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[Frames]:
    """Frames of `path` (may end in .gz) a block at a time; lines that give none are noted in `problems`.

    Times that fall are kept in the order of the file, and noted. `attack` gives the labels of a capture without.

    Raises:
        UserError: the file cannot be read, is of no known layout, or most of its lines give no frame.
    """
    name = layout if layout != "auto" else layout_of(path)
    reached = _Reached()
    with _opened(path, reached) as file:
        yield from _frames(read_lines(file, block_bytes), str(path), problems, name, attack, reached, _THREADS)


def iterate_arriving(
    file: IO[bytes], source: str, problems: Problems, layout: str = "auto", num_missing: Callable[[], int] = lambda: 1
) -> Iterator[Frames]:
    """Read frames as `iterate` does, of a pipe: frames are given as soon as the ends of their lines have arrived.

    `file` has a method `read1`, as what `open` gives in binary mode; `source` names it in messages. `num_missing`: how
    many frames it takes before anything can be done with them; reading them one by one would cost more than the rest.
    """
    reached = _Reached()
    blocks = read_lines(cast("IO[bytes]", _Arriving(file, source, reached, num_missing)))
    if layout == "auto":
        layout, blocks = _with_layout(blocks, source)
    yield from _frames(blocks, source, problems, layout, None, reached)


@dataclass(slots=True)
class _Reached:
    """How many lines of a capture were read, but for its header."""

    num_lines: int = 0


@dataclass(frozen=True, slots=True)
class _Arriving:
    """A file whose `read` waits for `num_missing` ends of lines, and not for as many bytes as there may be."""

    file: Any
    source: str
    reached: _Reached
    num_missing: Callable[[], int]

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        wanted, num_bytes = self.num_missing(), 0
        while wanted > 0 and num_bytes < size:  # an end may never come
            try:
                parts.append(self.file.read1(size - num_bytes))
            except _UNREADABLE as error:
                raise _unreadable(self.source, self.reached, error) from error
            if not parts[-1]:
                break
            wanted -= parts[-1].count(b"\n")
            num_bytes += len(parts[-1])
        return b"".join(parts)


def _frames(
    blocks: Iterable[Lines],
    source: str,
    problems: Problems,
    layout: str,
    attack: Attack | None,
    reached: _Reached,
    threads: int = 0,
) -> Iterator[Frames]:
    if layout not in LAYOUTS:
        raise UserError(f"no layout is called {layout!r}", fix=f"one of {', '.join(LAYOUTS)}, or auto")
    last_time, first_time = -np.inf, None
    for num_lines, frames, numbers, found in _parsed(blocks, LAYOUTS[layout], threads):
        reached.num_lines += num_lines
        problems.include(found)
        if len(frames):
            before = np.concatenate([[last_time], frames.time[:-1]])
            problems.add(LATE, numbers[frames.time < before])
            last_time = frames.time[-1]
            first_time = frames.time[0] if first_time is None else first_time
        # Also where there is none: whoever watches a stream is to hear of its problems before it ends.
        yield frames if attack is None or first_time is None else _labelled(frames, attack, float(first_time))
    if not reached.num_lines:
        raise UserError(f"{source} holds no frame: there is no line in it, but perhaps a header", fix=_A_CAPTURE)
    if problems.num_lines > _MOST_BAD * reached.num_lines:
        raise UserError(
            f"{source}: {problems.num_lines:,} of {reached.num_lines:,} lines are no frames of the layout {layout}"
            f" ({problems})",
            fix=f"name its layout ({', '.join(LAYOUTS)}), or mend the file",
        )


def _parsed(
    blocks: Iterable[Lines], parse: Layout, threads: int
) -> Iterator[tuple[int, Frames, NDArray[np.int64], Problems]]:
    """Parse blocks: of each, its number of lines without a header, frames, their lines, and problems of other lines.

    `threads` blocks are parsed at once, and given in order; 0: each when it is asked for.
    """

    def one(lines: Lines) -> tuple[int, Frames, NDArray[np.int64], Problems]:
        problems = Problems()
        body = lines[1:] if lines.numbers[0] == 1 and _is_header(lines) else lines
        return len(body), *parse(body, problems), problems

    if threads == 0:
        yield from map(one, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        under_way: deque[Future[tuple[int, Frames, NDArray[np.int64], Problems]]] = deque()
        for lines in blocks:
            under_way.append(pool.submit(one, lines))
            if len(under_way) > threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def capture_look(path: Path) -> Look | None:
    """What says that the file is a capture; None: nothing does.

    A header that names an id, which no other task's files have; or a frame on one of the first lines, where a row of
    decimal numbers may be a frame, too.
    """
    try:
        with _opened(path) as file:  # which may be torn further on
            lines = next(read_lines(io.BytesIO(file.read(_LOOKED_AT_BYTES))), None)
    except UserError:
        return weak("its name is a capture's, and it is torn: give the whole capture")
    if lines is None:
        return None
    if _is_header(lines):
        return named("its header names the id of a frame")
    head = lines[:_TRIED]
    found = {name: parse(head, Problems())[1] for name, parse in LAYOUTS.items()}
    best = max(found, key=lambda name: len(found[name]))
    if not len(found[best]):
        return shaped("its first line is what candump shows on a screen") if _is_screen(lines) else None
    frames = head[np.isin(head.numbers, found[best])]
    text = b" ".join(head.data[begin:end].tobytes() for begin, end in zip(frames.begins, frames.ends, strict=True))
    is_sure = best == "candump" or bool(re.search(rb"[A-Fa-fRT]", text))
    reason = f"its first lines are frames of the layout {best}"
    return shaped(reason) if is_sure else weak(f"{reason}, or rows of numbers")


def layout_of(path: Path) -> str:
    """The layout whose frames most of the first lines are. `UserError` if no line is of any."""
    with _opened(path) as file:
        return _with_layout(itertools.islice(read_lines(file, 2**16), 1), str(path))[0]


def _with_layout(blocks: Iterator[Lines], source: str) -> tuple[str, Iterator[Lines]]:
    """The layout of the first frames that arrive, and all blocks."""
    held: list[Lines] = []
    for lines in blocks:
        held.append(lines)
        head = lines[:_TRIED]
        counts = {name: len(parse(head, Problems())[0]) for name, parse in LAYOUTS.items()}
        best = max(counts, key=counts.__getitem__)
        if counts[best]:
            return best, itertools.chain(held, blocks)
        if lines.numbers[-1] >= _TRIED:
            break
    if held and _is_screen(held[0]):
        raise UserError(
            f"{source} is in the format that candump shows on a screen, which is not read",
            fix="record it with candump -L CHANNEL, or candump -l: (time) channel id#bytes",
        )
    if sum(len(lines) for lines in held) <= sum(_is_header(lines) for lines in held[:1]):
        raise UserError(f"{source} holds no frame: there is no line in it, but perhaps a header", fix=_A_CAPTURE)
    raise UserError(
        f"{source}: none of its first lines (from line 1) is a frame of a layout that is known: {', '.join(LAYOUTS)}",
        fix="leave it out if it is no capture, name its layout if it begins with other text (prepare: -o layout=…;"
        " detect: --layout), or convert it to a log of candump",
    )


def road_attacks(path: Path) -> dict[str, Attack | None]:
    """Attack in each capture by ROAD's `capture_metadata.json`; None: attacked without a frame to name.

    `UserError` if it is not such a file.
    """
    try:
        captures = parse_json(path.read_text(encoding="utf-8"))
        return {str(name): _attack(facts) for name, facts in cast("dict[str, dict[str, Any]]", captures).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is not a metadata file of ROAD: {type(error).__name__}: {error}",
            fix="give the capture_metadata.json that lies beside the captures",
        ) from error


def _attack(facts: dict[str, Any]) -> Attack | None:
    interval = facts.get("injection_interval")
    if interval is None:
        return None
    begin, end = (float(each) for each in interval)
    name, data = str(facts["injection_id"]), str(facts.get("injection_data_str") or "X" * 16)
    identity = None if set(name.upper().removeprefix("0X")) <= {"X"} else int(name, 16)
    _pattern(data)
    return Attack(begin, end, identity, data)


def _pattern(data: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    digits = data.upper().ljust(16, "X")
    if len(digits) != 16 or set(digits) - set("0123456789ABCDEFX"):
        raise ValueError(f"{data!r} is not 16 hexadecimal digits or X")
    fixed = "".join("0" if digit == "X" else "F" for digit in digits)
    texts = np.frombuffer((digits.replace("X", "0") + fixed).encode(), np.uint8)
    both, _ = hex_bytes(Fields(texts, np.array([0, 16]), np.array([16, 32])))
    return both[0], both[1]


def _labelled(frames: Frames, attack: Attack, first_time: float) -> Frames:
    return Frames(frames.time, frames.id, frames.payload, frames.length, attack.labels(frames, first_time))


def _is_header(lines: Lines) -> bool:
    """Whether the first line has names of columns: one of a time, and one of an id."""
    first = lines.data[lines.begins[0] : lines.ends[0]].tobytes().removeprefix(b"\xef\xbb\xbf")
    words = re.split(r"[,;\t]", first.decode("latin-1").strip().lower().replace(" ", "_"))
    return not _TIME_NAMES.isdisjoint(words) and not _ID_NAMES.isdisjoint(words)


def _is_screen(lines: Lines) -> bool:
    """Whether the first line is of candump without -l or -L: channel, id, [length], bytes, perhaps a time before."""
    first = lines.data[lines.begins[0] : lines.ends[0]].tobytes()
    return bool(re.search(rb"\s[0-9A-Fa-f]{3,8}\s+\[\d{1,2}\](\s|$)", first))


@contextmanager
def _opened(path: Path, reached: _Reached | None = None) -> Iterator[IO[bytes]]:
    try:
        with open_packed(path) as file:
            yield file
    except _UNREADABLE as error:
        raise _unreadable(str(path), reached, error) from error


def _unreadable(source: str, reached: _Reached | None, error: Exception) -> UserError:
    where = "" if reached is None else f" behind line {reached.num_lines:,}"
    if reached is not None and not reached.num_lines:
        where = " within its first block of lines"
    return UserError(f"{source} cannot be read{where}: {error}", fix="give a whole capture, and the right to read it")
