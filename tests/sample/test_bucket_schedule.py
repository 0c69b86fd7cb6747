"""Global batches of one shape: nothing dropped or doubled, keyed, for any number of ranks."""

import numpy as np
import pytest

from graphmill.sample.schedule import BucketSchedule
from graphmill.spec.calendar import BucketedBatches, EqualBatches

BUCKETS = (np.arange(0, 20), np.arange(20, 27), np.arange(27, 60))


def schedule(ranks=1, batch_size=4, counts=(20, 7, 33), rng_seed=5):
    return BucketSchedule.of(BUCKETS, BucketedBatches(counts, batch_size, ranks), rng_seed)


def epoch(made, number):
    return [made.shares(number, step) for step in range(made.batches.num_steps)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_seed_once_and_one_shape_a_batch(ranks):
    made = schedule(ranks)
    for number in range(3):
        steps = epoch(made, number)
        assert sorted(np.concatenate([each for step in steps for each in step])) == list(range(60))
        for step in steps:
            whole = np.concatenate(step)
            assert sum(bool(np.isin(whole, ids).any()) for ids in BUCKETS) == 1
            assert max(map(len, step)) <= 4
    assert made.num_seeds == 60


def test_ranks_share_what_one_would_see():
    one, two = schedule(1, 6), schedule(2, 3)
    for number in range(2):
        for whole, parts in zip(epoch(one, number), epoch(two, number), strict=True):
            assert np.array_equal(whole[0], np.concatenate(parts))


@pytest.mark.parametrize("others", [1, 2, 4, 5])
def test_other_ranks_cut_the_same_global_batches(others):
    planned = schedule(3)
    for number in range(2):
        for whole, parts in zip(epoch(planned, number), epoch(planned.among(others), number), strict=True):
            assert len(parts) == others
            assert np.array_equal(np.concatenate(whole), np.concatenate(parts))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_epoch_is_a_function_of_its_number():
    made, again = schedule(), schedule()
    late = [step[0].tolist() for step in epoch(again, 4)]
    assert [step[0].tolist() for step in epoch(made, 0)] != late
    assert [step[0].tolist() for step in epoch(made, 4)] == late


def test_fewer_than_there_are_change_with_the_epoch():
    made = schedule(counts=(20, 7, 5))
    drawn = [{int(i) for step in epoch(made, number) for i in step[0] if i >= 27} for number in range(4)]
    assert all(len(each) == 5 for each in drawn)
    assert len(set.union(*drawn)) > 5


def test_counts_are_those_of_the_buckets():
    with pytest.raises(ValueError, match="do not hold"):
        schedule(counts=(21, 7, 33))
    with pytest.raises(TypeError):
        BucketSchedule.of(BUCKETS, EqualBatches(60, 4, 1), 0)


def test_steps_of_a_calendar():
    batches = BucketedBatches((20, 7, 33), 4, 2)
    assert batches.num_steps == 3 + 1 + 5
    assert batches.seeds_in(9) == 60
    assert batches.seeds_in(3) is None
