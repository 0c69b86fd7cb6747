"""From captures to windows at rest: what is kept, what is refused, and which split a window is in."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from capture_text import csv_of

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.captures import read_capture
from graphmill.tasks.intrusion.data.frames import EXTENDED
from graphmill.tasks.intrusion.data.generate import captures
from graphmill.tasks.intrusion.data.prepare import GENERATED, holds_captures, prepare_requested
from graphmill.tasks.intrusion.data.road import read_npz
from graphmill.tasks.intrusion.data.splits import SPLITS, UNUSED
from graphmill.tasks.intrusion.data.store import CaptureStore, id_columns, ids_of_columns
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from graphmill.tasks.intrusion.page import CaptureDatasetSpec, CapturePrepareOptions, DivisionSpec
from graphmill.tasks.recognise import recognised
from graphmill.tasks.stores import Preparation


def prepared(root: Path, source: Path | None = None, name: str = "mine", **options) -> CaptureStore:
    asked = Preparation(GENERATED if source is None else name, root, CapturePrepareOptions(**options), from_path=source)
    return prepare_requested(asked)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> CaptureStore:
    return prepared(tmp_path_factory.mktemp("can"), seconds=30)


def test_generated_captures_are_a_function_of_the_seed():
    one, other = (dict(captures(10, seed)) for seed in (1, 2))
    assert list(one) == ["benign", "dos", "fuzzing", "spoofing"]
    for name, again in captures(10, 1):
        assert np.array_equal(one[name].id, again.id)
        assert np.array_equal(one[name].payload, again.payload)
        assert (np.diff(again.time) >= 0).all()
        assert (again.label.max() == 1) == (name != "benign")
        assert not np.array_equal(one[name].id, other[name].id)
    known = set(np.unique(one["benign"].id))
    assert set(np.unique(one["spoofing"].id)) == known
    assert set(np.unique(one["dos"].id)) == known | {0}


def test_ids_are_exact_in_two_columns_of_float32():
    ids = np.array([0, 1, 0x7FF, 0xFFFF, 0x10000, (1 << 29) - 1, ((1 << 29) - 1) | EXTENDED], np.uint32)
    assert np.array_equal(ids_of_columns(id_columns(ids)), ids)


def test_a_file_gives_what_its_frames_give(tmp_path, store):
    """The same windows from text, plain or compressed, as from the frames themselves."""
    folder = tmp_path / "logs"
    (folder / "train").mkdir(parents=True)
    made = dict(captures(30, 0))
    (folder / "train" / "dos.csv").write_text(csv_of(made["dos"]))
    with gzip.open(folder / "benign.csv.gz", "wt") as file:
        file.write(csv_of(made["benign"]))
    assert holds_captures(folder)
    found = prepared(tmp_path, folder)
    assert [each.name for each in found.metadata.captures] == ["benign.csv.gz", "train/dos.csv"]
    theirs = {each.name: number for number, each in enumerate(store.metadata.captures)}
    for number, name in ((0, "benign"), (1, "dos")):
        rows, others = found.capture == number, store.capture == theirs[name]
        one, other = found.windows().chosen(rows), store.windows().chosen(others)
        assert np.array_equal(one.node_ids, other.node_ids)
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.edge_index, other.edge_index)
        assert np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize("first", ["timestamp,arbitration_id,data_field,attack", "1.5,1E5,0102,0"])
def test_a_plain_table_of_frames_is_a_capture_and_no_series(tmp_path, first):
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n0.5,0F9,0102,0\n")
    assert recognised(path)[0].name == "intrusion"
    path.write_text("timestamp,a,b,c\n1700000000,1,20,0\n")
    assert recognised(path)[0].name == "traffic"
    path.write_text("1700000000,1,20,0\n")
    with pytest.raises(UserError, match="--task traffic or --task intrusion"):
        recognised(path)


def bad_capture(tmp_path, bad, attack=0):
    path = tmp_path / "a.csv"
    rows = [
        f"{number}.5,1E5,01{'' if number < bad else '02'},{attack if number < bad else number % 2}"
        for number in range(400)
    ]
    path.write_text("timestamp,arbitration_id,data_field,attack\n" + "\n".join(rows).replace(",01,", ",0,") + "\n")
    return path


def test_frames_without_payload_are_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{number}.5,1E5,{'' if number % 2 else '0102'},{number % 2}\n" for number in range(400)))
    found = prepared(tmp_path, path).metadata.captures[0]
    assert (found.num_frames, found.num_attacked, found.problems) == (400, 200, "")


def test_a_sort_of_bad_lines_above_its_share_is_an_error_whose_advice_works(tmp_path):
    path = bad_capture(tmp_path, 5)
    with pytest.raises(UserError, match="odd number of digits, first in line 2;") as caught:
        prepared(tmp_path, path)
    share = float(re.search(r"bad_lines=([\d.]+)", caught.value.fix)[1])
    found = prepared(tmp_path, path, bad_lines=share).metadata.captures[0]
    assert found.num_frames == 395


def test_bad_lines_that_are_labelled_as_attacks_are_an_error_unless_asked_for(tmp_path):
    path = bad_capture(tmp_path, 2, attack=1)
    with pytest.raises(UserError, match="2 lines that are labelled as attacks") as caught:
        prepared(tmp_path, path)
    share = float(re.search(r"bad_lines=([\d.]+)", caught.value.fix)[1])
    assert prepared(tmp_path, path, bad_lines=share).metadata.captures[0].num_frames == 398
    benign = bad_capture(tmp_path, 2)
    assert prepared(tmp_path / "benign", benign).metadata.captures[0].num_frames == 398


@pytest.mark.parametrize("after", ["bytes", "flag"])
def test_cells_that_a_program_for_tables_filled_up_are_no_bytes(tmp_path, after):
    path = tmp_path / "a.csv"
    rows = []
    for number in range(300):
        cells = ["05", "21"][: number % 3]
        empty = [""] * (8 - len(cells))
        rest = [*cells, *empty, "R"] if after == "bytes" else [*cells, "R", *empty]
        rows.append(",".join([f"{number}.5", "0316", str(len(cells)), *rest]))
    path.write_text("Timestamp,CAN ID,DLC,D0,D1,D2,D3,D4,D5,D6,D7,Flag\n" + "\n".join(rows) + "\n")
    frames, problems = read_capture(path)
    assert not problems.counts
    assert frames.length.tolist() == [number % 3 for number in range(300)]
    assert recognised(path)[0].name == "intrusion"


def test_the_last_field_of_candump_is_a_label_where_it_is_0_or_1(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"({number}.5) can0 153#2080 {number % 2}\n" for number in range(300)))
    found = prepared(tmp_path, path).metadata.captures[0]
    assert (found.num_frames, found.num_attacked) == (300, 150)


def test_what_candump_shows_on_a_screen_is_named_with_what_to_type(tmp_path):
    path = tmp_path / "a.log"
    for before in ("", " (1700000000.010000)", " (2023-11-14 22:13:20.010000)"):
        path.write_text(f"{before}  can0  0F1   [8]  72 98 05 96 C1 0E 8D 71\n" * 300)
        assert recognised(path)[0].name == "intrusion"
        with pytest.raises(UserError, match="candump -L"):
            read_capture(path)


def test_windows_come_back_as_they_were_made(store):
    """Edges in another order, by target; all else the same."""
    made = joined_graphs([graphs for _, frames in captures(30, 0) for graphs in graphs_of([frames], Leftover())])
    found = store.windows()
    for name in ("num_nodes", "num_edges", "node_ids", "x", "attack_share", "times", "first_frames"):
        assert np.array_equal(getattr(found, name), getattr(made, name)), name
    firsts = [np.repeat(np.cumsum(each.num_nodes) - each.num_nodes, each.num_edges) for each in (made, found)]
    keys = [
        np.lexsort((each.edge_index[0], each.edge_index[1] + first))
        for each, first in zip((made, found), firsts, strict=True)
    ]
    assert np.array_equal(made.edge_index[:, keys[0]], found.edge_index[:, keys[1]])
    assert np.array_equal(made.edge_attr[keys[0]], found.edge_attr[keys[1]])


def test_the_first_attack_of_a_window(store):
    """Between its first and its last frame, and only where there is one."""
    times, attacked = np.asarray(store.times), np.asarray(store.labels) == 1
    assert np.array_equal(np.isfinite(times[:, 2]), attacked)
    assert (times[attacked, 0] <= times[attacked, 2]).all()
    assert (times[attacked, 2] <= times[attacked, 1]).all()


def codes(store: CaptureStore, **asked) -> dict[str, set[str]]:
    """Of each split the captures that have windows in it."""
    found = store.split_codes(DivisionSpec(**asked))
    names = np.array([each.name for each in store.metadata.captures])
    return {
        split: set(names[np.unique(store.capture[found == code])])
        for split, code in [*zip(SPLITS, range(3), strict=True), ("none", UNUSED)]
    }


ALL = {"benign", "dos", "fuzzing", "spoofing"}


@pytest.mark.parametrize(
    ("asked", "train", "val", "test", "none"),
    [
        ({}, ALL, ALL, ALL, set()),
        ({"test_captures": ["dos"]}, ALL - {"dos"}, ALL - {"dos"}, {"dos"}, set()),
        ({"test_captures": ["dos"], "val_captures": ["f*"]}, {"benign", "spoofing"}, {"fuzzing"}, {"dos"}, set()),
        ({"val_captures": ["f*"]}, ALL - {"fuzzing"}, {"fuzzing"}, ALL - {"fuzzing"}, set()),
        ({"train_captures": ["dos", "benign"]}, *[{"dos", "benign"}] * 3, {"fuzzing", "spoofing"}),
        (
            {"train_captures": ["dos"], "test_captures": ["benign"]},
            {"dos"},
            {"dos"},
            {"benign"},
            ALL - {"dos", "benign"},
        ),
    ],
)
def test_captures_are_in_the_splits_that_were_asked_for(store, asked, train, val, test, none):
    assert codes(store, **asked) == {"train": train, "val": val, "test": test, "none": none}


def test_stretches_of_a_capture_are_divided_by_time_with_a_gap(store):
    """Whatever the number of stretches: no window beside one of another split."""
    for blocks in (2, 5, 10):
        found = store.split_codes(DivisionSpec(blocks=blocks))
        beside = (np.diff(store.capture) == 0) & (found[1:] >= 0) & (found[:-1] >= 0)
        assert (found[1:][beside] == found[:-1][beside]).all()
        for number in range(4):
            own = found[store.capture == number]
            assert np.count_nonzero(np.diff(own[own >= 0]) != 0) == 3 * blocks - 1


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"test_captures": ["nothing*"]}, "no capture is called 'nothing"),
        ({"test_captures": ["dos"], "val_captures": ["d*"]}, "dataset.val_captures and dataset.test_captures: dos"),
        ({"test_captures": ["*"]}, "no window in train"),
    ],
)
def test_divisions_that_cannot_be(store, asked, says):
    with pytest.raises(UserError, match=says):
        store.info(CaptureDatasetSpec(**asked))


def test_a_capture_may_not_be_in_two_splits(tmp_path):
    folder = tmp_path / "twice"
    folder.mkdir()
    made = dict(captures(5, 0))["benign"]
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text(csv_of(made))
    found = prepared(tmp_path, folder)
    found.split_codes(DivisionSpec())  # by time both are cut at the same frames
    with pytest.raises(UserError, match=r"a.csv .* and b.csv \(test\)"):
        found.split_codes(DivisionSpec(test_captures=("b.csv",)))


def test_a_capture_without_labels_is_benign_only_if_somebody_says_so(tmp_path):
    frames = dict(captures(5, 0))["benign"]
    lines = [
        f"({frames.time[row]:.6f}) can0 {frames.id[row]:03X}#{frames.payload[row].tobytes().hex().upper()}"
        for row in range(len(frames))
    ]
    (tmp_path / "ambient.log").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"ambient.log does not say of .* frames"):
        prepared(tmp_path, tmp_path / "ambient.log")
    assert prepared(tmp_path, tmp_path / "ambient.log", unlabelled="benign").metadata.num_attacked == 0
    about = {"ambient": {"injection_interval": [1.0, 2.0], "injection_id": f"0x{frames.id[0]:X}"}}
    (tmp_path / "capture_metadata.json").write_text(json.dumps(about))
    assert prepared(tmp_path, tmp_path / "ambient.log", name="road").metadata.num_attacked > 0


def test_a_capture_too_short_for_a_window_is_named(tmp_path):
    (tmp_path / "short.csv").write_text(csv_of(dict(captures(5, 0))["benign"][:99]))
    with pytest.raises(UserError, match=r"short\.csv has 99 frames, and a window is 100"):
        prepared(tmp_path, tmp_path / "short.csv")
    assert not (tmp_path / "mine").exists()


def test_arrays_of_road(tmp_path):
    """No times: they are not known, rather than 0."""
    rng = np.random.default_rng(0)
    number = 1000
    given = {
        "can_id": rng.integers(0, 3000, number),
        "data": rng.integers(0, 256, (number, 8)),
        "label": np.zeros(number),
    }
    given["label"][500:600] = 1
    np.savez(tmp_path / "a.npz", **given)
    found = read_npz(tmp_path / "a.npz")
    assert np.isnan(found.time).all()
    assert np.array_equal(found.id & ~EXTENDED, given["can_id"])
    assert np.array_equal(found.id & EXTENDED != 0, given["can_id"] >= 0x800)
    store = prepared(tmp_path, tmp_path / "a.npz")
    assert np.flatnonzero(store.labels).tolist() == [5]
    assert np.isnan(store.times).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": np.full((10, 8), 256)}, "row 0 of data"),
        ({"can_id": np.arange(9)}, "data is"),
        ({"can_id": np.full(10, 1 << 29)}, "row 0 of can_id"),
        ({"label": np.full(10, 0.5)}, "row 0 of label"),
        ({"label": np.full(10, np.nan)}, "row 0 of label"),
        ({"can_id": np.array(["a"] * 10)}, "can_id is"),
        ({"label": None}, "lacks label"),
        ({"can_id": np.array([None] * 10, object)}, "cannot be read"),
    ],
)
def test_arrays_that_are_no_capture(tmp_path, change, says):
    given = {"can_id": np.arange(10), "data": np.zeros((10, 8)), "label": np.zeros(10), **change}
    np.savez(tmp_path / "a.npz", **{name: array for name, array in given.items() if array is not None})
    with pytest.raises(UserError, match=says):
        read_npz(tmp_path / "a.npz")
