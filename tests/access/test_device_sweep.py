"""Exact inference of a graph that lies for a GPU has the logits of the CPU's to the bit, wherever rows are."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from device_graphs import FEATURES, NODES, budget, device_access, kernels_by, plan_of, prepare_graph
from waiting import HANG_S

from cubins.shim import shim_library
from graphmill.access import device_sweep, layerwise
from graphmill.access.device import _say_where
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.parts import open_graph

ALONE = Group(0, 1, torch.device("cpu"))
PROGRAM = Path(__file__).parent / "programs" / "swept_by_ranks.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare_graph(root)
    return root


def swept(data, by, rows, nodes=None, pause=never_pause, **plan):
    """Logits by the device and by the CPU, and the source of the first."""
    plan = plan_of(data, **plan)
    task = build_task(plan, ALONE)
    task.model.eval()
    spec, store = access_spec(plan, plan.task), open_graph(data / "sbm")
    access = device_access(spec, store, budget(spec, store, rows), kernels_by(by), group=ALONE)
    access.begin(store.labels, form="rows", dtype=torch.float32)
    nodes = store.nodes_in("val") if nodes is None else nodes
    mine, found = access.exact(task.model, nodes, pause, hops=plan.task.num_neighbors, num_columns=1)
    assert np.array_equal(mine, nodes)
    return found, task.exact_logits(nodes, never_pause)[1], access.source


@pytest.mark.parametrize("by", ["native", "shim"])
@pytest.mark.parametrize("features", ["as_stored", "standardised"])
@pytest.mark.parametrize(("rows", "hidden_on"), [(NODES + 9000, "device"), (NODES, "page_locked"), (80, "page_locked")])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_are_those_of_the_cpu_to_the_bit(data, layers, rows, hidden_on, features, by):
    found, expected, source = swept(data, by, rows, layers=layers, features=features)
    assert torch.equal(found, expected)
    assert len(found) > 1
    assert source.laid_out.hidden_rows_on == (None if layers == 1 else hidden_on)


@pytest.mark.parametrize("by", ["native", "shim"])
def test_so_they_are_in_small_blocks_and_pieces(data, by, monkeypatch):
    """Blocks of 37 rows; neighbours' rows are gathered together as far as they are no more than a batch has."""
    monkeypatch.setattr(layerwise, "_ROWS_AT_A_TIME", 37)
    monkeypatch.setattr("graphmill.access.device.LEAST_PIECE_BYTES", 0)
    paused = []
    found, expected, source = swept(
        data, by, NODES, layers=2, batch_size=2, num_neighbors=[2, 2], pause=lambda: paused.append(1)
    )
    assert source.piece_bytes == (2 + 4 + 8) * 4 * FEATURES
    assert torch.equal(found, expected)
    assert len(paused) > 5


def test_pieces_have_the_rows_that_fit_and_one_at_least(data):
    indptr = np.array([0, 3, 3, 10, 12, 12])
    blocks = device_sweep.ResidentBlocks(None, None, None, ALONE.device, "device", 6 * 8, resample=True)
    assert list(blocks._pieces(indptr, 8)) == [(0, 2), (2, 3), (3, 5)]
    assert list(blocks._pieces(indptr, 800)) == [(row, row + 1) for row in range(5)]
    assert list(blocks._pieces(indptr, 1)) == [(0, 5)]


def test_the_log_says_where_hidden_rows_lie(data, caplog):
    _say_where.cache_clear()
    with caplog.at_level(logging.INFO, logger="graphmill"):
        swept(data, "native", NODES)
    assert "exact evaluation runs on the GPU; rows of hidden layers, 0 MiB at most, are page-locked" in caplog.text


@pytest.mark.distributed
def test_ranks_share_a_sweep_out(data, tmp_path):
    kernels_by("shim")  # or it is skipped
    source = str(Path(__file__).parents[2] / "src")
    paths = [source, *(str(Path(__file__).parents[1] / each) for each in ("plugins", "../tools"))]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
    environ |= {"WORLD_SIZE": "2", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, PROGRAM, tmp_path / "meeting", tmp_path, data, shim_library()]
    ranks = [subprocess.Popen(command, env={**environ, "RANK": str(rank)}) for rank in range(2)]
    try:
        assert [rank.wait(timeout=HANG_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [each["equal"] for each in told] == [each["mine"] for each in told]
    assert sum(each["mine"] for each in told) == told[0]["all"] > 10
    assert [each["paused"] for each in told] == [3, 3]
