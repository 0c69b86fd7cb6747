"""Formulas, against published numbers of the sync-ablation scripts and against counting by hand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.partition.placement import Placement
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.modelled import modelled
from graphmill.spec.parted_memory import PartedGraphSizes, evaluation_bytes, held_bytes, largest_batch
from graphmill.spec.partition import HotCacheSpec, NoCacheSpec, PartitionSpec
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment

REDDIT = GraphInfo(
    name="reddit", path="/r", checksum="0", synthetic=False, num_nodes=232_965, num_edges=114_615_892, num_features=602,
    num_classes=41, num_train=153_431, has_sparse_features=False,
)  # fmt: skip


def plan(dataset=REDDIT, **train):
    experiment = NodeClassificationExperiment.model_validate({"train": {"ranks": 4, "epochs": 1, **train}})
    return resolve(experiment, machine=MachineInfo(num_cores=8, num_gpus=0), dataset=dataset, run_id="r")


def test_model_and_bytes_of_the_sync_ablation_scripts():
    figures = modelled(plan())
    assert figures.num_parameters == 329_513
    assert figures.mib_per_sync_fp32 == pytest.approx(1.257, abs=1e-3)
    assert figures.rounds_per_epoch == 38


@pytest.mark.parametrize(("k", "rounds"), [(1, 38), (2, 19), (4, 10), (8, 5), (16, 3)])
def test_syncs_per_epoch_of_the_sync_ablation_scripts(k, rounds):
    figures = modelled(plan(sync={"scheme": "local_sgd", "every": k}))
    assert figures.rounds_per_epoch == rounds == figures.num_syncs


def counted(steps: int, per_epoch: int, k: int, warmup: int) -> int:
    syncs = 0
    for step in range(1, steps + 1):
        within = (step - 1) % per_epoch + 1
        closes = within % k == 0 or within == per_epoch or step == steps
        syncs += 1 if step <= warmup else closes
    return syncs


@pytest.mark.parametrize("k", [1, 3, 7, 100])
@pytest.mark.parametrize("warmup", [0, 1, 5, 38, 50, 10_000])
@pytest.mark.parametrize("max_steps", [4, 40, 400])
def test_syncs_are_as_counted_step_by_step(k, warmup, max_steps):
    made = plan(epochs=None, max_steps=max_steps, sync={"scheme": "local_sgd", "every": k, "warmup_steps": warmup})
    assert modelled(made).num_syncs == counted(made.last_step, made.calendar.steps_in(0), k, warmup)


def test_payload_halves_the_bytes():
    full, half = (
        modelled(plan(sync={"scheme": "deferred_allreduce", "payload": payload})) for payload in ("fp32", "bf16")
    )
    assert half.payload_mib_total == full.payload_mib_total / 2
    assert half.mib_total_fp32 == full.mib_total_fp32


def test_seeds_seen():
    assert modelled(plan(epochs=3)).seeds_seen == 3 * REDDIT.num_train
    assert modelled(plan(epochs=None, max_steps=40, batch_size=100)).seeds_seen == 4000


def test_a_strangers_model_has_no_size_yet():
    experiment = NodeClassificationExperiment.model_validate(
        {"model": {"kind": "custom", "target": "a.B"}, "train": {"epochs": 1}}
    )
    made = resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=0), dataset=REDDIT, run_id="r")
    figures = modelled(made)
    assert figures.num_parameters is None
    assert figures.memory_per_rank_mib is None
    assert figures.num_syncs == math.ceil(REDDIT.num_train / 1024)


def test_a_neighbourhood_is_no_larger_than_the_graph():
    assert modelled(plan(num_neighbors=[-1, -1])).nodes_per_batch == REDDIT.num_nodes
    assert modelled(plan()).nodes_per_batch < 1024 * (1 + 25 + 250) + 1


def parted(*, ranks=2, hosts=2, num_parts=4, is_sparse=False, **partition):
    asked = {"train": {"ranks": ranks, "epochs": 1}, "partition": partition}
    dataset = REDDIT.model_copy(update={"num_parts": num_parts, "has_sparse_features": is_sparse})
    machine = MachineInfo(num_cores=8, num_gpus=0)
    experiment = NodeClassificationExperiment.model_validate(asked)
    return modelled(resolve(experiment, machine=machine, dataset=dataset, run_id="r", hosts=hosts))


ROW, NODES = 602 * 4, 232_965
ASKED = 28 + 8  # bytes of a row that is asked for, and where it is
IN_PARTS = PartedGraphSizes(
    num_nodes=1000,
    num_entries=10_000,
    num_features=64,
    is_sparse=False,
    num_parts=4,
    num_train=100,
    nodes_per_batch=10,
    edges_per_batch=30,
    num_edge_columns=0,
    drawn_bytes=500,
)
NO_CACHE = {"policy": "none"}


def held(graph=IN_PARTS, *, topology="replicated", cache=None, batches_together=1, ranks=2, hosts=2, num_nodes=1000):
    """By one of two ranks on two hosts, without a cache."""
    step = StepShape(8, "cpu", "fp32", ranks=ranks, hosts=hosts, batches_together=batches_together)
    asked = PartitionSpec(topology=topology, cache=cache or NoCacheSpec())
    return held_bytes(dataclasses.replace(graph, num_nodes=num_nodes), asked, step)


def test_a_host_maps_its_parts_the_book_and_a_replicated_topology():
    """The fullest part may exceed the mean by 5 %; the union of both directions has 2 entries an edge at most."""
    topology = 8 * NODES + 4 * 2 * 114_615_892
    of_parts = NODES * (ROW + 4 + 16) + topology
    for hosts, share in ((1, 1.0), (2, 0.525), (4, 0.2625)):
        found = parted(ranks=4, hosts=hosts, topology="partitioned", cache=NO_CACHE).memory.data_mib
        assert found == pytest.approx((share * of_parts + 4 * NODES) / 2**20, rel=1e-6)
        whole = parted(ranks=4, hosts=hosts, cache=NO_CACHE).memory.data_mib
        assert whole - found == pytest.approx(topology / 2**20, rel=1e-6)


def test_the_host_with_most_parts_is_counted():
    """4 parts on 3 hosts: one has two, as each of 2 hosts has."""
    three, two = (parted(ranks=hosts, hosts=hosts, topology="partitioned", cache=NO_CACHE).memory for hosts in (3, 2))
    assert three.data_mib == two.data_mib


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.sampled_from(["per_host", "per_rank"]))
def test_the_rank_with_most_seeds_is_counted(num_parts, hosts, each, placement):
    """Of equal parts the share that `Placement` gives the ranks, and 5 % for the fullest."""
    ranks, of_part = hosts * each, 2520 * 36
    places = (hosts, each) if placement == "per_host" else (ranks, 1)
    step = StepShape(1000, "cpu", "fp32", learners=ranks, learner_hosts=hosts)
    lies = Placement(num_parts, *places)
    owned = [lies.own_range(rank, np.arange(num_parts + 1) * of_part) for rank in range(ranks)]
    share = max(last - first for first, last in owned) / (num_parts * of_part)
    found = largest_batch(PartitionSpec(placement=placement), num_parts, step)
    assert found == pytest.approx(min(1000 * ranks, 1000 * ranks * share * 1.05), abs=1)
    assert largest_batch(PartitionSpec(placement=placement, seeds="equal"), num_parts, step) == 1000


def test_a_step_is_as_large_as_the_batch_of_the_rank_with_most_seeds():
    """4 parts on 3 hosts: one rank has half of the seeds, and not a third."""
    found, equal = (parted(ranks=3, hosts=3, seeds=seeds, cache=NO_CACHE) for seeds in ("owner", "equal"))
    for name in ("batches_mib", "index_mib"):
        assert getattr(found.memory, name) > getattr(equal.memory, name), name


def test_rows_that_are_not_counted_are_said():
    found = parted(is_sparse=True).memory
    assert (found.data_mib, "sparse features" in found.not_counted) == (None, True)
    assert parted().memory.not_counted == ""


def test_a_rank_ranks_all_nodes_before_it_holds_the_hottest():
    """20 bytes of a node, 24 of a training node and 40 of a row that is chosen, whatever is held afterwards."""
    without, seeds = held(), IN_PARTS.num_train
    for policy in ("vip", "degree", "hotness"):
        found = held(cache=HotCacheSpec(policy=policy, ratio=0.001))
        assert found == 4 * 1000 + 20 * 1000 + 24 * seeds + 40 > without
    assert held(cache=HotCacheSpec(ratio=0.001), num_nodes=20) < held(num_nodes=20) + 32, "batches take more"
    assert held(cache=HotCacheSpec(ratio=0.001), ranks=1, hosts=1) == held(ranks=1, hosts=1), "all rows are its own"


def test_rows_that_are_held_together_are_told_as_memory():
    found, without = (parted(cache=cache).memory for cache in ({"policy": "vip", "ratio": 0.1}, NO_CACHE))
    assert found.shared_mib == found.data_mib - without.data_mib > 0
    assert parted(placement="per_rank").memory.shared_mib == without.shared_mib == 0


def test_a_rank_holds_its_cache_as_far_as_rows_are_remote():
    """A host has its rows once, however many ranks it has; each rank has a table that finds them."""
    for placement in ("per_host", "per_rank"):
        without = parted(ranks=4, placement=placement, cache=NO_CACHE).memory
        for asked, rows in ((0.1, 0.1), (0.9, 0.5 if placement == "per_host" else 0.75)):
            found = parted(ranks=4, placement=placement, cache={"policy": "vip", "ratio": asked}).memory
            features, table = (int(rows * NODES) * each / 2**20 for each in (ROW, 32))
            mapped, own = found.data_mib - without.data_mib, found.index_mib - without.index_mib
            assert mapped == pytest.approx(features if placement == "per_host" else 0, rel=1e-6)
            assert own == pytest.approx(table + (0 if placement == "per_host" else features), rel=1e-6)
    alone = [parted(ranks=2, hosts=1, cache=cache).memory for cache in ({"policy": "vip", "ratio": 0.5}, NO_CACHE)]
    assert alone[0] == alone[1], "both ranks read all parts"
    capped, without = (parted(cache=cache).memory for cache in ({"policy": "degree", "ratio": 0.1, "mib": 1}, NO_CACHE))
    assert capped.data_mib - without.data_mib == pytest.approx(1)


def test_an_evaluation_over_parts_takes_blocks_of_bounded_size_whatever_the_graph_holds():
    """Five arrays of 16 MiB at most, of a layer's rows if these are fewer; or a step's activations if they are more."""
    assert evaluation_bytes(IN_PARTS, 128) == 5 * 1000 * 128 * 4
    assert evaluation_bytes(dataclasses.replace(IN_PARTS, num_nodes=10**9), 128) == 5 << 24
    assert evaluation_bytes(IN_PARTS, 128, layers_read=3) == (5 + 2 * 3) * 1000 * 128 * 4, "a head reads three"
    assert parted().memory.activations_mib >= 80


def test_a_window_holds_the_rows_of_its_batches():
    cache = {"policy": "lookahead"}
    one, eight = (parted(seeds="equal", cache={**cache, "window": n}).memory.index_mib for n in (1, 8))
    nodes, seeds = parted(seeds="equal").nodes_per_batch, 1024
    drawn = 8 * (nodes + seeds * 26) + 4 * (seeds * 25 + seeds * 25 * 10)
    assert eight - one == pytest.approx(7 * (nodes * (3 * ROW + ASKED) + drawn) / 2**20, rel=1e-3)


def test_a_batch_is_asked_for_one_ahead():
    """Its neighbourhood waits, where its rows are, and the question. Ranks of one host ask nobody."""
    alone, of_host, of_two = (
        [
            parted(ranks=n, hosts=h, seeds="equal", cache=cache).memory.index_mib
            for cache in (NO_CACHE, {"policy": "lookahead", "window": 1})
        ]
        for n, h in ((1, 1), (2, 1), (2, 2))
    )
    nodes, seeds = parted(seeds="equal").nodes_per_batch, 1024
    edges, rows = seeds * 25 + seeds * 25 * 10, seeds * 26
    assert len({*alone, *of_host}) == 1
    assert of_two[0] - of_two[1] == pytest.approx((ASKED * nodes + 8 * (nodes + rows) + 4 * edges) / 2**20, rel=1e-3)


def test_a_sampler_keeps_the_batches_of_all_trainers_that_it_serves():
    """Those of a step are fetched together, and those of the next are announced."""
    one, four = (held(batches_together=n) for n in (1, 4))
    assert four - one == 3 * (10 * (3 * 64 * 4 + ASKED) + 500) + 3 * (10 * ASKED + 500)


def test_features_of_edges_are_asked_for_and_come_in_messages():
    """Six copies of the values, and 24 bytes three times of a window's edges, once of those of the next."""
    without, with_five = (held(dataclasses.replace(IN_PARTS, num_edge_columns=n)) for n in (0, 5))
    assert with_five - without == 30 * (6 * 4 * 5 + 3 * 24) + 30 * 24


