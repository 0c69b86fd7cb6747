"""What learns nothing: neighbours in common, degrees, likeness of features. Ranked as links of a model are."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import SparseFeatures, to_float32
from graphmill.graph.splits import SPLITS, Split
from graphmill.runtime.machine import num_cores
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_text
from graphmill.tasks.link_prediction.data.links import (
    GivenCandidates,
    Links,
    SharedCandidates,
    concatenated,
)
from graphmill.tasks.link_prediction.data.lists import LinkLists
from graphmill.tasks.link_prediction.data.store import LinkStore
from graphmill.tasks.link_prediction.known import KnownLinks, LeftOut
from graphmill.tasks.link_prediction.overlap import CompressedRows, Overlap, ranks_of_one_row
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.link_prediction.page.data import ADAMIC_ADAR, COMMON, COSINE, DEGREE
from graphmill.tasks.link_prediction.parts import PartedLinkStore, open_links
from graphmill.tasks.link_prediction.ranking import (
    LinkRanks,
    auc_ap,
    hits_at,
    joined_ranks,
    mrr,
    ranks_among_all,
    ranks_among_pool,
)

_log = logging.getLogger(__name__)

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]
Side = Literal["source", "target"]
HITS: Final = (1, 10, 50, 100)
_OPERATIONS_PER_TERM: Final = 200  # of a sum on one core, as long as it takes to add and rank it (20 to 60 ns measured)
_PAIRS_AT_A_TIME: Final = 1 << 20


class PairScorer(Protocol):
    """Scores pairs of nodes."""

    def pair_scores(self, links: Links) -> NDArray[np.floating]:
        """Scores of the links [n]."""

    def ranks(self, links: Links, side: Side, left_out: LeftOut) -> LinkRanks:
        """Rank that end of each link among all nodes in its place, except those left out."""

    def operations(self, links: Links, side: Side) -> float:
        """What `ranks` takes, roughly."""


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of link prediction."""
    assert isinstance(task_plan, LinkPredictionPlan)
    store = open_links(Path(task_plan.dataset.path))
    sides: tuple[Side, ...] = ("target",) if task_plan.ranked == "target" else ("target", "source")
    known: KnownLinks | None = None
    for name in names:
        scorer = scorer_of(store, name)
        if isinstance(scorer, str):
            yield from (BaselineScore(name, split, None, scorer) for split in splits)
            continue
        for split in splits:
            links = store.links(split)
            operations = sum(scorer.operations(links, side) for side in sides)
            if operations > MOST_OPERATIONS:
                work = work_text(operations, _bytes_of(store))
                if bounded:
                    why = f"it would take {work}: graphmill baseline {task_plan.dataset.name} --all scores it"
                    yield BaselineScore(name, split, None, why)
                    continue
                _log.info(f"{name} of {split} takes {work}")
            known = known or known_links(store)
            yield BaselineScore(name, split, measures_of(store, scorer, split, sides, known))


def known_links(store: LinkLists) -> KnownLinks:
    """Links of all splits, among which a link is not ranked."""
    links = concatenated([store.links(split) for split in SPLITS])
    return KnownLinks.of(links, store.metadata.num_nodes, have_direction=store.metadata.links_have_direction)


def scorer_of(store: LinkStore | PartedLinkStore, name: str) -> PairScorer | str:
    """The baseline of that name, or why there is none."""
    if name == DEGREE.name:
        return _Degree(store)
    if isinstance(store, PartedLinkStore):
        return f"it reads the whole graph at once, and {store.path} is partitioned: graphmill baseline NAME scores it"
    return _of_whole_graph(store, name)


def _of_whole_graph(store: LinkStore, name: str) -> PairScorer | str:
    if name in (COMMON.name, ADAMIC_ADAR.name):
        neighbours = _neighbours(store)
        degrees = np.diff(neighbours.indptr)
        weights = np.ones(len(degrees)) if name == COMMON.name else 1 / np.log(np.maximum(degrees, 2))
        return _Shared(Overlap.of(neighbours, weights))
    assert name == COSINE.name
    if not store.metadata.num_features:
        return f"nodes of {store.metadata.name} have no features"
    features = store.features
    if isinstance(features, SparseFeatures):
        rows = _unit_rows(features)
        return (
            _Likeness(_written_out(rows, features.num_features))
            if _is_full(features)
            else _Shared(Overlap.of(rows, np.ones(features.num_features)))
        )
    if 4 * features.num_nodes * features.num_features > MOST_BYTES:
        return f"the features of {store.metadata.name} are too large to be compared in memory"
    x = to_float32(features).astype(np.float64)
    lengths = np.sqrt((x**2).sum(axis=1, keepdims=True))
    return _Likeness((x / np.where(lengths > 0, lengths, 1)).astype(np.float32))


