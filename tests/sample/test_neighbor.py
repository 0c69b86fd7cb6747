"""Fan-outs by relation: as many of each as asked, uniform, the same for any order of asking, and what is refused."""

import numpy as np
import pytest
from relation_problem import RELATIONS, relation_problem
from scipy.stats import chi2

from graphmill.access.whole import by_relation
from graphmill.base.errors import UserError
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.neighbor import RelationSampler
from graphmill.spec.fanouts import check_fanouts, resolve_fanouts
from graphmill.spec.kinds.kind import StepShape
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import KIND, NodeClassificationExperiment
from graphmill.tasks.node_classification.parts import open_graph
from graphmill.tasks.planning import plan_experiment

NUM_NODES, NUM_RELATIONS = 60, 3


@pytest.fixture(scope="module")
def graph() -> tuple[Topology, np.ndarray]:
    """Rows of 0 to 20 in-edges, ascending by neighbour, then by relation."""
    rng = np.random.default_rng(0)
    rows = [np.unique(rng.integers(0, NUM_NODES * NUM_RELATIONS, rng.integers(0, 20))) for _ in range(NUM_NODES)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    entries = np.concatenate(rows)
    return Topology(indptr, (entries // NUM_RELATIONS).astype(np.int32)), entries % NUM_RELATIONS


def sampler(graph, fanouts, *, resample=True) -> RelationSampler:
    return RelationSampler(*graph, fanouts, seed=7, resample=resample, with_edge_ids=True)


@pytest.mark.parametrize("resample", [True, False])
def test_each_row_has_its_relations_fanouts(graph, resample):
    topology, types = graph
    fanouts = ((2, 0), (0, 3), (-1, 1))
    seeds = SeedIds(np.array([5, 59, 0, 17]))
    found = sampler(graph, fanouts, resample=resample).sample(Seeds(0, 3, seeds))
    degrees = np.array(
        [
            [np.sum(types[a:b] == r) for r in range(3)]
            for a, b in zip(topology.indptr, topology.indptr[1:], strict=False)
        ]
    )
    known, begin, frontier = 4, 0, 0
    for hop in range(2):
        rows = range(frontier if not resample else 0, known)
        for row in rows:
            node = found.node_ids[row]
            counts = [
                len(range(d)) if f[hop] == -1 else min(d, f[hop]) for f, d in zip(fanouts, degrees[node], strict=True)
            ]
            its = found.edge_ids[begin : begin + sum(counts)]
            begin += sum(counts)
            assert np.all((topology.indptr[node] <= its) & (its < topology.indptr[node + 1]))
            assert len(np.unique(its)) == len(its)
            assert np.bincount(types[its], minlength=3).tolist() == counts
        frontier, known = known, known + found.num_nodes_per_hop[hop + 1]
    assert begin == len(found.edge_ids) == sum(found.num_edges_per_hop)
    indices = found.blocks[0].indices
    assert np.array_equal(found.node_ids[indices], topology.indices[found.edge_ids])


def test_a_node_draws_the_same_whatever_else_is_in_the_batch(graph):
    one = sampler(graph, ((2, 2), (1, 1), (2, 1)))
    alone = one.sample(Seeds(1, 2, SeedIds(np.array([8]))))
    among = one.sample(Seeds(1, 2, SeedIds(np.array([8, 30, 2]))))
    first = alone.num_edges_per_hop[0]
    assert np.array_equal(alone.edge_ids[:first], among.edge_ids[:first])
    again = one.sample(Seeds(1, 3, SeedIds(np.array([8]))))
    assert not np.array_equal(alone.edge_ids, again.edge_ids)


def test_draws_are_uniform_within_a_relation():
    """One node with 6 in-edges by each of two relations; 2 of the first and 3 of the second are drawn 20,000 times."""
    indptr = np.concatenate([[0], np.full(13, 12)])
    indptr[1:] = 12
    topology = Topology(indptr, np.arange(1, 13, dtype=np.int32))
    types = np.array([0, 1] * 6)
    one = RelationSampler(topology, types, ((2,), (3,)), seed=1, resample=True, with_edge_ids=True)
    counts = np.zeros(12)
    for step in range(20_000):
        counts[one.sample(Seeds(0, step, SeedIds(np.array([0])))).edge_ids] += 1
    for number, drawn in ((0, 2), (1, 3)):
        observed, expected = counts[types == number], 20_000 * drawn / 6
        assert observed.sum() == 20_000 * drawn
        # draws without replacement spread less than independent ones, so the bound is safe
        assert ((observed - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, 5)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"a": [5], "b": [5, 5]}, "as many fan-outs for each relation"),
        ({"a": [-2]}, "fan-outs, -1 for all"),
        ({"a": [5, 0], "b": [5, 0]}, "nothing at hop 2"),
        ({"a": []}, "fan-outs, -1 for all"),
        ((5, 0), "must hold positive fan-outs"),
    ],
)
def test_what_are_no_fanouts(asked, said):
    with pytest.raises(ValueError, match=said):
        check_fanouts(asked)


@pytest.fixture
def planned(tmp_path):
    write_store(relation_problem("typed"), tmp_path / "typed")

    def plan(fanouts, **more):
        raw = {
            "dataset": {"name": "typed", "undirected": more.pop("undirected", False)},
            "model": {"kind": "rgcn"},
            "train": {"epochs": 1, "batch_size": 32, "num_neighbors": fanouts, **more},
        }
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=tmp_path, run_id="run")

    return plan


NAMES = [str(each) for each in RELATIONS]


def test_the_plan_has_them_in_the_order_of_relations(planned):
    asked = {name: [number + 1, 2] for number, name in reversed(list(enumerate(NAMES)))}
    own = planned(asked).task
    assert own.relation_fanouts == ((1, 2), (2, 2), (3, 2))
    assert own.num_neighbors == (6, 6)
    assert planned([3, 2]).task.relation_fanouts is None


def test_the_plan_counts_what_the_sampler_holds(planned, tmp_path):
    plan = planned({name: [2, 2] for name in NAMES})
    found = by_relation(access_spec(plan, plan.task), open_graph(tmp_path / "typed"))
    topology = found.topology  # whose columns are there again, cut by relation, each with offsets of its own
    cut = topology.indices.nbytes + len(NAMES) * topology.indptr.nbytes
    held = cut + sum(one.entries.nbytes for one in found._relations) + found.edge_type.nbytes
    assert KIND.sizes(plan.task, StepShape(32, "cpu", "fp32")).index_bytes == held
    assert KIND.sizes(planned([2, 2]).task, StepShape(32, "cpu", "fp32")).index_bytes == 0


def test_what_does_not_fit_is_refused(planned):
    right = {name: [2, 2] for name in NAMES}
    with pytest.raises(UserError, match=r"lacks \*:near:\* and has paper:near:paper; the relations of typed are"):
        planned({NAMES[0]: [2, 2], NAMES[1]: [2, 2], "paper:near:paper": [1, 1]})
    with pytest.raises(UserError, match=r"dataset\.undirected is true"):
        planned(right, undirected=True)
    with pytest.raises(UserError, match=r"not for train\.presampled"):
        planned(right, presampled="somewhere")
    with pytest.raises(UserError, match="not for a graph in parts"):
        resolve_fanouts(right, planned(right).task.dataset, undirected=False, num_parts=2, presampled=None)
    untyped = planned([2, 2]).task.dataset.model_copy(update={"edge_types": ()})
    with pytest.raises(UserError, match="edges of typed have no types"):
        resolve_fanouts(right, untyped, undirected=False, num_parts=None, presampled=None)
