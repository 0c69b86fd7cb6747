"""Where a graph lies for a GPU: the plan's figures against arithmetic by hand, from published sizes alone."""

import json
import re
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cli.plan import _placement_facts
from graphmill.spec.device_memory import ResidentGraph, StepMemory, lay_out, room_of
from graphmill.spec.load import inline_experiment
from graphmill.spec.modelled import laid_out
from graphmill.spec.plan import MachineInfo
from graphmill.tasks.planning import plan_experiment

GIB = 1 << 30
MACHINE = MachineInfo(num_cores=8, num_gpus=1)
# nodes, edges in the directions of messages, features, training nodes, classes: as published. Products and Reddit list
# each edge both ways already; papers100M is read in both directions.
KNOWN = {
    "ogbn-products": (2_449_029, 123_718_280, 100, 196_615, 47),
    "ogbn-papers100M": (111_059_956, 2 * 1_615_685_872, 128, 1_207_179, 172),
    "reddit": (232_965, 114_615_892, 602, 153_431, 41),
}


def plan_of(name, tmp_path, hosts=1, machine=MACHINE, **train):
    asked = {"name": name, "undirected": name == "ogbn-papers100M", "features": "as_stored"}
    settings = {"epochs": 1, "num_neighbors": [15, 10, 5], "device": "cuda", **train}
    sections = {"name": "x", "dataset": asked, "model": {"num_layers": 3, "hidden_channels": 64}, "train": settings}
    experiment = inline_experiment(sections, "test")
    return plan_experiment(experiment, dataset_root=tmp_path, run_id="run", machine=machine, hosts=hosts)