def test_where_the_topology_is_in_parts_four_batches_are_sampled_together_and_no_table_has_all_nodes():
    replicated, partitioned = (held(topology=topology) for topology in ("replicated", "partitioned"))
    assert partitioned - replicated == 3 * 500 - 4 * 1000


def test_rows_that_stay_between_windows_are_held_besides():
    """Twice: they move to the next window's table. Batches that wait for their window are neighbourhoods by then."""
    window = {"policy": "lookahead", "window": 8}
    one = parted(cache=window).memory.index_mib
    for budget, rows in (({"ratio": 0.1}, 0.1), ({"ratio": 0.9}, 0.5)):  # half of the rows are on the other host
        held = parted(cache={**window, **budget}).memory.index_mib - one
        assert held == pytest.approx(int(rows * NODES) * (2 * ROW + 32) / 2**20, rel=1e-6)
    capped = parted(cache={**window, "ratio": 0.1, "mib": 1}).memory.index_mib - one
    assert capped == pytest.approx(2 + int(0.1 * NODES) * 32 / 2**20, rel=1e-6)
    further, found = parted(cache={**window, "horizon": 2}).memory.index_mib - one, parted()
    nodes, seeds = found.nodes_per_batch, 1024
    edges, rows = seeds * 25 + (seeds + seeds * 25 - seeds) * 10, seeds * 26
    staying = min(8 * nodes, int(0.5 * NODES))
    assert further == pytest.approx((staying * (2 * ROW + 32) + 8 * (8 * (nodes + rows) + 4 * edges)) / 2**20, rel=1e-3)
