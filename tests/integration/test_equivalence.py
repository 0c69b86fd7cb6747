"""Several ranks do what one process does, or what a simulation of them in one process does."""

from pathlib import Path

import pytest
import torch
from rounding import Bounded, assert_near, drift
from safetensors.torch import load_file

from graphmill.graph.batch import MiniBatch, SparseRows
from graphmill.record.metrics import read_metrics
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.tasks.build import build_task
from graphmill.train.evaluate import evaluate

pytestmark = pytest.mark.distributed

GLOBAL_BATCH = 20
EPOCHS = 4


@pytest.fixture(scope="module")
def plans(planned):
    """By number of ranks: the same data-parallel run, dropout on, and what else is to be trained with two."""
    model = {"dropout": 0.5, "input_dropout": 0.2, "hidden_channels": 16}
    found = {
        ranks: [planned("same", model=model, ranks=ranks, batch_size=GLOBAL_BATCH // ranks, epochs=EPOCHS)]
        for ranks in (1, 2, 4)
    }
    local = [planned(f"local-{k}", ranks=2, sync={"scheme": "local_sgd", "every": k}, epochs=3) for k in (1, 3)]
    stranger = {"kind": "custom", "target": "strange_models.Normalised"}
    found[2] += [*local, planned("stranger", ranks=2, model=stranger, sync={"scheme": "local_sgd", "every": 2})]
    return found


@pytest.fixture(scope="module")
def trained(plans, train_all):
    """Folders by number of ranks, then by run id."""
    return {ranks: train_all(of_ranks) for ranks, of_ranks in plans.items()}


@pytest.fixture(scope="module")
def data_parallel(trained):
    """The folder of the same run for each number of ranks."""
    return {ranks: folders["same"] for ranks, folders in trained.items()}


def widest_sum(plan) -> int:
    """Terms of the longest sum of an update: over the features of a node and of the mean of its neighbours."""
    return 2 * plan.dataset.num_features


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("column", ["loss", "val_loss"])
def test_losses_are_those_of_one_process(data_parallel, ranks, column):
    alone, together = (
        [float(row[column]) for row in read_metrics(data_parallel[number].metrics_path)] for number in (1, ranks)
    )
    assert len(alone) == EPOCHS
    plan = data_parallel[1].read_plan()
    for one, other in zip(alone, together, strict=True):
        assert abs(one - other) <= drift(one, terms=widest_sum(plan), updates=plan.last_step)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_test_split_is_judged_as_by_one_process(data_parallel, ranks):
    plan = data_parallel[1].read_plan()
    one, other = (data_parallel[number].read_outcome().test for number in (1, ranks))
    assert abs(other["loss"] - one["loss"]) <= drift(one["loss"], terms=widest_sum(plan), updates=plan.last_step)
    assert other["num_seeds"] == one["num_seeds"]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_process_evaluates_what_any_number_of_ranks_trained(data_parallel, ranks):
    outcome = data_parallel[ranks].read_outcome()
    facts = evaluate(data_parallel[ranks], split="test", which="best")
    assert (facts["micro_f1"], facts["macro_f1"]) == (outcome.test["micro_f1"], outcome.test["macro_f1"])
    in_another_order = Bounded.of(outcome.test["loss"]).rounded(facts["num_seeds"])  # a sum of positive terms
    assert_near(facts["loss"], in_another_order, computed=torch.float64)
    best = evaluate(data_parallel[ranks], split="val", which="best")
    assert best["micro_f1"] == outcome.best["micro_f1"]
    assert best["steps_per_rank"] == outcome.best["step"]


class Simulated:
    """One rank of a local-SGD run in this process."""

    def __init__(self, plan, rank: int) -> None:
        self.task = build_task(plan, Group(rank, plan.ranks, torch.device("cpu")))
        self.replica = Replica(self.task.model)
        flat = torch.nn.Parameter(self.replica.values)
        flat.grad = self.replica.grads
        self.optimizer = torch.optim.Adam(
            [flat], lr=plan.optimizer.lr, weight_decay=plan.optimizer.weight_decay, fused=True
        )

    def update(self, batch) -> None:
        self.task.loss_sum(batch).backward()
        self.replica.grads /= len(batch.seeds.ids)
        self.optimizer.step()
        self.replica.grads.zero_()


def simulate(plan) -> dict[str, torch.Tensor]:
    """Local SGD as its paper writes it: k updates each, then the mean of the parameters."""
    ranks = [Simulated(plan, rank) for rank in range(plan.ranks)]
    anchor = ranks[0].replica.values.clone()
    for epoch in range(plan.calendar.num_epochs):
        streams = [rank.task.batches(epoch, 0) for rank in ranks]
        for step in range(plan.calendar.steps_in(0)):
            for rank, stream in zip(ranks, streams, strict=True):
                rank.update(next(stream))
            if (step + 1) % plan.sync.every == 0 or step + 1 == plan.calendar.steps_in(0):
                change = sum((rank.replica.values - anchor) / plan.ranks for rank in ranks)
                anchor = anchor + change
                for rank in ranks:
                    rank.replica.values.copy_(anchor)
        for stream in streams:
            stream.close()
    return ranks[0].task.model.state_dict()


@pytest.mark.parametrize("every", [1, 3])
def test_local_sgd_is_its_simulation(plans, trained, last_checkpoint, every):
    plan = next(plan for plan in plans[2] if plan.run_id == f"local-{every}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = simulate(plan)
    torch.set_num_threads(threads)
    found = load_file(last_checkpoint(trained[2][plan.run_id]) / "model.safetensors")
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_strangers_model_agrees_as_a_whole(trained, syncs, last_checkpoint):
    """Running statistics are buffers, which every rank gathers from its own batches: they are averaged too."""
    first, second = syncs(trained[2]["stranger"])
    assert [event.parameter_hash for event in first] == [event.parameter_hash for event in second]
    assert all(event.replicas_agree for event in first)
    tensors = load_file(last_checkpoint(trained[2]["stranger"]) / "model.safetensors")
    assert tensors["inner.norm.running_mean"].any()
    num_values = sum(t.numel() for name, t in tensors.items() if "running" not in name and "num_batches" not in name)
    num_buffers = sum(t.numel() for name, t in tensors.items() if "running" in name)
    counters = [t for name, t in tensors.items() if "num_batches" in name]
    assert [(t.dtype, t.numel()) for t in counters] == [(torch.int64, 1)]
    assert first[-1].payload_bytes == len(first) * (4 * (num_values + num_buffers) + 8)


def numbers(batch: MiniBatch) -> torch.Tensor:
    """What the first layer reads."""
    return batch.inputs.values if isinstance(batch.inputs, SparseRows) else batch.inputs.x


def test_batches_do_not_depend_on_prefetch_or_threads(planned):
    """Invariant 1: a batch is a function of (seed, epoch, step, rank, world size)."""
    found = []
    for prefetch, threads in ((0, 1), (2, 1), (3, 2)):
        plan = planned("run", ranks=2, prefetch=prefetch, threads=threads)
        task = build_task(plan, Group(1, 2, torch.device("cpu")))
        batches = task.batches(1, 2)
        found.append([(batch.node_ids.clone(), batch.labels.clone(), numbers(batch).clone()) for batch in batches])
    for other in found[1:]:
        for one, batch in zip(found[0], other, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, batch, strict=True))


def test_the_store_must_be_the_one_that_was_planned_with(planned, data_root: Path):
    from graphmill.base.errors import UserError

    plan = planned("run")
    moved = plan.dataset.model_copy(update={"checksum": "0" * 16})
    other = plan.model_copy(update={"task": plan.task.model_copy(update={"dataset": moved})})
    with pytest.raises(UserError, match="was prepared again"):
        build_task(other, Group(0, 1, torch.device("cpu")))
