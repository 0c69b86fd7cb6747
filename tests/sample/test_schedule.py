"""Which seeds each rank trains on: all of them, once, the same whatever the number of ranks."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph.keys import drawn
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.calendar import EqualBatches

train_sets = st.sets(st.integers(0, 2000), min_size=1, max_size=300).map(
    lambda ids: np.array(sorted(ids), dtype=np.int64)
)


def schedule_of(train_ids, batch_size, world_size, seed) -> SeedSchedule:
    return SeedSchedule.equal(train_ids, EqualBatches(len(train_ids), batch_size, world_size), seed)


def steps_of(train_ids, batch_size, world_size) -> range:
    return range(EqualBatches(len(train_ids), batch_size, world_size).num_steps)


any_schedule = {
    "train_ids": train_sets,
    "batch_size": st.integers(1, 400),
    "world_size": st.integers(1, 7),
    "seed": st.integers(0, 2**63 - 1),
    "epoch": st.integers(0, 10**6),
}


@settings(deadline=None, max_examples=200)
@given(**any_schedule)
def test_an_epoch_is_the_training_set(train_ids, batch_size, world_size, seed, epoch):
    """No seed is dropped or doubled (invariant 4), and all ranks take the same number of steps."""
    schedule = schedule_of(train_ids, batch_size, world_size, seed)
    seen = []
    steps = steps_of(train_ids, batch_size, world_size)
    assert schedule.num_seeds == len(train_ids)
    for step in steps:
        counts = schedule.counts(epoch, step)
        parts = [schedule.seeds(epoch, step, rank).ids for rank in range(world_size)]
        assert tuple(map(len, parts)) == counts
        assert max(counts) <= batch_size
        assert max(counts) - min(counts) <= 1
        assert sum(counts) > 0
        assert step == steps[-1] or min(counts) == batch_size
        seen += parts
    assert np.array_equal(np.sort(np.concatenate(seen)), train_ids)


@settings(deadline=None, max_examples=100)
@given(train_ids=train_sets, batch_size=st.integers(1, 40), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 50))
def test_a_global_batch_does_not_depend_on_how_it_is_cut(train_ids, batch_size, seed, epoch):
    alone = schedule_of(train_ids, 12 * batch_size, 1, seed)
    for world_size in (2, 3, 4, 6):
        ranks = schedule_of(train_ids, 12 * batch_size // world_size, world_size, seed)
        steps = steps_of(train_ids, 12 * batch_size // world_size, world_size)
        assert steps == steps_of(train_ids, 12 * batch_size, 1)
        for step in steps:
            parts = [ranks.seeds(epoch, step, rank).ids for rank in range(world_size)]
            assert np.array_equal(np.concatenate(parts), alone.seeds(epoch, step, 0).ids)


@settings(deadline=None, max_examples=100)
@given(**any_schedule, others=st.integers(1, 9))
def test_other_ranks_cut_the_same_global_batches(train_ids, batch_size, world_size, seed, epoch, others):
    """Also where they do not divide it: no seed is dropped or doubled, and shares differ by one."""
    planned = schedule_of(train_ids, batch_size, world_size, seed)
    resumed = planned.among(others)
    for step in steps_of(train_ids, batch_size, world_size):
        shares = resumed.shares(epoch, step)
        assert np.array_equal(np.concatenate(shares), np.concatenate(planned.shares(epoch, step)))
        counts = resumed.counts(epoch, step)
        assert len(counts) == others
        assert max(counts) - min(counts) <= 1
        assert all(np.array_equal(share, resumed.seeds(epoch, step, rank).ids) for rank, share in enumerate(shares))
        back = resumed.among(world_size).shares(epoch, step)
        assert all(map(np.array_equal, back, planned.shares(epoch, step)))


def test_any_moment_can_be_asked_for_first():
    """Nothing depends on what was asked for before: that is what makes a resume exact."""
    train_ids = np.arange(0, 1000, 3)
    walked = schedule_of(train_ids, 50, 2, 7)
    for epoch in range(4):
        for step in steps_of(train_ids, 50, 2):
            walked.seeds(epoch, step, 0)
    fresh = schedule_of(train_ids, 50, 2, 7)
    assert np.array_equal(walked.seeds(3, 2, 1).ids, fresh.seeds(3, 2, 1).ids)
    assert np.array_equal(walked.seeds(1, 0, 1).ids, fresh.seeds(1, 0, 1).ids)


def test_epochs_and_seeds_differ_and_orders_are_fair():
    train_ids = np.arange(400)
    orders = [schedule_of(train_ids, 10, 1, seed).order(epoch) for seed in (0, 1) for epoch in range(200)]
    assert len({order.tobytes() for order in orders}) == 400
    places = np.array([np.argsort(order)[:5] for order in orders])  # where the first five nodes stand
    assert (np.abs(places.mean(axis=0) - 199.5) < 4 * 115.5 / 400**0.5).all()


def test_the_order_is_pinned():
    """Golden: a change here makes every run of the past impossible to repeat."""
    assert schedule_of(np.arange(10), 10, 1, 1234).order(0).tolist() == [9, 7, 6, 3, 0, 8, 4, 2, 1, 5]


def test_a_training_subset_is_drawn_by_the_rng_seed():
    train_ids = np.arange(0, 900, 3)
    draws = [drawn(train_ids, 30, seed) for seed in range(200)]
    assert len({draw.tobytes() for draw in draws}) == 200
    times = np.bincount(np.concatenate(draws), minlength=900)[::3]  # how often each node was drawn: 20 ± 4.2
    assert abs(times.mean() - 20) < 1e-9
    assert times.max() < 20 + 6 * 4.25
    assert times.min() > 0


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 200), st.integers(0, 2**62))
def test_a_larger_draw_holds_the_smaller_one(num_train, one, other, seed):
    train_ids = np.arange(num_train, dtype=np.int64) * 3
    few, many = (drawn(train_ids, count, seed) for count in sorted((one, other)))
    assert set(few) <= set(many) <= set(train_ids)
    assert len(many) == min(max(one, other), num_train)
    assert list(many) == sorted(many)


GOLDEN = "794f894428499fb57ba56a29de9431c82071af0e8a2585cad78f477ddeba729a"


def test_the_seeds_of_some_epochs_are_pinned():
    """Golden, made by commit a258eaa: every rank's seeds at every step of three epochs, for uneven world sizes."""
    digest = hashlib.sha256()
    for world_size in (1, 2, 3):
        ids = drawn(np.arange(5, 1005, dtype=np.int64), 700, 99)
        schedule = schedule_of(ids, 64, world_size, 99)
        for epoch in (0, 1, 17):
            for step in steps_of(ids, 64, world_size):
                for rank in range(world_size):
                    digest.update(schedule.seeds(epoch, step, rank).ids.astype("<i8").tobytes() + b"|")
    assert digest.hexdigest() == GOLDEN
