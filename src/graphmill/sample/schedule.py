"""Which seeds each rank trains on at each step: a pure function of (seed, epoch, step, rank, world size)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.batch import SeedIds, Seeds
from graphmill.graph.keys import Purpose, key_of, keys_below


def drawn(train_ids: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """So many of the training nodes [count], ascending: those with the smallest keyed hashes of their ids.

    A larger draw with the same seed holds every smaller one, so a run on more data has seen what the other saw.
    """
    if count >= len(train_ids):
        return train_ids
    keys = keys_below(key_of(seed, Purpose.TRAINING_SUBSET), train_ids)
    return np.sort(train_ids[np.argsort(keys, kind="stable")[:count]])


@dataclass(frozen=True, slots=True)
class SeedSchedule:
    """The order of the training nodes, cut into global batches, each cut among the ranks.

    All ranks have the same number of steps. The last global batch of an epoch may be smaller: it is spread evenly, and
    a rank may then hold no seed. No seed is dropped or doubled (invariant 4). A global batch does not depend on how it
    is cut, so w ranks with batches of b see what one rank with batches of w × b sees.
    """

    train_ids: NDArray[np.int64]  # [num_train], ascending
    batch_size: int  # seeds per rank and step
    world_size: int
    seed: int
    _order: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)  # of the latest epoch asked for

    @property
    def num_seeds(self) -> int:
        """Of a whole epoch, over all ranks."""
        return len(self.train_ids)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of each rank in one epoch."""
        return -(-len(self.train_ids) // (self.batch_size * self.world_size))

    def seeds(self, epoch: int, step: int, rank: int) -> Seeds:
        """The seeds of one rank at one step of an epoch."""
        first = step * self.batch_size * self.world_size
        counts = self.counts(step)
        begin = first + sum(counts[:rank])
        return Seeds(epoch, step, SeedIds(self.order(epoch)[begin : begin + counts[rank]]))

    def counts(self, step: int) -> tuple[int, ...]:
        """Seeds of every rank at a step; the same in every epoch."""
        left = len(self.train_ids) - step * self.batch_size * self.world_size
        each, extra = divmod(min(left, self.batch_size * self.world_size), self.world_size)
        return tuple(each + (rank < extra) for rank in range(self.world_size))

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The training nodes [num_train] in the order of an epoch: sorted by a keyed hash of their ids."""
        if epoch not in self._order:
            keys = keys_below(key_of(self.seed, Purpose.SEED_ORDER, epoch), self.train_ids)
            self._order.clear()
            self._order[epoch] = self.train_ids[np.argsort(keys, kind="stable")]
        return self._order[epoch]
