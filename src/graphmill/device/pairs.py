"""Negatives on the device: pairs that are not edges, the same that `_native.draw_negatives` draws."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.device.driver import address
from graphmill.device.kernels import DeviceKernels
from graphmill.device.structures import CandidatesStruct, KnownStruct, NegativesStruct


@dataclass(frozen=True, slots=True)
class PairEdges:
    """Edges that no negative may be: columns whose rows ascend by source, then by time."""

    indptr: Tensor  # int64 [num_targets + 1]
    sources: Tensor  # int32 [num_edges]
    times: Tensor | None = None  # int64 [num_edges]

    def struct(self) -> KnownStruct:
        """Struct that kernels take."""
        return KnownStruct(
            address(self.indptr, torch.int64), address(self.sources, torch.int32), address(self.times, torch.int64)
        )


@dataclass(frozen=True, slots=True)
class PairEnds:
    """Nodes that one end of a negative is drawn from."""

    count: int
    weights: Tensor | None = None  # float64 [count], summed up
    times: Tensor | None = None  # int64 [count] since when each exists

    def struct(self) -> CandidatesStruct:
        """Struct that kernels take."""
        return CandidatesStruct(self.count, address(self.weights, torch.float64), address(self.times, torch.int64))


def draw_pairs(
    kernels: DeviceKernels,
    known: PairEdges | None,
    sources: PairEnds,
    targets: PairEnds,
    count: int,
    *,
    key: int,
    tries: int,
    given: Tensor | None = None,
    times: Tensor | None = None,
    numbers: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw pairs that are not known edges.

    Args:
        kernels: of the device.
        known: the edges; None: any pair will do.
        sources: where sources come from.
        targets: where targets come from.
        count: how many pairs.
        key: of the draws.
        tries: for each pair.
        given: int64 [count]: the sources, if they are not drawn.
        times: int64 [count]: what exists then is meant.
        numbers: int64 [count]: what draws are keyed by beside `key`; None: the pairs' places.

    Returns:
        Sources and targets, int64 [count]; a target is -1 where all tries failed.

    Raises:
        InvalidInputError: there is nothing to draw from, or no try is allowed.
    """
    if count and (tries < 1 or min(sources.count, targets.count) < 1):
        raise InvalidInputError(
            f"{count} negatives of {sources.count} and {targets.count} nodes in {tries} tries cannot be drawn",
            fix="give nodes, and at least one try",
        )
    source_out, target_out = kernels.empty(count, torch.int64), kernels.empty(count, torch.int64)
    wanted = NegativesStruct(
        count,
        address(given, torch.int64),
        address(times, torch.int64),
        address(numbers, torch.int64),
        key & ((1 << 64) - 1),
        tries,
    )
    edges = KnownStruct(None, None, None) if known is None else known.struct()
    kernels.driver.launch(
        "draw_negatives", count, edges, sources.struct(), targets.struct(), wanted, source_out, target_out
    )
    return source_out, target_out


def are_edges(
    kernels: DeviceKernels, known: PairEdges, sources: Tensor, targets: Tensor, times: Tensor | None = None
) -> Tensor:
    """Whether pairs, int64 [n] each, are known edges, until the pair's time where there are `times`: bool [n]."""
    found = kernels.empty(len(sources), torch.bool)
    kernels.driver.launch("find_edges", len(sources), known.struct(), sources, targets, times, len(sources), found)
    return found
