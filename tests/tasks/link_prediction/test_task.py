"""The task: measures as a brute-force script has them, steps that any number of ranks make, models and heads."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_stores import made_store, split_made

import graphmill
from graphmill.base.errors import UserError
from graphmill.graph.sampled import NodeIds
from graphmill.partition.metadata import files_of
from graphmill.partition.parts import PartedGraph
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.link_prediction.data.batches import OwnNegatives
from graphmill.tasks.link_prediction.data.store import LinkStore
from graphmill.tasks.link_prediction.nn.heads import BilinearHead, build_head, link_losses
from graphmill.tasks.link_prediction.page import LinkPredictionExperiment
from graphmill.tasks.link_prediction.page.models import (
    BinaryLossSpec,
    ComplExSpec,
    DistMultSpec,
    DotSpec,
    MarginLossSpec,
    PerceptronSpec,
    SoftmaxLossSpec,
)
from graphmill.tasks.link_prediction.parts import open_links
from graphmill.tasks.node_classification.parts import open_graph
from graphmill.tasks.planning import plan_experiment

MODELS = {
    "graphsage": {"kind": "graphsage", "hidden_channels": 8, "dropout": 0.0},
    "jumping": {"kind": "graphsage", "hidden_channels": 8, "residual": True, "jumping_knowledge": "cat"},
    "gat": {"kind": "gat", "hidden_channels": 4, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "custom": {
        "kind": "custom",
        "target": "torch_geometric.nn.models.GCN",
        "options": {"hidden_channels": 8, "num_layers": 2},
    },
    "rgcn": {"kind": "rgcn", "hidden_channels": 8, "num_bases": 2, "dropout": 0.0},
    "hgt": {"kind": "hgt", "hidden_channels": 8, "heads": 2, "dropout": 0.0},
    "embedding": {"kind": "embedding"},
}


def plan_of(
    root: Path,
    model="graphsage",
    *,
    head=None,
    negatives=None,
    task=None,
    name="circle",
    channels=8,
    partition=None,
    **train,
) -> Plan:
    experiment = LinkPredictionExperiment.model_validate(
        {
            "task": {"kind": "link_prediction", **(task or {})},
            "dataset": {"name": name, "undirected": model not in ("rgcn", "hgt")},
            "model": MODELS[model],
            "embedding_channels": channels,
            "head": head or {"kind": "dot"},
            "negatives": negatives or {},
            "train": {"epochs": 40, "batch_size": 64, "num_neighbors": [4, 3], "threads": 1, **train},
            "partition": partition or {},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def task_of(plan: Plan, rank=0, ranks=1):
    return build_task(plan, Group(rank, ranks, torch.device("cpu")))


@pytest.mark.parametrize(
    ("model", "head", "ranked"),
    [
        ("graphsage", {"kind": "dot"}, "target"),
        ("graphsage", {"kind": "mlp", "hidden_channels": 8}, "both"),
        ("gat", {"kind": "dot"}, "both"),
        ("custom", {"kind": "dot"}, "target"),
        ("embedding", {"kind": "dot"}, "both"),
    ],
)
def test_measures_are_those_of_a_brute_force_script(root, model, head, ranked):
    task = task_of(plan_of(root, model, head=head, task={"ranked": ranked}))
    found = task.evaluate("test")
    task.model.eval()
    rows = task.rows(never_pause)
    store = LinkStore.open(root / "circle")
    known = {tuple(pair) for split in ("train", "val", "test") for pair in store.links(split).ends.T.tolist()}

    def score(source: int, target: int) -> float:
        pair = rows[source : source + 1], rows[target : target + 1]
        with torch.no_grad():
            return float(task.model.head(*pair, torch.empty(0, dtype=torch.int64)))

    every = [[score(s, t) for t in range(len(rows))] for s in range(len(rows))]
    ranks = []
    for side in ["target"] if ranked == "target" else ["target", "source"]:
        for s, t in store.links("test").ends.T.tolist():
            others = [(s, o) if side == "target" else (o, t) for o in range(len(rows))]
            others = [pair for pair in others if pair not in known and pair[0] != pair[1]]
            own = every[s][t]
            above = sum(every[a][b] > own + 1e-6 for a, b in others)
            close = sum(abs(every[a][b] - own) <= 1e-6 for a, b in others)
            ranks.append((1 + above, 1 + above + close))
    low, high = np.array(ranks).T
    rounding = 1e-12
    assert np.mean(1 / high) - rounding <= found.values["mrr"] <= np.mean(1 / low) + rounding
    assert np.mean(high <= 10) - rounding <= found.values["hits_at_10"] <= np.mean(low <= 10) + rounding
    assert found.num_seeds == len(store.links("test"))


@pytest.mark.parametrize("head", [{"kind": "dot"}, {"kind": "mlp", "hidden_channels": 8}])
def test_links_are_ranked_among_the_nodes_given_for_each(root, head):
    task = task_of(plan_of(root, "embedding", head=head, name="given", task={"ranked": "both", "val_limit": 30}))
    found, (links, places) = task.evaluate("val"), task.judge.links("val")
    given, rows = task.judge.store.candidates("val"), task.rows(never_pause)
    assert len(links) == 30
    ranks = []
    for of_targets, others in ((True, given.targets), (False, given.sources)):
        for (s, t), row in zip(links.ends.T.tolist(), others[places].tolist(), strict=True):
            pairs = [(s, o) if of_targets else (o, t) for o in row if o != (t if of_targets else s)]
            ranks.append(rank_of(task, rows, (s, t), pairs))
    assert found.values["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-9)


def test_links_are_ranked_among_one_pool_as_ogb_does(root):
    task = task_of(plan_of(root, "embedding", name="shared"))
    found, links = task.evaluate("test"), task.judge.store.links("test")
    pool, rows = task.judge.store.candidates("test").pairs.T.tolist(), task.rows(never_pause)
    ranks = np.array([rank_of(task, rows, pair, pool) for pair in links.ends.T.tolist()])
    assert found.values["mrr"] == pytest.approx(np.mean(1 / ranks), rel=1e-9)
    assert found.values["hits_at_10"] == np.mean(ranks <= 10)


def rank_of(task, rows, pair, others) -> float:
    """1 + how many pairs score above it; no two scores of these models are as close as rounding."""
    sources, targets = torch.tensor([list(pair), *map(list, others)]).T
    with torch.no_grad():
        scores = task.model.head(rows[sources], rows[targets], torch.empty(0, dtype=torch.int64)).double()
    ties = [tuple(other) == tuple(pair) or (other[1], other[0]) == tuple(pair) for other in others]
    ties = np.array(ties)
    above = (scores[1:] > scores[0]).numpy() & ~ties
    return 1 + above.sum() + ties.sum() / 2


ASKED = list(product(["graphsage", "embedding"], ["target", "both"], [False, True]))


@pytest.mark.parametrize(("model", "side", "shared"), ASKED)
def test_ranks_together_make_the_steps_of_one(root, model, side, shared):
    asked = {"count": 5 if shared else 2, "side": side, "shared": shared}
    alone = task_of(plan_of(root, model, negatives=asked))
    shares = [task_of(plan_of(root, model, negatives=asked, batch_size=32, ranks=2), r, 2) for r in (0, 1)]
    for one, *both in zip(alone.batches(0, 0), *(share.batches(0, 0) for share in shares), strict=True):
        ids = np.concatenate([batch.seeds.ids for batch in both])
        np.testing.assert_array_equal(one.seeds.ids, ids)
        found = [ends_of(batch) for batch in both]
        for name, of_one in ends_of(one).items():
            np.testing.assert_array_equal(of_one, np.concatenate([each[name] for each in found]))
        losses = [task.loss_sum(batch).item() for task, batch in zip(shares, both, strict=True)]
        assert alone.loss_sum(one).item() == pytest.approx(sum(losses), rel=1e-5)


def ends_of(batch) -> dict[str, np.ndarray]:
    pairs, nodes = batch.pairs, batch.pairs.nodes
    ends = {name: nodes[getattr(pairs, name)].numpy().copy() for name in ("sources", "targets")}
    negatives = pairs.negatives
    if isinstance(negatives, OwnNegatives):
        replaces_target, others = negatives.replaces_target, nodes[negatives.others]
    else:
        replaces_target = torch.arange(len(negatives.others)) < negatives.num_targets
        others, replaces_target = (
            row.expand(len(negatives.are_links), -1) for row in (nodes[negatives.others], replaces_target)
        )
        others = torch.where(negatives.are_links, -1, others)
    return ends | {"others": others.numpy().copy(), "replaces_target": replaces_target.numpy()}


IN_PARTS = {
    "graphsage": ("circle", {"kind": "dot"}),
    "jumping": ("mutual", {"kind": "dot"}),
    "gat": ("mutual", {"kind": "mlp", "hidden_channels": 8}),
    "custom": ("given", {"kind": "dot"}),
    "rgcn": ("typed", {"kind": "distmult"}),
    "hgt": ("typed", {"kind": "complex"}),
    "embedding": ("shared", {"kind": "dot"}),
}


@pytest.mark.parametrize(("model", "topology"), list(product(IN_PARTS, ["replicated", "partitioned"])))
def test_one_process_makes_of_parts_what_it_makes_of_the_whole(root, model, topology):
    """Several ranks, each with parts of its own: tests/integration/test_in_parts.py."""
    name, head = IN_PARTS[model]
    partition = {"topology": topology, "cache": {"policy": "none"}}
    asked = {"head": head, "negatives": {"count": 2, "side": "both"}}
    whole = task_of(plan_of(root, model, name=name, **asked))
    parts = task_of(plan_of(root, model, name=f"parts/{name}/3-ldg", partition=partition, **asked))
    for one, other in zip(whole.batches(1, 0), parts.batches(1, 0), strict=True):
        np.testing.assert_array_equal(one.seeds.ids, other.seeds.ids)
        for of_one, of_other in zip(ends_of(one).values(), ends_of(other).values(), strict=True):
            np.testing.assert_array_equal(of_one, of_other)
        assert whole.loss_sum(one).item() == parts.loss_sum(other).item()
    for split in ("val", "test"):
        assert parts.evaluate(split) == whole.evaluate(split)
    for embeddings in (False, True):
        found, expected = (task.predict(["test"], embeddings=embeddings).values for task in (parts, whole))
        for column, values in expected.items():
            np.testing.assert_array_equal(found[column], values)


@pytest.mark.parametrize("name", ["circle", "mutual"])
def test_what_lies_whole_beside_parts_is_what_the_store_has(root, name):
    whole, parts = LinkStore.open(root / name), open_links(root / "parts" / name / "3-ldg")
    parts.verify()
    of_any_host = files_of(parts.parts, [], whole_topology=False)
    assert {f"lists/{name}" for name in whole.lists()} < set(of_any_host), "a host without parts has them, too"
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(parts.links(split).columns, whole.links(split).columns)
    joined = {tuple(pair) for pair in whole.known_edges().T.tolist()}
    learnt = {tuple(pair) for pair in whole.links("train").ends.T.tolist()}
    learnt |= set() if whole.metadata.links_have_direction else {pair[::-1] for pair in learnt}
    assert {tuple(pair) for pair in parts.known_edges().T.tolist()} == joined - learnt
    assert bool(joined - learnt) == (name == "mutual")
    assert parts.info(None).model_dump(exclude={"path", "checksum", "num_parts"}) == whole.info(None).model_dump(
        exclude={"path", "checksum", "num_parts"}
    )


def test_each_link_is_of_the_rank_that_owns_its_source(root):
    asked = {"name": "parts/circle/3-ldg", "partition": {"placement": "per_rank"}}
    plan = plan_of(root, "embedding", ranks=3, batch_size=32, **asked)
    shares = [task_of(plan, rank, 3) for rank in range(3)]
    links, graph = shares[0].seeds.links, PartedGraph.open(root / asked["name"])
    for step in range(plan.calendar.steps_in(0)):
        seeds = [task.schedule.seeds(0, step, rank).ids for rank, task in enumerate(shares)]
        batch = shares[0].schedule.cut(shares[0].schedule.order(0), step)
        assert sorted(np.concatenate(seeds)) == sorted(batch)
        for rank, its in enumerate(seeds):
            assert (graph.book.part_of(graph.book.storage_of(NodeIds(links.sources[its]))) == rank).all()


def test_parts_of_another_task_are_refused(root, tmp_path):
    split_made(made_store(tmp_path / "nodes"), tmp_path / "parts/nodes/3-ldg")
    with pytest.raises(UserError, match="holds data of the task node_classification, and the task is link_prediction"):
        plan_of(tmp_path, name="parts/nodes/3-ldg")
    with pytest.raises(UserError, match="holds data of the task link_prediction, and the task is node_class"):
        open_graph(root / "parts/circle/3-ldg")


def test_a_loader_of_a_script_takes_the_parts_without_labels(root):
    pytest.importorskip("torch_geometric")
    parts = graphmill.open_partitioned(root / "parts/circle/3-ldg")
    with pytest.raises(UserError, match="in no splits"):
        parts.nodes_in("train")
    (batch,) = graphmill.NeighborLoader(parts, [3], torch.arange(10), batch_size=10)
    assert parts.num_classes == 0
    assert "y" not in batch
    np.testing.assert_array_equal(batch.x.numpy(), LinkStore.open(root / "circle").features.x[batch.n_id.numpy()])


def test_a_batch_is_the_same_after_a_resume(root):
    plan = plan_of(root)
    from_the_start = [ends_of(batch) for batch in task_of(plan).batches(3, 0)]
    later = [ends_of(batch) for batch in task_of(plan).batches(3, 5)]
    assert len(later) == len(from_the_start) - 5
    for one, other in zip(from_the_start[5:], later, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_learning_where_neighbours_sit_beats_chance(root):
    task = task_of(plan_of(root, "embedding", negatives={"count": 4}, loss={"kind": "bce"}))
    before = task.evaluate("val").values["mrr"]
    optimizer = torch.optim.Adam(task.model.parameters(), lr=0.05)
    for epoch in range(30):
        for batch in task.batches(epoch, 0):
            optimizer.zero_grad()
            (task.loss_sum(batch) / batch.num_seeds).backward()
            optimizer.step()
    assert task.evaluate("val").values["mrr"] > 2 * before


@pytest.mark.parametrize("spec", [DotSpec(), DistMultSpec(kind="distmult"), ComplExSpec(kind="complex")])
def test_a_query_times_the_other_end_is_the_score(spec):
    torch.manual_seed(0)
    head = build_head(spec, 8, 3)
    assert isinstance(head, BilinearHead)
    sources, targets, relations = torch.randn(20, 8), torch.randn(20, 8), torch.arange(20) % 3
    if spec.kind == "dot":
        relations = relations[:0]
    expected = head(sources, targets, relations)
    for rows, other, of_targets in ((sources, targets, False), (targets, sources, True)):
        found = (head.queries(rows, relations, of_targets=of_targets) * other).sum(dim=1)
        torch.testing.assert_close(found, expected)


HEADS = [DistMultSpec(kind="distmult"), ComplExSpec(kind="complex"), PerceptronSpec(kind="mlp")]


@pytest.mark.parametrize("spec", HEADS)
def test_scores_beside_a_link_are_those_of_the_pairs(spec):
    torch.manual_seed(0)
    head = build_head(spec, 8, 3).eval()
    sources, targets, others, relations = (
        torch.randn(6, 8),
        torch.randn(6, 8),
        torch.randn(6, 4, 8),
        torch.arange(6) % 3,
    )
    replaces = torch.rand(6, 4) < 0.5
    found = head.score_others(sources, targets, relations, others, replaces)
    for link, place in product(range(6), range(4)):
        other = others[link, place]
        pair = (sources[link], other) if replaces[link, place] else (other, targets[link])
        expected = head(pair[0][None], pair[1][None], relations[link][None])
        torch.testing.assert_close(found[link, place], expected[0])


@pytest.mark.parametrize("spec", HEADS)
@pytest.mark.parametrize("num_targets", [0, 2, 5])
def test_scores_among_shared_nodes_are_those_of_the_pairs(spec, num_targets):
    torch.manual_seed(0)
    head = build_head(spec, 8, 3).eval()
    sources, targets, others = torch.randn(6, 8), torch.randn(6, 8), torch.randn(5, 8)
    relations = torch.arange(6) % 3
    found = head.among(sources, targets, relations, others, num_targets)
    replaces = (torch.arange(5) < num_targets).expand(6, -1)
    torch.testing.assert_close(
        found, head.score_others(sources, targets, relations, others.expand(6, -1, -1), replaces)
    )


LOSSES = [BinaryLossSpec(), MarginLossSpec(kind="margin"), SoftmaxLossSpec(kind="softmax")]


@pytest.mark.parametrize("spec", LOSSES)
def test_what_is_no_negative_changes_no_loss(spec):
    """Nor a gradient; and a link with none at all has a loss that is finite."""
    positive = torch.randn(3, requires_grad=True)
    scores = torch.randn(3, 4)
    left_out = torch.tensor([[False, True, False, True], [True] * 4, [False] * 4])
    found = link_losses(spec, positive, scores.masked_fill(left_out, -torch.inf))
    assert found.isfinite().all()
    for link in range(3):
        kept = scores[link][~left_out[link]][None]
        if not kept.numel():
            continue
        expected = link_losses(spec, positive[link : link + 1], kept)
        torch.testing.assert_close(found[link : link + 1], expected)
        gradients = [torch.autograd.grad(each, positive, retain_graph=True)[0] for each in (found[link], expected[0])]
        torch.testing.assert_close(*gradients)


def test_complex_scores_as_complex_numbers_do():
    torch.manual_seed(0)
    head = build_head(ComplExSpec(kind="complex"), 8, 3)
    sources, targets, relations = torch.randn(5, 8), torch.randn(5, 8), torch.arange(5) % 3
    s, r, t = (torch.complex(*each.chunk(2, dim=1)) for each in (sources, head.relation[relations], targets))
    torch.testing.assert_close(head(sources, targets, relations), (s * r * t.conj()).real.sum(dim=1))


def test_losses_are_the_formulas():
    positive, negative = torch.tensor([0.3, -1.0]), torch.tensor([[0.1, 0.5], [2.0, -3.0]])
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    expected = [bce(p, torch.ones(())) + bce(n, torch.zeros(2)) for p, n in zip(positive, negative, strict=True)]
    torch.testing.assert_close(link_losses(BinaryLossSpec(), positive, negative), torch.stack(expected))
    margin = torch.tensor([(0.5 - 0.3 + 0.1 + 0.5 - 0.3 + 0.5) / 2, (0.5 + 1.0 + 2.0 + 0) / 2])
    torch.testing.assert_close(link_losses(MarginLossSpec(kind="margin", margin=0.5), positive, negative), margin)
    logits = torch.cat([positive[:, None], negative], dim=1)
    softmax = torch.nn.functional.cross_entropy(logits, torch.zeros(2, dtype=torch.int64), reduction="none")
    torch.testing.assert_close(link_losses(SoftmaxLossSpec(kind="softmax"), positive, negative), softmax)


def test_an_odd_width_is_no_row_of_complex_numbers(root):
    with pytest.raises(UserError, match=r"embedding_channels is 7, and head\.kind=complex takes two") as refused:
        plan_of(root, head={"kind": "complex"}, channels=7)
    assert refused.value.fix == "set embedding_channels=8"


def test_a_table_of_embeddings_has_no_edges_to_drop(root):
    with pytest.raises(UserError, match="embedding reads no edges") as refused:
        plan_of(root, "embedding", edge_dropout=0.1)
    assert refused.value.fix == "leave train.edge_dropout out"


def test_complex_tells_directions_of_links_without_relations():
    torch.manual_seed(0)
    head = build_head(ComplExSpec(kind="complex"), 8, 0)
    one, other, none = torch.randn(4, 8), torch.randn(4, 8), torch.empty(0, dtype=torch.int64)
    assert not torch.allclose(head(one, other, none), head(other, one, none))
    found = (head.queries(other, none, of_targets=True) * one).sum(dim=1)
    torch.testing.assert_close(found, head(one, other, none))
