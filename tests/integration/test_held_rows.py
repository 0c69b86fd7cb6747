"""Ranks of a host fill one table with the rows of other parts that they hold; one of them is killed meanwhile."""

import signal
import time
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill.cluster.launch.judge import AttemptEvidence, judge
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record.events import Failure, Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment

pytestmark = pytest.mark.distributed

WIDE = {
    "num_nodes": 3000,
    "num_edges": 9000,
    "features": 3000,
    "communities": 3,
}  # a rank fetches its rows in two steps


@pytest.fixture(scope="module")
def plan(data_root: Path, cut_into) -> Plan:
    """Four ranks, two on each of what they take for two hosts; a host holds all rows of the other's part."""
    prepare("synthetic/sbm", root=data_root, save_as="wide", options=WIDE)
    raw = {
        "dataset": {"name": cut_into("wide", 2)},
        "model": {"kind": "graphsage", "hidden_channels": 4},
        "train": {"epochs": 2, "batch_size": 10, "num_neighbors": [3, 3], "threads": 1, "ranks": 4, "device": "cpu"},
        "partition": {"placement": "per_host", "topology": "replicated", "cache": {"policy": "degree", "ratio": 1.0}},
    }
    asked = NodeClassificationExperiment.model_validate(raw)
    return plan_experiment(asked, dataset_root=data_root, run_id="run", hosts=2)


@pytest.mark.parametrize(
    ("victim", "moment"),
    [(0, "mapped"), (3, "mapped"), (1, "filled"), (2, "filled")],
    ids=["the first maps it", "another opens it", "it is half full", "the first of the other host fills it"],
)
def test_a_rank_that_is_killed_ends_all(zygote, plan, tmp_path, victim, moment):
    folder, began = RunFolder.create(plan, tmp_path), time.time()
    pids = zygote.start(folder, resume=False, dies=(victim, moment))
    codes = zygote.wait(pids, patience_s=HANG_S)
    assert codes[victim] == -signal.SIGKILL
    others = [rank for rank in range(4) if rank != victim]
    assert {codes[rank] for rank in others}.isdisjoint({0, 75, -signal.SIGKILL}), zygote.said(folder)
    for rank in others:
        assert not events_in(folder.events_path(rank), Sync), "it was killed before the first step"
        assert events_in(folder.events_path(rank), Failure), "each says why it ended"
    seen = [RankExit(rank, code, time.time()) for rank, code in enumerate(codes)]
    judged = judge(folder, AttemptEvidence(began, seen))
    assert f"rank {victim} of 4 failed first" in judged.first.describe()
    assert "SIGKILL" in judged.first.describe()
