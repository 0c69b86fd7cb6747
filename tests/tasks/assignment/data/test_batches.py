"""Batches of costs: matrices less the minima of rows, and memory that is used again, but not while it is read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.spec.plan import MachineInfo
from graphmill.sync.group import Group
from graphmill.tasks.assignment.data import batches
from graphmill.tasks.assignment.data.batches import CostBuffers, InstanceCollector, reduced
from graphmill.tasks.assignment.page import AssignmentExperiment, AssignmentPlan, largest_batch
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment

SHAPES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(1, 9)), max_size=12)


def costs_of(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    costs = rng.uniform(-5, 5, (rows, columns))
    costs[rng.random((rows, columns)) < 0.1] = np.inf
    return costs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("at_once", [1, 40, 2**18])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_minima_of_rows_are_taken_off_some_rows_at_a_time(dtype, at_once, is_transposed, monkeypatch):
    monkeypatch.setattr(batches, "_PAIRS_AT_ONCE", at_once)
    rng = np.random.default_rng(5)
    wide = [costs_of(rng, rows, columns).astype(dtype) for rows, columns in ((7, 19), (12, 13), (1, 20))]
    wide[1][4] = np.inf  # a row without any pair
    given_costs = [np.ascontiguousarray(each.T).T if is_transposed else each for each in wide]
    instances, totals = reduced(given_costs)
    assert instances.costs.shape == (3, 12, 20)
    for place, costs in enumerate(wide):
        rows, columns = costs.shape
        minima = costs.min(axis=1).astype(np.float64)
        minima[~np.isfinite(minima)] = 0.0
        assert totals[place] == minima.sum()
        found = instances.costs[place].numpy()
        assert np.array_equal(found[:rows, :columns], (costs - minima[:, None]).astype(np.float32))
        assert np.isinf(found[rows:]).all()
        assert np.isinf(found[:, columns:]).all()


@given(SHAPES, st.data())
def test_memory_is_used_again_and_never_while_a_batch_is_read(shapes, data):
    buffers, alive, places, most = CostBuffers(4 * 9 * 9), list[tuple[torch.Tensor, int]](), set[int](), 0
    for number, shape in enumerate(shapes):
        taken = buffers.allocate(shape)
        places |= {taken.data_ptr()} if taken.numel() else set()
        alive.append((taken.fill_(number), number))
        most = max(most, len(alive))
        del taken
        for tensor, value in alive:
            assert (tensor == value).all()
            tensor = None  # the list alone holds it
        for _ in range(data.draw(st.integers(0, len(alive)))):
            alive.pop(data.draw(st.integers(0, len(alive) - 1)))
    assert len(places) <= most


def test_a_batch_larger_than_the_largest_that_was_expected():
    buffers = CostBuffers(6)
    for shape in ((1, 2, 3), (2, 5, 7), (1, 2, 3)):
        assert buffers.allocate(shape).fill_(1.0).sum() == np.prod(shape)


def test_an_epoch_of_several_sizes_takes_memory_for_three_batches(small):
    experiment = AssignmentExperiment.model_validate(
        {
            "dataset": {"name": str(small.path)},
            "model": {"kind": "one_gnn", "hidden_channels": 8, "rounds": 1, "soft_sweeps": 1},
            "train": {"epochs": 3, "batch_size": 2, "threads": 1, "device": "cpu", "prefetch": 1},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    plan = plan_experiment(experiment, dataset_root=Path("/"), run_id="run", machine=machine)
    task, places, shapes = build_task(plan, Group(0, 1, torch.device("cpu"))), set[int](), set[torch.Size]()
    for epoch in range(3):
        for batch in task.batches(epoch, 0):
            places.add(batch.instances.costs.data_ptr())
            shapes.add(batch.instances.costs.shape)
            del batch
    assert len(shapes) > 2
    assert len(places) <= 3  # one waits, one is made, one is used
    assert isinstance(plan.task, AssignmentPlan)
    assert max(shape.numel() for shape in shapes) <= largest_batch(plan.task, plan.batch_size)


def test_costs_are_those_of_the_instances_in_their_order(small):
    ids = small.instances("train", (17,))[::-1]
    batch = InstanceCollector(small, with_oracle=True, buffers=CostBuffers(0)).collect(EvaluationSeeds(SeedIds(ids)))
    for place, instance in enumerate(ids):
        costs = small.cost(int(instance))
        costs = costs.T if costs.shape[0] > costs.shape[1] else costs
        found = batch.instances.costs[place, : costs.shape[0], : costs.shape[1]].numpy()
        assert np.array_equal(found, (costs - costs.min(axis=1, keepdims=True)).astype(np.float32))
