"""A sampling service: weights of the run whose ranks sample for themselves, whatever happens to a process."""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import Tally, assert_same, run_with_kills
from slow_cases import with_slow
from trained_runs import trained
from waiting import HANG_S, is_alive, state_of, wait_until

from graphmill.graph.features import dense, sparse
from graphmill.partition.metadata import part_folder
from graphmill.record.events import Failure, Finish, Served, Start, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment

pytestmark = pytest.mark.distributed

PROGRAM = Path(__file__).parent / "programs" / "hosts_of_a_run.py"
PARTS: dict[str, dict[str, Any] | None] = {
    "whole": None,
    "replicated": {"topology": "replicated", "cache": {"policy": "lookahead", "window": 3, "horizon": 2, "ratio": 0.1}},
    "partitioned": {"topology": "partitioned", "cache": {"policy": "presample"}},
}
CELLS = [
    (samplers, trainers, where, seeds)
    for samplers, trainers in ((1, 1), (1, 2), (2, 2), (2, 4))
    for where in PARTS
    for seeds in (("equal", "owner") if PARTS[where] else ("equal",))
]
FAST = [(1, 2, "replicated", "equal"), (2, 2, "partitioned", "owner")]


@pytest.fixture
def planned_service(data_root: Path, cut_into):
    """Plans of a small model; `roles`: (samplers, trainers), or the number of ranks that sample for themselves."""

    def plan(
        roles: tuple[int, int] | int,
        where: str = "whole",
        seeds: str = "equal",
        *,
        run_id: str = "run",
        num_parts: int | None = None,
        dataset: str = "cora",
        model: dict[str, Any] | None = None,
        of_dataset: dict[str, Any] | None = None,
        **train: Any,
    ) -> Plan:
        trainers = roles if isinstance(roles, int) else roles[1]
        raw: dict[str, Any] = {
            "dataset": {"name": dataset, **(of_dataset or {})},
            "model": model or {"kind": "graphsage", "hidden_channels": 8},
            "train": {
                "epochs": 3,
                "batch_size": 20 // trainers,
                "num_neighbors": [3, 3],
                "threads": 1,
                "baselines": False,
                "device": "cpu",
                "sync": {"scheme": "local_sgd", "every": 2},
                "checkpoint": {"every_steps": 2},
                "prefetch": 3,
                **train,
            },
        }
        if isinstance(roles, int):
            raw["train"]["ranks"] = roles
        else:
            raw["roles"] = {"samplers": roles[0], "trainers": roles[1]}
        if (partition := PARTS[where]) is not None:
            raw["dataset"]["name"] = cut_into(dataset, num_parts or trainers)
            raw["partition"] = {"placement": "per_rank", "seeds": seeds, **partition}
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=data_root, run_id=run_id)

    return plan


def hashes(folder: RunFolder) -> list[str]:
    """Of the parameters after every sync."""
    path = folder.events_path(0)
    return [event.parameter_hash for event in events_in(path, Sync)] if path.exists() else []


def assert_same_training(served: RunFolder, alone: RunFolder) -> None:
    """After every sync, and at the end. Which batches an evaluation computes together is no part of it."""
    assert len(hashes(alone)) > 4
    assert hashes(served) == hashes(alone)
    assert (found := served.read_outcome()) is not None
    assert (expected := alone.read_outcome()) is not None
    assert found.test == pytest.approx(expected.test, abs=1e-6)
    files = [sorted(run.checkpoints_dir.glob("*/rank_*.safetensors")) for run in (served, alone)]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@pytest.mark.parametrize(
    ("samplers", "trainers", "where", "seeds"),
    [pytest.param(*cell, marks=[] if cell in FAST else [pytest.mark.slow]) for cell in CELLS],
)
def test_weights_are_those_of_ranks_that_sample_for_themselves(
    zygote, planned_service, tmp_path, samplers, trainers, where, seeds
):
    alone = trained(zygote, planned_service(trainers, where, seeds), tmp_path / "alone")
    served = trained(zygote, planned_service((samplers, trainers), where, seeds), tmp_path / "served")
    assert_same_training(served, alone)
    if samplers == trainers and where != "whole":
        rows = [read_metrics(run.metrics_path) for run in (served, alone)]
        for name in ("remote_rows", "cache_hit_rate", "fetched_rows", "fetched_mib", "eval_mib"):
            assert [row[name] for row in rows[0]] == [row[name] for row in rows[1]], name


