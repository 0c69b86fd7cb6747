"""A run that another number of ranks continues takes the same steps: the same global batches, cut otherwise."""

import signal
from pathlib import Path
from typing import Any

import pytest
from other_tasks import (
    killed_by_rank,
    make_captures,
    make_graphs,
    make_links,
    make_links_in_parts,
    make_series,
    make_values,
    resume_with,
    train_and_kill,
)
from slow_cases import with_slow

from graphmill.record.documents import Outcome
from graphmill.record.manifest import Manifest
from graphmill.record.metrics import read_metrics
from graphmill.record.provenance import collect_provenance
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.world import ranks_at, spans_of, world_of
from graphmill.tasks.node_classification.access import epochs_of
from graphmill.verify.events import read_event_log
from graphmill.verify.run import verify_run

pytestmark = pytest.mark.distributed

CLOSE = 1e-5  # of the losses of a step
SEEDS = 20  # of a global batch
KILLED = {1: 54, 3: 45}  # by sync_every: before which change of the file system the last rank kills itself
TURNS = (4, 2, 3, 1)


def plan_of(planned, run_id: str, **train: Any) -> Plan:
    """7 steps of each rank an epoch, each of 20 seeds; the shares of 3 ranks are 7, 7 and 6."""
    return planned(run_id, **{"ranks": 4, "epochs": 5, "batch_size": 5, "checkpoint": {"every_steps": 1}, **train})


def trained(zygote, plan: Plan, root: Path, turns: tuple[int, ...], killed: int = KILLED[1]) -> RunFolder:
    """A run that each number of ranks in turn begins or continues; all but the last are killed."""
    folder = RunFolder.create(plan, root)
    dataset = plan.dataset
    folder.write_provenance(
        collect_provenance(["test"], dataset_checksum=dataset.prepared_checksum, synthetic=dataset.synthetic)
    )
    for number, ranks in enumerate(turns):
        die_at = killed if number < len(turns) - 1 else 0
        pids = zygote.start(folder, resume=number > 0, die_at=die_at, world=world_of(plan, ranks=ranks, hosts=1))
        codes = zygote.wait(pids, patience_s=3 if die_at else None)
        assert codes[-1] == (-signal.SIGKILL if die_at else 0), zygote.said(folder)
    return folder


def round_losses(folder: RunFolder) -> list[float]:
    """The sum that every round of the run lost, as it ended: what the sums of all ranks have grown by."""
    calendar = folder.read_plan().calendar
    logs = [read_event_log(folder, rank) for rank in range(max(each.world.ranks for each in folder.attempts()))]
    spans = spans_of(logs[0].worlds)
    losses, before = list[float](), 0.0
    for steps in sorted(logs[0].syncs):
        total = sum(log.syncs[steps].loss_sum for log in logs[: ranks_at(spans, steps)])
        losses.append(total - before)
        before = 0.0 if calendar.position(steps).step == 0 else total
    return losses


def outcome_of(folder: RunFolder) -> Outcome:
    outcome = folder.read_outcome()
    assert outcome is not None
    assert outcome.status == "done"
    return outcome


def assert_all_seeds_once(folder: RunFolder) -> None:
    rows = read_metrics(folder.metrics_path)
    num_seeds = folder.read_plan().dataset.num_train
    assert [int(row["num_seeds"]) for row in rows] == [num_seeds] * len(rows)
    assert int(rows[-1]["num_seeds_cum"]) == num_seeds * folder.read_plan().calendar.num_epochs


@pytest.fixture(
    scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 3], ids=["every step", "deferred by 3"]
)
def both(request, planned, zygote, tmp_path_factory) -> tuple[RunFolder, RunFolder]:
    """Four ranks from the first step to the last; and the same run, killed three times in the middle of an epoch, and
    continued by 2, by 3 and by 1.
    """
    plan = plan_of(planned, "same", sync={"scheme": "deferred_allreduce", "every": request.param})
    root = tmp_path_factory.mktemp("elastic")
    undisturbed = trained(zygote, plan, root / "undisturbed", (4,))
    return undisturbed, trained(zygote, plan, root / "elastic", TURNS, killed=KILLED[request.param])


def test_every_step_loses_what_it_would_have_lost(both):
    undisturbed, elastic = both
    expected, found = round_losses(undisturbed), round_losses(elastic)
    plan = elastic.read_plan()
    assert len(expected) == plan.calendar.rounds_ended(plan.last_step)
    assert len(found) == len(expected)
    differences = [abs(one - other) / SEEDS for one, other in zip(expected, found, strict=True)]
    assert max(differences) <= CLOSE
    assert max(differences) > 0, "sums in another order: equality to the bit would be chance"
    one, other = outcome_of(undisturbed).test, outcome_of(elastic).test
    assert abs(one["loss"] - other["loss"]) <= CLOSE
    assert one["num_seeds"] == other["num_seeds"]


