"""What a model's links are worth: exact, filtered ranks, and scores beside those of pairs that are no links."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.keys import drawn
from graphmill.graph.splits import SPLITS, Split
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause
from graphmill.tasks.link_prediction.data.links import GivenCandidates, Links, SharedCandidates, concatenated
from graphmill.tasks.link_prediction.data.lists import LinkLists
from graphmill.tasks.link_prediction.known import KnownLinks, LeftOut
from graphmill.tasks.link_prediction.nn.heads import AnyHead, BilinearHead
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.link_prediction.ranking import (
    LinkRanks,
    auc_ap,
    hits_at,
    joined_ranks,
    mrr,
    ranks_among_all,
    ranks_among_given,
    ranks_among_pool,
    ranks_of_scores,
    top_k,
)
from graphmill.tasks.task import Measures

Ids = NDArray[np.int64]
_HITS: Final = (1, 10, 50, 100)
_QUERIES_AT_A_TIME: Final = 4096  # between two pauses
_PAIRS_AT_A_TIME: Final = 1 << 16
_NONE: Final = torch.empty(0, dtype=torch.int64)  # relations of links that have none


@dataclass(slots=True)
class LinkJudge:
    """LinkRanks the links of splits. What hangs on the data alone is made once, when it is first needed."""

    plan: Plan
    task_plan: LinkPredictionPlan
    group: Group
    store: LinkLists
    _known: KnownLinks | None = field(default=None, init=False)
    _non_links: dict[Split, Links] = field(default_factory=dict, init=False)

    @staticmethod
    def on_cpu(head: AnyHead) -> AnyHead:
        """A head that scores rows on the CPU: the same, or a copy of one on a GPU."""
        is_there = all(each.device.type == "cpu" for each in head.parameters())
        return head if is_there else copy.deepcopy(head).cpu()

    def links(self, split: Split) -> tuple[Links, Ids]:
        """The links of a split that are ranked, and their places in it: of val no more than `task.val_limit`."""
        links = self.store.links(split)
        places = np.arange(len(links))
        if split == "val" and self.task_plan.val_limit is not None:
            places = drawn(places, self.task_plan.val_limit, self.plan.seed)
        return links.taken(places), places

    def measures(self, split: Split, rows: Tensor, head: AnyHead, pause: Pause) -> Measures:
        """All measures of a split, the same on every rank; all ranks must call it.

        Args:
            split: whose links are ranked.
            rows: of all nodes [num_nodes, channels], on the CPU, the same on every rank.
            head: scores pairs of rows.
            pause: called by all ranks equally often.
        """
        links, places = self.links(split)
        head = self.on_cpu(head)
        positive = pair_scores(head, rows, links)
        negative = pair_scores(head, rows, self._non_links_of(split, places))
        auc, ap = auc_ap(positive, negative)
        found = self.ranks(split, links, places, rows, head, pause)
        loss = sum(F.softplus(torch.from_numpy(each)).double().mean() for each in (-positive, negative))
        is_shared = self.task_plan.dataset.candidates == "shared"
        hits = {f"hits_at_{k}": hits_at(found, k, shared_pool=is_shared) for k in _HITS}
        return Measures(float(loss), {"mrr": mrr(found), **hits, "auc": auc, "ap": ap}, len(links))

    def ranks(self, split: Split, links: Links, places: Ids, rows: Tensor, head: AnyHead, pause: Pause) -> LinkRanks:
        """Rank every link on each side that is ranked, targets first; the same on every rank; all ranks must call it.

        Args:
            split: whose links they are.
            links: n of them.
            places: of these in the split [n].
            rows: of all nodes, on the CPU.
            head: on the CPU.
            pause: called by all ranks equally often.
        """
        candidates = self.store.candidates(split)
        if isinstance(candidates, SharedCandidates):
            return ranks_among_pool(pair_scores(head, rows, links), pair_scores(head, rows, Links.of(candidates.pairs)))
        found = []
        for of_targets in [True] if self.task_plan.ranked == "target" else [True, False]:
            given = None
            if isinstance(candidates, GivenCandidates):
                given = candidates.targets if of_targets else candidates.sources
                if given is None:  # this side has none: it is not ranked
                    continue
            side = RankedSide(head, rows, links, of_targets, self.plan.threads)
            ranks_of = (
                partial(side.among_all, known=self.known_links())
                if given is None
                else partial(_among_given, side, given, places)
            )
            found.append(self._by_all_ranks(len(links), ranks_of, pause))
        return joined_ranks(found)

    def _by_all_ranks(self, count: int, ranks_of: Callable[[slice], LinkRanks], pause: Pause) -> LinkRanks:
        """Rank links on all ranks: each takes a share of them, a few at a time."""
        bounds = np.linspace(0, count, self.group.world_size + 1).astype(np.int64)
        begin, end = int(bounds[self.group.rank]), int(bounds[self.group.rank + 1])
        found = [np.empty((0, 3), np.int64)]
        for turn in range(-(-int(np.diff(bounds).max()) // _QUERIES_AT_A_TIME)):
            pause()
            first = min(begin + turn * _QUERIES_AT_A_TIME, end)
            last = min(first + _QUERIES_AT_A_TIME, end)
            if first < last:
                its = ranks_of(slice(first, last))
                found.append(np.stack([its.above, its.tied, its.candidates], axis=1))
        mine = torch.from_numpy(np.concatenate(found))
        counts = [numbers[0] for numbers in self.group.gather_numbers([len(mine)])]
        above, tied, candidates = self.group.gather_rows(mine, counts).numpy().T
        return LinkRanks(np.ascontiguousarray(above), np.ascontiguousarray(tied), np.ascontiguousarray(candidates))

    def known_links(self) -> KnownLinks:
        """Links of all splits, among which a link is not ranked."""
        if self._known is None:
            links = concatenated([self.store.links(split) for split in SPLITS])
            has_direction = self.task_plan.dataset.links_have_direction
            self._known = KnownLinks.of(links, self.task_plan.dataset.num_nodes, have_direction=has_direction)
        return self._known

    def _non_links_of(self, split: Split, places: Ids) -> Links:
        """A pair beside each of these links that is no link of any split: the same for all models, and baselines."""
        if split not in self._non_links:
            self._non_links[split] = self.store.non_links(split)
        return self._non_links[split].taken(places)


@dataclass(frozen=True, slots=True)
class RankedSide:
    """One end of links, ranked among other nodes in its place."""

    head: AnyHead  # on the CPU
    rows: Tensor  # [num_nodes, channels], on the CPU
    links: Links
    of_targets: bool  # which end
    num_threads: int

    def among_all(self, some: slice, known: KnownLinks) -> LinkRanks:
        """Rank some links among all nodes, without those that a known link joins to the other end."""
        return joined_ranks(
            self._ranks(slice(some.start + part.start, some.start + part.stop), left_out)
            for part, left_out in self._left_out(some, known)
        )

    def among_given(self, some: slice, candidates: Ids) -> LinkRanks:
        """Rank some links [n] among the nodes given for each [n, k]."""
        links, given, answers = self._taken(some)
        if isinstance(self.head, BilinearHead):
            queries = self._queries(links, given)
            return ranks_among_given(queries, answers, self.rows, candidates, self.num_threads)
        each = []
        for one, its in enumerate(candidates):
            own, others = answers[one : one + 1], its[its != answers[one]]  # the answer itself does not count
            scores = (self._scores(links, given, one, nodes) for nodes in (own, others))
            each.append(ranks_among_pool(*scores))
        return joined_ranks(each)

    def best(self, some: slice, known: KnownLinks, count: int) -> tuple[Ids, NDArray[np.float32]]:
        """The best `count` nodes for that end of some links [n, count] and their scores; known links are left out.

        Where there are fewer: -1, and -infinity.
        """
        found = [(np.empty((0, count), np.int64), np.empty((0, count), np.float32))]
        for part, left_out in self._left_out(some, known):
            links, given, _ = self._taken(slice(some.start + part.start, some.start + part.stop))
            if isinstance(self.head, BilinearHead):
                found.append(top_k(self._queries(links, given), self.rows, left_out, count, self.num_threads))
                continue
            found.append(best_of_scores(partial(self._scores_of_all, links, given), len(given), left_out, count))
        ids, scores = (np.concatenate(each) for each in zip(*found, strict=True))
        return ids, scores

    def _ranks(self, some: slice, left_out: LeftOut) -> LinkRanks:
        links, given, answers = self._taken(some)
        if isinstance(self.head, BilinearHead):
            return ranks_among_all(self._queries(links, given), answers, self.rows, left_out, self.num_threads)
        return ranks_of_scores(partial(self._scores_of_all, links, given), answers, left_out, len(self.rows))

    def _left_out(self, some: slice, known: KnownLinks) -> Iterator[tuple[slice, LeftOut]]:
        links, given, _ = self._taken(some)
        return known.left_out(given, links.relations, side="target" if self.of_targets else "source")

    def _taken(self, some: slice) -> tuple[Links, Ids, Ids]:
        links = self.links.taken(np.arange(some.start, some.stop))
        ends = (links.sources, links.targets)
        return links, *(ends if self.of_targets else ends[::-1])

    def _queries(self, links: Links, given: Ids) -> Tensor:
        assert isinstance(self.head, BilinearHead)
        rows = self.rows[torch.from_numpy(given)]
        return self.head.queries(rows, relations_of(links), of_targets=not self.of_targets)

    def _scores_of_all(self, links: Links, given: Ids, some: slice) -> Tensor:
        """[len(some), num_nodes]: a link at a time, so that a score does not hang on what is scored beside it."""
        every = np.arange(len(self.rows))
        return torch.stack([self._scores_tensor(links, given, one, every) for one in range(some.start, some.stop)])

    def _scores(self, links: Links, given: Ids, one: int, others: Ids) -> NDArray[np.float32]:
        return self._scores_tensor(links, given, one, others).numpy()

    def _scores_tensor(self, links: Links, given: Ids, one: int, others: Ids) -> Tensor:
        """Scores of link `one` with each of `others` in place of the ranked end."""
        other = self.rows[torch.from_numpy(others)]
        same = self.rows[given[one]].expand_as(other)
        relations = relations_of(links)[one : one + 1].expand(len(other)) if links.relations is not None else _NONE
        pair = (same, other) if self.of_targets else (other, same)
        scores: Tensor = self.head(*pair, relations)
        return scores


def _among_given(side: RankedSide, given: NDArray[np.integer[Any]], places: Ids, some: slice) -> LinkRanks:
    """`given` [links of the split, k] is mapped: a few rows of it at a time are read."""
    return side.among_given(some, given[places[some]].astype(np.int64))


def pair_scores(head: AnyHead, rows: Tensor, links: Links) -> NDArray[np.float32]:
    """Score of each link [n]."""
    found, relations = [torch.empty(0)], relations_of(links)
    for begin in range(0, len(links), _PAIRS_AT_A_TIME):
        some = slice(begin, begin + _PAIRS_AT_A_TIME)
        sources, targets = (rows[torch.from_numpy(ends[some])] for ends in (links.sources, links.targets))
        found.append(head(sources, targets, relations[some]))
    return torch.cat(found).numpy()


def relations_of(links: Links) -> Tensor:
    """Relations as a head takes them: int64 [n], or [0] where links have none."""
    return _NONE if links.relations is None else torch.from_numpy(links.relations)


def best_of_scores(
    block: Callable[[slice], Tensor], num_queries: int, left_out: LeftOut, count: int
) -> tuple[Ids, NDArray[np.float32]]:
    """Best candidates as `ranking.top_k` finds them, by scores from any function, a query at a time.

    Args:
        block: of a slice of the queries their scores of all nodes [b, num_nodes].
        num_queries: how many.
        left_out: nodes that are not given back.
        count: of each.

    Returns:
        Nodes [num_queries, count], best first, equal ones ascending, and their scores; -1 and -infinity where fewer
        are left.
    """
    ids = np.full((num_queries, count), -1, np.int64)
    scores = np.full((num_queries, count), -np.inf, np.float32)
    for query in range(num_queries):
        its = block(slice(query, query + 1)).numpy()[0]
        may = np.ones(len(its), dtype=bool)
        may[left_out.ids[left_out.starts[query] : left_out.ends[query]]] = False
        left = np.flatnonzero(may)
        best = left[np.argsort(-its[left], kind="stable")[:count]]
        ids[query, : len(best)], scores[query, : len(best)] = best, its[best]
    return ids, scores
