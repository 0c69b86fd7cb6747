"""The calendar of a run: how many steps each epoch has, where rounds end, which step is which. Pure.

This is the only place that divides steps by epochs. Steps are those of each rank: all ranks take the same number.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from graphmill.base.errors import UserError

EpochLengths = tuple[tuple[int, int], ...]
"""(number of epochs, steps in each of them), in order: ((4, 29),) is four epochs of 29 steps."""


class EpochStep(NamedTuple):
    """A position in a run: the next step is number `step` of `epoch`, both from 0."""

    epoch: int
    step: int


class _EpochSpan(NamedTuple):
    """Epochs of equal length that follow each other."""

    first_epoch: int
    first_step: int  # of the run
    length: int  # steps of each epoch


@dataclass(frozen=True, slots=True)
class Calendar:
    """Epochs may differ in length; `last_step` may cut the last of them short.

    A round is `sync_every` steps, or what is left of them at the end of an epoch or of the run.
    """

    epoch_lengths: EpochLengths
    sync_every: int
    last_step: int  # steps of the whole run
    _spans: tuple[_EpochSpan, ...] = field(init=False, repr=False, compare=False)
    _last_epoch: _EpochSpan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sync_every < 1 or not self.epoch_lengths or any(n < 1 for run in self.epoch_lengths for n in run):
            raise ValueError(f"{self} has an epoch without steps, or a round without steps")
        spans, epoch, step = [], 0, 0
        for num_epochs, length in self.epoch_lengths:
            spans.append(_EpochSpan(epoch, step, length))
            epoch, step = epoch + num_epochs, step + num_epochs * length
        length = self.epoch_lengths[-1][1]
        if not step - length < self.last_step <= step:
            raise ValueError(f"{epoch} epochs of {step} steps do not end with step {self.last_step}")
        object.__setattr__(self, "_spans", tuple(spans))
        object.__setattr__(self, "_last_epoch", _EpochSpan(epoch - 1, step - length, length))

    @property
    def num_epochs(self) -> int:
        """Epochs of the run, including a last one that is cut short."""
        return self._last_epoch.first_epoch + 1

    def length(self, epoch: int) -> int:
        """Steps of an epoch, were it not cut short."""
        if not 0 <= epoch < self.num_epochs:
            raise ValueError(f"epoch {epoch} is none of {self.num_epochs}")
        return self._span_of(epoch).length

    def steps_in(self, epoch: int) -> int:
        """Steps of an epoch that the run takes."""
        return min(self.length(epoch), self.last_step - self._first_step(epoch))

    def steps_done(self, epoch: int, step: int = 0) -> int:
        """Steps of the run that are done after `step` steps of `epoch`; the run ends at `(num_epochs, 0)`."""
        if (epoch, step) == (self.num_epochs, 0):
            return self.last_step
        if not 0 <= step <= self.steps_in(epoch):
            raise ValueError(f"epoch {epoch} has {self.steps_in(epoch)} steps, not {step}")
        return self._first_step(epoch) + step

    def position(self, steps_done: int) -> EpochStep:
        """The position after `steps_done` steps; at the end of the run, the beginning of the epoch after the last."""
        self._refuse_outside(steps_done)
        if steps_done == self.last_step:
            return EpochStep(self.num_epochs, 0)
        span = self._spans[bisect_right(self._spans, steps_done, key=lambda known: known.first_step) - 1]
        epoch, step = divmod(steps_done - span.first_step, span.length)
        return EpochStep(span.first_epoch + epoch, step)

    def is_last(self, steps_done: int) -> bool:
        """Whether the run ends here."""
        return steps_done == self.last_step

    def closes_round(self, steps_done: int) -> bool:
        """Whether the step that made it `steps_done` was the last of a round."""
        return steps_done > 0 and self.position(steps_done).step % self.sync_every == 0

    def round_ends(self) -> Iterator[int]:
        """Steps done at the end of each round."""
        for epoch in range(self.num_epochs):
            first, last = self._first_step(epoch), self.steps_in(epoch)
            yield from range(first + self.sync_every, first + last, self.sync_every)
            yield first + last

    def rounds_in(self, steps: int) -> int:
        """Rounds that end within the first `steps` steps of an epoch; the last may be shorter than the others."""
        return -(-steps // self.sync_every)

    def rounds_ended(self, steps_done: int) -> int:
        """Rounds that end within the first `steps_done` steps of the run."""
        if steps_done == self.last_step:
            return self._rounds_before(self.num_epochs - 1) + self.rounds_in(self.steps_in(self.num_epochs - 1))
        epoch, step = self.position(steps_done)
        return self._rounds_before(epoch) + step // self.sync_every

    def cut(self, last_step: int) -> "Calendar":
        """Copy of the calendar with an earlier end."""
        self._refuse_outside(last_step)
        num_epochs = self.position(last_step - 1).epoch + 1
        lengths = []
        for epochs, length in self.epoch_lengths:
            if num_epochs > 0:
                lengths.append((min(epochs, num_epochs), length))
            num_epochs -= epochs
        return Calendar(tuple(lengths), self.sync_every, last_step)

    def times_every(self, *, epochs: int = 0, steps: int = 0) -> float:
        """How often something happens that happens every `epochs` epochs, or `steps` steps; 0: never."""
        return (self.num_epochs / epochs if epochs else 0.0) + (self.last_step // steps if steps else 0)

    def _refuse_outside(self, steps_done: int) -> None:
        if not 0 <= steps_done <= self.last_step:
            raise ValueError(f"{steps_done} steps are none of a run of {self.last_step}")

    def _span_of(self, epoch: int) -> _EpochSpan:
        return self._spans[bisect_right(self._spans, epoch, key=lambda known: known.first_epoch) - 1]

    def _first_step(self, epoch: int) -> int:
        span = self._span_of(epoch)
        return span.first_step + (epoch - span.first_epoch) * span.length

    def _rounds_before(self, epoch: int) -> int:
        """Rounds of the whole epochs before `epoch`."""
        rounds = 0
        for (num_epochs, length), span in zip(self.epoch_lengths, self._spans, strict=True):
            rounds += min(num_epochs, max(0, epoch - span.first_epoch)) * self.rounds_in(length)
        return rounds


@dataclass(frozen=True, slots=True)
class EqualBatches:
    """An epoch of `num_seeds` seeds, cut into global batches of `batch_size` × `ranks`; the last may be smaller."""

    num_seeds: int
    batch_size: int  # seeds per rank and step
    ranks: int

    @property
    def num_steps(self) -> int:
        """Global batches of an epoch, which are the steps of each rank."""
        return -(-self.num_seeds // (self.batch_size * self.ranks))

    def seeds_in(self, num_steps: int) -> int:
        """Seeds of the first `num_steps` global batches of an epoch."""
        return min(num_steps * self.batch_size * self.ranks, self.num_seeds)

    def bounds(self, step: int) -> slice:
        """Which seeds of an epoch's order the global batch of a step holds."""
        return slice(self.seeds_in(step), self.seeds_in(step + 1))


