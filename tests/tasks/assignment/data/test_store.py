"""Assignment problems at rest: what is kept of each instance, which split it is in, and what verify finds."""

import numpy as np
import psutil
import pytest
from assignment_problems import prepared

from graphmill.base.errors import UserError
from graphmill.graph.arrays import write_array
from graphmill.graph.header import seal, write_metadata
from graphmill.tasks.assignment.data.generate import GeneratedInstances
from graphmill.tasks.assignment.data.instance import SPLITS, drawn_splits
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.page.data import FAMILIES, AssignmentDatasetSpec, AssignmentPrepareOptions
from graphmill.tasks.stores import CutsByBudget, HasTable


def test_every_instance_is_kept_as_it_was_made(small):
    source = GeneratedInstances(AssignmentPrepareOptions(sizes=(6, 17), instances=10, frames=5))
    assert len(small) == len(source) == 200
    kept = AssignmentStore.open(small.path)
    kept.verify()
    for number in range(len(source)):
        made, found = source.instance(number), kept.instance(number)
        assert np.array_equal(found.costs, made.costs)
        assert np.array_equal(kept.cost(number), made.costs)
        assert np.array_equal(found.columns, made.columns)
        assert np.array_equal(found.u, made.u)
        assert np.array_equal(found.v, made.v)
        assert found.optimum == made.optimum
        assert (found.row_ids is None) == (made.row_ids is None) == (made.about.family != "tracking")
        assert found.row_ids is None or np.array_equal(found.row_ids, made.row_ids)
        assert found.fingerprint() == tuple(kept.array("fingerprints")[number].tolist()) == made.fingerprint()
        assert (found.about.family, found.about.size, found.about.tag) == (
            made.about.family,
            made.about.size,
            made.about.tag,
        )
        assert kept.shape(number) == made.shape


def test_splits_have_each_instance_once_and_frames_together(small):
    ids = {split: small.instances(split).tolist() for split in SPLITS}
    assert sorted(each for found in ids.values() for each in found) == list(range(len(small)))
    split_of = {each: split for split in SPLITS for each in ids[split]}
    sequences = small.array("sequences")
    for sequence in range(small.metadata.num_sequences):
        frames = np.flatnonzero(sequences == sequence)
        assert len({split_of[each] for each in frames.tolist()}) == 1
        assert small.array("frames")[frames].tolist() == list(range(5))
    alone = np.flatnonzero(sequences < 0)
    assert small.metadata.num_sequences == 4
    share = np.mean([split_of[each] == "train" for each in alone.tolist()])
    assert abs(share - 0.7) <= 0.05


def test_instances_by_size_and_family(small):
    found = small.instances("train", sizes=[17], families=["tie", "metric"])
    assert len(found)
    assert {(small.shape(each), small.family(each)) for each in found.tolist()} == {
        ((17, 17), "tie"),
        ((17, 17), "metric"),
    }
    assert not len(small.instances("train", sizes=[5]))
    assert not len(small.instances("train", families=["none"]))


def test_what_a_planner_learns(small):
    assert isinstance(small, HasTable)
    assert not isinstance(small, CutsByBudget)
    info = small.info(AssignmentDatasetSpec())
    assert [bucket.size for bucket in info.buckets] == [6, 17]
    assert info.num_train + info.num_val + info.num_test == info.num_instances == 200
    assert sum(bucket.num_train for bucket in info.buckets) == info.num_train
    assert info.max_cols > info.max_rows >= 17
    one = small.info(AssignmentDatasetSpec(sizes=(6,), families=("uniform",)))
    assert (one.num_instances, one.max_rows, one.max_cols) == (10, 6, 6)
    with pytest.raises(UserError, match="asks for 7, of which mine has no instance"):
        small.info(AssignmentDatasetSpec(sizes=(7,)))
    with pytest.raises(UserError, match="no instance of sphere"):
        small.info(AssignmentDatasetSpec(families=("sphere",)))


