"""A run that is killed anywhere, and resumed until it is done, ends as if nothing had happened: to the bit."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest
from killing import Tally, assert_same, run_with_kills
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

from graphmill.record.events import Checkpoint, Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan

pytestmark = pytest.mark.distributed

FORECAST = """
task: traffic
dataset: {name: synthetic/traffic, history: 6, horizon: 6}
model: {kind: dcrnn, rnn_units: 8, num_layers: 2, cl_decay_steps: 25}
train:
  epochs: 2
  batch_size: 6
  ranks: 2
  threads: 1
  device: cpu
  sync: {scheme: local_sgd, every: 2}
  checkpoint: {every_steps: 6}
"""

GRAPHS = """
task: graph_classification
dataset: {name: synthetic/motifs, features: standardised}
model: {kind: gin, hidden_channels: 16, norm: batch}
train:
  epochs: 2
  batch_size: 8
  ranks: 2
  threads: 1
  device: cpu
  sync: {scheme: local_sgd, every: 2}
  checkpoint: {every_steps: 6}
"""

WINDOWS = """
task: intrusion
dataset: {name: synthetic/can}
model: {kind: gat, scale: small, heads: 2, hidden_channels: 4}
train:
  epochs: 2
  batch_size: 36
  ranks: 2
  threads: 1
  device: cpu
  sync: {scheme: local_sgd, every: 2}
  checkpoint: {every_steps: 6}
"""

LINKS = """
task: link_prediction
dataset: {name: synthetic/nearest}
model: {kind: graphsage, hidden_channels: 8}
embedding_channels: 8
head: {kind: mlp, hidden_channels: 8, dropout: 0.2}
negatives: {count: 2, side: both}
train:
  {epochs: 2, batch_size: 8, num_neighbors: [4, 3], ranks: 2, threads: 1, device: cpu,
   sync: {scheme: local_sgd, every: 2}, checkpoint: {every_steps: 6}}
"""
PER_RANK = "partition: {placement: per_rank, topology: partitioned, cache: {policy: presample}}"

VALUES = """
task: node_regression
dataset: {name: synthetic/values}
model: {kind: graphsage, hidden_channels: 8}
train:
  {epochs: 3, batch_size: 12, num_neighbors: [4, 3], ranks: 2, threads: 1, device: cpu, loss: {kind: huber},
   sync: {scheme: local_sgd, every: 2}, checkpoint: {every_steps: 6}}
