"""A graph that lies for a GPU gives the batches of the mapped one, wherever its topology and rows are.

Here the device is the CPU: the kernels run through their shim, and `NativeKernels` say what bits they owe.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from device_graphs import ALONE, NODES, budget, kernels_by, spec_of
from device_graphs import device_access as laid_out_access
from native_graph_kernels import NativeKernels

from graphmill.access import device_kernels, wholegraph
from graphmill.access.device_kernels import DeviceTopology
from graphmill.access.opening import open_access, source_of
from graphmill.access.spec import GpuGraph
from graphmill.access.whole import WholeGraph
from graphmill.base.errors import UserError
from graphmill.device.kernels import cuda_kernels
from graphmill.graph.features import DenseFeatures
from graphmill.partition.inclusion import vertex_inclusion
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause


class Counting(NativeKernels):
    """How often each node's row was gathered."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def gather(self, rows, ids):
        self.asked.append(ids)
        return super().gather(rows, ids)


def device_access(spec, store, graph_bytes, features=None, kernels=None):
    return laid_out_access(spec, store, graph_bytes, kernels or Counting(), group=ALONE, features=features)


def batches(access, store, form, dtype):
    """Of an epoch, each as plain tensors; blocks begin at 0 and have their own edges only, as on a GPU."""
    access.begin(store.labels, form=form, dtype=dtype)
    found = []
    for batch in access.batches(1, 0):
        blocks = [(b.indptr - b.indptr[0], b.indices[b.indptr[0] : b.indptr[-1]]) for b in batch.blocks]
        tensors = [
            batch.node_ids,
            batch.inputs.x,
            batch.labels,
            batch.node_types,
            *(t for block in blocks for t in block),
        ]
        counts = (batch.num_nodes_per_hop, batch.num_edges_per_hop, batch.seeds.step, batch.seeds.ids.tolist())
        found.append((counts, [tensor.clone() for tensor in tensors]))
    return found


def assert_equal(found, expected):
    assert len(found) == len(expected) > 1
    for (own, mine), (its, other) in zip(found, expected, strict=True):
        assert own == its
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(mine, other, strict=True))


