"""Runs on a graph in parts: weights of the run on the whole graph, whatever happens to them on the way."""

import json
import os
import random
import shutil
import signal
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import Tally, assert_same, run_with_kills
from other_tasks import LINKS, make_links
from slow_cases import with_slow
from waiting import HANG_S

from graphmill.base.exits import BAD_REQUEST
from graphmill.graph.sampled import StorageIds
from graphmill.partition.parts import PartedGraph
from graphmill.record.events import Failure, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.markdown import markdown
from graphmill.report.run_page import run_page
from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import SeedSchedule, in_windows
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.tasks.node_classification.access import epochs_of
from graphmill.tasks.planning import plan_experiment
from replay import needs_of_rank, steps_of

pytestmark = pytest.mark.distributed

AHEAD = {"policy": "lookahead", "window": 3, "horizon": 2, "ratio": 0.1}
WAYS = {
    "rows fetched batch by batch": {"topology": "replicated", "cache": {"policy": "none"}},
    "rows held": {"topology": "replicated", "cache": {"policy": "vip", "ratio": 0.05}},
    "looking ahead": {"topology": "replicated", "cache": AHEAD},
    "topology in parts": {"topology": "partitioned", "cache": {"policy": "presample"}},
    "seeds to owners": {"topology": "partitioned", "seeds": "owner", "cache": {"policy": "none"}},
}
OF_TASK: dict[str, dict[str, Any]] = {
    "nodes": {"model": {"kind": "graphsage", "hidden_channels": 8}},
    "links": {
        "task": "link_prediction",
        "model": {"kind": "graphsage", "hidden_channels": 8},
        "embedding_channels": 8,
        "head": {"kind": "mlp", "hidden_channels": 8, "dropout": 0.2},
        "negatives": {"count": 2, "side": "both"},
    },
}
OF_TASK["links by gat"] = {**OF_TASK["links"], "model": {"kind": "gat", "hidden_channels": 4, "heads": 2}}
DATA = {"nodes": "cora", "links": LINKS, "links by gat": LINKS}
TASKS_AND_WAYS = (
    [("nodes", way) for way in WAYS] + [("links", way) for way in WAYS] + [("links by gat", "topology in parts")]
)


@pytest.fixture(scope="session")
def cut(data_root: Path, cut_into):
    """`cut(task, num_parts)`: the name of its data in parts; 0: of the whole."""
    make_links(data_root)
    return lambda task, num_parts: cut_into(DATA[task], num_parts) if num_parts else DATA[task]


@pytest.fixture(scope="session")
def parts(cut) -> str:
    """The name of `cora` in two parts."""
    return cut("nodes", 2)


@pytest.fixture
def plan_in_parts(data_root: Path, cut):
    """Two ranks of a small model, with a part each; 7 steps of each rank an epoch, 23 of links."""

    def plan(
        way: str,
        epochs: int = 3,
        task: str = "nodes",
        num_parts: int = 2,
        run_id: str = "run",
        over: dict[str, Any] | None = None,
        **train: Any,
    ) -> Plan:
        raw = {
            **OF_TASK[task],
            "dataset": {"name": cut(task, num_parts)},
            "train": {
                "epochs": epochs,
                "batch_size": 10,
                "num_neighbors": [3, 3],
                "threads": 1,
                "baselines": False,
                "ranks": 2,
                "device": "cpu",
                "sync": {"scheme": "local_sgd", "every": 2},
                "checkpoint": {"every_steps": 2},
                "prefetch": 3,
                **train,
            },
        }
        if num_parts:
            raw["partition"] = {"placement": "per_rank", "seeds": "equal", **WAYS[way]}
        raw |= over or {}
        return plan_experiment(inline_experiment(raw, "test"), dataset_root=data_root, run_id=run_id)

    return plan


def trained(zygote, plan: Plan, root: Path) -> RunFolder:
    folder = RunFolder.create(plan, root)
    assert zygote.wait(zygote.start(folder, resume=False)) == [0] * plan.ranks, zygote.said(folder)
    return folder


def presampled(plan: Plan, path: Path) -> Plan:
    """The same, over epochs that are sampled into a folder."""
    source = epochs_of(plan)
    (folder := source.folder(path)).begin()
    for epoch in range(plan.calendar.num_epochs):
        folder.write(epoch, source.schedule, source.sampler(), lambda steps, num_bytes: None)
    return plan.model_copy(update={"task": plan.task.model_copy(update={"presampled": str(path)})})


def hashes(folder: RunFolder) -> list[str]:
    """Of the parameters after every sync."""
    return [event.parameter_hash for event in events_in(folder.events_path(0), Sync)]


