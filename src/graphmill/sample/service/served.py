"""A trainer's half of the hand-over: batches, logits and statistics come from the sampler that serves it."""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from graphmill.graph.batch import MiniBatch
from graphmill.runtime.spans import Name, Spans
from graphmill.sample.prefetch import has_failed, prefetch
from graphmill.sample.service.frames import Frame, batch_of
from graphmill.sample.service.link import Link, Message, MessageType

CLOCKS: Final[tuple[Name, ...]] = ("sample", "gather", "fetch")
"""A sampler says first of the batches of an epoch how many seconds these spans took; the rest is the task's."""
_IN_USE: Final = 2  # batches besides the one that is asked for: copied to a GPU, computed on


@dataclass(slots=True)
class SamplerClient:
    """What a trainer asks of its sampler. All trainers ask the same, in the same order."""

    link: Link
    prefetch: int
    speaks: bool  # for the trainers of its sampler: sends what all of them know, as the weights
    spans: Spans
    on_wish: Callable[[str], None]  # called with the reason if the sampler is asked to stop
    spent: list[float] = field(default_factory=list)  # by the sampler, of the batches of the epoch that ended last
    evaluation_bytes: int = 0  # that samplers received from one another for `logits`
    _has_ended: bool = field(default=True, init=False)  # the epoch that was asked for last

    def batches(self, epoch: int, first_step: int, num_batches: int) -> Generator[MiniBatch]:
        """The batches of this trainer from a step of an epoch on. Their memory is reused: do not keep them.

        On one host they are read where the sampler has written them; over the network a thread receives them.
        """
        self.link.tell(MessageType.EPOCH, epoch, first_step)
        self._has_ended, num_used = False, 0
        made = prefetch(lambda: self._received(num_batches), 0 if self.link.is_near else self.prefetch)
        try:
            for batch in made:
                num_used += 1
                yield batch
                del batch
        finally:
            if not has_failed(sys.exception()):
                self.link.tell(MessageType.STOP, num_used)
                made.close()
                self._hear_the_end()

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the features."""
        self.link.tell(MessageType.SCALE)
        mean, deviation = self.link.received(self._answer()).tensors
        return mean, deviation

    def logits(
        self, nodes: Tensor, mine: Tensor, weights: Sequence[Tensor], pause: Callable[[], None], aborts: type[Exception]
    ) -> Tensor:
        """Logits [n, num_classes] of the nodes `mine` [n], of all `nodes` that are evaluated with `weights`.

        If `pause` raises `aborts`, as it does on all trainers or none, the samplers give the evaluation up.
        """
        shared = (nodes, *weights) if self.speaks else ()
        self.link.tell(MessageType.EVALUATE, frame=Frame((), (mine, *shared)))
        while (message := self._answer()).word is MessageType.TICK:
            try:
                pause()
            except aborts:
                self.link.tell(MessageType.ABORT)
                raise
            self.link.tell(MessageType.GO)
        frame = self.link.received(message)
        self.evaluation_bytes += sum(frame.numbers)
        return frame.tensors[0]

    def _received(self, num_batches: int) -> Iterator[MiniBatch]:
        for number in range(num_batches):
            with self.spans("fetch"):
                message = self._answer()
                if message.word is MessageType.END:
                    self._end(message)
                    return
                frame = self.link.received(message)
            if not self.link.is_near:  # the sampler has sent it, and may write the next one
                self.link.tell(MessageType.RELEASE)
            yield batch_of(frame)
            if self.link.is_near and number >= _IN_USE:
                self.link.tell(MessageType.RELEASE)

    def _hear_the_end(self) -> None:
        while not self._has_ended:
            message = self._answer()
            if message.word is MessageType.END:
                self._end(message)
            else:
                self.link.received(message)  # it was under way

    def _end(self, message: Message) -> None:
        (numbers,) = self.link.received(message).tensors
        self.spent, self._has_ended = numbers.tolist(), True
        for name, seconds in zip(CLOCKS, self.spent, strict=False):
            if name != "fetch":  # which is here what receiving takes
                self.spans.seconds[name] += seconds

    def _answer(self) -> Message:
        message = self.link.hear()
        if message.word in (MessageType.BATCH, MessageType.TICK) and message.numbers[2]:
            self.on_wish(f"{self.link.peer} was asked to stop")
        return message
