"""Readers of captures: every layout and every kind of bad line; lines that no one foresaw: test_fuzz.py."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.captures import Attack, iterate, layout_of, read_capture, road_attacks
from graphmill.tasks.intrusion.data.frames import EXTENDED, LATE, NO_LABEL, Problems, joined

CSV_HEADER = "timestamp,arbitration_id,data_field,attack"


def written(layout, rows):
    """`rows` of (microseconds, id with EXTENDED, bytes, label) as lines of `layout`."""
    return [
        LINES[layout](f"{us // 10**6}.{us % 10**6:06d}", identity, data, label) for us, identity, data, label in rows
    ]


def _digits(identity, standard):
    return f"{identity & ~int(EXTENDED):08X}" if identity & int(EXTENDED) else f"{identity:0{standard}X}"


LINES = {
    "csv": lambda time, identity, data, label: f"{time},{_digits(identity, 3)},{data.hex().upper()},{label}",
    "car-hacking": lambda time, identity, data, label: ",".join(
        [time, _digits(identity, 4).lower(), str(len(data)), *(f"{byte:02x}" for byte in data), "RT"[label]]
    ),
    "candump": lambda time, identity, data, label: f"({time}) can0 {_digits(identity, 3)}#{data.hex().upper()}",
    "crysys": lambda time, identity, data, label: (
        f"{time}        {_digits(identity, 4)}    000    {len(data)}    {data.hex(' ')}".rstrip()
    ),
}


FLAG = int(EXTENDED)
IDS = st.integers(0, 0x7FF) | st.integers(0, 2**29 - 1).map(lambda value: value | FLAG)


def rows(smallest):
    return st.lists(
        st.tuples(st.integers(0, 2 * 10**15), IDS, st.binary(min_size=smallest, max_size=8), st.integers(0, 1)),
        min_size=1,
        max_size=40,
    )


@pytest.mark.parametrize("layout", LINES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@given(data=st.data())
@settings(max_examples=40)
def test_what_is_written_is_read(tmp_path_factory, layout, newline, data):
    frames = data.draw(rows(1 if layout == "csv" else 0))
    path = tmp_path_factory.mktemp("capture") / "a.log"
    lines = ([CSV_HEADER] if layout == "csv" else []) + written(layout, frames)
    path.write_bytes((newline.join(lines) + data.draw(st.sampled_from(["", newline]))).encode())
    problems = Problems()
    parts = list(iterate(path, problems, layout, block_bytes=data.draw(st.integers(40, 400))))
    read = joined(parts)
    assert problems.num_lines == 0, str(problems)
    assert read.time.tolist() == [float(f"{us // 10**6}.{us % 10**6:06d}") for us, *_ in frames]
    assert read.id.tolist() == [identity for _, identity, *_ in frames]
    assert [bytes(row[:n]) for row, n in zip(read.payload, read.length, strict=True)] == [row[2] for row in frames]
    assert not any(row[n:].any() for row, n in zip(read.payload, read.length, strict=True))
    has_labels = layout in ("csv", "car-hacking")
    assert read.label.tolist() == [row[3] if has_labels else NO_LABEL for row in frames]


@pytest.mark.parametrize("layout", LINES)
def test_the_layout_is_told_by_the_lines(tmp_path, layout):
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n".join(written(layout, [(5, 0x1E5, b"\x01\x02", 0), (6, 0, b"\xff", 1)] * 3)))
    assert layout_of(path) == layout
    frames, problems = read_capture(path)
    assert frames.id.tolist() == [0x1E5, 0] * 3
    assert problems.counts == {LATE: 2}


GOOD = {
    "csv": "1.5,1E5,0102,0",
    "car-hacking": "1.5,0316,2,05,21,R",
    "candump": "(1.5) can0 123#0102",
    "crysys": "1.5 0110 000 2 05 21",
}
BAD = [
    ("csv", "1.5,1E5,010,0", "odd number"),
    ("csv", "1.5,1E5,00000000000000000,0", "more than 8 bytes"),
    ("csv", "1.5,1E5,01x2,0", "payload is not hex"),
    ("csv", "1.5,1G5,0102,0", "1 to 8"),
    ("csv", "1.5,0x1E5,0102,0", "1 to 8"),
    ("csv", "1.5,,0102,0", "1 to 8"),
    ("csv", "1.5,000001E5A,0102,0", "1 to 8"),
    ("csv", "1.5,2FFFFFFF,0102,0", "29 bits"),
    ("csv", "1.5,1E5,0102,2", "neither 0 nor 1"),
    ("csv", "1.5,1E5,0102", "number of fields"),
    ("csv", "1.5,1E5,0102,0,0", "number of fields"),
    ("csv", "1.5.5,1E5,0102,0", "timestamp"),
    ("csv", "-1.5,1E5,0102,0", "timestamp"),
    ("csv", ".,1E5,0102,0", "timestamp"),
    ("csv", "nan,1E5,0102,0", "timestamp"),
    ("csv", "", "empty line"),
    ("csv", "1.5,1E5,0102,0\x00", "binary"),
    ("candump", "(1.5) c\xe9n0 123#0102", "binary"),
    ("csv", "1" * 1_000_000, "256 bytes"),
    ("car-hacking", "1.5,0316,3,05,21,R", "dlc"),
    ("car-hacking", "1.5,0316,2,05,2,R", "two hexadecimal"),
    ("car-hacking", "1.5,0316,2,05,21,X", "neither R nor T"),
    ("car-hacking", "1.5,0316,9,1,2,3,4,5,6,7,8,9,R", "number of fields"),
    ("candump", "(1.5) can0 123##10102", "FD"),
    ("candump", "(1.5) can0 123#0102 7", "no label"),
    ("candump", "(1.5) can0 123#R", "remote"),
    ("candump", "(1.5) can0 123#R8", "remote"),
    ("candump", "(1.5) can0 20000004#0102", "error frame"),
    ("candump", "(1.5) can0 1234#0102", "3 or 8"),
    ("candump", "(1.5) can0 FFF#0102", "bits"),
    ("candump", "1.5 can0 123#0102", "not a line of candump"),
    ("candump", "(1.5) can0 123 0102", "not a line of candump"),
    ("candump", "() can0 123#0102", "not a line of candump"),
    ("candump", "(1.5) can0#123#0102", "not a line of candump"),
    ("crysys", "1.5 0110 000 3 05 21", "dlc"),
    ("crysys", "1.5 0110 100 2 05 21", "flags"),
]


@pytest.mark.parametrize(
    ("layout", "line", "problem"), BAD, ids=[f"{one}-{three}-{i}" for i, (one, _, three) in enumerate(BAD)]
)
def test_a_bad_line_is_counted_under_its_kind(tmp_path, layout, line, problem):
    path = tmp_path / "a"
    path.write_text("\n".join([GOOD[layout]] * 2 + [line] + [GOOD[layout]] * 2 + [line, GOOD[layout]]))
    frames, problems = read_capture(path, layout)
    assert len(frames) == 5
    ((kind, count),) = problems.counts.items()
    assert problem in kind
    assert (count, problems.first_lines[kind]) == (2, 3)


def test_times_that_fall_are_kept_and_told_across_blocks(tmp_path):
    path = tmp_path / "a"
    path.write_text("\n".join(f"{t}.0,123,00,0" for t in (5, 6, 4, 7, 3)) + "\n")
    for block_bytes in (1, 20, 2**20):
        problems = Problems()
        read = joined(list(iterate(path, problems, "csv", block_bytes=block_bytes)))
        assert read.time.tolist() == [5, 6, 4, 7, 3]
        assert (problems.counts, problems.first_lines, problems.num_lines) == ({LATE: 2}, {LATE: 3}, 0)


@pytest.mark.parametrize("text", [b"", b"\n", b"\x00\xff" * 500, b"{}\n[]\n", b"x" * 10**6])
def test_what_is_no_capture_is_refused_by_file_and_line(tmp_path, text):
    path = tmp_path / "no.log"
    path.write_bytes(text)
    with pytest.raises(UserError, match=r"no\.log"):
        read_capture(path)
    with pytest.raises(UserError, match=r"no\.log.*line"):
        read_capture(path, "csv")


def test_what_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(GOOD["csv"].encode() * 1000)[:-20])
    for name in ("absent.csv", "cut.csv.gz"):
        with pytest.raises(UserError, match=name):
            read_capture(tmp_path / name, "csv")


def test_road_says_what_its_attacks_are(tmp_path):
    path = tmp_path / "capture_metadata.json"
    fuzz = {"injection_interval": [0, 9], "injection_id": "XXX", "injection_data_str": "X" * 16}
    one = {"injection_interval": [1.0, 2.0], "injection_id": "0x6e0", "injection_data_str": "59X5" + "X" * 12}
    path.write_text(json.dumps({"fuzzing": fuzz, "signal": one, "accelerator": {"on_dyno": True}}))
    attacks = road_attacks(path)
    assert attacks["accelerator"] is None
    assert attacks["fuzzing"] == Attack(0.0, 9.0, None, "X" * 16)
    log = tmp_path / "signal.log"
    lines = [
        (0, "6E0", "5945"),
        (1, "6E0", "5945"),
        (1.5, "6E1", "5945"),
        (2, "6E0", "59F5"),
        (2, "6E0", "59F6"),
        (2.1, "6E0", "5945"),
    ]
    log.write_text("".join(f"({100 + time:.6f}) can0 {name}#{data}\n" for time, name, data in lines))
    assert read_capture(log, attack=attacks["signal"])[0].label.tolist() == [0, 1, 0, 1, 0, 0]
    path.write_text('{"a": {"injection_interval": [1]}}')
    with pytest.raises(UserError, match="metadata"):
        road_attacks(path)


def test_the_real_capture_as_python_reads_it(shared_data):
    path = shared_data("can/can-train-and-test/set_01/train_01/DoS-1.csv.gz")
    frames, problems = read_capture(path)
    with gzip.open(path, "rt") as file:
        lines = [line.rstrip().split(",") for line in file][1:]
    assert not problems.counts
    assert frames.time.tolist() == [float(line[0]) for line in lines]
    assert frames.id.tolist() == [int(line[1], 16) for line in lines]
    assert [bytes(row[:n]).hex().upper() for row, n in zip(frames.payload, frames.length, strict=True)] == [
        line[2] for line in lines
    ]
    assert frames.label.sum() == 9_139


def test_nothing_is_held_but_a_block(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        for _ in range(20):
            file.write("1672531200.000023,1E9,0010000C00580000,0\n" * 20_000)
    tracemalloc.start()
    count = sum(len(frames) for frames in iterate(path, Problems(), "csv"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 400_000
    assert peak < 64 * 2**20
