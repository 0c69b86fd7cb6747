"""Red zones: copies of tensors between bytes that are NaN in every float format and -1 in every integer's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GUARD = 4096  # bytes on either side
_BYTE = 0xFF


@dataclass(frozen=True, slots=True)
class Zone:
    """One stretch of memory of a call's tensors, and its copy between guards."""

    original: Tensor  # uint8, the stretch itself
    room: Tensor  # uint8, with guards

    @property
    def copy(self) -> Tensor:
        """Uint8, without guards."""
        return self.room[_GUARD : _GUARD + len(self.original)]

    def holds(self) -> bool:
        """Whether both guards are as they were."""
        before, after = self.room[:_GUARD], self.room[_GUARD + len(self.original) :]
        return bool((before == _BYTE).all() and (after == _BYTE).all())


def zones_of(tensors: Sequence[Tensor]) -> tuple[list[Zone], list[Tensor]]:
    """Copies of tensors, each between guards; those that overlap share a zone.

    Args:
        tensors: of any format, contiguous or not.

    Returns:
        The zones, and for each tensor the same view of its zone's copy. `put_back` copies what was written there.
    """
    spans = [_span(tensor) for tensor in tensors]
    zones: list[Zone] = []
    views: list[Tensor | None] = [None] * len(tensors)
    group: list[int] = []
    end = -1
    for at in sorted(range(len(tensors)), key=lambda number: spans[number]):
        if group and spans[at][0] >= end:
            zones.append(_zone(tensors, spans, group, views))
            group = []
        group.append(at)
        end = spans[at][1] if len(group) == 1 else max(end, spans[at][1])
    if group:
        zones.append(_zone(tensors, spans, group, views))
    return zones, [view for view in views if view is not None]


def put_back(zones: Sequence[Zone]) -> None:
    """Copy what the copies hold now to where they came from."""
    for zone in zones:
        zone.original.copy_(zone.copy)


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses [first, end) of a tensor's elements."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _zone(
    tensors: Sequence[Tensor], spans: Sequence[tuple[int, int]], group: Sequence[int], views: list[Tensor | None]
) -> Zone:
    first, end = spans[group[0]][0], max(spans[at][1] for at in group)
    of = tensors[group[0]]
    storage = of.untyped_storage()
    original = torch.empty(0, dtype=torch.uint8, device=of.device)
    original.set_(storage, first - storage.data_ptr() if end > first else 0, (end - first,), (1,))
    room = torch.full((end - first + 2 * _GUARD,), _BYTE, dtype=torch.uint8, device=of.device)
    zone = Zone(original, room)
    zone.copy.copy_(original)
    for at in group:
        tensor = tensors[at]
        offset = (_GUARD + spans[at][0] - first) // tensor.element_size()
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        views[at] = view.set_(room.untyped_storage(), offset, tensor.shape, tensor.stride())
    return zone