def _is_full(features: SparseFeatures) -> bool:
    """Whether sparse rows are compared faster with their zeros, and fit so."""
    size = float(features.num_nodes) * features.num_features
    terms = float((np.bincount(features.indices, minlength=features.num_features).astype(np.float64) ** 2).sum())
    return 4 * size < MOST_BYTES / 2 and 2 * size * features.num_nodes < _OPERATIONS_PER_TERM * terms


def _written_out(rows: CompressedRows, num_columns: int) -> NDArray[np.float32]:
    x = np.zeros((rows.num_rows, num_columns), dtype=np.float32)
    x[np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr)), rows.columns] = rows.values
    return x


def measures_of(
    store: LinkLists, scorer: PairScorer, split: Split, sides: Sequence[Side], known: KnownLinks
) -> dict[str, float]:
    """All measures of a split, by name."""
    links = store.links(split)
    found = _ranks(store, scorer, split, sides, known)
    is_shared = isinstance(store.candidates(split), SharedCandidates)
    hits = {f"hits_at_{k}": hits_at(found, k, shared_pool=is_shared) for k in HITS}
    auc, ap = auc_ap(_pairs(scorer, links), _pairs(scorer, store.non_links(split)))
    return {"mrr": mrr(found), **hits, "auc": auc, "ap": ap}


def _ranks(store: LinkLists, scorer: PairScorer, split: Split, sides: Sequence[Side], known: KnownLinks) -> LinkRanks:
    links, candidates = store.links(split), store.candidates(split)
    if isinstance(candidates, SharedCandidates):
        return ranks_among_pool(_pairs(scorer, links), _pairs(scorer, Links.of(candidates.pairs)))
    found = []
    for side in sides:
        if isinstance(candidates, GivenCandidates):
            given = candidates.targets if side == "target" else candidates.sources
            if given is not None:
                found.append(_ranks_among_given(scorer, links, side, given))
            continue
        found.append(_ranks_among_all(scorer, links, side, known))
    return joined_ranks(found)


def _ranks_among_all(scorer: PairScorer, links: Links, side: Side, known: KnownLinks) -> LinkRanks:
    order = np.argsort(_anchors(links, side)[0], kind="stable")  # those with the same anchor beside each other
    links = links.taken(order)
    anchors = _anchors(links, side)[0]
    found = np.empty((3, len(links)), dtype=np.int64)
    for some, its in known.left_out(anchors, links.relations, side):
        ranks = scorer.ranks(links.taken(np.arange(some.start, some.stop)), side, its)
        found[:, order[some]] = ranks.above, ranks.tied, ranks.candidates
    return LinkRanks(*found)