def test_threads_of_collectives_take_no_core_from_others(zygote, plan_in_parts, tmp_path):
    model = {"model": {"kind": "custom", "target": "strange_models.Watchful"}}
    folder = trained(zygote, plan_in_parts("topology in parts", epochs=1, over=model), tmp_path)
    said = zygote.said(folder)
    assert said.count(f"gloo {[os.SCHED_BATCH] * 2}\n") == 2, said  # of the training and of the loaders, on each rank
    assert said.count(f"main {os.SCHED_OTHER}\n") == 2


@pytest.mark.parametrize(
    ("task", "way"),
    with_slow(
        [cell for cell in TASKS_AND_WAYS if cell[1] != "seeds to owners"],
        fast=[
            ("nodes", "rows fetched batch by batch"),
            ("links", "looking ahead"),
        ],
    ),
)
def test_weights_are_those_of_the_run_on_the_whole_graph(zygote, plan_in_parts, tmp_path, task, way):
    whole = trained(zygote, plan_in_parts(way, task=task, num_parts=0), tmp_path / "whole")
    in_parts = trained(zygote, plan_in_parts(way, task=task), tmp_path / "parts")
    plan = whole.read_plan()
    assert len(hashes(whole)) == plan.calendar.rounds_ended(plan.last_step)
    assert hashes(in_parts) == hashes(whole)
    found, expected = in_parts.read_outcome(), whole.read_outcome()
    measures = plan.kind.measures if task != "nodes" else plan.kind.measures[:1]
    for measure in measures:
        assert found.test[measure.name] == expected.test[measure.name]
        assert found.best[measure.name] == expected.best[measure.name]


@pytest.mark.parametrize(
    ("task", "num_parts"),
    with_slow([("nodes", 4), ("nodes", 2), ("links", 4), ("links", 2)], fast=[("nodes", 2)]),
)
def test_three_ranks_share_parts_unevenly(zygote, plan_in_parts, tmp_path, task, num_parts):
    """What is left after a host was lost: weights are those of three ranks on the whole graph."""
    asked = {"ranks": 3, "epochs": 2, "task": task}
    whole = trained(zygote, plan_in_parts("topology in parts", num_parts=0, **asked), tmp_path / "whole")
    asked["num_parts"] = num_parts
    for way in ("topology in parts", "rows held", "looking ahead"):
        folder = trained(zygote, plan_in_parts(way, **asked), tmp_path / way.replace(" ", "-"))
        assert hashes(folder) == hashes(whole), way
        primary = whole.read_plan().kind.primary.name
        assert folder.read_outcome().test[primary] == whole.read_outcome().test[primary]
    owned = trained(zygote, plan_in_parts("seeds to owners", **asked), tmp_path / "owned")
    rows = read_metrics(owned.metrics_path)
    assert [int(row["num_seeds"]) for row in rows] == [owned.read_plan().dataset.num_train] * 2, "each seed once"
    if task == "links":
        return  # it has no presampled epochs
    sampled = presampled(owned.read_plan(), tmp_path / "epochs")
    assert hashes(trained(zygote, sampled, tmp_path / "read")) == hashes(owned)


@pytest.mark.parametrize("task", ["links", pytest.param("links by gat", marks=pytest.mark.slow)])
def test_measures_of_links_are_the_same_for_any_number_of_ranks(zygote, plan_in_parts, tmp_path, task):
    """Of the weights that a run begins with: its steps are too small to change them."""
    asked = {"task": task, "epochs": 1, "batch_size": 141, "optimizer": {"kind": "sgd", "lr": 1e-30}}
    found = []
    for ranks, num_parts in ((1, 0), (1, 3), (2, 3), (3, 3)):
        plan = plan_in_parts("topology in parts", ranks=ranks, num_parts=num_parts, **asked)
        outcome = trained(zygote, plan, tmp_path / f"{ranks}-{num_parts}").read_outcome()
        found.append([outcome.test[measure.name] for measure in plan.kind.measures])
    assert found == [found[0]] * 4


def test_what_was_fetched_is_shown(zygote, plan_in_parts, data_root, tmp_path, graphmill):
    """By inspect and by the report of a run on parts, and by nothing of another run."""
    shown = {}
    for name, num_parts in (("in_parts", 2), ("whole", 0)):
        plan = plan_in_parts("rows held", run_id=name, num_parts=num_parts)
        folder = trained(zygote, plan, tmp_path / "logs")
        facts = json.loads(graphmill("inspect", str(folder.path), "--dataset-root", str(data_root), "--json").out)
        page = markdown(run_page(folder, written="now"))
        shown[name] = facts["fetched"], page
    rows = read_metrics(tmp_path / "logs" / "in_parts" / "metrics.csv")
    fetched, page = shown["in_parts"]
    remote, received = (sum(int(row[name]) for row in rows) for name in ("remote_rows", "fetched_rows"))
    assert (fetched["num_epochs"], fetched["remote_rows"]) == (3, remote / 3)
    assert 0 < fetched["hit_rate"] == 1 - received / remote < 1
    assert "hit rate" in page
    fetched, page = shown["whole"]
    assert fetched is None
    assert "hit rate" not in page


