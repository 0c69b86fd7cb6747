"""Captures with mishaps, against a slow reader that was written from the layouts' definitions and shares no code.

Whatever stands in a file, each line gives the frame that it says or is counted under its number, or the file is refused
with a `UserError`: no other exception, and never another id than the line says.
"""

import gzip
import random
import re
from dataclasses import dataclass, field

import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.captures import iterate, layout_of
from graphmill.tasks.intrusion.data.frames import LATE, Problems, joined
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of

EXTENDED = 1 << 31
HEADER = "timestamp,arbitration_id,data_field,attack"
TIME = r"(?P<time>[0-9]+\.?[0-9]*|\.[0-9]+)"
HEX_ID = r"(?P<id>[0-9A-Fa-f]{1,8})"
BYTES = r"(?:[0-9A-Fa-f]{2})"
LAST = r"(?: (?:(?P<label>[01])|[RTrt][^ #]?))?"
LINE = {
    "csv": rf"{TIME},{HEX_ID},(?P<data>{BYTES}{{0,8}}),(?P<label>[01])",
    "car-hacking": rf"{TIME},{HEX_ID},(?P<dlc>[0-8])(?P<data>(?:,{BYTES}){{0,8}}),{{0,8}}?,(?P<label>[RT]),{{0,8}}",
    "candump": rf"\({TIME}\) [^ #]* (?P<id>[0-9A-Fa-f]{{3}}|[0-9A-Fa-f]{{8}})#(?P<data>{BYTES}{{0,8}}){LAST}",
    "crysys": rf"{TIME} +{HEX_ID} +0{{1,8}} +(?P<dlc>[0-8])(?P<data>(?: +{BYTES}){{0,8}})",
}


@dataclass
class Slowly:
    """What a capture says, line by line."""

    frames: list = field(default_factory=list)
    bad: list = field(default_factory=list)
    late: list = field(default_factory=list)
    num_lines: int = 0


def slowly(content, layout):
    read = Slowly()
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\r")
        if number == 1 and text.removeprefix(b"\xef\xbb\xbf").decode("latin-1").strip().lower() == HEADER:
            continue
        read.num_lines += 1
        frame = _frame(text, layout)
        if frame is None:
            read.bad.append(number)
            continue
        if read.frames and frame[0] < read.frames[-1][0]:
            read.late.append(number)
        read.frames.append(frame)
    return read


def _frame(line, layout):
    """(time, id, payload, label) or None; id and payload by Python's own int() and bytes.fromhex()."""
    if len(line) > 256 or not all(0x20 <= byte <= 0x7E for byte in line):
        return None
    found = re.fullmatch(LINE[layout], line.decode("ascii"))
    if found is None or len(found["time"]) > 24:
        return None
    if layout == "car-hacking" and line.count(b",") > 11:  # with the empty cells that fill a row up
        return None
    parts = found.groupdict()
    identity, data = int(parts["id"], 16), bytes.fromhex(parts["data"].replace(",", " "))
    is_long = len(parts["id"]) == 8
    most = 2**29 if is_long or layout != "candump" else 2**11
    if identity >= most or ("dlc" in parts and int(parts["dlc"]) != len(data)):
        return None
    if is_long or identity >= 2**11:
        identity |= EXTENDED
    return float(parts["time"]), identity, data, {"0": 0, "1": 1, "R": 0, "T": 1, None: -1}[parts.get("label")]


def _written(rng, layout, place):
    """A good line, as the set's own authors write it."""
    time, label = f"{1478198376 + place // 1000}.{place % 1000:03d}{rng.randrange(1000):03d}", rng.random() < 0.2
    standard = rng.random() < 0.8
    identity = rng.choice(["000", "1E5", "1e5", "0E1", "7FF", "123"]) if standard else f"{rng.randrange(2**29):08X}"
    data = rng.randbytes(rng.randint(1, 8))
    padded = identity.rjust(4, "0")
    match layout:
        case "csv":
            return f"{time},{identity},{data.hex().upper()},{int(label)}"
        case "car-hacking":
            return ",".join([time, padded, str(len(data)), *(f"{byte:02x}" for byte in data), "RT"[label]])
        case "candump":
            return f"({time}) can0 {identity}#{data.hex().upper()}" + rng.choice(["", " R", " T"])
        case "crysys":
            return f"{time}        {padded}    000    {len(data)}    {data.hex(' ')}"