def test_presampled_epochs_are_cut_for_other_ranks(planned, zygote, tmp_path, both):
    """The same draws, whoever reads them: every step loses what it loses where they are sampled."""
    sampling = both[1].read_plan()
    source = epochs_of(sampling)
    folder = source.folder(tmp_path / "sampled")
    folder.begin()
    for epoch in range(sampling.calendar.num_epochs):
        folder.write(epoch, source.schedule, source.sampler(), lambda steps, num_bytes: None)
    task = sampling.task.model_copy(update={"presampled": str(folder.path)})
    plan = sampling.model_copy(update={"task": task})
    read = trained(zygote, plan, tmp_path / "read", (4, 2, 1), killed={1: 80, 3: 45}[sampling.sync.every])
    assert len(spans_of(read_event_log(read, 0).worlds)) >= 2, "several numbers of ranks have read them"
    differences = [abs(a - b) / SEEDS for a, b in zip(round_losses(both[0]), round_losses(read), strict=True)]
    assert max(differences) <= CLOSE
    assert_all_seeds_once(read)


def test_no_seed_is_dropped_or_doubled(both):
    assert_all_seeds_once(both[1])


def test_the_run_says_who_did_what(both):
    undisturbed, elastic = both
    assert outcome_of(undisturbed).elastic == ""
    spans = spans_of(read_event_log(elastic, 0).worlds)
    assert tuple(each.ranks for each in spans) == TURNS
    cuts = [elastic.read_plan().calendar.position(each.first_step).step for each in spans[1:]]
    assert any(cuts), "in the middle of an epoch"
    second, third, last = (each.first_step for each in spans[1:])
    said = f"ranks: 4 to step {second}, then 2 to step {third}, then 3 to step {last}, then 1"
    assert outcome_of(elastic).elastic == said
    rows = read_metrics(elastic.metrics_path)
    assert [int(row["world_size"]) for row in rows] == [TURNS[int(row["attempt"]) - 1] for row in rows]
    ends = [int(row["steps_done"]) for row in rows]
    assert [int(row["global_steps"]) for row in rows] == [4 * steps for steps in ends]


def test_verify_accepts_it_with_a_warning(both):
    undisturbed, elastic = both
    assert [check for check in verify_run(undisturbed) if check.result != "ok"] == []
    (warning,) = (check for check in verify_run(elastic) if check.result != "ok")
    assert (warning.name, warning.result) == ("elastic", "warn")
    assert outcome_of(elastic).elastic in warning.detail
    assert "4 were planned" in warning.detail
    assert "rounding" in warning.detail


def test_the_same_number_again_is_equal_to_the_bit(planned, zygote, tmp_path, last_checkpoint):
    """Killed among other ranks than planned, and continued by as many: as if only the first kill had been."""
    plan = plan_of(planned, "same", epochs=3)
    once = trained(zygote, plan, tmp_path / "once", (4, 2), killed=40)
    twice = RunFolder(trained(zygote, plan, tmp_path / "twice", (4, 2, 2), killed=40).path)
    assert [each.ranks for each in spans_of(read_event_log(twice, 0).worlds)] == [4, 2]
    for name in ("model.safetensors", "rank_0.safetensors", "rank_1.safetensors"):
        assert (last_checkpoint(once) / name).read_bytes() == (last_checkpoint(twice) / name).read_bytes()


LOCAL = {
    "local sgd": {"scheme": "local_sgd", "every": 2},
    "with a warm-up, moments averaged": {
        **{"scheme": "local_sgd", "every": 3, "warmup_steps": 4, "average_optimizer_state": True}
    },
    "diloco": {"scheme": "diloco", "every": 2},
}


@pytest.mark.parametrize("name", with_slow(LOCAL, fast=["with a warm-up, moments averaged"]))
def test_ranks_that_update_alone_go_on_from_the_last_sync(planned, zygote, tmp_path, name):
    """Other losses than planned, since there are other replicas; the same seeds, and replicas that agree."""
    plan = plan_of(planned, "local", sync=LOCAL[name], epochs=3)
    folder = trained(zygote, plan, tmp_path, (4, 3, 2), killed=40)
    spans = spans_of(read_event_log(folder, 0).worlds)
    assert [each.ranks for each in spans] == [4, 3, 2]
    warmup = LOCAL[name].get("warmup_steps", 0)
    assert all(step <= warmup or plan.calendar.closes_round(step) for step in (each.first_step for each in spans[1:]))
    assert_all_seeds_once(folder)
    (warning,) = (check for check in verify_run(folder) if check.result != "ok")
    assert (warning.name, warning.result) == ("elastic", "warn")
    assert "losses are others" in warning.detail