@pytest.mark.parametrize("num_parts", [4, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_samplers_share_parts_unevenly(zygote, planned_service, tmp_path, num_parts):
    """Three samplers for three trainers, on four parts or on two."""
    alone, served = (
        trained(zygote, planned_service(roles, "partitioned", "owner", num_parts=num_parts), tmp_path / str(roles))
        for roles in (3, (3, 3))
    )
    assert_same_training(served, alone)


@pytest.fixture(scope="session")
def forms(data_root: Path) -> None:
    """Graphs with sparse features, and with features of edges."""
    rng = np.random.default_rng(3)
    values = np.arange(300 * 4) % 5 / 4
    indices = np.sort(np.stack([rng.permutation(20)[:4] for _ in range(300)]), axis=1).reshape(-1)
    plain = LabelledGraph(
        edge_index=rng.integers(0, 300, (2, 2500)),
        features=sparse(np.arange(0, 1201, 4), indices, values.astype(np.float32), 20),
        labels=np.arange(300) % 4,
        split=(rng.permutation(300) % 4 - 1).astype(np.int8),
        name="few",
        source="random",
        synthetic=True,
    )
    write_store(plain, data_root / "few")
    edgy = replace(
        plain,
        name="edgy",
        features=dense(rng.standard_normal((300, 5))),
        edge_features=rng.standard_normal((2500, 3)).astype(np.float32),
        edge_feature_names=("a", "b", "c"),
    )
    write_store(edgy, data_root / "edgy")
    weights = rng.uniform(0, 2, (2500, 1)).astype(np.float32)
    weighted = replace(edgy, name="weighted", edge_features=weights, edge_feature_names=("weight",))
    write_store(weighted, data_root / "weighted")


MODELS: dict[str, dict[str, Any]] = {
    "sparse features": {"dataset": "few"},
    "attention to edges": {
        "dataset": "edgy",
        "model": {"kind": "gatv2", "hidden_channels": 4, "heads": 2},
        "of_dataset": {"edge_features": "edge_attr"},
    },
    "means by weight": {"dataset": "weighted", "of_dataset": {"edge_features": "edge_weight"}},
    "a dotted path": {"model": {"kind": "custom", "target": "strange_models.Normalised"}},
    "standardised features": {"dataset": "edgy", "of_dataset": {"features": "standardised"}},
}
MODELS["a head and fewer edges"] = {
    "model": {"kind": "graphsage", "hidden_channels": 8, "residual": True, "jumping_knowledge": "cat"},
    "edge_dropout": 0.3,
}
MODELS["nothing made ahead"] = {"prefetch": 0}
SPEAKING = [("whole", "a dotted path"), ("partitioned", "attention to edges")]


@pytest.mark.usefixtures("forms")
@pytest.mark.parametrize(
    ("where", "form"),
    [
        pytest.param(where, form, marks=[] if (where, form) in SPEAKING else [pytest.mark.slow])
        for where in PARTS
        for form in MODELS
    ],
)
def test_whatever_a_model_reads(zygote, planned_service, tmp_path, where, form):
    alone = trained(zygote, planned_service(2, where, **MODELS[form]), tmp_path / "alone")
    served = trained(zygote, planned_service((1, 2), where, **MODELS[form]), tmp_path / "served")
    assert_same_training(served, alone)


def test_what_a_sampler_records(zygote, planned_service, tmp_path):
    """In a file of its own, which no reader takes for a rank's; its seconds are those of making batches."""
    folder = trained(zygote, planned_service((1, 2), "partitioned"), tmp_path)
    assert sorted(path.name for path in folder.events_dir.iterdir()) == [
        "rank_0.jsonl",
        "rank_1.jsonl",
        "sampler_0.jsonl",
    ]
    start, *served, finish = events_in(folder.events_dir / "sampler_0.jsonl")
    assert isinstance(start, Start)
    assert isinstance(finish, Finish)
    assert [(event.epoch, event.steps) for event in served if isinstance(event, Served)] == [(1, 7), (2, 7), (3, 7)]
    rows = read_metrics(folder.metrics_path)
    made_s = [float(row["sample_s"]) for row in rows]
    assert made_s == pytest.approx(
        [event.clocks["sample_s"] for event in served if isinstance(event, Served)], abs=1e-6
    )  # events have so many digits
    assert min(made_s) > 0
    starts = [events_in(folder.events_path(rank), Start)[0] for rank in range(2)]
    assert [event.world_size for event in starts] == [2, 2]


WAYS = {
    "whole": ((1, 2), "whole", "equal"),
    "replicated": ((2, 2), "replicated", "equal"),
    "partitioned": ((2, 2), "partitioned", "owner"),
}


@pytest.mark.parametrize("way", with_slow(WAYS, fast=["partitioned"]))
def test_killed_and_resumed(zygote, planned_service, tmp_path, way):
    reference = trained(zygote, planned_service(*WAYS[way]), tmp_path / "reference")
    folder, tally = RunFolder.create(planned_service(*WAYS[way]), tmp_path / "killed"), Tally()
    wall_s = reference.read_outcome().wall_s
    run_with_kills(zygote, folder, random.Random(way), tally, num_kills=1, most_s=wall_s / 2)
    assert_same(folder, reference)


@pytest.mark.slow
def test_killed_a_dozen_times(zygote, planned_service, tmp_path):
    """At random moments, all processes or one of either role."""
    dice = random.Random(int(time.time()))
    for way in WAYS:
        reference, tally, number = (
            trained(zygote, planned_service(*WAYS[way]), tmp_path / way / "reference"),
            Tally(),
            0,
        )
        while tally.kills < 4:
            folder = RunFolder.create(planned_service(*WAYS[way]), tmp_path / way / str(number))
            wall_s = reference.read_outcome().wall_s
            run_with_kills(zygote, folder, dice, tally, num_kills=4 - tally.kills, most_s=wall_s / 3)
            assert_same(folder, reference)
            number += 1


def started(zygote, plan: Plan, root: Path) -> tuple[RunFolder, list[int]]:
    """A run that has synchronised a few times, and its processes: trainers first."""
    folder = RunFolder.create(plan, root)
    pids = zygote.start(folder, resume=False)
    wait_until(lambda: len(hashes(folder)) >= 6, lambda: f"syncs; {zygote.said(folder)}", look_every_s=0.002)
    return folder, pids


def asked_to_stop(zygote, plan: Plan, root: Path, which: int) -> tuple[RunFolder, list[int]]:
    """A run of which one process is sent SIGTERM, and its processes. Rank 0 waits for that with its checkpoint.

    Whoever polls for the moment may sleep through the rest of a short run on a busy machine.
    """
    folder = RunFolder.create(plan, root)
    pids = zygote.start(folder, resume=False, dies=(0, "freezes 6"))
    wait_until(lambda: state_of(pids[0]) == "T", lambda: f"a checkpoint; {zygote.said(folder)}")
    zygote.kill([pids[which]], signal.SIGTERM)
    zygote.kill(pids[:1], signal.SIGCONT)
    return folder, pids


@pytest.mark.parametrize(
    ("way", "asked"),
    with_slow(
        [(way, asked) for way in WAYS for asked in ("rank", "sampler")],
        fast=[("partitioned", "sampler")],
    ),
)
def test_asked_to_stop_and_resumed(zygote, planned_service, tmp_path, way, asked):
    """One process is enough. Samplers have got differently far by then: none may wait for what another never makes."""
    plan = planned_service(*WAYS[way], epochs=12)
    reference = trained(zygote, plan, tmp_path / "reference")
    folder, pids = asked_to_stop(zygote, plan, tmp_path / "stopped", 1 if asked == "rank" else -1)
    assert set(zygote.wait(pids)) == {75}, zygote.said(folder)
    assert 0 < folder.read_outcome().steps_per_rank < plan.last_step
    assert folder.read_outcome().status == "stopped"
    assert set(zygote.wait(zygote.start(folder, resume=True))) == {0}, zygote.said(folder)
    assert_same(folder, reference)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_stopped_a_dozen_times_at_random_moments(zygote, planned_service, tmp_path, way):
    """In the middle of epochs, evaluations and checkpoints."""
    plan, dice = planned_service(*WAYS[way], epochs=30), random.Random(way)
    reference = trained(zygote, plan, tmp_path / "reference")
    wall_s = reference.read_outcome().wall_s
    folder, stops = RunFolder.create(plan, tmp_path / "stopped"), 0
    while folder.read_outcome() is None or folder.read_outcome().status != "done":
        pids = zygote.start(folder, resume=stops > 0)
        if stops < 12:
            time.sleep(1.5 + dice.uniform(0, wall_s / 4))
            zygote.kill([dice.choice(pids)], signal.SIGTERM)
            stops += 1
        assert set(zygote.wait(pids)) in ({75}, {0}), zygote.said(folder)
    assert_same(folder, reference)


@pytest.mark.parametrize(("samplers", "trainers", "later"), with_slow([(1, 2, 1), (2, 4, 2)], fast=[(1, 2, 1)]))
def test_another_number_of_trainers_continues(zygote, planned_service, tmp_path, samplers, trainers, later):
    """Half of them, of the same samplers: the same global batches, and losses but for rounding."""
    sync = {"scheme": "deferred_allreduce", "every": 1}
    plan = planned_service((samplers, trainers), "partitioned", epochs=12, sync=sync)
    reference = trained(zygote, plan, tmp_path / "reference")
    folder, pids = asked_to_stop(zygote, plan, tmp_path / "fewer", 0)
    assert set(zygote.wait(pids)) == {75}, zygote.said(folder)
    codes = zygote.wait(zygote.start(folder, resume=True, world=world_of(plan, ranks=later, hosts=1)))
    assert codes == [0] * (samplers + later), zygote.said(folder)
    losses = [[float(row["loss"]) for row in read_metrics(run.metrics_path)] for run in (reference, folder)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert [int(row["num_seeds"]) for row in read_metrics(folder.metrics_path)] == [plan.dataset.num_train] * 12


def failures(folder: RunFolder, name: str) -> list[str]:
    path = folder.events_dir / f"{name}.jsonl"
    return [event.message for event in events_in(path, Failure)] if path.exists() else []


@pytest.mark.parametrize(
    ("gone", "number"),
    with_slow(
        [(gone, number) for gone in ("rank_1", "sampler_1") for number in (signal.SIGKILL, signal.SIGSTOP)],
        fast=[("rank_1", signal.SIGKILL), ("sampler_1", signal.SIGSTOP)],
    ),
)
def test_a_process_that_is_gone_ends_the_others(zygote, planned_service, tmp_path, gone, number):
    """Killed, its connections break; frozen, like a host that is cut off, it sends no heartbeat. Nothing is left.

    The first that notices names it. Who notices late, on a busy machine, names one that ended because of it.
    """
    before = shared_memory()
    folder, pids = started(zygote, planned_service((2, 2), epochs=2000, hang_timeout_s=5), tmp_path)
    names = ["rank_0", "rank_1", "sampler_0", "sampler_1"]
    victim = names.index(gone)
    zygote.kill([pids[victim]], number)
    others = [name for name in names if name != gone]
    wait_until(lambda: any(failures(folder, name) for name in others), "an error")
    left = [pid for number, pid in enumerate(pids) if number != victim]
    wait_until(lambda: not any(map(is_alive, left)), "all others to end")
    zygote.kill([pids[victim]])  # frozen, it does not end by itself
    codes = zygote.wait(pids)
    assert codes[victim] == -signal.SIGKILL
    assert {code for number, code in enumerate(codes) if number != victim}.isdisjoint({0, 75, -signal.SIGKILL})
    said = {name: failures(folder, name) for name in others}
    named = [name for name in others if f"{gone.replace('_', ' ')} on {socket.gethostname()}" in said[name][0]]
    if number is signal.SIGKILL:
        assert named, said
        assert all("is gone" in messages[0] for messages in said.values()), said
    else:
        assert "rank_0" in named, "who hosts the store misses the heartbeats"
    assert shared_memory() == before


def shared_memory() -> set[str]:
    """Of ours, by name. Memory that processes hand to each other has none, and their sockets go with them: those that
    are there belong to other tests.
    """
    return {str(path) for path in Path("/dev/shm").glob("*graphmill*")}


def test_a_part_that_is_not_there(zygote, planned_service, data_root, tmp_path):
    """The sampler that needs it says so, and the others who told them nothing more."""
    plan = planned_service((2, 2), "partitioned", hang_timeout_s=5)
    root = tmp_path / "data"
    shutil.copytree(Path(plan.dataset.path), root)
    shutil.rmtree(root / part_folder(1))
    folder = RunFolder.create(plan.reading_from(str(root)), tmp_path)
    codes = zygote.wait(zygote.start(folder, resume=False), patience_s=HANG_S)
    assert codes[3] == 2
    assert 0 not in codes
    assert "does not hold part 1" in failures(folder, "sampler_1")[0]
    assert f"sampler 1 on {socket.gethostname()}" in failures(folder, "rank_1")[0]


def test_features_that_were_changed(zygote, planned_service, data_root, tmp_path):
    """A byte of them: samplers open them, rank 0 reads all in the background; who finds it first ends the others."""
    plan, root = planned_service((1, 2)), tmp_path / "data"
    shutil.copytree(data_root / "cora", root)
    path = next(path for path in (root / "x.npy", root / "x_values.npy") if path.exists())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    folder = RunFolder.create(plan.reading_from(str(root)), tmp_path)
    codes = zygote.wait(zygote.start(folder, resume=False), patience_s=HANG_S)
    assert 0 not in codes
    told = {name: failures(folder, name)[0] for name in ("sampler_0", "rank_0", "rank_1")}
    assert any("checksum" in words for words in told.values()), told
    assert all("checksum" in words or "is gone" in words for words in told.values()), told


SEPARATE = ["unshare", "--net", "--mount", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]


@pytest.fixture
def on_hosts(environ, planned_service, tmp_path):
    """`on_hosts(plan, hosts, bare)`: trains it on hosts with a network each; the `bare` ones have labels alone."""
    if subprocess.run([*SEPARATE, "ip", "link"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")

    def train(plan: Plan, hosts: int, bare: Sequence[int] = ()) -> RunFolder:
        plan = plan.model_copy(update={"hosts": hosts})
        folder = RunFolder.create(plan, tmp_path / "on_hosts")
        folder.begin_attempt(resumed=False, command=["test"])
        numbers = [str(number) for number in (hosts, plan.world.processes // hosts, *bare)]
        command = [*SEPARATE, sys.executable, str(PROGRAM), str(folder.path), *numbers]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        assert set(json.loads(done.stdout.splitlines()[-1])) == {0}, done.stderr
        return folder

    return train


def test_trainers_on_hosts_without_features(zygote, on_hosts, planned_service, tmp_path):
    """Two hosts train and a third samples: batches and logits go over the network."""
    alone = trained(zygote, planned_service(2), tmp_path / "alone")
    served = on_hosts(planned_service((1, 2)), 3, bare=(0, 1))
    assert_same_training(served, alone)
    starts = [events_in(served.events_dir / f"{name}.jsonl", Start)[0] for name in ("rank_0", "rank_1", "sampler_0")]
    assert [start.hostname for start in starts] == ["host0", "host1", "host2"]


@pytest.mark.slow
def test_hosts_that_do_both(zygote, on_hosts, planned_service, tmp_path):
    """A sampler and a trainer on each of two: batches stay there, and samplers ask each other over the network."""
    alone = trained(zygote, planned_service(2, "partitioned", "owner"), tmp_path / "alone")
    served = on_hosts(planned_service((2, 2), "partitioned", "owner"), 2)
    assert_same_training(served, alone)
