"""What every source of link prediction yields: a message graph and the links of each split; and its checks.

A link is (source, target), or (source, relation, target). The message graph is what vectors of nodes are computed from:
mostly the training links, and never a link of val or test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.raw import RawGraph, check_raw_graph, refusal
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.topology import unsorted_keys

JUDGED: Final[tuple[Split, ...]] = ("val", "test")
"""Splits whose links are ranked."""


@dataclass(frozen=True, slots=True)
class Links:
    """Links in the order of their source."""

    sources: NDArray[np.int64]  # [n] node ids
    targets: NDArray[np.int64]  # [n] node ids
    relations: NDArray[np.int64] | None = None  # [n] numbers of edge types; None: links have no relation

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Ends of the links as an `edge_index` [2, n]: sources, then targets."""
        return np.stack([self.sources, self.targets])

    @property
    def columns(self) -> NDArray[np.int64]:
        """Sources, targets and, where there are any, relations [2 or 3, n]."""
        return self.ends if self.relations is None else np.stack([self.sources, self.targets, self.relations])

    def taken(self, rows: NDArray[Any]) -> "Links":
        """Links of these rows: numbers, or a mask [n]."""
        relations = None if self.relations is None else self.relations[rows]
        return Links(self.sources[rows], self.targets[rows], relations)

    @classmethod
    def of(cls, columns: NDArray[Any]) -> "Links":
        """Make links of sources, targets and perhaps relations [2 or 3, n]."""
        return cls(*(np.ascontiguousarray(column, dtype=np.int64) for column in columns))


@dataclass(frozen=True, slots=True)
class GivenCandidates:
    """What each link of a split is ranked among: k nodes in place of its target and, where given, of its source."""

    targets: NDArray[np.integer[Any]]  # [n, k]
    sources: NDArray[np.integer[Any]] | None = None  # [n, k']

    def taken(self, rows: NDArray[Any]) -> "GivenCandidates":
        """Candidates of these rows."""
        return GivenCandidates(self.targets[rows], None if self.sources is None else self.sources[rows])


@dataclass(frozen=True, slots=True)
class SharedCandidates:
    """Pairs of nodes that are no links: every link of a split is ranked among all of them."""

    pairs: NDArray[np.integer[Any]]  # [2, m]: sources, then targets

    def taken(self, rows: NDArray[Any]) -> "SharedCandidates":
        """Return the candidates unchanged: they belong to no link."""
        del rows
        return self


Candidates = GivenCandidates | SharedCandidates


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGraph(RawGraph):
    """The message graph and the links of each split in memory, not yet checked.

    `origin` may also have "links", "candidates" and "names".
    """

    links: Mapping[Split, Links]
    links_have_direction: bool  # False: (u, v) and (v, u) are one link
    split_note: str  # who drew the split
    num_relations: int = 0  # the first so many of `types.relations` are the links'; 0: links have no relation
    candidates: Mapping[Split, Candidates] = field(default_factory=dict)  # of val and of test, or of none: all nodes
    node_names: tuple[str, ...] = ()  # one per node, or none at all


def identities(groups: Sequence[Links], num_nodes: int, *, have_direction: bool) -> list[NDArray[np.uint64]]:
    """A number for each link of each group: the same for two of them if, and only if, they are one link.

    Args:
        groups: links, all of them with relations or all without.
        num_nodes: ids of nodes run from 0 to below it.
        have_direction: whether (u, v) and (v, u) are two.
    """
    ends: list[NDArray[Any]] = [links.ends for links in groups]
    if not have_direction:
        ends = [np.sort(pair, axis=0) for pair in ends]
    keys = [unsorted_keys(pair, num_nodes) for pair in ends]
    if any(links.relations is None for links in groups):
        return keys
    _, places = np.unique(np.concatenate(keys), return_inverse=True)
    relations = np.concatenate([links.relations for links in groups if links.relations is not None])
    numbers: NDArray[np.uint64] = places.reshape(-1).astype(np.uint64) * np.uint64(int(relations.max(initial=0)) + 1)
    numbers += relations.astype(np.uint64)
    return np.split(numbers, np.cumsum([len(links) for links in groups])[:-1])


def first_of_each(links: Links, num_nodes: int, *, have_direction: bool) -> NDArray[np.int64]:
    """Ascending rows of the links that were not there before [num_different]."""
    (numbers,) = identities([links], num_nodes, have_direction=have_direction)
    return np.sort(np.unique(numbers, return_index=True)[1]).astype(np.int64)


def is_among(links: Links, others: Links, num_nodes: int, *, have_direction: bool) -> NDArray[np.bool_]:
    """Which of `links` are among `others`, too [len(links)]."""
    own, other = identities([links, others], num_nodes, have_direction=have_direction)
    return np.isin(own, other, kind="sort")


def concatenated(groups: Sequence[Links]) -> Links:
    """All links, one group after the other."""
    return Links.of(np.concatenate([links.columns for links in groups], axis=1))


