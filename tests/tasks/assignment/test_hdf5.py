"""HDF5 files in the seed's layout: a round trip loses nothing, and what is damaged is named by record."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from assignment_problems import as_the_seed_writes_it, contents, prepared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from slow_cases import num_examples

from graphmill.base.errors import UserError
from graphmill.base.files import leftovers
from graphmill.graph import hdf5
from graphmill.tasks.assignment.data.files import ProblemFiles, write_hdf5
from graphmill.tasks.assignment.data.hdf5 import Hdf5Records, holds_records, split_by_name, write_records
from graphmill.tasks.assignment.data.instance import About, Instance, RecordError, solved
from graphmill.tasks.assignment.data.oracle import InfeasibleError, solve_exactly
from graphmill.tasks.assignment.data.sources import sources_in
from graphmill.tasks.assignment.page.data import AssignmentPrepareOptions

FINITE = st.floats(-1e6, 1e6, width=32)
MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FINITE | st.just(np.inf))
)


def feasible(costs) -> bool:
    try:
        solve_exactly(costs)
    except InfeasibleError:
        return False
    return True


ABOUTS = st.builds(
    About,
    family=st.sampled_from(["uniform", "own", "émile"]),
    size=st.integers(1, 99),
    tag=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    noise_std=st.floats(0, 1, width=32),
    sequence=st.integers(-1, 3),
    frame=st.integers(-1, 9),
)


@settings(max_examples=num_examples(8, explored=40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(MATRICES.filter(feasible), ABOUTS), max_size=6))
def test_records_come_back_as_they_were_written(tmp_path, given_instances):
    path = tmp_path / "all.h5"
    written = [solved(costs, about) for costs, about in given_instances]
    write_records(path, iter(written), len(written))
    read = Hdf5Records(path, split=None, duals="stored")
    assert len(read) == len(written)
    for number, one in enumerate(written):
        other = read.instance(number)
        assert np.array_equal(one.costs, other.costs)
        assert np.array_equal(one.columns, other.columns)
        for name in ("u", "v"):
            np.testing.assert_allclose(
                getattr(other, name), getattr(one, name), rtol=0, atol=1e-12 * np.abs(getattr(one, name)).max()
            )
        assert (one.optimum, one.about) == (other.optimum, other.about)
        assert read.summary(number) == (one.about, one.shape)


@pytest.mark.slow
def test_a_store_comes_back_by_way_of_hdf5(tmp_path, small):
    written = write_hdf5(small, tmp_path / "h5")
    assert [path.name for path in written] == ["train.h5", "val.h5", "test.h5"]
    again = prepared(tmp_path, tmp_path / "h5", duplicates="keep")
    assert len(again) == len(small)
    ids = np.concatenate([small.instances(split) for split in ("train", "val", "test")])
    for name in (
        "fingerprints",
        "shapes",
        "sizes",
        "frames",
        "noise_std",
        "optima",
    ):
        assert np.array_equal(again.array(name), np.asarray(small.array(name))[ids])
    assert [again.tag(each) for each in range(len(again))] == [small.tag(each) for each in ids.tolist()]
    for here, there in enumerate(ids.tolist()):
        assert np.array_equal(again.row_ids(here), small.row_ids(there))
    assert [again.family(each) for each in range(len(again))] == [small.family(each) for each in ids.tolist()]
    assert {split: len(again.instances(split)) for split in ("train", "val", "test")} == {
        split: len(small.instances(split)) for split in ("train", "val", "test")
    }
    assert again.metadata.num_sequences == small.metadata.num_sequences
    again.verify()


def test_one_file_is_written_chunked_and_compressed(tmp_path, small):
    write_hdf5(small, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file.attrs["records"] == len(small)
        assert {*file} >= {"C", "u", "v", "rows", "cols", "cost", "n", "family", "noise_std", "tag"}
        assert (file["cost"].compression, file["cost"].fletcher32, file["C"].compression) == ("gzip", True, "gzip")
        for at in (0, 55, 199):
            assert np.array_equal(file["C"][at].reshape(small.shape(at)), small.cost(at))
            assert file["family"][at].decode() == small.family(at)
            assert file["n"][at] == small.shape(at)[0]
            costs = small.cost(at)[file["rows"][at], file["cols"][at]]
            assert costs.sum() == pytest.approx(file["cost"][at], rel=1e-12)


def test_a_file_of_the_seeds_own_writer_is_read(tmp_path, small):
    path = tmp_path / "train.h5"
    ids = [n for n in range(len(small)) if small.family(n) != "tracking"]
    as_the_seed_writes_it(path, small, ids)
    assert holds_records(path)
    records = Hdf5Records(path, split=split_by_name(path), duals="stored")
    for number, each in enumerate(ids):
        found = records.instance(number)
        assert np.array_equal(found.costs, small.cost(each))
        assert found.about.split == "train"
        if len(found.u) == len(found.v):  # in the one gauge again
            assert abs(found.u.mean() - found.v.mean()) <= 1e-12 * np.abs(found.u).max()


def test_no_more_than_one_of_many_shards_is_open(tmp_path, small):
    def num_open():
        readers = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
        processes = [psutil.Process(), *readers]
        return sum(Path(each.path).parent == tmp_path for process in processes for each in process.open_files())

    for shard in range(8):
        as_the_seed_writes_it(tmp_path / f"shard_{shard}.h5", small, [2 * shard, 2 * shard + 1])
    sources = sources_in(tmp_path, AssignmentPrepareOptions())
    assert (len(sources), num_open()) == (8, 0)
    for source in sources:
        for number in range(2):
            source.instance(number)
            assert num_open() == 1 - number
    assert len(prepared(tmp_path / "data", tmp_path, duplicates="keep")) == 16


def damaged(path, key, number, value):
    with h5py.File(path, "r+") as file:
        file[key][number] = value


@pytest.fixture
def file(tmp_path, small):
    path = tmp_path / "train.h5"
    as_the_seed_writes_it(path, small, [0, 1, 20, 21, 40])
    return path


def nan_cost(costs):
    return np.where(np.arange(len(costs)) == 7, np.nan, costs)


DAMAGE = {
    "nan": ("C", nan_cost, r"C\[1,1\] is nan"),
    "short": ("C", lambda v: v[:-1], "C has 35 entries, and 6 x 6 are 36"),
    "wrong n": ("n", lambda v: v + 1, "n is 7, and u has 6 entries"),
    "negative n": ("n", lambda v: -v, "n is -6, and u has 6 entries"),
    "wrong assignment": ("cols", lambda v: np.roll(v, 1), "its assignment costs .*, and the optimum is"),
    "a column twice": ("cols", np.zeros_like, "its assignment is none: column 0 is taken 6 times"),
    "no such column": ("cols", lambda v: v + 6, "there are 6 columns"),
    "a row twice": ("rows", np.zeros_like, "rows has a row twice"),
    "rows and cols": ("rows", lambda v: v[:-1], "rows has 5 entries, and cols 6"),
    "infeasible duals": ("u", lambda v: v + 0.1 * (np.arange(6) == 2), r"its duals are not optimal: u\[2\] \+ v\["),
    "loose duals": ("v", lambda v: v - 0.1, "its duals are not optimal: .* below C"),
    "nan dual": ("v", lambda v: v * np.nan, r"its duals are not optimal: [uv]\[0\] is nan"),
    "cost": ("cost", lambda v: v * 1.01, "its cost is .*, and its assignment costs"),
    "nan cost": ("cost", lambda v: v * np.nan, "its cost is nan"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_record_is_named_and_the_others_are_kept(tmp_path, file, name, caplog):
    key, change, message = DAMAGE[name]
    with h5py.File(file) as opened:
        value = change(opened[key][1])
    damaged(file, key, 1, value)
    with pytest.raises(UserError, match=f"train.h5, record 1: .*{message}") as refused:
        prepared(tmp_path, file)
    assert "damaged=skip" in refused.value.fix
    assert not (tmp_path / "mine").exists()
    problems = list(ProblemFiles(file).problems())
    assert len(problems) == 1
    assert "record 1" in problems[0]
    store = prepared(tmp_path, file, damaged="skip")
    store.verify()
    assert len(store) == 4
    assert store.metadata.num_damaged == 1
    assert "record 1" in store.metadata.damaged[0]
    assert "left out: " in caplog.text
    if key not in ("C", "n"):  # the costs are whole: all else can be solved for
        assert len(prepared(tmp_path, file, name="solved", duals="solve")) == 5


def test_duals_that_were_rounded_are_solved_for_again(tmp_path, file):
    with h5py.File(file, "r+") as opened:
        opened["u"][2] = opened["u"][2].astype(np.float32)
    store = prepared(tmp_path, file)
    assert store.metadata.num_solved_again == 1
    store.verify()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.97, 0.999])
def test_a_truncated_file_is_told(tmp_path, file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"train\.h5"):
        prepared(tmp_path, file)
    assert not (tmp_path / "mine").exists()
    assert not list(tmp_path.glob("**/metadata.json"))


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bytes_never_open_as_something_else(tmp_path, small, seed):
    """Nothing ends with a traceback, and what is kept is proven."""
    path = tmp_path / "train.h5"
    ids = list(range(10))
    as_the_seed_writes_it(path, small, ids)
    rng, content = np.random.default_rng(seed), bytearray(path.read_bytes())
    for at in rng.integers(0, len(content), 40):
        content[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    try:
        store = prepared(tmp_path, path, damaged="skip")
    except UserError:
        assert not (tmp_path / "mine").exists()
        return
    store.verify()
    assert len(store) + store.metadata.num_damaged + store.metadata.num_duplicates == len(ids)


def test_a_heap_on_which_hdf5_would_not_end_is_told(tmp_path, file, monkeypatch):
    monkeypatch.setattr(hdf5, "ANSWER_WITHIN_S", 1.5)
    monkeypatch.setattr(hdf5, "_reader", hdf5._ReaderProcess())
    whole = file.read_bytes()
    begin = whole.index(b"GCOL")
    size = int.from_bytes(whole[begin + 8 : begin + 16], "little")
    at, end = begin + 16, begin + size
    while int.from_bytes(whole[at : at + 2], "little"):  # to the free rest at its end
        at += 16 + (int.from_bytes(whole[at + 8 : at + 16], "little") + 7) // 8 * 8
    assert begin < at < end
    for place in (at + 8, begin + 24, begin + 8):  # sizes of the rest, of the first object, of the heap
        file.write_bytes(whole[:place] + (0 if place == at + 8 else 1 << 40).to_bytes(8, "little") + whole[place + 8 :])
        with pytest.raises(UserError, match=r"train\.h5"):
            prepared(tmp_path, file)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("key", ["C", "n", "u", "cols", "cost"])
def test_missing_keys_are_told(tmp_path, file, key):
    with h5py.File(file, "r+") as opened:
        del opened[key]
    with pytest.raises(UserError, match=f"train.h5 lacks {key}; it has"):
        prepared(tmp_path, file)
    if key in ("C", "n"):
        with pytest.raises(UserError, match=f"lacks {key}"):
            prepared(tmp_path, file, duals="solve")
    else:
        assert len(prepared(tmp_path, file, duals="solve")) == 5


def test_keys_of_other_lengths_and_kinds_are_told(tmp_path, file):
    with h5py.File(file, "r+") as opened:
        opened.attrs["records"] = 9
    with pytest.raises(UserError, match="records is 9, and it has 5"):
        prepared(tmp_path, file)
    with h5py.File(file, "r+") as opened:
        opened.attrs["records"] = 5
        del opened["cost"]
        opened["cost"] = np.zeros(4)
    with pytest.raises(UserError, match=r"different numbers of records: .*cost 4"):
        prepared(tmp_path, file)
    with h5py.File(file, "r+") as opened:
        del opened["cost"], opened["u"]
        opened["cost"] = np.zeros(5)
        opened["u"] = np.zeros((5, 3))
    with pytest.raises(UserError, match="key u: it is no one-dimensional dataset"):
        prepared(tmp_path, file)


def test_text_where_numbers_belong_is_told(tmp_path, file):
    with h5py.File(file, "r+") as opened:
        del opened["n"]
        opened.create_dataset("n", data=["six"] * 5, dtype=h5py.string_dtype())
    with pytest.raises(UserError, match=r"record 0: n is .*six.* and no number"):
        prepared(tmp_path, file)


def test_without_duals_a_wrong_n_is_told(tmp_path, file):
    with h5py.File(file, "r+") as opened:
        del opened["u"], opened["v"]
        opened["n"][0] = 4
    with pytest.raises(UserError, match="record 0: C has 36 entries, and 4 x 4 are 16"):
        prepared(tmp_path, file, duals="solve")


LIMITED = """
import resource, sys
from pathlib import Path
from graphmill.base.errors import UserError
from graphmill.tasks.assignment.data.files import write_hdf5
from graphmill.tasks.assignment.data.store import AssignmentStore
store = AssignmentStore.open(Path(sys.argv[1]))
for limit in range(2000, 700_000, int(sys.argv[3])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_hdf5(store, Path(sys.argv[2]))
        print("whole", limit)
    except UserError as error:
        print(error)
"""


@pytest.mark.parametrize("step", [100_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_full_disk_leaves_no_half_a_file(tmp_path, small, source_environ, step):
    """However much fits: HDF5 neither crashes, then or at the end of the process, nor leaves anything."""
    command = [sys.executable, "-c", LIMITED, small.path, tmp_path / "all.h5", str(step)]
    done = subprocess.run(command, env=source_environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    words = ["whole" if line.startswith("whole") else "cannot" for line in done.stdout.splitlines() if "→" not in line]
    assert done.stdout.count("all.h5 cannot be written: File too large") == words.count("cannot") > 200_000 / step
    assert "whole" in words
    assert words == sorted(words), "what fits once fits with more room"
    assert len(Hdf5Records(tmp_path / "all.h5", split=None, duals="stored")) == len(small)
    assert [path.name for path in tmp_path.iterdir()] == ["all.h5"]


def test_a_killed_writer_leaves_the_old_file(tmp_path, small):
    path = tmp_path / "all.h5"
    write_hdf5(small, path)
    before = path.read_bytes()

    def fails():
        yield small.instance(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(path, fails(), 2)
    assert path.read_bytes() == before
    assert leftovers(tmp_path) == []


def test_infeasible_costs_of_a_record(tmp_path):
    path = tmp_path / "a.h5"
    costs = np.full((2, 2), np.inf)
    costs[:, 0] = 1.0
    bad = Instance(costs, np.array([0, 1], np.int32), np.zeros(2), np.zeros(2), 2.0, About("own", 2))
    write_records(path, [bad], 1)
    with pytest.raises(RecordError, match="no assignment of 2 pairs"):
        Hdf5Records(path, split=None, duals="solve").instance(0)
    with pytest.raises(RecordError, match="no assignment of 2 pairs"):
        Hdf5Records(path, split=None, duals="stored").instance(0)


def test_files_of_other_programs_are_not_taken_for_these(tmp_path, file, small):
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as opened:
        opened["df"] = np.zeros(3)
    assert not holds_records(other)
    assert holds_records(file)
    assert contents(small.path)  # and a store is no such file
    assert not holds_records(small.path)
