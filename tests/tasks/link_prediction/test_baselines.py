"""Baselines against scores and ranks that are written out in full."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_stores import split_made

from graphmill.graph.features import dense, no_features, sparse
from graphmill.graph.splits import SPLITS
from graphmill.graph.typed import RawTypes, Relation
from graphmill.spec.experiment import DatasetSpec
from graphmill.tasks.link_prediction import baselines, overlap
from graphmill.tasks.link_prediction import known as known_links_module
from graphmill.tasks.link_prediction.baselines import measures_of, score, scorer_of
from graphmill.tasks.link_prediction.data.leaks import without_leaks
from graphmill.tasks.link_prediction.data.links import GivenCandidates, SharedCandidates
from graphmill.tasks.link_prediction.data.prepare import prepare_requested
from graphmill.tasks.link_prediction.data.splits import JoinedGraph, split_as_requested
from graphmill.tasks.link_prediction.data.store import write_links
from graphmill.tasks.link_prediction.known import LeftOut
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.link_prediction.page.data import BASELINES, LinkPrepareOptions
from graphmill.tasks.link_prediction.parts import open_links
from graphmill.tasks.stores import Preparation

NUM_NODES = 18
ROUNDING = 1e-5  # of float32 rows of length 1 and five columns: 5 terms, each off by 3 parts in 2^24
NAMES = [each.name for each in BASELINES]


def store_of(folder, seed, *, features="dense", relations=0, undirected=False, candidates=""):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((NUM_NODES, 5)) < 0.5, 0, rng.integers(1, 4, (NUM_NODES, 5))).astype(float)
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=NUM_NODES))])
    edges = rng.integers(0, NUM_NODES, (2, 70))
    types = None
    if relations:
        types = RawTypes(
            node_type=np.zeros(NUM_NODES, np.int8),
            node_names=("n",),
            edge_type=rng.integers(0, relations, 70),
            relations=tuple(Relation("n", f"r{i}", "n") for i in range(relations)),
        )
    raw = JoinedGraph(
        edge_index=edges,
        features={
            "dense": dense(x),
            "sparse": sparse(indptr, columns, x[rows, columns], 5),
            "none": no_features(NUM_NODES),
        }[features],
        name="small",
        source="by hand",
        synthetic=True,
        types=types,
    )
    options = LinkPrepareOptions(random_split=True, val_fraction=0.1, test_fraction=0.2, undirected=undirected or None)
    split, _ = without_leaks(split_as_requested(raw, options))
    if candidates == "given":
        counts = {each: len(split.links[each]) for each in ("val", "test")}
        drawn = {
            each: GivenCandidates(*(rng.integers(0, NUM_NODES, (count, 7)) for _ in range(2)))
            for each, count in counts.items()
        }
        split = split.__class__(**{**as_fields(split), "candidates": drawn})
    if candidates == "shared":
        pools = {each: SharedCandidates(rng.integers(0, NUM_NODES, (2, 25))) for each in ("val", "test")}
        split = split.__class__(**{**as_fields(split), "candidates": pools})
    return write_links(split, folder)


def as_fields(raw):
    return {name: getattr(raw, name) for name in raw.__dataclass_fields__}


def all_scores(store, name, relation):
    """[source, target], by the definitions."""
    topology = store.topology(undirected=True)
    neighbours = [
        set(topology.indices[topology.indptr[v] : topology.indptr[v + 1]].tolist()) - {v} for v in range(NUM_NODES)
    ]
    scores = np.zeros((NUM_NODES, NUM_NODES))
    train = store.links("train")
    of = np.ones(len(train), bool) if train.relations is None else train.relations == relation
    out, into = (np.bincount(ends[of], minlength=NUM_NODES) for ends in (train.sources, train.targets))
    if not store.metadata.links_have_direction:
        out = into = out + into
    x = store.features
    full = x.x if hasattr(x, "x") else np.zeros((NUM_NODES, x.num_features))
    if not hasattr(x, "x"):
        full[np.repeat(np.arange(NUM_NODES), np.diff(x.indptr)), x.indices] = x.values
    norms = np.linalg.norm(full.astype(float), axis=1) if full.size else np.ones(NUM_NODES)
    for u in range(NUM_NODES):
        for v in range(NUM_NODES):
            shared = neighbours[u] & neighbours[v]
            scores[u, v] = {
                "common_neighbours": lambda shared=shared: len(shared),
                "adamic_adar": lambda shared=shared: sum(1 / math.log(max(2, len(neighbours[w]))) for w in shared),
                "degree": lambda u=u, v=v: (1 + out[u]) * (1 + into[v]),
                "cosine": lambda u=u, v=v: full[u].astype(float) @ full[v] / max(norms[u] * norms[v], 1e-9),
            }[name]()
    return scores


def written_out(store, name, sides):
    """Ranks of the test links, one by one: where scores closer than rounding are below, equal, and above."""
    every = [each for split in SPLITS for each in store.links(split).columns.T.tolist()]
    known = set(map(tuple, every))
    if not store.metadata.links_have_direction:
        known |= {(v, u) for u, v in known}
    links, candidates = store.links("test"), store.candidates("test")
    relations = {None} if links.relations is None else set(links.relations.tolist())
    scores_of = {relation: all_scores(store, name, relation) for relation in relations}
    found = []
    for side in sides:
        for row, (u, v, *more) in enumerate(links.columns.T.tolist()):
            scores = scores_of[more[0] if more else None]
            own = scores[u, v]
            if isinstance(candidates, SharedCandidates):
                others = [scores[a, b] for a, b in candidates.pairs.T.tolist()]
            else:
                of = range(NUM_NODES)
                if candidates is not None:
                    of = (candidates.targets if side == "target" else candidates.sources)[row].tolist()
                pairs = [(u, w) if side == "target" else (w, v) for w in of]
                if candidates is None:
                    pairs = [(a, b) for a, b in pairs if (a, b, *more) not in known and a != b]
                others = [scores[pair] for pair in pairs if pair != (u, v)]
            above = sum(s > own + ROUNDING for s in others)
            near = sum(abs(s - own) <= ROUNDING for s in others)
            found.append((1 + above, 1 + above + near / 2, 1 + above + near))
    return np.array(found).T


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"relations": 2, "features": "sparse"},
        {"undirected": True, "features": "sparse"},
        {"candidates": "given"},
        {"candidates": "shared", "features": "sparse"},
    ],
)
def test_ranks_are_those_of_scores_written_out(tmp_path_factory, name, kind, seed):
    store = store_of(tmp_path_factory.mktemp("s") / "s", seed, **kind)
    sides = ("target",) if kind.get("candidates") == "shared" else ("target", "source")
    scorer = scorer_of(store, name)
    found = measures_of(store, scorer, "test", sides, baselines.known_links(store))
    best, middle, worst = written_out(store, name, sides)
    if name in ("common_neighbours", "degree"):
        assert found["mrr"] == pytest.approx(np.mean(1 / middle), rel=1e-12)
    else:
        assert np.mean(1 / worst) <= found["mrr"] * (1 + 1e-12)
        assert found["mrr"] <= np.mean(1 / best) * (1 + 1e-12)
    if kind.get("candidates") != "shared":
        assert np.mean(worst <= 10) <= found["hits_at_10"] <= np.mean(best <= 10)
    links = store.links("test")
    if links.relations is None:
        full = all_scores(store, name, None)
        assert np.allclose(scorer.pair_scores(links), full[links.sources, links.targets], atol=2e-5)
    assert 0 <= found["auc"] <= 1
    assert 0 < found["ap"] <= 1


@pytest.mark.parametrize("dense_from", [0.0, 1e9])
@pytest.mark.parametrize("sorted_from", [0, 1e9])
@pytest.mark.parametrize("at_a_time", [1, 1 << 22])
def test_ranks_hang_on_no_block(tmp_path, monkeypatch, dense_from, sorted_from, at_a_time):
    store = store_of(tmp_path / "s", 5, features="sparse")
    known = baselines.known_links(store)
    plain = {name: measures_of(store, scorer_of(store, name), "test", ("target", "source"), known) for name in NAMES}
    monkeypatch.setattr(overlap, "_DENSE_FROM", dense_from)
    monkeypatch.setattr(overlap, "_SORTED_FROM", sorted_from)
    monkeypatch.setattr(overlap, "_AT_A_TIME", at_a_time)
    monkeypatch.setattr(known_links_module, "_AT_A_TIME", at_a_time)
    for name, expected in plain.items():
        assert measures_of(store, scorer_of(store, name), "test", ("target", "source"), known) == expected


def plan_of(store, ranked="target"):
    info = store.info(DatasetSpec(name="small"))
    return LinkPredictionPlan.model_construct(kind="link_prediction", dataset=info, ranked=ranked)


def test_scores_as_the_kind_asks_for_them(tmp_path):
    store = store_of(tmp_path / "s", 1, features="none")
    found = list(score(plan_of(store), NAMES, ("val", "test"), bounded=True))
    assert [(each.baseline, each.split) for each in found] == [(n, s) for n in NAMES for s in ("val", "test")]
    for each in found:
        if each.baseline == "cosine":
            assert "no features" in each.why_not
        else:
            assert set(each.values) == {"mrr", "hits_at_1", "hits_at_10", "hits_at_50", "hits_at_100", "auc", "ap"}
    both = list(score(plan_of(store, "both"), ["degree"], ("test",), bounded=False))
    one = list(score(plan_of(store), ["degree"], ("test",), bounded=False))
    assert both[0].values["mrr"] != one[0].values["mrr"]


def test_what_takes_long_is_not_scored_unasked(tmp_path, monkeypatch):
    store = store_of(tmp_path / "s", 1)
    monkeypatch.setattr(baselines, "MOST_OPERATIONS", 1)
    (found,) = score(plan_of(store), ["cosine"], ("test",), bounded=True)
    assert found.values is None
    assert "graphmill baseline small --all" in found.why_not
    (found,) = score(plan_of(store), ["cosine"], ("test",), bounded=False)
    assert found.values is not None


@pytest.mark.parametrize("relations", [0, 2])
def test_degrees_alone_are_scored_of_parts(tmp_path, relations):
    store = store_of(tmp_path / "s", 1, features="dense", relations=relations)
    split_made(store, tmp_path / "p")
    found = list(score(plan_of(open_links(tmp_path / "p")), NAMES, ("test",), bounded=True))
    (degree,) = score(plan_of(store), ["degree"], ("test",), bounded=True)
    for each in found:
        if each.baseline == "degree":
            assert each.values == degree.values
        else:
            assert "is partitioned: graphmill baseline NAME scores it" in each.why_not


def test_pairs_that_are_no_links(tmp_path):
    store = store_of(tmp_path / "s", 3)
    every = {pair for split in SPLITS for pair in map(tuple, store.links(split).ends.T.tolist())}
    links, drawn = store.links("train"), store.non_links("train")
    assert not every & set(map(tuple, drawn.ends.T.tolist()))
    assert (drawn.sources == links.sources).all()
    assert not (drawn.sources == drawn.targets).any()
    assert np.array_equal(drawn.targets, store.non_links("train").targets)


def test_generated_links_are_told_by_their_features(tmp_path):
    options = LinkPrepareOptions(num_nodes=400)
    store = prepare_requested(Preparation("synthetic/nearest", tmp_path, options))
    values = {each.baseline: each.values for each in score(plan_of(store, "both"), NAMES, ("test",), bounded=True)}
    assert values["cosine"]["auc"] > 0.8
    assert values["common_neighbours"]["auc"] > 0.8
    assert values["cosine"]["mrr"] > values["degree"]["mrr"]


def test_a_row_of_its_own_is_no_argument():
    """What has no entries at all scores nothing."""
    empty = overlap.CompressedRows(np.zeros(4, np.int64), np.empty(0, np.int64), np.empty(0))
    nothing = overlap.Overlap.of(empty, np.ones(2))
    assert nothing.pair_scores(np.array([0, 1]), np.array([1, 2])).tolist() == [0, 0]
    left_out = LeftOut(np.zeros(2, np.int64), np.zeros(2, np.int64), np.empty(0, np.int32))
    found = nothing.ranks(np.array([0, 1]), np.array([1, 2]), left_out)
    assert (found.above.tolist(), found.tied.tolist(), found.candidates.tolist()) == ([0, 0], [2, 2], [2, 2])
