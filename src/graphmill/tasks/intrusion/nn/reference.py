"""How far windows are from benign traffic: deviations of their ids, by what is missing and by what is new."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.tasks.intrusion.nn.ids import NUM_ID_COLUMNS, ids_of
from graphmill.tasks.intrusion.reference import NUM_BYTES, BenignTraffic

NUM_PAIRS: Final = 8192
"""Of ids, that a reference has room for; four captures of ROAD have 3,157."""
NUM_IDS: Final = 1024
_NONE: Final = 2**63 - 1  # in place of a key, larger than any


class Reference(nn.Module):
    """Benign traffic, in frozen parameters: a checkpoint holds them, and no sync touches them.

    An id deviates by what its bytes have beyond their bounds, times the square root of its frames; and by the frames
    that its pairs lack, or that it has too many, divided by the square root of those that are expected, which is about
    the deviation of a count. Of the sides before the id and behind it the one with less is taken: what an attack moves
    is changed on both, its neighbours on one.
    """

    def __init__(self, known: BenignTraffic) -> None:
        super().__init__()
        known = known.most_frequent(NUM_PAIRS - 1, NUM_IDS - 1)  # the last key is that of what is not known
        self.pairs = _frozen(torch.full((NUM_PAIRS,), _NONE), known.pairs)
        self.count = _frozen(torch.zeros(NUM_PAIRS, dtype=torch.float64), known.count)
        self.ids = _frozen(torch.full((NUM_IDS,), _NONE), known.ids)
        self.low = _frozen(torch.zeros(NUM_IDS, NUM_BYTES), known.low)
        self.high = _frozen(torch.ones(NUM_IDS, NUM_BYTES), known.high)
        self.frames = _frozen(torch.zeros(NUM_IDS, 2, dtype=torch.float64), known.frames)

    @classmethod
    def unknown(cls) -> "Reference":
        """Make one that saved weights will fill."""
        return cls(BenignTraffic.none())

    @torch.no_grad()
    def forward(self, batch: GraphBatch) -> Tensor:
        """Deviation of every node [n], zero or more."""
        ids, ends, count = ids_of(batch.x), batch.edge_index, batch.edge_attr[:, 0].double()
        at, is_known = _positions_in(self.ids, ids)
        expected = torch.where(is_known.unsqueeze(1), self.frames[at], 0.0)
        usual = torch.minimum(count, self.usual(*ids[ends]))
        # Multiples of a part of a frame, in float64: no order of their sum is another sum.
        there, same = (
            torch.stack([each.new_zeros(len(ids)).index_add_(0, end, each) for end in ends], dim=1)
            for each in (count, usual)
        )
        moved = torch.maximum(expected - same, there - expected).amin(dim=1)
        payload = batch.x[:, NUM_ID_COLUMNS:][:, :NUM_BYTES].double()
        beyond = torch.maximum(self.low[at] - payload, payload - self.high[at]).amax(dim=1).clamp(min=0)
        return moved / _deviation(expected) + torch.where(is_known, beyond, 0.0) * there[:, 0].sqrt()

    @torch.no_grad()
    def of_windows(self, batch: GraphBatch) -> Tensor:
        """The largest deviation of an id in every window [num_graphs], also of one that is not there."""
        offsets, (at, is_known) = batch.node_offsets, _positions_in(self.ids, ids_of(batch.x))
        absent = (self.frames.amin(dim=1) / _deviation(self.frames)).repeat(len(offsets) - 1, 1)
        absent[_graph_of(offsets, len(at)), torch.where(is_known, at, NUM_IDS - 1)] = 0.0
        of_nodes = torch.segment_reduce(self(batch), "max", offsets=offsets, axis=0, initial=0.0)
        return torch.maximum(of_nodes, absent.amax(dim=1))

    @property
    def known_pairs(self) -> Tensor:
        """`pair_keys` of the pairs that occur in benign traffic [num_pairs], the first of `pairs`."""
        return self.pairs[: int((self.pairs != _NONE).sum())].detach()

    @torch.no_grad()
    def usual(self, source: Tensor, target: Tensor) -> Tensor:
        """How often `target` follows `source` in a benign window, on average: ids [e] → float64 [e]."""
        at, is_known = _positions_in(self.pairs, source << 32 | target)
        return torch.where(is_known, self.count[at], 0.0)

    @torch.no_grad()
    def missing(self, batch: GraphBatch) -> Tensor:
        """What each window lacks of every pair, in frames [num_graphs, NUM_PAIRS]."""
        source, target = batch.edge_index
        ids = ids_of(batch.x)
        at, is_known = _positions_in(self.pairs, ids[source] << 32 | ids[target])
        window = _graph_of(batch.node_offsets, len(ids))[source]
        lacks = self.count.repeat(len(batch.node_offsets) - 1, 1)
        lacks[window, torch.where(is_known, at, NUM_PAIRS - 1)] -= batch.edge_attr[:, 0]
        return lacks.clamp(min=0)


def _frozen(blank: Tensor, values: NDArray[np.generic]) -> nn.Parameter:
    """A parameter that begins with `values`; what is left of it stays blank."""
    blank[: len(values)] = torch.from_numpy(values)
    return nn.Parameter(blank, requires_grad=False)


def _positions_in(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where in `keys`, which rise, each of `wanted` [n] is, and whether it is there at all."""
    at = torch.searchsorted(keys, wanted)
    return at, keys[at] == wanted


def _deviation(frames: Tensor) -> Tensor:
    """Deviation of a count, about, where frames are expected [n, 2]: as of a Poisson process, one at least."""
    return frames.amax(dim=1).clamp(min=1).sqrt()


def _graph_of(node_offsets: Tensor, num_nodes: int) -> Tensor:
    graphs = torch.arange(len(node_offsets) - 1, device=node_offsets.device)
    return torch.repeat_interleave(graphs, node_offsets.diff(), output_size=num_nodes)
