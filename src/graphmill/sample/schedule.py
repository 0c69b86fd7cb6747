"""Which seeds each rank learns from at each step: a pure function of (rng seed, epoch, step, rank, world size).

A seed is one item to learn from, whatever the task: a node, a window. A schedule is three functions: an *order* of an
epoch's seeds, a *cut* of it into global batches, one per step, and an *assignment* of a global batch to the ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.batch import SeedIds, Seeds
from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.spec.calendar import EqualBatches

Ids = NDArray[np.int64]
Order = Callable[[int], Ids]
"""epoch → the ids of all its seeds [num_seeds], in order."""
Cut = Callable[[Ids, int], Ids]
"""(ordered ids, step) → those of the step's global batch [num_seeds of all ranks]."""
Assign = Callable[[Ids], tuple[Ids, ...]]
"""ids of a global batch → those of each rank; a rank may have none."""


def drawn(ids: Ids, count: int, rng_seed: int) -> Ids:
    """`count` of the ascending `ids`, in their order → [count]: those with the smallest keyed hashes.

    A larger draw with the same `rng_seed` holds every smaller one, so a run on more data has seen what the other saw.
    """
    if count >= len(ids):
        return ids
    keys = keys_below(key_of(rng_seed, Purpose.TRAINING_SUBSET), ids)
    return np.sort(ids[np.argsort(keys, kind="stable")[:count]])


@dataclass(frozen=True, slots=True)
class KeyedOrder:
    """A different order in every epoch: ids sorted by their keyed hash, independent of earlier draws."""

    ids: Ids  # [num_seeds], ascending
    rng_seed: int
    _latest: dict[int, Ids] = field(default_factory=dict, repr=False)  # of the latest epoch asked for

    def __call__(self, epoch: int) -> Ids:
        """All ids [num_seeds] in the order of an epoch."""
        if epoch not in self._latest:
            keys = keys_below(key_of(self.rng_seed, Purpose.SEED_ORDER, epoch), self.ids)
            self._latest.clear()
            self._latest[epoch] = self.ids[np.argsort(keys, kind="stable")]
        return self._latest[epoch]


def equal_batch(ordered: Ids, step: int, batches: EqualBatches) -> Ids:
    """The global batch of a step, of equal size except for the last of an epoch."""
    return ordered[batches.bounds(step)]


def contiguous_shares(batch: Ids, world_size: int) -> tuple[Ids, ...]:
    """A global batch cut into one piece per rank; their lengths differ by one at most, the first ones are longer."""
    each, extra = divmod(len(batch), world_size)
    ends = [rank * each + min(rank, extra) for rank in range(world_size + 1)]
    return tuple(batch[begin:end] for begin, end in pairwise(ends))


@dataclass(frozen=True, slots=True)
class SeedSchedule:
    """Order, cut and assignment put together.

    No seed may be dropped or doubled (invariant 4): the ranks' seeds over the steps of an epoch are those of its order.
    """

    num_seeds: int  # of a whole epoch, over all ranks
    order: Order
    cut: Cut
    assign: Assign

    @classmethod
    def equal(cls, ids: Ids, batches: EqualBatches, rng_seed: int) -> "SeedSchedule":
        """`ids` [num_seeds] in an order of their own in every epoch, in equal batches of contiguous shares.

        A global batch does not depend on how it is shared: w ranks with batches of b see what one rank with batches of
        w × b sees. A rank may have no seed at the last step of an epoch.
        """
        if len(ids) != batches.num_seeds:
            raise ValueError(f"{len(ids)} seeds are not the {batches.num_seeds} that were planned with")
        return cls(
            num_seeds=len(ids),
            order=KeyedOrder(ids, rng_seed),
            cut=partial(equal_batch, batches=batches),
            assign=partial(contiguous_shares, world_size=batches.ranks),
        )

    def shares(self, epoch: int, step: int) -> tuple[Ids, ...]:
        """Ids of the seeds of every rank at one step of an epoch."""
        return self.assign(self.cut(self.order(epoch), step))

    def seeds(self, epoch: int, step: int, rank: int) -> Seeds:
        """The seeds of one rank at one step of an epoch."""
        return Seeds(epoch, step, SeedIds(self.shares(epoch, step)[rank]))

    def counts(self, epoch: int, step: int) -> tuple[int, ...]:
        """Seeds of every rank at one step of an epoch."""
        return tuple(len(share) for share in self.shares(epoch, step))
