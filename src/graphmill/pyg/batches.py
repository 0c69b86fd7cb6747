"""Which seeds each batch of a loader has, and the key it is drawn with: functions of (seed, epoch, step).

The key travels with the seeds to what samples: the loader itself, a thread, a worker process. So batches are the
same for any number of workers, and a loader's position is two numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from graphmill.base.errors import InvalidInputError
from graphmill.graph.keys import Purpose, key_of
from graphmill.sample.schedule import KeyedOrder


@dataclass(frozen=True, slots=True)
class SeedBatch:
    """Places of seeds among those of a loader, and the key of the draws."""

    places: Any  # an array or a list [batch_size]
    key: int


class Places:
    """The data set of a loader, as DataLoader needs one: a batch of places is what it gives for them."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        return place

    def __getitems__(self, batch: SeedBatch) -> SeedBatch:
        """The batch itself: it is sampled by the loader's collate_fn."""
        return batch


class SeedBatches(Sampler[Any]):
    """The batches of an epoch, each iteration the next one; what DataLoader calls a batch sampler.

    It has a state, so torchdata's `StatefulDataLoader` can save and restore it.
    """

    def __init__(
        self, count: int, batch_size: int, *, seed: int, shuffle: bool, drop_last: bool, of_user: Sequence[Any] | None
    ) -> None:
        """`count`: seeds of the loader. `of_user`: a batch sampler of the user's, taken as it is."""
        self.seed, self.epoch, self.step = seed, 0, 0  # the batch that the next iteration begins with
        self._of_user = of_user
        self._size = batch_size
        self._num_steps = 0 if of_user is not None else count // batch_size if drop_last else -(-count // batch_size)
        self._places = np.arange(count)
        self._shuffled = KeyedOrder(self._places, seed) if shuffle else None

    def __len__(self) -> int:
        return self._num_steps if self._of_user is None else len(self._of_user)

    def __iter__(self) -> "BatchIterator":
        return BatchIterator(self)

    def batches(self, epoch: int, first: int) -> Iterator[SeedBatch]:
        """Batches of an epoch from step `first` on."""
        if self._of_user is None:
            order = self._places if self._shuffled is None else self._shuffled(epoch)
            for step in range(first, self._num_steps):
                yield SeedBatch(order[step * self._size : (step + 1) * self._size], self._key(epoch, step))
        else:
            for step, places in enumerate(self._of_user):
                if step >= first:
                    yield SeedBatch(places, self._key(epoch, step))

    def _key(self, epoch: int, step: int) -> int:
        return key_of(self.seed, Purpose.NEIGHBOURS, epoch, step)


class BatchIterator:
    """One iteration over the batches of an epoch. DataLoader makes two and uses one: an epoch is taken by the first
    batch that is asked for."""

    def __init__(self, of: SeedBatches) -> None:
        self._of = of
        self._batches: Iterator[SeedBatch] | None = None
        self._epoch = self._step = 0

    def __iter__(self) -> "BatchIterator":
        return self

    def __next__(self) -> SeedBatch:
        if self._batches is None:
            self._begin(self._of.epoch, self._of.step)
        batch = next(self._batches)  # type: ignore[arg-type]  # it has begun
        self._step += 1
        return batch

    def state_dict(self) -> dict[str, int]:
        """The next batch, for torchdata's `StatefulDataLoader`."""
        epoch, step = (self._of.epoch, self._of.step) if self._batches is None else (self._epoch, self._step)
        return {"epoch": epoch, "step": step, "seed": self._of.seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from there; the epochs after it follow."""
        self._begin(*checked_state(state, self._of))

    def _begin(self, epoch: int, step: int) -> None:
        self._epoch, self._step = epoch, step
        self._batches = self._of.batches(epoch, step)
        self._of.epoch, self._of.step = epoch + 1, 0


def checked_state(state: Any, of: SeedBatches) -> tuple[int, int]:  # noqa: ANN401  # whatever a caller gives
    """Epoch and step of a saved position, if it is of such a loader."""
    if not isinstance(state, Mapping) or any(type(state.get(key)) is not int for key in ("epoch", "step", "seed")):
        raise InvalidInputError(f"the state is {state!r:.80}", fix="give what state_dict() of such a loader returned")
    if state["seed"] != of.seed:
        raise InvalidInputError(
            f"the state is of seed {state['seed']}, the loader of {of.seed}", fix="make the loader with that seed"
        )
    if not (0 <= state["step"] <= len(of) and 0 <= state["epoch"] < 2**63):
        raise InvalidInputError(
            f"the state is of epoch {state['epoch']}, step {state['step']}, and this loader's epochs have {len(of)}"
            " steps",
            fix="make the loader with the same seeds and batch_size",
        )
    return state["epoch"], state["step"]