def by_hand(name, gpu_gib):
    """Bytes of a GPU for (step, topology or none, rows), and the two ways' bytes over the bus."""
    nodes, entries, features, _, classes = KNOWN[name]
    row = 4 * features
    # 1,024 seeds and fan-outs 15, 10, 5, as far as there are nodes
    hops = [1024, 15 * 1024, 150 * 1024, 750 * 1024]
    if name == "reddit":
        hops[3] = nodes - sum(hops[:3])
    drawn = 1024 * 15 + 15 * 1024 * 10 + 150 * 1024 * 5
    inner = sum(hops[:3])
    batch = sum(hops) * 8 + inner * 8 + drawn * 4 + inner * 2 * features * 4
    hidden = 64
    activations = 12 * 2 * hidden * (sum(hops[:3]) + sum(hops[:2]) + sum(hops[:1]))
    parameters = 2 * features * hidden + hidden + 2 * hidden * hidden + hidden + 2 * hidden * classes + classes
    model = 4 * parameters * 4  # with gradients and Adam's two moments
    room = gpu_gib * GIB - GIB - (model + 5 * batch + activations)  # 2 made ahead, 3 in making, copied, computed on
    topology = 8 * (nodes + 1) + 4 * entries
    sectors = {400: 14, 512: 16, 2408: 77}[row]
    ways = []
    for has_topology in (True, False):
        left = room - 12 * nodes - (topology if has_topology else 0)
        if left < 0:
            continue
        rows = min(nodes, left // row)
        bus = -(-sum(hops) * (nodes - rows) // nodes) * sectors * 32
        bus += 0 if has_topology else inner * 64 + drawn * 32
        ways.append((bus, not has_topology, rows))
    bus, is_locked, rows = min(ways)
    locked = (nodes - rows) * row + (topology if is_locked else 0)
    # rows of 64: a table that is read, and the next one computed, gathered of ranks, and in the order of nodes; of each
    # node whether it is needed, and its id
    swept = 4 * nodes * max(3 * hidden, hidden + 3 * hidden, hidden + classes) + (1 + 8) * nodes
    on_gpu = 12 * nodes + rows * row + (0 if is_locked else topology)
    fits = on_gpu + swept <= room
    found = {"room": room, "is_locked": is_locked, "rows": rows, "bus": bus, "locked": locked, "on_gpu": on_gpu}
    return {**found, "swept": swept, "hidden_on": "device" if fits else "page_locked"}


@pytest.mark.parametrize("gpu_gib", [16, 40, 80, 141])
@pytest.mark.parametrize("name", KNOWN)
def test_what_lies_where_is_arithmetic_by_hand(name, gpu_gib, tmp_path):
    found, expected = laid_out(plan_of(name, tmp_path), gpu_gib), by_hand(name, gpu_gib)
    assert round(found.graph_gib * GIB) == expected["room"]
    assert (found.topology_on == "page_locked") is expected["is_locked"]
    assert found.rows_on_device == expected["rows"]
    assert found.rows_page_locked == KNOWN[name][0] - expected["rows"]
    assert found.page_locked_mib * 2**20 == expected["locked"]
    assert found.bus_mib_per_step * 2**20 == expected["bus"]
    assert found.bus_mib_per_epoch * 2**20 == expected["bus"] * -(-KNOWN[name][3] // 1024)
    assert found.device_mib * 2**20 == expected["on_gpu"]
    assert found.hidden_rows_on == expected["hidden_on"]
    assert found.hidden_rows_mib * 2**20 == expected["swept"]


def test_models_whose_layers_are_not_known_have_no_hidden_rows():
    found = lay_out(ResidentGraph(**SMALL), GIB, steps=1, batch_bytes=0)
    assert (found.hidden_rows_on, found.hidden_rows_mib) == (None, 0)
    of_one = lay_out(ResidentGraph(**SMALL, layers=(7,)), GIB, steps=1, batch_bytes=0)
    assert (of_one.hidden_rows_on, of_one.hidden_rows_mib) == (None, 0)


def test_where_a_head_reads_all_layers_their_tables_stay():
    """Of 1,000 nodes: two tables of 64 columns while the third layer's is made, in three copies; 9 bytes of ids."""
    layers = {"layers": (64, 64, 64, 64)}
    plain, read = (ResidentGraph(**SMALL, **layers, head_channels=number) for number in (0, 5))
    assert plain.hidden_bytes == 1000 * (4 * (64 + 3 * 64) + 9)
    assert read.hidden_bytes == 1000 * (4 * (2 * 64 + 3 * 64) + 9)


def test_small_graphs_are_on_the_gpu_and_papers100m_is_split(tmp_path):
    """What the table is for: products and Reddit fit everywhere; of papers100M the rows on a GPU grow with it."""
    rows = []
    for gpu_gib in (16, 40, 80, 141):
        for name in ("ogbn-products", "reddit"):
            found = laid_out(plan_of(name, tmp_path), gpu_gib)
            assert (found.topology_on, found.rows_page_locked, found.bus_mib_per_step) == ("device", 0, 0)
        rows.append(laid_out(plan_of("ogbn-papers100M", tmp_path), gpu_gib).rows_on_device)
    assert 0 < rows[0] < rows[1] < rows[2] == rows[3] == 111_059_956


def test_the_page_has_these_figures():
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    for name, (_, entries, *_) in KNOWN.items():
        for gpu_gib in (16, 40, 80, 141):
            found = by_hand(name, gpu_gib)
            nodes = KNOWN[name][0]
            topology = 8 * (nodes + 1) + 4 * entries
            where = f"{'page-locked' if found['is_locked'] else 'device'}, {topology / 2**20:,.0f} MiB"
            mib = [found["on_gpu"] / 2**20, found["locked"] / 2**20]
            cells = [name, str(gpu_gib), f"{found['room'] / GIB:.2f}", where, f"{found['rows']:,}"]
            cells += [*(f"{each:,.0f}" for each in mib), f"{found['bus'] / 2**20:,.1f}"]
            hidden = f"{found['hidden_on'].replace('_', '-')}, {found['swept'] / 2**20:,.0f} MiB"
            assert f"| {' | '.join([*cells, hidden])} |" in page


SMALL = {"num_nodes": 1000, "num_entries": 10_000, "row_bytes": 100, "hops": (10, 50), "num_drawn": 50}


def test_the_way_that_moves_fewer_bytes_is_taken():
    """The topology takes as much as 480 rows: with it 420 rows are read over the bus, without it topology is."""
    graph = ResidentGraph(**SMALL)
    assert graph.topology_bytes == 8 * 1001 + 4 * 10_000
    everything = lay_out(graph, 12_000 + graph.topology_bytes + 100_000, steps=3, batch_bytes=0)
    assert (everything.topology_on, everything.rows_on_device, everything.bus_mib_per_step) == ("device", 1000, 0)
    split = lay_out(graph, 12_000 + graph.topology_bytes + 52_000, steps=3, batch_bytes=0)
    with_it = -(-60 * 480 // 1000) * 5 * 32  # rows of 100 bytes lie in 5 sectors at most
    without = 0 + 10 * 64 + 50 * 32
    assert without < with_it
    assert (split.topology_on, split.rows_on_device) == ("page_locked", 1000)
    assert split.bus_mib_per_epoch * 2**20 == 3 * without
    many = ResidentGraph(**{**SMALL, "num_drawn": 500})
    assert lay_out(many, 12_000 + graph.topology_bytes + 52_000, steps=3, batch_bytes=0).topology_on == "device"


def test_what_does_not_fit_says_what_to_type():
    with pytest.raises(UserError, match="tables by node alone take") as caught:
        lay_out(ResidentGraph(**SMALL), 11_999, steps=1, batch_bytes=0)
    assert "train.gpu_graph_gib=0.01" in str(caught.value)
    with pytest.raises(UserError, match="are sparse"):
        lay_out(ResidentGraph(**SMALL, refused="features of x are sparse"), GIB, steps=1, batch_bytes=0)
    with pytest.raises(UserError, match="a step takes 3") as caught:
        room_of(3 * GIB, StepMemory(model=0, batch=GIB // 2, activations=GIB // 2, prefetch=2))
    assert "train.batch_size" in str(caught.value)


def test_rows_that_gpus_share_must_all_fit():
    """A third of 1,000 rows, rounded up, on each of three; nothing is page-locked but the topology, if need be."""
    graph = ResidentGraph(**SMALL, num_sharing=3)
    found = lay_out(graph, 12_000 + graph.topology_bytes + 33_400, steps=3, batch_bytes=0)
    assert (found.topology_on, found.rows_on_device, found.num_sharing) == ("device", 1000, 3)
    assert (found.rows_page_locked, found.bus_mib_per_step) == (0, 0)
    assert found.device_mib * 2**20 == 12_000 + graph.topology_bytes + 33_400
    less = lay_out(graph, 12_000 + graph.topology_bytes + 33_399, steps=3, batch_bytes=0)
    assert (less.topology_on, less.rows_on_device) == ("page_locked", 1000)
    with pytest.raises(UserError, match="3 GPUs have no room for all rows") as caught:
        lay_out(graph, 12_000 + 33_399, steps=1, batch_bytes=0)
    assert "train.gpu_graph_gib=0.01 or more" in str(caught.value)


def test_rows_are_spread_over_the_gpus_of_each_host(tmp_path):
    asked = {"gpu_graph_gib": 40, "gpu_rows": "wholegraph", "ranks": 8}
    plan = plan_of("ogbn-papers100M", tmp_path, 2, MACHINE.model_copy(update={"num_gpus": 4}), **asked)
    found = laid_out(plan)
    assert (found.num_sharing, found.rows_on_device, found.rows_page_locked) == (4, plan.task.dataset.num_nodes, 0)
    assert _placement_facts(found)[2][0] == "rows of features, over 4 GPUs of a host"


def test_a_budget_that_a_gpu_cannot_give_is_refused(tmp_path):
    name = "ogbn-products"
    asked = plan_of(name, tmp_path, gpu_graph_gib=20)
    assert asked.task.gpu_graph_gib == 20
    assert laid_out(asked).graph_gib == 20
    with pytest.raises(UserError, match=r"has 14\.04 GiB left") as caught:
        laid_out(asked, 16)
    assert "train.gpu_graph_gib=14.03 or less" in str(caught.value)
    assert laid_out(plan_of(name, tmp_path)) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"train": {"device": "cpu"}}, "train.device is cpu"),
        ({"train": {"presampled": "somewhere"}}, "train.presampled"),
        ({"train": {"edge_dropout": 0.1}}, "train.edge_dropout"),
        ({"dataset": {"name": "planetoid/cora", "features": "as_stored"}}, "are sparse"),
        ({"roles": {"samplers": 1, "trainers": 1}, "train": {"device": "cuda"}}, "roles"),
    ],
)
def test_what_a_gpu_cannot_draw_of_is_refused(change, why, tmp_path):
    train = {"epochs": 1, "device": "cuda", "gpu_graph_gib": 1.0, **change.get("train", {})}
    dataset = change.get("dataset", {"name": "ogbn-products", "features": "as_stored"})
    sections = {"name": "x", **change, "dataset": dataset, "train": train}
    with pytest.raises(UserError, match=why) as caught:
        plan_experiment(inline_experiment(sections, "test"), dataset_root=tmp_path, run_id="run", machine=MACHINE)
    assert "leave train.gpu_graph_gib out" in str(caught.value)


def test_the_command_shows_it_as_text_and_as_json(graphmill):
    words = ["plan", "-O", "dataset.name=reddit", "-O", "dataset.features=as_stored", "--gpu-memory", "80"]
    words += ["-O", "dataset.undirected=false", "-O", "train.device=cpu"]
    text = graphmill(*words).out
    assert "rows of features on the GPU, the hottest" in text
    assert "232,965 of 232,965 (100.0 %)" in text
    assert re.search(r"hidden rows of exact evaluation +on the GPU, \d+ MiB at most", text)
    assert json.loads(graphmill(*words, "--json").out)["on_device"]["topology_on"] == "device"
