"""Which seeds each rank learns from at each step: a pure function of (rng seed, epoch, step, rank, world size).

A seed is one item to learn from, whatever the task: a node, a window. A schedule is three functions: an *order* of an
epoch's seeds, a *cut* of it into global batches, one per step, and an *assignment* of a global batch to the ranks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.sample.budget import BudgetPacking, Costs, pack
from graphmill.spec.calendar import Batches, BucketedBatches, EqualBatches

Item = TypeVar("Item")
Ids = NDArray[np.int64]
Order = Callable[[int], Ids]
"""epoch → the ids of all its seeds [num_seeds], in order."""
Cut = Callable[[Ids, int], Ids]
"""(ordered ids, step) → those of the step's global batch [num_seeds of all ranks]."""
Assign = Callable[[Ids], tuple[Ids, ...]]
"""ids of a global batch → those of each rank; a rank may have none."""
_BATCH_ORDER: Final = 1  # coordinate of the key that puts an epoch's batches in order; the graphs' is 0
_BUCKET_ORDER: Final = 2  # the same of the seeds of a shape


def in_windows(steps: range, size: int, first: int = 1) -> Sequence[range]:
    """Consecutive steps, up to `size` at a time: at first `first`, which are waited for, then twice as many each time.

    >>> in_windows(range(10), 4)
    [range(0, 1), range(1, 3), range(3, 7), range(7, 10)]
    """
    found, begin, now = [], 0, min(first, size)
    while begin < len(steps):
        found.append(steps[begin : begin + now])
        begin, now = begin + now, min(2 * now, size)
    return found


def with_following(items: Iterable[Item], count: int) -> Iterator[tuple[Item, tuple[Item, ...]]]:
    """Each item, and up to `count` that follow it: these are taken that much earlier, and none before its time.

    >>> list(with_following("abc", 1))
    [('a', ('b',)), ('b', ('c',)), ('c', ())]
    """
    coming, ahead = iter(items), deque[Item]()
    while True:
        ahead.extend(islice(coming, 1 + count - len(ahead)))
        if not ahead:
            return
        item = ahead.popleft()
        following = tuple(ahead)
        yield item, following
        del item, following  # held by whoever took them alone


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


def shares_by_owner(batch: Ids, owners: Ids, world_size: int) -> tuple[Ids, ...]:
    """A global batch cut by the rank of each of its ids [n], in their order; one sort, whatever the number of ranks."""
    order = np.argsort(owners.astype(np.uint16), kind="stable")  # numpy sorts 16 bits by counting
    ends = np.cumsum([0, *np.bincount(owners, minlength=world_size)])
    ordered = batch[order]
    return tuple(ordered[begin:end] for begin, end in pairwise(ends))


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
    def equal(cls, ids: Ids, batches: Batches, rng_seed: int, assign: Assign | None = None) -> "SeedSchedule":
        """`ids` [num_seeds] in an order of their own in every epoch, in equal batches of contiguous shares.

        A global batch does not depend on how it is shared: w ranks with batches of b see what one rank with batches of
        w × b sees. A rank may have no seed at the last step of an epoch. `assign`: another way to share a batch out.
        """
        if not isinstance(batches, EqualBatches):
            raise TypeError(f"{batches} are not of equal size")
        if len(ids) != batches.num_seeds:
            raise ValueError(f"{len(ids)} seeds are not the {batches.num_seeds} that were planned with")
        return cls(
            num_seeds=len(ids),
            order=KeyedOrder(ids, rng_seed),
            cut=partial(equal_batch, batches=batches),
            assign=assign or partial(contiguous_shares, world_size=batches.ranks),
        )

    def among(self, world_size: int) -> "SeedSchedule":
        """Cut the same global batches into shares for `world_size` ranks, perhaps not the number planned for."""
        return replace(self, assign=partial(contiguous_shares, world_size=world_size))

    def shares(self, epoch: int, step: int) -> tuple[Ids, ...]:
        """Ids of the seeds of every rank at one step of an epoch."""
        return self.assign(self.cut(self.order(epoch), step))

    def seeds(self, epoch: int, step: int, rank: int) -> Seeds:
        """The seeds of one rank at one step of an epoch."""
        return Seeds(epoch, step, SeedIds(self.shares(epoch, step)[rank]))

    def counts(self, epoch: int, step: int) -> tuple[int, ...]:
        """Seeds of every rank at one step of an epoch."""
        return tuple(len(share) for share in self.shares(epoch, step))