def test_the_table_counts_by_size_and_family(small):
    rows = small.table()
    assert [(row["size"], row["family"]) for row in rows] == [(n, f) for n in (6, 17) for f in sorted(FAMILIES)]
    assert sum(row["instances"] for row in rows) == 200
    for row in rows:
        assert row["train"] + row["val"] + row["test"] == row["instances"] == 10


def edited(store, folder, **changes):
    """A copy with other arrays and checksums that fit them."""
    folder.mkdir()
    records = {}
    for name in store.metadata.arrays:
        array = np.array(store.array(name))
        if name in changes:
            changes[name](array)
        records[name] = write_array(folder / f"{name}.npy", array)
    write_metadata(folder, seal(store.metadata.model_copy(update={"arrays": records})))
    return AssignmentStore.open(folder)


def test_verify_names_the_instance_that_is_wrong(small, tmp_path):
    at = int(small.array("offsets")[3])
    row = int(small.array("u_offsets")[3])
    edited(small, tmp_path / "same").verify()

    def swap(columns):
        columns[[row, row + 1]] = columns[[row + 1, row]]

    cases = {
        "nan": ({"costs": lambda a: a.__setitem__(at + 1, np.nan)}, r"instance 3 \(.*C\[0,1\] is nan"),
        "minus": ({"costs": lambda a: a.__setitem__(at, -np.inf)}, r"instance 3 .*C\[0,0\] is -inf"),
        "swapped": ({"columns": swap}, r"instance 3 "),
        "twice": ({"columns": lambda a: a.__setitem__(row, a[row + 1])}, r"instance 3 .*taken 2 times"),
        "duals": ({"u": lambda a: a.__setitem__(row, a[row] + 1)}, r"instance 3 .*exceeds C\[0"),
        "optimum": ({"optima": lambda a: a.__setitem__(3, 5.0)}, r"instance 3 .*its optimum is 5.0"),
        "split": ({"train": lambda a: a.__setitem__(0, a[1])}, "each instance once"),
        "offset": ({"offsets": lambda a: a.__setitem__(2, 1)}, "offsets do not fit"),
    }
    for name, (changes, message) in cases.items():
        store = edited(small, tmp_path / name, **changes)
        with pytest.raises(UserError, match=message):
            store.verify()


@pytest.mark.parametrize("seed", range(5))
def test_every_stratum_and_all_of_them_have_the_shares(seed):
    strata = np.repeat(np.arange(30), np.arange(30) % 7 + 1)
    splits = drawn_splits(strata.tolist(), range(len(strata)), seed)
    assert np.abs(np.bincount(splits, minlength=3) - len(strata) * np.array([0.7, 0.15, 0.15])).max() <= 2
    for stratum in range(30):
        mine = splits[strata == stratum]
        assert np.abs(np.bincount(mine, minlength=3) - len(mine) * np.array([0.7, 0.15, 0.15])).max() < 2
    assert np.array_equal(splits, drawn_splits(strata.tolist(), range(len(strata)), seed))
    assert not np.array_equal(splits, drawn_splits(strata.tolist(), range(len(strata)), seed + 5))
    eight = drawn_splits(range(8), range(8), seed)
    assert set(eight.tolist()) == {0, 1, 2}


def test_what_is_forgotten_is_read_again(small):
    for i in range(len(small)):
        before = small.cost(i).copy()
        small.evict(i)
        assert np.array_equal(small.cost(i), before)


def test_a_process_does_not_hold_all_that_it_has_read(tmp_path):
    store = prepared(tmp_path, sizes=(512,), families=("uniform",), instances=12, workers=1)
    held = []
    for i in range(len(store)):
        store.cost(i).sum()
        store.evict(i)
        held.append(psutil.Process().memory_info().shared)
    assert max(held) - held[0] < 3 * 512 * 512 * 8  # of 12 instances