def test_a_checkpoint_of_each_number_of_ranks_is_theirs(planned, zygote, tmp_path):
    plan = plan_of(planned, "kept", epochs=3, checkpoint={"every_steps": 1, "keep_every_epochs": 1})
    folder = trained(zygote, plan, tmp_path, (2, 4, 1), killed=60)
    spans = spans_of(read_event_log(folder, 0).worlds)
    for path in folder.checkpoints_dir.glob("step_*"):
        manifest = Manifest.read(path)
        assert manifest.world_size == ranks_at(spans, manifest.steps_done)


FORECAST = """
task: traffic
dataset: {name: synthetic/traffic, history: 6, horizon: 6}
model: {kind: dcrnn, rnn_units: 8, num_layers: 2, cl_decay_steps: 25}
train: {epochs: 2, batch_size: 6, ranks: 2, threads: 1, device: cpu, checkpoint: {every_steps: 6}}
"""

GRAPHS = """
task: graph_classification
dataset: {name: synthetic/motifs, features: standardised}
model: {kind: gin, hidden_channels: 16, norm: layer, dropout: 0}
train: {epochs: 2, batch_size: 16, ranks: 2, threads: 1, device: cpu, checkpoint: {every_steps: 4}}
"""

BY_BUDGET = """
task: graph_classification
dataset: {name: synthetic/motifs, features: standardised}
model: {kind: gin, hidden_channels: 16, norm: layer, dropout: 0}
train:
  {epochs: 2, batch: {mode: budget, max_nodes: 300, max_edges: 1200}, ranks: 2, threads: 1, device: cpu,
   checkpoint: {every_steps: 4}}
"""

WINDOWS = """
task: intrusion
dataset: {name: synthetic/can}
model: {kind: gat, scale: small, heads: 2, hidden_channels: 4, dropout: 0, id_dropout: 0, attention_dropout: 0}
train: {epochs: 2, batch_size: 36, ranks: 2, threads: 1, device: cpu, checkpoint: {every_steps: 4}}
"""

LINKS = """
task: link_prediction
dataset: {name: synthetic/nearest}
model: {kind: graphsage, hidden_channels: 8, dropout: 0}
embedding_channels: 8
head: {kind: mlp, hidden_channels: 8}
negatives: {count: 2, side: both}
train:
  {epochs: 2, batch_size: 8, num_neighbors: [4, 3], ranks: 2, threads: 1, device: cpu,
   checkpoint: {every_steps: 4}}
"""

VALUES = """
task: node_regression
dataset: {name: synthetic/values}
model: {kind: graphsage, hidden_channels: 8, dropout: 0}
train:
  {epochs: 2, batch_size: 12, num_neighbors: [4, 3], ranks: 2, threads: 1, device: cpu, checkpoint: {every_steps: 4}}
"""

TASKS = {
    "traffic": (make_series, FORECAST, 3),
    "graphs": (make_graphs, GRAPHS, 3),
    "graphs by budget": (make_graphs, BY_BUDGET, 3),
    "windows": (make_captures, WINDOWS, 1),
    "links": (make_links, LINKS, 3),
    "links in parts": (make_links_in_parts, LINKS.replace("synthetic/nearest", "parts/synthetic/nearest/2-ldg"), 3),
    "values": (make_values, VALUES, 3),
}


@pytest.mark.parametrize(
    ("name", "by"),
    with_slow(
        [(name, by) for by in ("ranks", "command") for name in TASKS],
        fast=[("graphs by budget", "ranks")],
    ),
)
def test_other_tasks_take_the_same_steps(zygote, environ, tmp_path, name, by):
    """Ranks, or `graphmill train` with its ranks, killed in the middle of an epoch, and continued by another number of
    them.
    """
    prepare, experiment, others = TASKS[name]
    prepare(tmp_path)
    if by == "command":
        folder = train_and_kill(experiment, tmp_path, environ, step=9)
        said = resume_with(folder, environ, "--ranks", str(others))
        assert f"attempt 2 has {others} rank" in said
        assert "2 were planned" in said
    else:
        folder = killed_by_rank(zygote, experiment, tmp_path, step=9)
        world = world_of(folder.read_plan(), ranks=others, hosts=1)
        assert zygote.wait(zygote.start(folder, resume=True, world=world)) == [0] * others, zygote.said(folder)
    plan = folder.read_plan()
    first, second = spans_of(read_event_log(folder, 0).worlds)
    assert (first.ranks, second.ranks) == (2, others)
    assert plan.calendar.position(second.first_step).step, "in the middle of an epoch"
    assert_all_seeds_once(folder)
    undisturbed = trained(zygote, plan, tmp_path / "undisturbed", (2,))
    expected, found = round_losses(undisturbed), round_losses(folder)
    assert expected[: second.first_step] == found[: second.first_step], "nothing has happened yet"
    assert found == pytest.approx(expected, rel=CLOSE)
    assert {check.name for check in verify_run(folder) if check.result != "ok"} == {"elastic"}
