"""The sum of gradients over the ranks, in pieces that begin while backward computes the others."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica

PIECE_BYTES: Final = 4 << 20
"""Of a piece at least: 3 ms at 10 Gbit/s, beside which the latency of a collective is little."""


@dataclass(slots=True, weakref_slot=True)
class GradientExchange:
    """Replaces the gradients of a replica by their sum over the ranks, divided by a weight.

    The flat vector is cut into pieces between parameters, from its end, which backward computes first. A piece goes out
    once it and those before it are known, as in torch's DDP (Li et al. 2020, arXiv 2006.15704). A small model is one
    piece, which goes out after backward. All ranks send the same pieces in the same order, with or without seeds.
    """

    replica: Replica
    group: Group
    payload: torch.dtype  # of the numbers that are sent
    piece_bytes: int = PIECE_BYTES
    pieces: list[slice] = field(init=False)  # of the flat vector, the last first
    _sizes: list[int] = field(default_factory=list)  # parameters of each piece; [] if all go out after backward
    _divisor: float = 0  # of the backward pass under way; 0: none, or one whose gradients are not sent
    _known: set[str] = field(default_factory=set)  # parameters whose gradient backward has added
    _unknown: list[int] = field(default_factory=list)  # parameters of each piece whose gradient it has not
    _sent: list[tuple[Tensor, dist.Work | None]] = field(default_factory=list)  # by piece

    def __post_init__(self) -> None:
        size = self.replica.grads.element_size()
        places = {name: place for name, place in self.replica.places.items() if place.stop > place.start}
        self.pieces = list(_pieces(list(places.values()), self.piece_bytes // size))
        if self.group.world_size == 1 or len(self.pieces) <= 1:
            return
        self._sizes = [0] * len(self.pieces)
        added = WeakMethod(self._added)  # hooks last as long as the model, which this holds: gc cannot see that cycle
        for name, place in places.items():
            piece = next(number for number, each in enumerate(self.pieces) if each.start <= place.start < each.stop)
            self._sizes[piece] += 1
            parameter: Any = self.replica.model.get_parameter(name)  # torch leaves hooks unannotated
            parameter.register_post_accumulate_grad_hook(partial(_tell, added, name, piece))

    def begin(self, divisor: float) -> None:
        """Send gradients, divided by `divisor`, as the backward pass that comes next makes them known.

        Not while a profile waits for the device after each phase: backward would be taken for the time of the exchange.
        """
        if self._sizes and self.group.spans.around is None:
            self._divisor, self._unknown = divisor, list(self._sizes)
            self._known.clear()

    def finish(self, divisor: float) -> None:
        """Send what backward did not make known, and wait for all. `divisor`: as `begin` was given.

        What goes out here is sent and waited for at once: a collective lies in one span, as a profile shows it.
        """
        self._divisor = 0
        while len(self._sent) < len(self.pieces):
            self._send(divisor, waits=True)
        for piece, (wire, work) in zip(self.pieces, self._sent, strict=True):
            self.group.finish(work)
            if wire.dtype != self.replica.grads.dtype:
                self.replica.grads[piece].copy_(wire)
        self._sent.clear()

    def _added(self, name: str, piece: int) -> None:
        """Note that backward has added the gradient of a parameter; send what is known, in order."""
        if not self._divisor:
            return
        if piece < len(self._sent):
            raise UserError(
                f"backward adds to the gradient of {name} more than once in a step, and ranks have exchanged it",
                fix="checkpoint the model's activations with use_reentrant=False, or train with one rank",
            )
        if name not in self._known:
            self._known.add(name)
            self._unknown[piece] -= 1
        while len(self._sent) < len(self.pieces) and not self._unknown[len(self._sent)]:
            self._send(self._divisor, waits=False)

    def _send(self, divisor: float, *, waits: bool) -> None:
        grads = self.replica.grads[self.pieces[len(self._sent)]]
        grads /= divisor
        wire = grads.to(self.payload)  # of fp32 the same tensor
        work = None
        if waits:
            self.group.all_reduce(wire)
        else:
            work = self.group.begin_all_reduce(wire)
        self._sent.append((wire, work))


def _tell(added: "WeakMethod[Any]", name: str, piece: int, _: Tensor) -> None:
    if (method := added()) is not None:
        method(name, piece)


def _pieces(places: list[slice], least: int) -> Iterator[slice]:
    """Cut between parameters, from the end, into pieces of at least `least` values; the piece at 0 may have less."""
    stop = places[-1].stop if places else 0
    for place in reversed(places):
        if stop - place.start >= least or place.start == 0:
            yield slice(place.start, stop)
            stop = place.start