def message_links(raw: LinkGraph) -> Links:
    """Edges of the message graph as links [num_edges]: with their types as relations if links have some."""
    edges = raw.edge_index.astype(np.int64, copy=False)
    if not raw.num_relations:
        return Links(edges[0], edges[1])
    assert raw.types is not None, "else there would be no relations"
    return Links(edges[0], edges[1], raw.types.edge_type.astype(np.int64, copy=False))


def check_links(raw: LinkGraph) -> None:
    """Refuse what cannot be trained on, with a `UserError` that says where it is and what to do."""
    check_arrays_of_links(raw)
    _check_disjoint(raw)


def check_arrays_of_links(raw: LinkGraph) -> None:
    """Refuse what cannot be trained on as `check_links` does, but links may also be message edges."""
    check_raw_graph(raw)
    for split in SPLITS:
        _check_split(raw, split)
    _check_candidates(raw)
    _check_names(raw)


def _check_split(raw: LinkGraph, split: Split) -> None:
    links = raw.links.get(split)
    if links is None or not len(links):
        raise refusal(
            raw,
            "links",
            f"there are no {split} links, and a model learns from train, is chosen by val and judged by test",
            fix="give some of each, or have them drawn: --random-split",
        )
    outside = np.flatnonzero((links.ends < 0).any(axis=0) | (links.ends >= raw.num_nodes).any(axis=0))
    if len(outside):
        shown = f"{links.sources[outside[0]]} → {links.targets[outside[0]]}"
        problem = f"{split} link {outside[0]} is {shown}, and nodes run from 0 to {raw.num_nodes - 1}"
        raise refusal(raw, "links", problem, fix="correct or drop that link, or add the missing nodes")
    if (links.relations is None) != (raw.num_relations == 0):
        problem = f"{split} links have {'no' if raw.num_relations else 'a'} relation, and others otherwise"
        raise refusal(raw, "links", problem, fix="give all links a relation, or none")
    if links.relations is None:
        return
    wrong = np.flatnonzero((links.relations < 0) | (links.relations >= raw.num_relations))
    if len(wrong):
        found = links.relations[wrong[0]]
        problem = f"{split} link {wrong[0]} is of relation {found}, and there are {raw.num_relations} relations"
        raise refusal(raw, "links", problem, fix="number relations as the types of edges are, from 0")


def _check_candidates(raw: LinkGraph) -> None:
    if not raw.candidates:
        return
    kinds = {type(raw.candidates[split]) for split in JUDGED if split in raw.candidates}
    if set(raw.candidates) != set(JUDGED) or len(kinds) != 1:
        problem = f"candidates of {', '.join(sorted(raw.candidates))}, and not of one kind for val and test"
        raise refusal(raw, "candidates", problem, fix="give both of them candidates of one kind, or neither")
    for split in JUDGED:
        given = raw.candidates[split]
        arrays = [given.pairs] if isinstance(given, SharedCandidates) else [given.targets]
        rows = 2 if isinstance(given, SharedCandidates) else len(raw.links[split])
        if isinstance(given, GivenCandidates) and given.sources is not None:
            arrays.append(given.sources)
        for array in arrays:
            _check_candidate_ids(raw, split, array, rows)


def _check_candidate_ids(raw: LinkGraph, split: Split, ids: NDArray[Any], rows: int) -> None:
    if ids.ndim != 2 or len(ids) != rows or not ids.shape[1] or ids.dtype.kind not in "iu":
        shape = f"candidates of {split} are {ids.dtype} {list(ids.shape)}"
        raise refusal(
            raw,
            "candidates",
            f"{shape}, and should have {rows} rows of node ids",
            fix="give [num_links, k] nodes for each link, or a pool of pairs",
        )
    if ids.min() < 0 or ids.max() >= raw.num_nodes:
        row, place = np.argwhere((ids < 0) | (ids >= raw.num_nodes))[0]
        problem = f"candidate {place} of {split}, row {row}, is {ids[row, place]}, and there are {raw.num_nodes} nodes"
        raise refusal(raw, "candidates", problem, fix="give ids of nodes that are there")


def _check_names(raw: LinkGraph) -> None:
    if raw.node_names and len(raw.node_names) != raw.num_nodes:
        problem = f"{len(raw.node_names)} names, and there are {raw.num_nodes} nodes"
        raise refusal(raw, "names", problem, fix="give one name per node, or none")


def _check_disjoint(raw: LinkGraph) -> None:
    read = message_links(raw)
    for split in JUDGED:
        also = is_among(raw.links[split], read, raw.num_nodes, have_direction=raw.links_have_direction)
        if also.any():
            row = int(np.argmax(also))
            shown = f"{raw.links[split].sources[row]} → {raw.links[split].targets[row]}"
            raise refusal(
                raw,
                "links",
                f"{split} link {row} ({shown}) is an edge of the message graph ({np.count_nonzero(also)} such links)",
                fix="leave it out of the edges that vectors are computed from",
            )