@pytest.mark.parametrize("by", ["native", "shim"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["rows", "self_and_mean"])
@pytest.mark.parametrize(("rows", "topology"), [(NODES, True), (120, True), (0, True), (80, False)])
def test_batches_are_those_of_the_mapped_graph(data, rows, topology, form, dtype, by):
    spec, store = spec_of(data)
    kernels = kernels_by(by)
    access = device_access(spec, store, budget(spec, store, rows, topology=topology), kernels=kernels)
    assert access.source.laid_out.rows_on_device == rows
    assert access.source.laid_out.topology_on == ("device" if topology else "page_locked")
    assert_equal(batches(access, store, form, dtype), batches(open_access(spec, store, ALONE), store, form, dtype))
    assert (len(access.source.rows.rows.hot), len(access.source.rows.rows.cold)) == (rows, NODES - rows)


@pytest.mark.parametrize("resample", [True, False])
def test_kernels_draw_of_the_topology_that_they_are_given(resample):
    """One after another, whatever was drawn of before."""
    launched, native, seeds = kernels_by("shim"), NativeKernels(), np.array([0, 1])
    for neighbour in (1, 0):
        topology = DeviceTopology(torch.tensor([0, 1, 2]), torch.tensor([neighbour] * 2, dtype=torch.int32))
        hoods = [each.sample(topology, seeds, [1], 5, resample=resample) for each in (launched, native)]
        assert [hood.indices.tolist() for hood in hoods] == [[neighbour] * 2] * 2


@pytest.mark.parametrize("by", ["native", "shim"])
def test_so_are_those_of_models_that_read_one_subgraph(data, by):
    """GAT's: a node draws once, and blocks share their rows."""
    spec, store = spec_of(data, "gat")
    assert not spec.resample
    kernels = kernels_by(by)
    access = device_access(spec, store, budget(spec, store, 100), kernels=kernels)
    expected = batches(open_access(spec, store, ALONE), store, "rows", torch.float32)
    assert_equal(batches(access, store, "rows", torch.float32), expected)


@pytest.mark.parametrize("by", ["native", "shim"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_are_read_in_the_format_that_they_are_stored_in(data, dtype, by):
    spec, store = spec_of(data)
    x = torch.from_numpy(np.array(store.features.x)).to(getattr(torch, dtype))
    words = x.numpy() if dtype == "float16" else x.view(torch.uint16).numpy()
    kernels = kernels_by(by)
    graph_bytes = budget(spec, store, 100)
    access = device_access(spec, store, graph_bytes, DenseFeatures(words, dtype), kernels)
    for _, (nodes, inputs, *_) in batches(access, store, "rows", torch.float32):
        assert torch.equal(inputs, x[nodes].float())


def test_the_likeliest_rows_are_on_the_device_and_each_is_read_once(data):
    spec, store = spec_of(data)
    access = device_access(spec, store, budget(spec, store, 90))
    batches(access, store, "self_and_mean", torch.float32)
    source = access.source
    chances = vertex_inclusion(source.topology, store.nodes_in("train"), spec.fanouts, spec.plan.batch_size)
    rows = source.rows.rows
    hot = set(torch.nonzero(rows.place < len(rows.hot)).flatten().tolist())
    assert min(chances[list(hot)]) >= max(np.delete(chances, list(hot)))
    assert source.kernels.asked
    assert all(len(ids.unique()) == len(ids) for ids in source.kernels.asked)


@pytest.mark.parametrize("draws", ["device", "cpu"])
def test_presampled_rows_are_those_that_most_batches_of_the_first_epoch_read(data, draws):
    spec, store = spec_of(data)
    graph_bytes = budget(spec, store, 90)
    access = laid_out_access(spec, store, graph_bytes, Counting(), group=ALONE, draws=draws, rows="presample")
    expected = batches(open_access(spec, store, ALONE), store, "rows", torch.float32)
    assert_equal(batches(access, store, "rows", torch.float32), expected)
    mapped = open_access(spec, store, ALONE)
    mapped.begin(store.labels, form="rows", dtype=torch.float32)
    counts = np.zeros(NODES, dtype=int)
    for batch in mapped.batches(0, 0):
        counts[batch.node_ids] += 1
    rows = access.source.rows.rows
    hot = np.flatnonzero(rows.place.numpy() < len(rows.hot))
    assert len(hot) == 90
    assert hot.tolist() == sorted(np.argsort(-counts, kind="stable")[:90].tolist())
    likeliest = vertex_inclusion(access.source.topology, store.nodes_in("train"), spec.fanouts, spec.plan.batch_size)
    assert set(hot) != set(np.argsort(-likeliest, kind="stable")[:90])


@pytest.mark.parametrize(("count", "ranks", "drawn"), [(90, 1, True), (90, 2, False), (0, 1, False), (NODES, 1, False)])
def test_an_epoch_is_presampled_only_where_its_batches_are_those_of_the_run(data, count, ranks, drawn):
    """Not by one process that evaluates what two ranks trained, nor where no row or every one is on the device."""
    spec, store = spec_of(data)
    spec = replace(spec, plan=spec.plan.model_copy(update={"ranks": ranks}))
    graph_bytes = budget(spec, store, count)
    access = laid_out_access(spec, store, graph_bytes, Counting(), group=ALONE, rows="presample")
    drawn_of, sample = [], access.sampler.sample
    access.sampler = SimpleNamespace(sample=lambda seeds: drawn_of.append(seeds) or sample(seeds))
    access.begin(store.labels, form="rows", dtype=torch.float32)
    assert bool(drawn_of) == drawn
    assert len(access.source.rows.rows.hot) == count


@pytest.mark.parametrize("by", ["native", "shim"])
@pytest.mark.parametrize("whole", [True, False])
def test_models_of_unknown_layers_read_the_neighbourhoods_of_the_mapped_graph(data, whole, by):
    """All neighbours of everything, in one pass and by 512 nodes."""
    spec, store = spec_of(data, "gat")
    spec, seen = replace(spec, evaluates_whole=whole), []

    def model(batch):
        seen[-1] += [batch.inputs.x.clone(), *(b.indices[b.indptr[0] : b.indptr[-1]].clone() for b in batch.blocks)]
        return batch.inputs.x[: batch.num_seeds, :2] * len(batch.node_ids)

    found, nodes = [], store.nodes_in("val")
    access = device_access(spec, store, budget(spec, store, 90), kernels=kernels_by(by))
    for each in (access, open_access(spec, store, ALONE)):
        each.begin(store.labels, form="rows", dtype=torch.float32)
        seen.append([])
        found.append(each.exact(model, nodes, never_pause, hops=2, num_columns=2))
        each.group = Group(1, 2, torch.device("cpu"))  # one node is the other rank's: this one draws for none
        assert each.exact(model, nodes[:1], never_pause, hops=2, num_columns=2)[1].shape == (0, 2)
        each.group = ALONE
    assert np.array_equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_rows_are_not_shared_where_they_cannot_be(data, monkeypatch):
    """The package does not load without a GPU; of GPUs that cannot read each other it says so."""
    spec, store = spec_of(data)
    group = Group(0, 2, torch.device("cpu"))
    source = laid_out_access(spec, store, budget(spec, store, 150), NativeKernels(), group=group, rows="wholegraph")
    with pytest.raises(UserError, match="WholeGraph does not load") as caught:
        source.begin(store.labels, form="rows", dtype=torch.float32)
    assert "leave train.gpu_rows out" in caught.value.fix
    apart = SimpleNamespace(support_type_location=lambda kind, where: False)
    monkeypatch.setattr(wholegraph, "_engine", lambda: None)
    monkeypatch.setattr(wholegraph, "_communicator", lambda rank, world_size, each: apart)
    with pytest.raises(UserError, match="cannot read each other's memory"):
        source.begin(store.labels, form="rows", dtype=torch.float32)


def test_one_gpu_of_a_host_keeps_its_own_rows(data, caplog):
    """As when a model is evaluated: there is nobody to share with."""
    spec, store = spec_of(data)
    graph_bytes = budget(spec, store, 100)
    access = laid_out_access(spec, store, graph_bytes, NativeKernels(), group=ALONE, rows="wholegraph")
    assert access.source.laid_out.num_sharing == 1
    assert "no other rank is on this host" in caplog.text
    expected = batches(open_access(spec, store, ALONE), store, "rows", torch.float32)
    assert_equal(batches(access, store, "rows", torch.float32), expected)


def test_a_cpu_reads_the_mapped_graph_and_a_gpu_needs_kernels(data, monkeypatch):
    """A model that was trained on a GPU may be used where none is."""
    spec, store = spec_of(data)
    asked = replace(spec, gpu=GpuGraph(budget(spec, store, 10)))
    assert isinstance(source_of(asked, store, ALONE), WholeGraph)
    monkeypatch.setattr(device_kernels, "cuda_kernels", lambda device: cuda_kernels(device, Path("nowhere")))
    with pytest.raises(UserError, match="no kernels for GPUs"):
        source_of(asked, store, Group(0, 1, torch.device("meta")))
