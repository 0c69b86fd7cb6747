"""What crosses, counted by replaying the schedule: against counts made the plain way."""

from functools import partial

import numpy as np
import pytest
from graphs_in_parts import topology_of

from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.hot.rank import Draws, HotBudget, rank_all
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import KeyedOrder, SeedSchedule, equal_batch, in_windows
from graphmill.spec.calendar import EqualBatches
from replay import Moved, floor_of_windows, needs_of_rank, steps_of, with_held, with_lookahead

NUM_NODES, NUM_PARTS, FANOUTS, BATCH = 400, 3, (4, 3), 20


def by_owner(batch, part_of):
    return tuple(batch[part_of[batch] == part] for part in range(NUM_PARTS))


@pytest.fixture(scope="module")
def graph():
    """Three clusters with a few edges between them; the parts are not quite the clusters."""
    rng = np.random.default_rng(2)
    cluster = rng.integers(0, 3, NUM_NODES)
    ends = rng.integers(0, NUM_NODES, (2, 6000))
    near = (cluster[ends[0]] == cluster[ends[1]]) | (rng.random(6000) < 0.05)
    part_of = np.where(rng.random(NUM_NODES) < 0.1, rng.integers(0, 3, NUM_NODES), cluster)
    seeds = np.flatnonzero(rng.random(NUM_NODES) < 0.45)
    return topology_of(NUM_NODES, map(tuple, ends[:, near].T.tolist()), symmetric=True), part_of, seeds


@pytest.fixture(scope="module", params=["owner", "equal"])
def replayed(graph, request):
    topology, part_of, seeds = graph
    batches = EqualBatches(len(seeds), BATCH, NUM_PARTS)
    if request.param == "equal":
        schedule = SeedSchedule.equal(seeds, batches, 9)
    else:
        cut = partial(equal_batch, batches=batches)
        schedule = SeedSchedule(len(seeds), KeyedOrder(seeds, 9), cut, partial(by_owner, part_of=part_of))
    sampler = WholeSampler(topology, FANOUTS, 9, 1, resample=True)
    steps = list(steps_of((0, 1), batches.num_steps))
    assert len(steps) > 5
    needs = [needs_of_rank(sampler, schedule, part_of, rank=p, part=p, steps=steps) for p in range(NUM_PARTS)]
    return graph, schedule, sampler, steps, needs


def test_needs_are_the_nodes_of_the_batches(replayed):
    (_, part_of, _), schedule, sampler, steps, needs = replayed
    for part, found in enumerate(needs):
        for (epoch, step), rows in zip(steps, found.remote, strict=True):
            nodes = sampler.sample(schedule.seeds(epoch, step, part)).node_ids
            assert rows.tolist() == sorted(node for node in nodes.tolist() if part_of[node] != part)
        assert found.moved.remote == sum(map(len, found.remote))
        assert found.moved.num_batches == len(steps)
        assert found.moved.repeats_saved > 0


def test_no_cache_fetches_what_is_remote(replayed):
    *_, needs = replayed
    for found in needs:
        moved = with_held(found, np.empty(0, np.int32), 12, NUM_NODES)
        assert (moved.fetched, moved.hits) == (moved.remote, 0)
        assert moved.fetched_bytes == 12 * moved.remote
        assert moved.num_fetches == sum(len(rows) > 0 for rows in found.remote)


def test_held_rows_are_hits(replayed):
    *_, needs = replayed
    held = np.arange(0, NUM_NODES, 5)
    row_bytes = np.arange(NUM_NODES) % 7
    for found in needs:
        moved = with_held(found, held, row_bytes, NUM_NODES)
        fetched = [node for rows in found.remote for node in rows.tolist() if node % 5]
        assert moved.fetched == len(fetched)
        assert moved.hits + moved.fetched == moved.remote
        assert moved.fetched_bytes == sum(node % 7 for node in fetched)
        assert moved.most_held == len(held)


def test_lookahead_lies_between_the_rows_there_are_and_the_floor(replayed):
    *_, needs = replayed
    for found in needs:
        windows = in_windows(range(len(found.remote)), 2, first=2)
        moved = with_lookahead(found, Lookahead(30), [windows], 12)
        assert moved.hits + moved.fetched == moved.remote
        assert len(np.unique(np.concatenate(found.remote))) <= moved.fetched <= floor_of_windows(found, 2)
        assert floor_of_windows(found, 2) < floor_of_windows(found, 1) == moved.remote
        assert moved.num_fetches <= len(found.remote) / 2 + 1


def test_what_is_ranked_high_is_fetched_less(replayed):
    """The same number of rows held: by a policy, and at random."""
    (topology, part_of, seeds), *_, needs = replayed
    own = [seeds[part_of[seeds] == part] for part in range(NUM_PARTS)]
    draws = Draws(fanouts=FANOUTS, batch_size=BATCH, rng_seed=1)
    rankings, budget = rank_all(topology, part_of, own, draws, ("vip", "presample")), HotBudget(ratio=0.1)
    for ranked in rankings.values():
        fetched = {"ranked": 0, "random": 0}
        for part, found in enumerate(needs):
            held = budget.cut(ranked[part], NUM_NODES, 4)
            others = np.random.default_rng(part).permutation(np.flatnonzero(part_of != part))[: len(held)]
            fetched["ranked"] += with_held(found, held, 4, NUM_NODES).fetched
            fetched["random"] += with_held(found, others, 4, NUM_NODES).fetched
        assert fetched["ranked"] < fetched["random"]


def test_counts_of_ranks_add_up_and_the_most_held_is_the_most():
    both = Moved(needed=5, local=2, fetched=3, most_held=7) + Moved(needed=1, hits=1, most_held=4)
    assert both == Moved(needed=6, local=2, hits=1, fetched=3, most_held=7)
    assert both.remote == 4