@dataclass(frozen=True, slots=True)
class BudgetSchedule:
    """Which graphs each rank learns from at each step: a pure function of (rng seed, epoch, step, rank, world size).

    A step takes a batch for each of the `ranks` that it was planned for. More ranks than that cut batches in pieces, so
    none has more than the budget; fewer would have several batches at once, and so more than that.
    """

    ids: Ids  # [n], ascending: the graphs of an epoch
    costs: Costs  # [n], of each: shares of the budget
    rng_seed: int
    ranks: int  # that the batches were packed for
    packing: BudgetPacking
    world_size: int  # ranks that they are cut for
    _latest: dict[int, tuple[Ids, Ids]] = field(default_factory=dict, repr=False)  # of the latest epoch asked for

    @classmethod
    def of(cls, ids: Ids, costs: Costs, *, rng_seed: int, ranks: int) -> "BudgetSchedule":
        """Pack graphs `ids` [n] of `costs` [n] (`Budget.costs`) into batches for `ranks` ranks."""
        return cls(ids, costs, rng_seed, ranks, pack(costs, ranks), ranks)

    def among(self, world_size: int) -> "BudgetSchedule":
        """Cut the same global batches for another number of ranks."""
        return replace(self, world_size=world_size, _latest={})

    @property
    def num_seeds(self) -> int:
        """Graphs of a whole epoch, over all ranks."""
        return len(self.ids)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of each rank in every epoch."""
        return self.packing.num_batches // self.ranks

    def batch(self, epoch: int, number: int) -> Ids:
        """The graphs of batch `number` of an epoch, ascending: so they are read in the order in which they lie."""
        ordered, ends = self._epoch(epoch)
        return np.sort(ordered[ends[number] : ends[number + 1]])

    def shares(self, epoch: int, step: int) -> tuple[Ids, ...]:
        """Graphs of every rank at one step of an epoch."""
        return tuple(self._share(epoch, step, rank) for rank in range(self.world_size))

    def seeds(self, epoch: int, step: int, rank: int) -> Seeds:
        """Graphs of one rank at one step of an epoch, as seeds."""
        return Seeds(epoch, step, SeedIds(self._share(epoch, step, rank)))

    def counts(self, epoch: int, step: int) -> tuple[int, ...]:
        """Graphs of every rank at one step of an epoch."""
        if self.world_size != self.ranks:
            return tuple(len(share) for share in self.shares(epoch, step))
        _, ends = self._epoch(epoch)
        return tuple(int(n) for n in np.diff(ends[step * self.ranks : (step + 1) * self.ranks + 1]))

    def _share(self, epoch: int, step: int, rank: int) -> Ids:
        first = step * self.ranks
        if self.world_size == self.ranks:
            return self.batch(epoch, first + rank)
        bounds = [turn * self.ranks // self.world_size for turn in range(self.world_size + 1)]
        if self.world_size < self.ranks:
            whole = [self.batch(epoch, first + number) for number in range(bounds[rank], bounds[rank + 1])]
            return np.sort(np.concatenate(whole))
        batch = bounds[rank]  # several ranks share it
        return contiguous_shares(self.batch(epoch, first + batch), bounds.count(batch))[rank - bounds.index(batch)]

    def _epoch(self, epoch: int) -> tuple[Ids, Ids]:
        """All graphs, batch after batch [n], and where each batch begins [num_batches + 1]."""
        if epoch not in self._latest:
            self._latest.clear()
            self._latest[epoch] = self._laid_out(epoch)
        return self._latest[epoch]

    def _laid_out(self, epoch: int) -> tuple[Ids, Ids]:
        packing, num_batches = self.packing, self.packing.num_batches
        small = _shuffled(packing.small, key_of(self.rng_seed, Purpose.SEED_ORDER, epoch, 0))
        middles = np.cumsum(self.costs[small]) - self.costs[small] / 2
        batch_of_small = np.searchsorted(np.cumsum(packing.rooms), middles, side="right").clip(max=num_batches - 1)
        places = _shuffled(
            np.arange(num_batches, dtype=np.int64), key_of(self.rng_seed, Purpose.SEED_ORDER, epoch, _BATCH_ORDER)
        )
        batch = places[np.concatenate([batch_of_small, packing.batch_of_large])]
        order = np.argsort(batch, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(batch, minlength=num_batches))])
        return self.ids[np.concatenate([small, packing.large])[order]], ends


@dataclass(frozen=True, slots=True)
class BucketSchedule:
    """Global batches of one shape each, in an order of their own in every epoch: a pure function, as the others are.

    A bucket has the ids of all seeds of a shape. An epoch takes as many of each as planned: all, or others every time.
    """

    buckets: tuple[Ids, ...]  # [n] of each shape, ascending
    batches: BucketedBatches
    rng_seed: int
    world_size: int  # ranks that a global batch is cut for
    _latest: dict[int, tuple[Ids, ...]] = field(default_factory=dict, repr=False)  # of the latest epoch asked for

    @classmethod
    def of(cls, buckets: Sequence[Ids], batches: Batches, rng_seed: int) -> "BucketSchedule":
        """Raise ValueError unless each bucket has as many seeds as an epoch takes of it."""
        if not isinstance(batches, BucketedBatches):
            raise TypeError(f"{batches} are not of one shape each")
        if any(len(ids) < count for ids, count in zip(buckets, batches.counts, strict=True)):
            raise ValueError(f"buckets of {[len(ids) for ids in buckets]} seeds do not hold {batches.counts}")
        return cls(tuple(buckets), batches, rng_seed, batches.ranks)

    def among(self, world_size: int) -> "BucketSchedule":
        """Cut the same global batches into shares for another number of ranks."""
        return replace(self, world_size=world_size, _latest={})

    @property
    def num_seeds(self) -> int:
        """Number of seeds of a whole epoch, over all shapes and ranks."""
        return self.batches.num_seeds

    def shares(self, epoch: int, step: int) -> tuple[Ids, ...]:
        """Ids of the seeds of every rank at one step of an epoch."""
        return contiguous_shares(self._epoch(epoch)[step], self.world_size)

    def seeds(self, epoch: int, step: int, rank: int) -> Seeds:
        """The seeds of one rank at one step of an epoch."""
        return Seeds(epoch, step, SeedIds(self.shares(epoch, step)[rank]))

    def counts(self, epoch: int, step: int) -> tuple[int, ...]:
        """Seeds of every rank at one step of an epoch."""
        return tuple(len(share) for share in self.shares(epoch, step))

    def _epoch(self, epoch: int) -> tuple[Ids, ...]:
        """The global batches of an epoch, in their order."""
        if epoch not in self._latest:
            self._latest.clear()
            self._latest[epoch] = self._laid_out(epoch)
        return self._latest[epoch]

    def _laid_out(self, epoch: int) -> tuple[Ids, ...]:
        at_once, found = self.batches.batch_size * self.batches.ranks, list[Ids]()
        for number, (ids, count) in enumerate(zip(self.buckets, self.batches.counts, strict=True)):
            key = key_of(self.rng_seed, Purpose.SEED_ORDER, epoch, _BUCKET_ORDER, number)
            ordered = ids[np.argsort(keys_below(key, ids), kind="stable")][:count]
            found += [ordered[begin : begin + at_once] for begin in range(0, count, at_once)]
        key = key_of(self.rng_seed, Purpose.SEED_ORDER, epoch, _BATCH_ORDER)
        return tuple(found[number] for number in _shuffled(np.arange(len(found), dtype=np.int64), key))


def _shuffled(numbers: Ids, key: int) -> Ids:
    return numbers[np.argsort(keys_below(key, numbers), kind="stable")]
