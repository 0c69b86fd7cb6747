"""Negatives by name, for `neg_sampling` of `LinkNeighborLoader`: by degree, historical, hard. None is an edge."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from graphmill import _native
from graphmill.base.arguments import whole_number
from graphmill.base.errors import InvalidInputError
from graphmill.graph.keys import keys_below
from graphmill.sample.columns import Ints
from graphmill.sample.negatives import Negatives

_TRIES: Final = 32  # draws among the past for each; then one among all
_HALF: Final = np.uint64(32)

Scorer = Callable[[Tensor, Tensor], Tensor]
"""Sources [n] and targets [n, m], as node ids → scores [n, m]; the higher, the harder."""


def by_degree(
    edge_index: Tensor,
    num_nodes: int | tuple[int, int],
    *,
    power: float = 0.75,
    mode: str = "binary",
    amount: float = 1,
) -> NegativeSampling:
    """Ends are drawn in proportion to degree^power: sources by out-degree, targets by in-degree.

    The default power is that of word2vec (arXiv 1310.4546); 1 draws ends as the edges have them. A node without edges
    is never drawn.

    Args:
        edge_index: the edges of the type that negatives stand beside [2, num_edges].
        num_nodes: nodes; of both ends, where their types differ.
        power: of the degrees, above 0.
        mode: as PyG's: "binary", or "triplet".
        amount: as PyG's: negatives for each link.

    Returns:
        What `LinkNeighborLoader(neg_sampling=…)` takes.

    Raises:
        InvalidInputError: a power that is not above 0, or an edge whose end is no node.
    """
    if not (np.isfinite(power) and power > 0):
        raise InvalidInputError(f"power is {power}", fix="give a number above 0: power=0.75")
    counts = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
    weights = []
    for name, ids, count in zip(("sources", "targets"), edge_index, counts, strict=True):
        if ids.numel() == 0 or int(ids.min()) < 0 or int(ids.max()) >= count:
            raise InvalidInputError(
                f"edges have {ids.numel()} {name}, not all of them one of {count} nodes",
                fix="give the edges that the loader learns from, and the number of nodes",
            )
        weights.append(torch.bincount(ids.cpu(), minlength=count).double() ** power)
    return NegativeSampling(mode, amount, src_weight=weights[0], dst_weight=weights[1])


class SourcedNegatives(NegativeSampling, ABC):  # type: ignore[misc]  # PyG is not typed
    """Negatives whose sources are the links' own; in mode "binary" too."""

    @abstractmethod
    def targets(self, negatives: Negatives, sources: Ints, times: Ints | None, num_links: int, key: int) -> Ints:
        """Targets [n] that no edge joins with the sources [n].

        Args:
            negatives: the known edges, and what may be drawn.
            sources: of the links, `num_links` of them over and over.
            times: of the links [n], if they have any.
            num_links: of the batch.
            key: of the draws.
        """


class HistoricalNegatives(SourcedNegatives):
    """Targets that others had until the time of the link, and its source had not (arXiv 2207.10128).

    An edge is drawn among all until the link's time, and its target taken if the link's source has no edge to it by
    then. Where 32 draws find none (a first link has no past), the target is uniform among nodes that exist.
    """

    def __init__(self, amount: float = 1, mode: str = "triplet") -> None:
        """`amount`: negatives for each link. `mode`: as PyG's, how they stand in a batch."""
        super().__init__(mode, amount)

    def targets(self, negatives: Negatives, sources: Ints, times: Ints | None, num_links: int, key: int) -> Ints:
        """Targets [n] of earlier edges that the sources [n] have no edge to; uniform ones where none is found."""
        if times is None:
            raise InvalidInputError(
                "historical negatives are of the past, and the links have no times",
                fix="give edge_label_time and time_attr, or other negatives",
            )
        past_times, past_targets = negatives.known.by_time
        num_past = np.searchsorted(past_times, times, side="right")
        found, left = np.full(len(sources), -1), np.flatnonzero(num_past)
        for attempt in range(_TRIES):
            if not len(left):
                break
            draws = keys_below(_native.subkey(key, attempt), left) >> _HALF
            drawn = past_targets[(draws * num_past[left].astype(np.uint64) >> _HALF).astype(np.int64)]
            is_edge = negatives.known.are_edges(sources[left], drawn, times[left])
            is_right = ~is_edge & negatives.targets.exist(drawn, times[left])
            found[left[is_right]] = drawn[is_right]
            left = left[~is_right]
        rest = np.flatnonzero(found < 0)
        found[rest] = negatives.draw(len(rest), sources[rest], times[rest], _native.subkey(key, _TRIES))[1]
        return found


class HardNegatives(SourcedNegatives):
    """The targets that a scorer takes for the likeliest, among some that are drawn and no edges.

    A scorer that is being trained is asked where batches are made: with workers that is the copy that they were started
    with, and with `prefetch` the model of some steps before. `num_workers=0, prefetch=0` asks the model as it is.
    """

    def __init__(
        self,
        scorer: Scorer,
        candidates: int = 20,
        amount: int = 1,
        mode: str = "triplet",
        dst_weight: Tensor | None = None,
    ) -> None:
        """Take a scorer, and the number of candidates it chooses among.

        Args:
            scorer: sources [n] and targets [n, candidates], as node ids → scores of that shape.
            candidates: drawn for each link, `amount` or more.
            amount: negatives for each link, a whole number.
            mode: as PyG's, how they stand in a batch.
            dst_weight: of the nodes that candidates are drawn from; None: all alike.
        """
        super().__init__(mode, whole_number("amount", amount, least=1), dst_weight=dst_weight)
        self.scorer = scorer
        self.candidates = whole_number("candidates", candidates, least=self.amount)

    def targets(self, negatives: Negatives, sources: Ints, times: Ints | None, num_links: int, key: int) -> Ints:
        """Targets [n] that the scorer takes for likeliest; one drawn twice counts once, unless others are too few."""
        of_links, count = sources[:num_links], num_links * self.candidates
        at = None if times is None else np.tile(times[:num_links], self.candidates)
        drawn = negatives.draw(count, np.tile(of_links, self.candidates), at, key)[1]
        targets = torch.from_numpy(drawn).view(self.candidates, num_links).t().contiguous()
        with torch.no_grad():
            scores: Any = self.scorer(torch.from_numpy(of_links), targets)
        if not isinstance(scores, Tensor) or scores.shape != targets.shape or bool(scores.isnan().any()):
            what = f"{list(scores.shape)} with NaN" if isinstance(scores, Tensor) else type(scores).__name__
            raise InvalidInputError(
                f"the scorer of hard negatives returned {what}",
                fix=f"return one number for each target, {list(targets.shape)}",
            )
        in_order, places = targets.sort(dim=1, stable=True)
        is_again = torch.zeros_like(targets, dtype=torch.bool)
        is_again.scatter_(1, places[:, 1:], in_order[:, 1:] == in_order[:, :-1])
        scores = scores.detach().cpu().double().masked_fill(is_again, -torch.inf)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.amount]
        return targets.gather(1, best).t().reshape(-1).numpy()