def _ranks_among_given(scorer: PairScorer, links: Links, side: Side, given: NDArray[np.integer]) -> LinkRanks:
    """Rank links among candidates of their own [n, k]; the answer itself does not count."""
    answers = links.targets if side == "target" else links.sources
    own = _pairs(scorer, links)
    found, at_a_time = [], max(1, _PAIRS_AT_A_TIME // given.shape[1])
    for begin in range(0, len(links), at_a_time):
        some = slice(begin, begin + at_a_time)
        ids = np.asarray(given[some], dtype=np.int64)
        each = links.taken(np.repeat(np.arange(begin, begin + len(ids)), ids.shape[1]))
        flat = ids.reshape(-1)
        sources, targets = (each.sources, flat) if side == "target" else (flat, each.targets)
        scores = _pairs(scorer, Links(sources, targets, each.relations)).reshape(ids.shape)
        counts = ids != answers[some, None]
        above, tied = scores > own[some, None], scores == own[some, None]
        found.append(LinkRanks(*(np.count_nonzero(each & counts, axis=1) for each in (above, tied, counts))))
    return joined_ranks(found)


def _pairs(scorer: PairScorer, links: Links) -> Numbers:
    return scorer.pair_scores(links).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Scores by what both ends have; which end is which does not matter."""

    overlap: Overlap

    def pair_scores(self, links: Links) -> Numbers:
        return self.overlap.pair_scores(links.sources, links.targets)

    def ranks(self, links: Links, side: Side, left_out: LeftOut) -> LinkRanks:
        anchors, answers = _anchors(links, side)
        return self.overlap.ranks(anchors, answers, left_out)

    def operations(self, links: Links, side: Side) -> float:
        return _OPERATIONS_PER_TERM * float(self.overlap.num_terms(np.unique(_anchors(links, side)[0])).sum())


@dataclass(frozen=True, slots=True)
class _Likeness:
    """Scores by the dot product of rows of length 1."""

    rows: NDArray[np.float32]  # [num_nodes, num_features]

    def pair_scores(self, links: Links) -> NDArray[np.float32]:
        at_a_time, found = 1 + _PAIRS_AT_A_TIME // self.rows.shape[1], [np.empty(0, np.float32)]
        for begin in range(0, len(links), at_a_time):
            ends = links.sources[begin : begin + at_a_time], links.targets[begin : begin + at_a_time]
            found.append(np.einsum("ij,ij->i", *(self.rows[each] for each in ends)))
        return np.concatenate(found)

    def ranks(self, links: Links, side: Side, left_out: LeftOut) -> LinkRanks:
        anchors, answers = _anchors(links, side)
        return ranks_among_all(self.rows[anchors], answers, self.rows, left_out, num_threads=num_cores())

    def operations(self, links: Links, side: Side) -> float:
        del side
        return 2.0 * len(links) * self.rows.size


class _Degree:
    """Scores by the ends' numbers of training links in that direction and relation, each plus one: their product."""

    def __init__(self, store: LinkLists) -> None:
        self._train = store.links("train")
        self._num_nodes = store.metadata.num_nodes
        self._directed = store.metadata.links_have_direction

    def pair_scores(self, links: Links) -> Numbers:
        scores = np.empty(len(links))
        for relation, rows in self._by_relation(links):
            out, into = (self._degrees(side, relation) for side in ("source", "target"))
            scores[rows] = out[links.sources[rows]] * into[links.targets[rows]]
        return scores

    def ranks(self, links: Links, side: Side, left_out: LeftOut) -> LinkRanks:
        """The anchor's own degree is the same for all candidates."""
        counts = np.empty((3, len(links)), dtype=np.int64)
        _, answers = _anchors(links, side)
        for relation, rows in self._by_relation(links):
            some = LeftOut(left_out.starts[rows], left_out.ends[rows], left_out.ids)
            found = ranks_of_one_row(self._degrees(side, relation), answers[rows], some)
            counts[:, rows] = found.above, found.tied, found.candidates
        return LinkRanks(*counts)

    def operations(self, links: Links, side: Side) -> float:
        del side
        relations = 1 if links.relations is None else len(np.unique(links.relations))
        return 20.0 * (relations * self._num_nodes + len(links))

    def _by_relation(self, links: Links) -> Iterator[tuple[int | None, Ids]]:
        if links.relations is None:
            yield None, np.arange(len(links))
            return
        for relation in np.unique(links.relations):
            yield int(relation), np.flatnonzero(links.relations == relation)

    def _degrees(self, side: str, relation: int | None) -> Numbers:
        ends = self._train.sources if side == "source" else self._train.targets
        if not self._directed:
            ends = np.concatenate([self._train.sources, self._train.targets])
        elif relation is not None and self._train.relations is not None:
            ends = ends[self._train.relations == relation]
        return 1 + np.bincount(ends, minlength=self._num_nodes).astype(np.float64)


def _anchors(links: Links, side: Side) -> tuple[Ids, Ids]:
    """The ends that are given, and the ends that are asked for."""
    return (links.sources, links.targets) if side == "target" else (links.targets, links.sources)


def _neighbours(store: LinkStore) -> CompressedRows:
    """Neighbours of each node, in either direction, without itself."""
    topology = store.topology(undirected=True)
    nodes = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    others = topology.indices.astype(np.int64)
    is_first = np.ones(len(others), dtype=bool)  # parallel edges of several types stand beside each other
    is_first[1:] = (others[1:] != others[:-1]) | (nodes[1:] != nodes[:-1])
    kept = is_first & (nodes != others)
    counts = np.bincount(nodes[kept], minlength=topology.num_nodes)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return CompressedRows(indptr, others[kept], np.ones(int(indptr[-1])))


def _unit_rows(features: SparseFeatures) -> CompressedRows:
    """Rows of length 1; a row without a value stays so."""
    values = features.values.astype(np.float64)
    rows = np.repeat(np.arange(features.num_nodes), np.diff(features.indptr))
    lengths = np.sqrt(np.bincount(rows, values**2, minlength=features.num_nodes))
    scaled = values / np.where(lengths > 0, lengths, 1)[rows]
    return CompressedRows(features.indptr.astype(np.int64), features.indices.astype(np.int64), scaled)


def _bytes_of(store: LinkLists) -> float:
    """What is in memory at a time, roughly: entries with their keys, and the terms of a block."""
    known = store.metadata
    entries = known.arrays["x_values"].shape[0] if known.has_sparse_features else 2 * known.num_undirected_edges
    return 48.0 * entries + 2**28