def _swapped(rng, line, pattern, texts):
    """`line` with one place that matches `pattern` replaced by one of `texts`."""
    found = list(re.finditer(pattern, line))
    if not found:
        return line
    at = rng.choice(found)
    return line[: at.start()] + rng.choice(texts) + line[at.end() :]


HEX_RUN = rb"(?<=[,# ])[0-9A-Fa-f]{2,16}(?=[, ]|$)"
MISHAPS = {
    "cut short": lambda rng, line: line[: rng.randint(0, len(line))],
    "begin lost": lambda rng, line: line[rng.randint(0, len(line)) :],
    "a digit lost": lambda rng, line: _swapped(rng, line, rb"[0-9A-Fa-f]", [b""]),
    "a digit too many": lambda rng, line: _swapped(rng, line, rb"(?=[0-9A-Fa-f])", [b"0", b"F"]),
    "no payload": lambda rng, line: _swapped(rng, line, HEX_RUN, [b""]),
    "17 digits": lambda rng, line: _swapped(rng, line, HEX_RUN, [b"0123456789abcdef0", b"0" * 17, b"A" * 18]),
    "other ids": lambda rng, line: _swapped(
        rng,
        line,
        HEX_RUN,
        [b"1E5", b"000", b"1e5", b"0x1E5", b"1E+5", b"100000.0", b"0", b"FFF", b"1FFFFFFF", b"20000000", b"000001E5A"],
    ),
    "other signs": lambda rng, line: _swapped(
        rng, line, rb"[0-9A-Fa-f]", [b"g", b"O", b"-", b"+", b"_", b".", b" ", b"\xd9\xa1", b"\xef\xbc\x91"]
    ),
    "a separator": lambda rng, line: _swapped(
        rng, line, rb"[,# ]", [b"", b",", b",,", b" ", b"  ", b"#", b"##", b"\t"]
    ),
    "time before": lambda rng, line: _swapped(
        rng, line, rb"[0-9]{10}", [b"1478198000", b"0", b"9" * 10, b"9" * 30, b""]
    ),
    "time strange": lambda rng, line: _swapped(
        rng,
        line,
        rb"[0-9]{10}\.[0-9]+",
        [b"nan", b"inf", b"1e9", b"-1.0", b"1.2.3", b".", b"7.", b".7", b"9" * 18 + b".999"],
    ),
    "returns": lambda rng, line: line + rng.choice([b"\r", b"\r\r", b" \r"]),
    "a return within": lambda rng, line: _swapped(rng, line, rb"(?=.)", [b"\r"]),
    "binary": lambda rng, line: rng.randbytes(rng.randint(0, 300)).replace(b"\n", b""),
    "a byte": lambda rng, line: _swapped(rng, line, rb".", [bytes([rng.choice([*range(10), *range(11, 256)])])]),
    "zeros": lambda rng, line: b"\0" * rng.randint(1, 5000),
    "twice": lambda rng, line: line * 2,
    "long": lambda rng, line: (line + rng.choice([b"", b"0", b",", b" "])) * rng.choice([6, 200]),
    "a million": lambda rng, line: (line * (10**6 // max(len(line), 1) + 1))[: 10**6],
    "another layout": lambda rng, line: _written(rng, rng.choice(list(LINE)), 5).encode(),
    "remote": lambda rng, line: _swapped(rng, line, HEX_RUN, [b"R", b"R8", b"#1AABB"]),
    "empty": lambda rng, line: rng.choice([b"", b" ", b",,,", b"#", b"()"]),
}


def _case(number):
    """A capture with mishaps of one or two sorts in a few or most of its lines."""
    rng = random.Random(number)
    layout = list(LINE)[number % len(LINE)]
    lines = [_written(rng, layout, place).encode() for place in range(60)]
    sorts = [list(MISHAPS)[number // len(LINE) % len(MISHAPS)], rng.choice(list(MISHAPS))]
    rare = {"a million"}
    for place in rng.sample(range(60), rng.choice([1, 3, 12, 55])):
        sort = rng.choice(sorts)
        lines[place] = MISHAPS[sort](rng, lines[place])
        if sort in rare:
            sorts = [each for each in sorts if each not in rare] or ["cut short"]
    if layout == "csv" and rng.random() < 0.7:
        lines.insert(0, rng.choice([b"", b"\xef\xbb\xbf"]) + HEADER.encode())
    newline = rng.choice([b"\n", b"\n", b"\r\n"])
    return layout, newline.join(lines) + rng.choice([b"", newline]), rng.choice([1, 7, 64, 1000, 2**21])


def _agrees(path, content, layout, block_bytes):
    wanted, problems = slowly(content, layout), Problems()
    if 2 * len(wanted.bad) > wanted.num_lines or not wanted.num_lines:
        with pytest.raises(UserError, match=f"line {wanted.bad[0]}\\b" if wanted.bad else path.name):
            list(iterate(path, problems, layout, block_bytes=block_bytes))
        return "refused"
    frames = joined(list(iterate(path, problems, layout, block_bytes=block_bytes)))
    assert frames.time.tolist() == [frame[0] for frame in wanted.frames]
    assert frames.id.tolist() == [frame[1] for frame in wanted.frames]
    assert [bytes(row[:n]) for row, n in zip(frames.payload, frames.length, strict=True)] == [
        frame[2] for frame in wanted.frames
    ]
    assert frames.label.tolist() == [frame[3] for frame in wanted.frames]
    assert problems.num_lines == len(wanted.bad)
    assert problems.counts.pop(LATE, 0) == len(wanted.late)
    assert problems.first_lines.pop(LATE, None) == (wanted.late or [None])[0]
    assert set(problems.first_lines.values()) <= set(wanted.bad)
    assert min(problems.first_lines.values(), default=None) == (wanted.bad or [None])[0]
    sum(len(graphs) for graphs in graphs_of([frames], Leftover(), size=10, stride=7, keep_short=True))
    return "read"


@pytest.mark.parametrize(
    "first", [0, 300, *(pytest.param(first, marks=pytest.mark.slow) for first in (100, 200, 400, 500))]
)
def test_every_line_gives_what_it_says_or_is_counted(tmp_path, first):
    ends = []
    for number in range(first, first + 100):
        layout, content, block_bytes = _case(number)
        if len(content) > 10**5:
            block_bytes = max(block_bytes, 4096)  # smaller ones take long here, and are tried with short files
        path = tmp_path / str(number)
        path.write_bytes(content)
        ends.append(_agrees(path, content, layout, block_bytes))
    assert ends.count("read") > 60
    assert "refused" in ends


def test_the_layout_that_is_told_is_one_that_the_lines_have(tmp_path):
    for number in range(100):
        layout, content, _ = _case(number)
        path = tmp_path / str(number)
        path.write_bytes(content)
        counts = {name: len(slowly(content, name).frames) for name in LINE}
        if 2 * counts[layout] > 60:
            assert layout_of(path) == layout


@pytest.mark.parametrize("number", range(40))
def test_a_compressed_capture_that_is_cut_or_damaged_is_refused_with_what_was_read(tmp_path, number):
    rng = random.Random(number)
    lines = [_written(rng, "csv", place) for place in range(3000)]
    whole = gzip.compress("\n".join(lines).encode())
    at = rng.randrange(1, len(whole))
    torn = whole[:at] if number % 2 else whole[:at] + bytes([whole[at] ^ rng.randrange(1, 256)]) + whole[at + 1 :]
    path = tmp_path / "a.csv.gz"
    path.write_bytes(torn)
    read, refused = _until_refused(iterate(path, Problems(), "csv", block_bytes=4096))
    frames = joined(read)
    if number % 2 == 0 and not refused:
        assert len(frames) == 3000  # a changed byte of gzip's own header may mean nothing
        return
    assert "a.csv.gz" in refused
    assert "line" in refused
    if number % 2:
        said = slowly("\n".join(lines).encode(), "csv").frames[: len(frames)]
        assert frames.time.tolist() == [frame[0] for frame in said]
        assert frames.id.tolist() == [frame[1] for frame in said]


def _until_refused(blocks):
    """The blocks before a `UserError`, and what it says; "" without."""
    read = []
    try:
        read.extend(blocks)
    except UserError as error:
        return read, str(error)
    return read, ""