"""


def plan_of(planned, run_id: str, ranks: int, every_steps: int, epochs: int = 3) -> Plan:
    """7 steps of each rank an epoch. Local SGD has the most state: moments by rank, and rounds within an epoch."""
    return planned(
        run_id,
        ranks=ranks,
        epochs=epochs,
        batch_size=20 // ranks,
        sync={"scheme": "local_sgd", "every": 2 if ranks > 1 else 1},
        checkpoint={"every_steps": every_steps},
    )


@pytest.fixture(scope="module")
def undisturbed(planned, zygote, tmp_path_factory):
    """The finished folder of each plan, trained once without a kill; and how long its training took, in s."""
    known: dict[tuple[int, int], tuple[RunFolder, float]] = {}

    def run(ranks: int, every_steps: int) -> tuple[RunFolder, float]:
        if (ranks, every_steps) not in known:
            plan = plan_of(planned, "run", ranks, every_steps)
            folder = RunFolder.create(plan, tmp_path_factory.mktemp("undisturbed"))
            pids = zygote.start(folder, resume=False)
            assert zygote.wait(pids) == [0] * ranks, zygote.said(folder)
            known[ranks, every_steps] = (folder, folder.read_outcome().wall_s)
        return known[ranks, every_steps]

    return run


def many_kills(zygote, planned, undisturbed, root: Path, total: int, per_run: int, seed: int) -> Tally:
    dice, tally = random.Random(seed), Tally()
    while tally.kills < total:
        ranks, every_steps = 1 + tally.runs % 2, 1 + tally.runs // 2 % 3
        reference, wall_s = undisturbed(ranks, every_steps)
        folder = RunFolder.create(plan_of(planned, "run", ranks, every_steps), root / str(tally.runs))
        wanted = min(per_run, total - tally.kills)
        run_with_kills(zygote, folder, dice, tally, num_kills=wanted, most_s=wall_s / 4)
        assert_same(folder, reference)
        tally.runs += 1
    return tally


def test_killed_at_random_moments(zygote, planned, undisturbed, tmp_path):
    """Four kills, over runs of one and of two ranks."""
    tally = many_kills(zygote, planned, undisturbed, tmp_path, total=4, per_run=2, seed=1)
    assert tally.kills == 4


LEARNING = {
    "a loss that draws": {"loss": {"kind": "custom", "target": "strange_losses.noisy"}},
    "judged by one's own": {
        "early_stopping": {"patience": 2, "min_delta": 1.0},
        "measures": {"brier": {"target": "strange_losses.brier", "higher_is_better": False}},
        "best_by": "brier",
    },
    "adam in groups": {"optimizer": {"kind": "adam", "groups": {"b": {"parameters": ["*.bias"], "lr_factor": 0.5}}}},
    "adamw": {"optimizer": {"kind": "adamw", "schedule": {"kind": "cosine", "warmup_steps": 5}}},
    "sgd": {"optimizer": {"kind": "sgd", "lr": 0.1, "schedule": {"kind": "linear", "warmup_steps": 3}}},
    "sgd with momentum": {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "frozen": ["*.bias"]}},
    "stopped early": {
        "early_stopping": {"patience": 2, "min_delta": 1.0},
        "loss": {"kind": "cross_entropy", "class_weights": "balanced"},
    },
}


@pytest.mark.parametrize("learning", with_slow(LEARNING, fast=["judged by one's own", "sgd with momentum"]))
def test_killed_with_every_optimizer(zygote, planned, tmp_path, learning):
    """Two kills of a run of two ranks; those that stop early do so after three of its six epochs."""
    settings = {"sync": {"scheme": "local_sgd", "every": 2}, "checkpoint": {"every_steps": 2}}
    stops_early = "early_stopping" in LEARNING[learning]
    epochs = 6 if stops_early else 3
    plan = planned("run", ranks=2, epochs=epochs, batch_size=10, **settings, **LEARNING[learning])
    reference = RunFolder.create(plan, tmp_path / "reference")
    assert zygote.wait(zygote.start(reference, resume=False)) == [0, 0], zygote.said(reference)
    outcome = reference.read_outcome()
    assert (outcome.stopped_early, outcome.epochs) == (stops_early, 3)
    folder, tally = RunFolder.create(plan, tmp_path / "killed"), Tally()
    run_with_kills(zygote, folder, random.Random(learning), tally, num_kills=2, most_s=outcome.wall_s / 3)
    assert_same(folder, reference)
    assert folder.read_outcome().stopped_early == outcome.stopped_early


@pytest.mark.slow
def test_killed_fifty_times(zygote, planned, undisturbed, tmp_path, record_property):
    """Fifty kills over runs of one and of two ranks, most of whose time goes into checkpoints."""
    tally = many_kills(zygote, planned, undisturbed, tmp_path, total=50, per_run=6, seed=int(time.time()))
    sys.stdout.write(f"\n{tally}: identical every time\n")
    for name, value in vars(tally).items():
        record_property(name, value)
    assert tally.kills == 50
    assert tally.in_checkpoints >= 10


def num_changes(zygote, planned, root: Path, ranks: int) -> int:
    """How often a short run changes the file system, as rank 0 sees it."""
    folder = RunFolder.create(short(planned, ranks), root)
    zygote.wait(zygote.start(folder, resume=False, die_at=-1))
    return zygote.changes(folder)


def short(planned, ranks: int) -> Plan:
    """Four steps, each with a checkpoint; the last of an epoch has two, of which the second takes the first's place."""
    checkpoint = {"every_steps": 1, "keep_every_epochs": 2}
    return planned("short", ranks=ranks, epochs=2, batch_size=70 // ranks, checkpoint=checkpoint)


def killed_before_changes(zygote, planned, tmp_path, numbers) -> None:
    reference = RunFolder.create(short(planned, 1), tmp_path / "reference")
    assert zygote.wait(zygote.start(reference, resume=False)) == [0]
    for number in numbers:
        folder = RunFolder.create(short(planned, 1), tmp_path / str(number))
        assert zygote.wait(zygote.start(folder, resume=False, die_at=number)) == [-signal.SIGKILL], number
        assert zygote.wait(zygote.start(folder, resume=True)) == [0], zygote.said(folder)
        assert_same(folder, reference)


@pytest.mark.slow
def test_killed_before_a_change_of_the_file_system(zygote, planned, tmp_path):
    """Not at a random moment but at each kind of bad one: a sample of all fsyncs, renames and removals of a run."""
    total = num_changes(zygote, planned, tmp_path / "count", 1)
    killed_before_changes(zygote, planned, tmp_path, range(3, total, max(1, total // 8)))


@pytest.mark.slow
def test_killed_before_every_change_of_the_file_system(zygote, planned, tmp_path):
    total = num_changes(zygote, planned, tmp_path / "count", 1)
    assert total > 80
    killed_before_changes(zygote, planned, tmp_path, range(1, total + 1))
    sys.stdout.write(f"\nkilled before each of {total} changes of the file system: identical every time\n")


@pytest.fixture(scope="module")
def long_run(planned, zygote, tmp_path_factory):
    """Twenty-five epochs, long enough to be stopped in the middle: the plan, and the folder of the undisturbed run."""
    known = {}

    def run(ranks: int) -> tuple[Plan, RunFolder]:
        if ranks not in known:
            plan = plan_of(planned, "long", ranks, every_steps=100, epochs=25)
            folder = RunFolder.create(plan, tmp_path_factory.mktemp("long"))
            assert zygote.wait(zygote.start(folder, resume=False)) == [0] * ranks, zygote.said(folder)
            known[ranks] = (plan, folder)
        return known[ranks]

    return run


def wait_for_step(folder: RunFolder, step: int) -> None:
    """Until a sync of that step, or a later one, is recorded."""
    path = folder.events_path(0)
    while not (path.exists() and any(event.steps_done >= step for event in events_in(path, Sync))):
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("number", "ranks"),
    with_slow([(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)], fast=[(signal.SIGTERM, 2)]),
)
def test_asked_to_stop(zygote, long_run, tmp_path, number, ranks):
    """The step is finished, a checkpoint written, exit status 75; the resumed run ends like an undisturbed one."""
    plan, reference = long_run(ranks)
    folder = RunFolder.create(plan, tmp_path)
    pids = zygote.start(folder, resume=False)
    wait_for_step(folder, 4)
    zygote.kill(pids[:1], number)  # one rank is enough: they decide together
    assert zygote.wait(pids) == [75] * ranks, zygote.said(folder)
    outcome = folder.read_outcome()
    assert (outcome.status, outcome.exit_code) == ("stopped", 75)
    assert outcome.message == f"stopped on {number.name}"
    assert 4 <= outcome.steps_per_rank < plan.last_step
    assert (folder.checkpoints_dir / f"step_{outcome.steps_per_rank:010d}" / "manifest.json").exists()
    assert zygote.wait(zygote.start(folder, resume=True)) == [0] * ranks, zygote.said(folder)
    assert_same(folder, reference)


def test_a_second_interrupt_ends_the_run_at_once(zygote, long_run, tmp_path):
    plan, reference = long_run(1)
    folder = RunFolder.create(plan, tmp_path)
    pids = zygote.start(folder, resume=False)
    wait_for_step(folder, 4)
    for _ in range(2):
        zygote.kill(pids, signal.SIGINT)
        time.sleep(0.0005)
    (code,) = zygote.wait(pids)
    assert code in (130, 75), "75 where the first was acted on before the second came"
    if code == 130:
        assert folder.read_outcome().status == "interrupted"
    assert zygote.wait(zygote.start(folder, resume=True)) == [0], zygote.said(folder)
    assert_same(folder, reference)


def num_syncs(folder: RunFolder) -> int:
    path = folder.events_path(0)
    return len(events_in(path, Sync)) if path.exists() else 0


def test_stopped_at_every_sync(zygote, planned, tmp_path):
    """A stop asked for as soon as each attempt has synchronised: past the ends of epochs and run."""
    plan = planned("slow", epochs=2, batch_size=50, sync={"scheme": "local_sgd", "every": 2})
    reference = RunFolder.create(plan, tmp_path / "reference")
    assert zygote.wait(zygote.start(reference, resume=False)) == [0]
    folder = RunFolder.create(plan, tmp_path / "stopped")
    steps, resume = [], False
    while folder.read_outcome() is None or folder.read_outcome().status != "done":
        before = num_syncs(folder)
        pids = zygote.start(folder, resume=resume)
        while num_syncs(folder) == before and folder.read_outcome() is None:
            time.sleep(0.0005)
        zygote.kill(pids, signal.SIGTERM)
        assert set(zygote.wait(pids)) <= {0, 75, -signal.SIGTERM}, zygote.said(folder)
        resume = True
        steps.append(folder.read_outcome().steps_per_rank if folder.read_outcome() else 0)
        assert len(steps) < 20
    assert steps == sorted(steps)
    assert_same(folder, reference)


TASKS = {
    "traffic": (make_series, FORECAST),
    "graphs": (make_graphs, GRAPHS),
    "windows": (make_captures, WINDOWS),
    "links": (make_links, LINKS),
    "links in parts": (
        make_links_in_parts,
        LINKS.replace("synthetic/nearest", "parts/synthetic/nearest/2-ldg") + PER_RANK,
    ),
    "values": (make_values, VALUES),
}


@pytest.mark.parametrize(
    ("name", "by"),
    with_slow(
        [(name, by) for by in ("ranks", "command") for name in TASKS],
        fast=[(name, "ranks") for name in TASKS if name not in ("links", "values")],
    ),
)
def test_other_tasks_killed_in_the_middle(zygote, environ, tmp_path, name, by):
    """Ranks, or `graphmill train` with all its ranks, killed between two checkpoints: while DCRNN's decoder is fed by
    chance, while norms keep statistics of what they have seen.
    """
    prepare, experiment = TASKS[name]
    prepare(tmp_path)
    step = 29  # of 23 an epoch; rounds end at odd ones in the second
    if by == "command":
        folder = train_and_kill(experiment, tmp_path, environ, step=step)
    else:
        folder = killed_by_rank(zygote, experiment, tmp_path, step=step)
    plan = folder.read_plan()
    steps = [event.steps_done for event in events_in(folder.events_path(0), Checkpoint)]
    assert 0 < steps[-1] < plan.last_step
    assert steps[-1] % plan.calendar.steps_in(0), "a checkpoint within an epoch"

    if by == "command":
        resume_with(folder, environ)
    else:
        assert zygote.wait(zygote.start(folder, resume=True)) == [0, 0], zygote.said(folder)
    assert [attempt.resumed for attempt in folder.attempts()] == [False, True]
    undisturbed = RunFolder.create(plan, tmp_path / "undisturbed")
    assert zygote.wait(zygote.start(undisturbed, resume=False)) == [0, 0], zygote.said(undisturbed)
    assert_same(folder, undisturbed)
