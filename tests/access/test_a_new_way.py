"""What a further way to a graph costs, and a further sampler: a class each, and one line of `access/opening.py`.

The toys here are such classes; what their lines would choose is handed to `LocalAccess` as `open_access` does.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from graphmill.access.local import LocalAccess
from graphmill.access.opening import open_access, sampler_of, source_of
from graphmill.access.seeds import training_nodes
from graphmill.access.whole import WholeGraph
from graphmill.graph.features import DenseFeatures
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled, SampledBlock
from graphmill.sample.collect import WholeTables
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.parts import open_graph
from graphmill.tasks.planning import plan_experiment

ALONE = Group(0, 1, torch.device("cpu"))


class InMemory(WholeGraph):
    """A way to a graph whose rows are somewhere else than in mapped files: here in memory; a GPU's would be another."""

    @classmethod
    def of(cls, spec, store, group):
        features = DenseFeatures(np.array(store.features.x), "float32")
        return cls(spec, store, group, features, None, WholeTables(features, None))


@dataclass(frozen=True)
class FirstNeighbours:
    """A sampler: of each seed its first neighbours, one hop."""

    source: WholeGraph
    fanouts: tuple[int, ...]

    def sample(self, seeds: AnySeeds) -> Sampled:
        topology, (fanout,) = self.source.topology, self.fanouts
        begins = topology.indptr[seeds.ids]
        counts = np.minimum(topology.indptr[seeds.ids + 1] - begins, fanout)
        sources = np.concatenate([topology.indices[b : b + c] for b, c in zip(begins, counts, strict=True)])
        nodes = np.concatenate([seeds.ids, np.setdiff1d(sources, seeds.ids)]).astype(np.int64)
        order = np.argsort(nodes)
        local = order[np.searchsorted(nodes, sources, sorter=order)].astype(np.int32)
        block = SampledBlock(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), local)
        hops = (len(seeds.ids), len(nodes) - len(seeds.ids))
        return Sampled(seeds, NodeIds(nodes), (block,), np.empty(0, np.int64), hops, (len(sources),))


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, save_as="sbm", options={"num_nodes": 300, "num_edges": 3000, "features": 5})
    asked = {"dataset": {"name": "sbm"}, "model": {"kind": "graphsage", "num_layers": 1}}
    train = {"epochs": 1, "batch_size": 40, "num_neighbors": [4], "threads": 1}
    experiment = NodeClassificationExperiment.model_validate({**asked, "train": train})
    plan = plan_experiment(experiment, dataset_root=root, run_id="run")
    return access_spec(plan, plan.task), open_graph(root / "sbm")


def begun(access, store):
    access.begin(store.labels, form="rows", dtype=torch.float32)
    return [(b.node_ids.clone(), b.inputs.x.clone(), b.labels.clone()) for b in access.batches(0, 0)]


def test_a_new_way_gives_the_batches_of_every_other(opened):
    spec, store = opened
    toy = InMemory.of(spec, store, ALONE)
    expected = begun(open_access(spec, store, ALONE), store)
    found = begun(
        LocalAccess(spec, store, toy, sampler_of(spec, store, toy, ALONE), training_nodes(spec, store, None, 1), ALONE),
        store,
    )
    assert len(found) == len(expected) > 1
    for own, its in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(own, its, strict=True))


def test_a_new_sampler_draws_for_the_ways_that_there_are(opened):
    spec, store = opened
    source = source_of(spec, store, ALONE)
    access = LocalAccess(
        spec, store, source, FirstNeighbours(source, spec.fanouts), training_nodes(spec, store, None, 1), ALONE
    )
    access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    x, topology, seen = np.array(store.features.x), source.topology, []
    for batch in access.batches(0, 0):
        for row, seed in zip(batch.inputs.x, batch.seeds.ids, strict=True):
            neighbours = topology.indices[topology.indptr[seed] : topology.indptr[seed + 1]][:4]
            mean = x[neighbours].mean(axis=0) if len(neighbours) else np.zeros(5)
            np.testing.assert_allclose(row, np.concatenate([x[seed], mean]), rtol=1e-6, atol=1e-6)
            seen.append(int(seed))
    assert sorted(seen) == store.nodes_in("train").tolist()
