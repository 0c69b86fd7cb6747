"""Links that are known, and so are left out when another link is ranked: filtered ranking."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.base.arguments import one_of, whole_number
from graphmill.base.errors import InvalidInputError
from graphmill.graph.topology import sorted_unique

Side = Literal["source", "target"]
Ids = NDArray[np.int64]
_AT_A_TIME: Final = 1 << 22  # ids that are left out, of all links


class LinkColumns(Protocol):
    """Links as columns: source, target and, where links have one, relation."""

    @property
    def sources(self) -> Ids:
        """Node ids [n]."""

    @property
    def targets(self) -> Ids:
        """Node ids [n]."""

    @property
    def relations(self) -> Ids | None:
        """Numbers of relations [n], or None."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Ids that are not candidates: for each of q queries a row of ids, ascending. Queries may share a row."""

    starts: Ids  # [q]: row i is ids[starts[i] : ends[i]]
    ends: Ids  # [q]
    ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)

    def union(self, also: Ids) -> "LeftOut":
        """Leave out one more id for each query [q], which may be left out already."""
        queries, ids = self.flat()
        pairs, own = (queries << 32) | ids, (np.arange(len(self)) << 32) | also
        place = np.searchsorted(pairs, own)
        is_new = np.append(pairs, -1)[place] != own
        ends = np.cumsum(self.ends - self.starts + is_new)
        return LeftOut(np.concatenate([[0], ends[:-1]]), ends, np.insert(ids, place[is_new], also[is_new]))

    def taken(self, some: slice) -> "LeftOut":
        """Ids left out of some queries."""
        return LeftOut(self.starts[some], self.ends[some], self.ids)

    def flat(self) -> tuple[Ids, NDArray[np.int32]]:
        """List every id that a query leaves out: the queries, and the ids."""
        lengths = self.ends - self.starts
        queries = np.repeat(np.arange(len(self)), lengths)
        first = np.cumsum(lengths) - lengths  # of each query, in what is returned
        return queries, self.ids[np.arange(len(queries)) + (self.starts - first)[queries]]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Known answers of each anchor with a relation, ascending, each once."""

    keys: Ids  # [m] relation * num_nodes + anchor, ascending
    indptr: Ids  # [m + 1]
    ids: NDArray[np.int32]

    @classmethod
    def of(cls, anchors: Ids, others: Ids, relations: Ids | None, num_nodes: int) -> "_Answers":
        each = anchors if relations is None else relations * num_nodes + anchors
        keys = sorted_unique(each.copy()).copy()
        pairs = sorted_unique(np.searchsorted(keys, each) * num_nodes + others)  # below 2^62: both are below 2^31
        rows, ids = np.divmod(pairs, num_nodes)
        counts = np.bincount(rows, minlength=len(keys))
        return cls(keys, np.concatenate([[0], np.cumsum(counts)]), ids.astype(np.int32))

    def rows(self, keys: Ids) -> LeftOut:
        at = np.searchsorted(self.keys, keys)
        is_known = at < len(self.keys)
        is_known[is_known] = self.keys[at[is_known]] == keys[is_known]
        at = np.where(is_known, at, 0)
        if not len(self.keys):
            return LeftOut(at, at, self.ids)
        return LeftOut(self.indptr[at], np.where(is_known, self.indptr[at + 1], self.indptr[at]), self.ids)


@dataclass(frozen=True, slots=True)
class KnownLinks:
    """The links of all splits, to be looked up by either end."""

    num_nodes: int
    has_relations: bool
    _targets: _Answers  # by source
    _sources: _Answers  # by target

    @classmethod
    def of(cls, links: LinkColumns, num_nodes: int, *, have_direction: bool = True) -> "KnownLinks":
        """Index links, of which some may be there twice.

        Args:
            links: of all splits.
            num_nodes: their ends are below it.
            have_direction: whether (u, v) and (v, u) are two links.

        Raises:
            InvalidInputError: an end is no node.
        """
        whole_number("num_nodes", num_nodes)
        sources, targets = _nodes("sources", links.sources, num_nodes), _nodes("targets", links.targets, num_nodes)
        relations = None if links.relations is None else _integers("relations", links.relations)
        if len(sources) != len(targets) or (relations is not None and len(relations) != len(sources)):
            raise InvalidInputError("links have columns of several lengths", fix="give two ends of every link")
        if relations is not None and len(relations):
            _in_range("relations", relations, 2**31)
        if not have_direction:
            sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
            relations = None if relations is None else np.concatenate([relations, relations])
        by_source = _Answers.of(sources, targets, relations, num_nodes)
        by_target = by_source if not have_direction else _Answers.of(targets, sources, relations, num_nodes)
        return cls(num_nodes, relations is not None, by_source, by_target)

    def answers(self, anchors: NDArray[Any], relations: NDArray[Any] | None, side: Side) -> LeftOut:
        """What is known to be joined to each anchor.

        Args:
            anchors: [q] node ids, the ends that are given.
            relations: [q], or None where links have none.
            side: which end is asked for: "target" for the targets of sources, "source" for the sources of targets.

        Raises:
            InvalidInputError: an anchor is no node, or relations are missing or too many.
        """
        one_of("side", side, ("source", "target"))
        keys = _nodes("anchors", anchors, self.num_nodes)
        if (relations is not None) != self.has_relations:
            raise InvalidInputError(
                f"the known links have {'' if self.has_relations else 'no '}relations, what is asked for has "
                f"{'none' if relations is None else 'some'}",
                fix="give relations [q]" if self.has_relations else "give None for the relations",
            )
        if relations is not None:
            numbers = _integers("relations", relations)
            if len(numbers) != len(keys):
                raise InvalidInputError(
                    f"there are {len(keys)} anchors and {len(numbers)} relations", fix="give one for each anchor"
                )
            _in_range("relations", numbers, 2**31)
            keys = numbers * self.num_nodes + keys
        return (self._targets if side == "target" else self._sources).rows(keys)

    def left_out(
        self, anchors: NDArray[Any], relations: NDArray[Any] | None, side: Side
    ) -> Iterator[tuple[slice, LeftOut]]:
        """Ids that are not candidates for the other end of links, some links at a time: the known ends, and the anchor.

        As `answers`; queries share no rows here, so a hub's would not fit into memory for all links at once.
        """
        rows = self.answers(anchors, relations, side)
        for some in blocks(rows.ends - rows.starts, _AT_A_TIME):
            yield some, rows.taken(some).union(anchors[some])


def blocks(sizes: Ids, most: int, most_rows: int = _AT_A_TIME) -> Iterator[slice]:
    """Slices of at most `most_rows` whose sizes add up to at most `most`, or that hold one."""
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        so_far = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, so_far + most, side="right")))
        end = min(end, begin + most_rows, len(sizes))
        yield slice(begin, end)
        begin = end


def _integers(name: str, given: NDArray[Any]) -> Ids:
    found = np.asarray(given)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise InvalidInputError(
            f"{name} are {found.dtype} {list(found.shape)}", fix="give whole numbers, one dimension"
        )
    return found.astype(np.int64, copy=False)


def _nodes(name: str, given: NDArray[Any], num_nodes: int) -> Ids:
    return _in_range(name, _integers(name, given), num_nodes)


def _in_range(name: str, ids: Ids, end: int) -> Ids:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < end:
        raise InvalidInputError(
            f"{name} go from {ids.min()} to {ids.max()}, and there are {end}",
            fix=f"give numbers from 0 to {end - 1}",
        )
    return ids
