"""Exact inference of a graph that lies for a GPU has the logits of the CPU's to the bit, wherever rows are."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from device_graphs import ALONE, FEATURES, NODES, budget, device_access, kernels_by, plan_of
from ranks_of_a_program import told_by_ranks

from cubins.shim import shim_library
from graphmill.access import device_sweep, layerwise
from graphmill.access.device import _say_where
from graphmill.access.device_kernels import DeviceTopology
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.parts import open_graph

PROGRAM = Path(__file__).parent / "programs" / "swept_by_ranks.py"


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
@pytest.mark.parametrize(("rows", "hidden_on"), [(NODES + 9000, "device"), (80, "page_locked")])
def test_so_they_are_of_a_head_that_reads_all_layers(data, rows, hidden_on, by):
    found, expected, source = swept(data, by, rows, layers=3, form={"jumping_knowledge": "cat", "residual": True})
    assert torch.equal(found, expected)
    assert source.laid_out.hidden_rows_on == hidden_on


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


def blocks_of(num_nodes, piece_bytes, *, device=ALONE.device, hidden_on="device"):
    topology = DeviceTopology(torch.zeros(num_nodes + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32))
    return device_sweep.ResidentBlocks(None, topology, None, device, hidden_on, piece_bytes, resample=True)


def test_pieces_have_the_rows_that_fit_and_one_at_least():
    """Two rows with three edges take 5 · 8 bytes, and 64 for each of the three."""
    indptr = np.array([0, 3, 3, 10, 12, 12])
    blocks = blocks_of(100, 5 * 8 + 3 * 64)
    assert list(blocks._pieces(indptr, 8)) == [(0, 2), (2, 3), (3, 5)]
    assert list(blocks._pieces(indptr, 9)) == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert list(blocks._pieces(indptr, 800)) == [(row, row + 1) for row in range(5)]
    assert list(blocks_of(100, 12 * 64)._pieces(indptr, 0)) == [(0, 5)]


def test_a_table_that_fits_is_gathered_once_a_block():
    """Reddit's: neighbours are no more than there are nodes, and then edges alone make pieces."""
    nodes, row_bytes, degree = 232_965, 4 * 602, 492
    indptr = degree * np.arange(8192 + 1)
    assert list(blocks_of(nodes, nodes * row_bytes)._pieces(indptr, row_bytes)) == [(0, 8192)]
    assert len(list(blocks_of(nodes, nodes * row_bytes - 1)._pieces(indptr, row_bytes))) == 18
    many = indptr * 20
    rows = nodes * row_bytes // (64 * 20 * degree)
    assert next(blocks_of(nodes, nodes * row_bytes)._pieces(many, row_bytes)) == (0, rows)


def test_of_hidden_rows_on_the_host_tables_alone_are_page_locked(data, monkeypatch):
    """What is computed lies in plain memory, which torch would round up and keep if it were page-locked."""
    asked, zeros = [], device_sweep.ResidentBlocks.zeros

    def watched(blocks, num_rows, width, *, is_table):
        asked.append((num_rows, is_table))
        return zeros(blocks, num_rows, width, is_table=is_table)

    monkeypatch.setattr(device_sweep.ResidentBlocks, "zeros", watched)
    found, _, _ = swept(data, "native", NODES, layers=3)
    assert [is_table for _, is_table in asked] == [False, True, False, True, False]
    assert [num_rows for num_rows, is_table in asked if is_table] == [NODES, NODES]
    assert asked[-1] == (len(found), False)
    rows = blocks_of(1, 0, device=torch.device("cuda"), hidden_on="page_locked").zeros(3, 2, is_table=False)
    assert rows.device.type == "cpu"
    assert not rows.is_pinned()


def test_the_log_says_where_hidden_rows_lie(data, caplog):
    _say_where.cache_clear()
    with caplog.at_level(logging.INFO, logger="graphmill"):
        swept(data, "native", NODES)
    assert "exact evaluation runs on the GPU; rows of hidden layers, 0 MiB at most, are page-locked" in caplog.text


@pytest.mark.distributed
@pytest.mark.parametrize("rows", ["own", "wholegraph"])
def test_ranks_share_a_sweep_out(data, rows, tmp_path):
    """Those that share rows have not the room for all of them."""
    kernels_by("shim")  # or it is skipped
    source = str(Path(__file__).parents[2] / "src")
    paths = [source, *(str(Path(__file__).parents[1] / each) for each in ("plugins", "../tools"))]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    imports = ["graphmill.access.opening", "graphmill.tasks.node_classification.task"]
    told = told_by_ranks(PROGRAM, 2, tmp_path, data, shim_library(), rows, environ=environ, imports=imports)
    assert [each["equal"] for each in told] == [each["mine"] for each in told]
    assert sum(each["mine"] for each in told) == told[0]["all"] > 10
    assert [each["paused"] for each in told] == [3, 3]
    assert [each["same_rows"] for each in told] == [each["batches"] for each in told]
    assert min(each["batches"] for each in told) > 1
