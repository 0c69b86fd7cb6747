"""What the host asks of a device while it trains, and when: never within a step.

Losses add up on the device. When a round ends, their sum and the parameters are copied to page-locked memory, behind
the work that is queued; they are read when the next round ends, or when somebody needs them: a checkpoint, the end of
an epoch. On the CPU all of that is at hand, and read at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmill.record.events import EventWriter, Sync
from graphmill.sync.replica import Replica, hash_of
from graphmill.train.epoch_stats import EpochStats


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """A round that is over, and what its ranks exchanged until then."""

    epoch: int
    steps_done: int
    payload_bytes: int
    num_syncs: int


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """Round that is over, with the replica's digest and the sum of losses that the device holds."""

    round: RoundEnd
    digest: int  # of the replica
    loss_sum: float  # of the epoch so far


def signed(known: KnownEnd | None) -> int:
    """A replica's hash as ranks exchange it; 0 where none is known yet, on any rank."""
    return 0 if known is None else known.digest - 2**63


@dataclass(frozen=True, slots=True)
class _UnderWay:
    round: RoundEnd
    copies: list[Tensor]  # of the replica, then the sum of losses; page-locked, and written to until `arrived`
    arrived: torch.cuda.Event


@dataclass(slots=True)
class Rounds:
    """The ends of one rank's rounds."""

    replica: Replica
    stats: EpochStats
    _loss_sum: Tensor | None = None  # of the epoch, on the device; None: none since it began
    _under_way: _UnderWay | None = None
    _room: list[list[Tensor]] = field(default_factory=lambda: [[], []])  # of the round under way, and the next
    _turn: int = 0

    def add_loss(self, loss: Tensor) -> None:
        """Count the loss of a step [] to the epoch's, in 64 bits."""
        if loss.device.type == "cpu":
            self.stats.loss_sum += float(loss)
        elif self._loss_sum is None:
            self._loss_sum = torch.full_like(loss, self.stats.loss_sum, dtype=torch.float64) + loss
        else:
            self._loss_sum += loss

    def ended(self, this: RoundEnd) -> KnownEnd | None:
        """What is known when a round has ended: of that round on the CPU, of the one before on a device."""
        if self.replica.values.device.type == "cpu":
            return KnownEnd(this, self.replica.hash(), self.stats.loss_sum)
        before, self._under_way = self._under_way, self._started(this)
        return None if before is None else self._known(before)

    def rest(self) -> KnownEnd | None:
        """Wait for the end of the last round; None if it is known already."""
        before, self._under_way = self._under_way, None
        return None if before is None else self._known(before)

    def compare(self, known: KnownEnd, digests: Sequence[int], events: EventWriter, sync_s: float) -> None:
        """Record the sync at the end of a round; RuntimeError if replicas differ. `digests`: of all ranks, signed."""
        agree = all(digest == digests[0] for digest in digests)
        ended = known.round
        events.write(
            Sync(
                epoch=ended.epoch,
                steps_done=ended.steps_done,
                parameter_hash=f"{known.digest:016x}",
                replicas_agree=agree,
                payload_bytes=ended.payload_bytes,
                modelled_bytes=ended.num_syncs * self.replica.num_parameters * 4,
                sync_s=round(sync_s, 6),
                loss_sum=known.loss_sum,
            )
        )
        self.stats.num_agreed += agree
        if not agree:
            hashes = ", ".join(f"{digest + 2**63:016x}" for digest in digests)
            raise RuntimeError(f"replicas differ after the sync at step {ended.steps_done}: {hashes}")

    def end_epoch(self) -> None:
        """Losses add up anew."""
        self._loss_sum = None

    def _started(self, this: RoundEnd) -> _UnderWay:
        of_replica = self.replica.state()
        if self._loss_sum is None:  # of a rank that has had no seeds
            self._loss_sum = torch.full_like(of_replica[0][:1].sum(), self.stats.loss_sum, dtype=torch.float64)
        room = self._room[self._turn]
        self._turn = 1 - self._turn
        tensors = [*of_replica, self._loss_sum]
        if not room:
            room.extend(torch.empty_like(each, device="cpu").pin_memory() for each in tensors)
        for copy, tensor in zip(room, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)
        return _UnderWay(this, room, torch.cuda.current_stream(tensors[0].device).record_event())

    def _known(self, before: _UnderWay) -> KnownEnd:
        before.arrived.synchronize()
        *of_replica, loss_sum = before.copies
        self.stats.loss_sum = float(loss_sum)
        return KnownEnd(before.round, hash_of(of_replica), self.stats.loss_sum)


@dataclass(slots=True)
class Pace:
    """Keeps the host a step ahead of a device, and no more: batches that wait for it take its memory."""

    device: torch.device
    _before: torch.cuda.Event | None = None  # when the step before is over

    def step_queued(self) -> None:
        """Wait for the step before one that is queued, so that the device has work while this returns."""
        if self.device.type == "cpu":
            return
        before, self._before = self._before, torch.cuda.current_stream(self.device).record_event()
        if before is not None:
            before.synchronize()