@dataclass(frozen=True, slots=True)
class BudgetBatches:
    """An epoch of `num_seeds` seeds of unequal size in `num_batches` batches, as many for each rank.

    How many seeds a batch has depends on their sizes, which only the data tell.
    """

    num_seeds: int
    num_batches: int  # of an epoch, over all ranks; a multiple of them
    ranks: int

    @property
    def num_steps(self) -> int:
        """Steps of each rank in an epoch."""
        return self.num_batches // self.ranks

    def seeds_in(self, num_steps: int) -> int | None:
        """Seeds of a whole epoch; None: of a part of one, which is not known here."""
        return self.num_seeds if num_steps == self.num_steps else None


@dataclass(frozen=True, slots=True)
class BucketedBatches:
    """An epoch of seeds of several shapes: every global batch of `batch_size` × `ranks` is of seeds of one shape.

    The last batch of each shape may be smaller. In which order they come is another matter: see `BucketSchedule`.
    """

    counts: tuple[int, ...]  # seeds of each shape in an epoch
    batch_size: int  # seeds per rank and step
    ranks: int

    @property
    def num_seeds(self) -> int:
        """Seeds of an epoch, over all shapes and ranks."""
        return sum(self.counts)

    @property
    def num_steps(self) -> int:
        """Steps of each rank in an epoch."""
        return sum(self.steps_of(count) for count in self.counts)

    def steps_of(self, count: int) -> int:
        """Global batches that `count` seeds of one shape make."""
        return -(-count // (self.batch_size * self.ranks))

    def seeds_in(self, num_steps: int) -> int | None:
        """Seeds of a whole epoch; None: of a part of one, which is not known here."""
        return self.num_seeds if num_steps == self.num_steps else None


Batches = EqualBatches | BudgetBatches | BucketedBatches


def planned_end(batches: Batches, *, epochs: int | None, max_steps: int | None) -> tuple[EpochLengths, int]:
    """Lengths of all epochs, and the last step of each rank.

    `max_steps` counts over all ranks; None: no such limit. Raises `UserError` if neither limit is given, or the
    ranks cannot share the steps.
    """
    limits = []
    if max_steps is not None:
        if max_steps % batches.ranks:
            lower = max_steps // batches.ranks * batches.ranks
            raise UserError(
                f"train.max_steps counts steps over all ranks; {max_steps} does not divide among {batches.ranks} ranks",
                fix=f"set train.max_steps={lower or batches.ranks} or {lower + batches.ranks}",
            )
        limits.append(max_steps // batches.ranks)
    if epochs is not None:
        limits.append(epochs * batches.num_steps)
    if not limits:
        raise UserError(
            "neither train.epochs nor train.max_steps says when to stop",
            fix="set one of them, for example -O train.epochs=10",
        )
    last_step = min(limits)
    return ((-(-last_step // batches.num_steps), batches.num_steps),), last_step