def test_looking_ahead_fetches_what_the_replay_says(zygote, plan_in_parts, data_root, parts, tmp_path):
    """Epoch by epoch, though a validation set is evaluated after each."""
    plan = plan_in_parts("looking ahead")
    rows = read_metrics(trained(zygote, plan, tmp_path).metrics_path)
    graph = PartedGraph.open(data_root / parts, parts=(), whole_topology=True)
    sampler = WholeSampler(graph.topology(undirected=True), (3, 3), plan.seed, 1, resample=True)
    schedule = SeedSchedule.equal(np.array(graph.nodes_in("train")), plan.batches, plan.seed)
    part_of = graph.book.part_of(StorageIds(graph.book.storage.astype(np.int64)))
    steps = plan.calendar.steps_in(0)
    epochs = [in_windows(range(epoch * steps, (epoch + 1) * steps), AHEAD["window"]) for epoch in range(3)]
    planner = Lookahead(int(AHEAD["ratio"] * graph.metadata.num_nodes), AHEAD["horizon"])
    remote, fetched = np.zeros((2, 3), dtype=np.int64)
    for rank in range(2):
        needs = needs_of_rank(sampler, schedule, part_of, rank=rank, part=rank, steps=steps_of(range(3), steps))
        remote += [sum(map(len, needs.remote[epoch * steps : (epoch + 1) * steps])) for epoch in range(3)]
        for window in planner.windows(needs.remote, epochs):
            fetched[window.batches.start // steps] += len(window.fetch)
    assert [int(row["remote_rows"]) for row in rows] == remote.tolist()
    assert [int(row["fetched_rows"]) for row in rows] == fetched.tolist()
    assert [int(row["repeated_rows"]) for row in rows] == (remote - fetched).tolist()
    assert [float(row["cache_hit_rate"]) for row in rows] == pytest.approx((1 - fetched / remote).tolist())


@pytest.mark.parametrize(
    ("task", "way"),
    with_slow(TASKS_AND_WAYS, fast=[("nodes", "looking ahead")]),
)
def test_killed_and_resumed(zygote, plan_in_parts, tmp_path, task, way):
    plan = plan_in_parts(way, task=task)
    reference = trained(zygote, plan, tmp_path / "reference")
    folder, tally = RunFolder.create(plan, tmp_path / "killed"), Tally()
    wall_s = reference.read_outcome().wall_s
    run_with_kills(zygote, folder, random.Random(way), tally, num_kills=1, most_s=wall_s / 2)
    assert_same(folder, reference)


@pytest.mark.slow
def test_killed_fifty_times(zygote, plan_in_parts, tmp_path):
    """Ten kills each way of getting at the parts, at random moments."""
    dice = random.Random(int(time.time()))
    for way in WAYS:
        reference, tally, number = trained(zygote, plan_in_parts(way), tmp_path / way / "reference"), Tally(), 0
        while tally.kills < 10:
            folder = RunFolder.create(plan_in_parts(way), tmp_path / way / str(number))
            wall_s = reference.read_outcome().wall_s
            run_with_kills(zygote, folder, dice, tally, num_kills=min(5, 10 - tally.kills), most_s=wall_s / 3)
            assert_same(folder, reference)
            number += 1


@pytest.mark.parametrize("way", with_slow(WAYS, fast=["topology in parts"]))
def test_asked_to_stop_while_rows_are_fetched_ahead(zygote, plan_in_parts, tmp_path, way):
    """Loaders of the ranks have got differently far when they stop: none may wait for what another never asks."""
    plan = plan_in_parts(way, epochs=12)
    reference = trained(zygote, plan, tmp_path / "reference")
    folder = RunFolder.create(plan, tmp_path / "stopped")
    pids = zygote.start(folder, resume=False)
    give_up = time.monotonic() + HANG_S
    while len(hashes(folder) if folder.events_path(0).exists() else ()) < 6 and time.monotonic() < give_up:
        time.sleep(0.002)
    zygote.kill(pids[1:], signal.SIGTERM)  # one rank is enough: they decide together
    assert zygote.wait(pids) == [75, 75], zygote.said(folder)
    assert 0 < folder.read_outcome().steps_per_rank < plan.last_step
    assert zygote.wait(zygote.start(folder, resume=True)) == [0, 0], zygote.said(folder)
    assert_same(folder, reference)


@pytest.mark.parametrize(
    ("task", "way", "first", "ranks"),
    with_slow(
        [
            *(("nodes", way, 2, ranks) for way in ("rows held", "topology in parts") for ranks in (1, 3)),
            ("nodes", "seeds to owners", 4, 3),
            ("links", "seeds to owners", 4, 3),
        ],
        fast=[("nodes", "topology in parts", 2, 1)],
    ),
)
def test_another_number_of_ranks_continues(zygote, plan_in_parts, tmp_path, task, way, first, ranks):
    """Ranks with a part each, then one that has both, or three with uneven shares: the same global batches."""
    asked = {"ranks": first, "batch_size": 20 // first, "sync": {"scheme": "deferred_allreduce", "every": 1}}
    epochs = 12 if task == "nodes" else 8
    over = {} if task == "nodes" else {"head": {"kind": "dot"}, "model": {**OF_TASK[task]["model"], "dropout": 0.0}}
    plan = plan_in_parts(way, epochs=epochs, task=task, num_parts=first, over=over, **asked)
    reference = trained(zygote, plan, tmp_path / "reference")
    folder = RunFolder.create(plan, tmp_path / "fewer")
    pids = zygote.start(folder, resume=False)
    give_up = time.monotonic() + HANG_S
    while len(hashes(folder) if folder.events_path(0).exists() else ()) < 6 and time.monotonic() < give_up:
        time.sleep(0.002)
    zygote.kill(pids[1:], signal.SIGTERM)
    assert zygote.wait(pids) == [75] * first, zygote.said(folder)
    assert zygote.wait(zygote.start(folder, resume=True, world=world_of(plan, ranks=ranks, hosts=1))) == [0] * ranks
    losses = [[float(row["loss"]) for row in read_metrics(run.metrics_path)] for run in (reference, folder)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert [int(row["num_seeds"]) for row in read_metrics(folder.metrics_path)] == [plan.dataset.num_train] * epochs


def test_a_byte_that_changed_under_an_old_time_ends_the_run(zygote, plan_in_parts, data_root, parts, tmp_path):
    """It is found while the run trains, or at its end; the other ranks do not say that they are done."""
    copy = tmp_path / "data" / parts
    shutil.copytree(data_root / parts, copy)
    changed = max((copy / "part_00001").glob("x*.npy"), key=lambda path: path.stat().st_size)
    times = changed.stat()
    changed.write_bytes(changed.read_bytes()[:-1] + b"!")
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    plan = plan_in_parts("rows held", over={"dataset": {"name": str(copy)}})
    folder = RunFolder.create(plan, tmp_path / "logs")
    codes = zygote.wait(zygote.start(folder, resume=False))
    assert codes[0] == BAD_REQUEST, zygote.said(folder)
    assert 0 not in codes
    assert (outcome := folder.read_outcome()).status == "bad_request"
    assert changed.name in outcome.message
    assert "graphmill partition" in outcome.message


@pytest.mark.parametrize(
    ("way", "number"),
    with_slow(
        product(("rows fetched batch by batch", "topology in parts"), (signal.SIGKILL, signal.SIGSTOP)),
        fast=[("topology in parts", signal.SIGKILL)],
    ),
)
def test_a_rank_that_is_gone_ends_the_others(zygote, plan_in_parts, tmp_path, way, number):
    """Killed, its connections break; frozen, like a host that is cut off, it sends no heartbeat. Nobody waits."""
    folder = RunFolder.create(plan_in_parts(way, epochs=2000, hang_timeout_s=5), tmp_path)
    pids = zygote.start(folder, resume=False)
    give_up = time.monotonic() + HANG_S
    while len(hashes(folder) if folder.events_path(0).exists() else ()) < 6 and time.monotonic() < give_up:
        time.sleep(0.002)
    zygote.kill(pids[1:], number)
    failed: list[Failure] = []
    while not failed and time.monotonic() < give_up:
        time.sleep(0.05)
        failed = events_in(folder.events_path(0), Failure)
    zygote.kill(pids[1:])
    codes = zygote.wait(pids, patience_s=HANG_S)
    assert codes[1] == -signal.SIGKILL
    assert failed, zygote.said(folder)
    assert codes[0] not in (0, 75, -signal.SIGKILL), "the rank that is left ends by itself"
    if number is signal.SIGSTOP:
        assert "rank 1" in failed[0].message
