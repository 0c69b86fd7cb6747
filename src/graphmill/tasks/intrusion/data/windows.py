"""Windows of frames as graphs, all windows at once: a node is an id, an edge an id followed by another.

Frame i gives one pair: its id, and the id of the next frame, also where that lies behind the end of the window; the
last frame of a capture gives none. Pairs that repeat in a window are one edge. So a window of W frames has at most W
edges, and the id behind its end may be a node that sends nothing in it (a target only).

`x` of a node [10], in this order; of a target only all are 0. The eleventh feature of the original, the number of the
id in a vocabulary, is made of `node_ids` where a vocabulary is known (`splits.py`):

- 0–7: mean of each payload byte over the frames with the id, divided by 255; bytes that a short payload lacks are 0
- 8: number of frames with the id, scaled to 0 for the rarest sender of the window and 1 for the most frequent
  (0 where all are alike)
- 9: position of the last of them, divided by (W - 1)

`edge_attr` [11], where positions are those of the source's frame in the window, and W is its number of pairs:

- 0: count; 1: count / W; 2, 3: mean and standard deviation (of the population) of the gaps between positions, 0 where
  the edge occurs once; 4: 1 / (1 + that deviation); 5, 6: first and last position, divided by W; 7: the latter minus
  the former; 8: 1 if the reversed edge is there too (a loop is its own); 9, 10: product of the degrees of source and
  target, and the former divided by the latter. The degree counts edges that begin or end at a node, a loop twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.graph_set import offsets_of
from graphmill.tasks.intrusion.data.frames import NO_LABEL, Frames, joined

NODE_FEATURES: Final = (*(f"byte_{place}_mean" for place in range(8)), "count_scaled", "last_position")
EDGE_FEATURES: Final = (
    "count",
    "share",
    "gap_mean",
    "gap_std",
    "regularity",
    "first_position",
    "last_position",
    "span",
    "is_reciprocal",
    "degree_product",
    "degree_ratio",
)
_FRAMES_AT_ONCE: Final = 2**16  # of all windows of a step

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowGraphs:
    """Graphs of windows, one after another in flat arrays; nodes are counted within their graph, by rising id."""

    num_nodes: Ids
    """[num_graphs]"""
    num_edges: Ids
    """[num_graphs]"""
    node_ids: NDArray[np.uint32]
    """As in `Frames.id` [n]."""
    x: NDArray[np.float32]
    """[n, 10]"""
    edge_index: NDArray[np.int32]
    """Source and target of each edge [2, e], sorted by them within each graph."""
    edge_attr: NDArray[np.float32]
    """[e, 11]"""
    attack_share: NDArray[np.float32]
    """Share of frames that are attacks [num_graphs]; NaN: the capture has no labels."""
    times: NDArray[np.float64]
    """Time of the first and of the last frame [num_graphs, 2]."""
    first_frames: Ids
    """Where in the capture the window begins [num_graphs]."""

    def __len__(self) -> int:
        return len(self.num_nodes)

    def chosen(self, is_chosen: NDArray[np.bool_]) -> "WindowGraphs":
        """The graphs that `is_chosen` [num_graphs] selects."""
        of_nodes, of_edges = np.repeat(is_chosen, self.num_nodes), np.repeat(is_chosen, self.num_edges)
        return WindowGraphs(
            num_nodes=self.num_nodes[is_chosen],
            num_edges=self.num_edges[is_chosen],
            node_ids=self.node_ids[of_nodes],
            x=self.x[of_nodes],
            edge_index=self.edge_index[:, of_edges],
            edge_attr=self.edge_attr[of_edges],
            attack_share=self.attack_share[is_chosen],
            times=self.times[is_chosen],
            first_frames=self.first_frames[is_chosen],
        )

    def parts(self, num_graphs: int) -> Iterator["WindowGraphs"]:
        """The graphs in order, `num_graphs` at a time."""
        nodes, edges = offsets_of(self.num_nodes), offsets_of(self.num_edges)
        for first in range(0, len(self), num_graphs):
            last = min(first + num_graphs, len(self))
            here = slice(first, last)
            of_nodes, of_edges = slice(nodes[first], nodes[last]), slice(edges[first], edges[last])
            yield WindowGraphs(
                num_nodes=self.num_nodes[here],
                num_edges=self.num_edges[here],
                node_ids=self.node_ids[of_nodes],
                x=self.x[of_nodes],
                edge_index=self.edge_index[:, of_edges],
                edge_attr=self.edge_attr[of_edges],
                attack_share=self.attack_share[here],
                times=self.times[here],
                first_frames=self.first_frames[here],
            )

    @property
    def labels(self) -> NDArray[np.int8]:
        """Labels [num_graphs]: 1 where any frame is an attack, `NO_LABEL` where the capture does not say."""
        known = np.where(self.attack_share > 0, 1, 0)
        return np.where(np.isnan(self.attack_share), NO_LABEL, known).astype(np.int8)


@dataclass(slots=True)
class Leftover:
    """Frames after the last whole window: in no graph, or in a short one, where that was asked for.

    Frames between windows, where the stride is longer than a window, are none of them.
    """

    num_frames: int = 0


def joined_graphs(parts: list[WindowGraphs]) -> WindowGraphs:
    """All graphs of `parts`, at least one, in order."""
    return WindowGraphs(
        num_nodes=np.concatenate([part.num_nodes for part in parts]),
        num_edges=np.concatenate([part.num_edges for part in parts]),
        node_ids=np.concatenate([part.node_ids for part in parts]),
        x=np.concatenate([part.x for part in parts]),
        edge_index=np.concatenate([part.edge_index for part in parts], axis=1),
        edge_attr=np.concatenate([part.edge_attr for part in parts]),
        attack_share=np.concatenate([part.attack_share for part in parts]),
        times=np.concatenate([part.times for part in parts]),
        first_frames=np.concatenate([part.first_frames for part in parts]),
    )


def graphs_of(
    blocks: Iterable[Frames],
    leftover: Leftover,
    *,
    size: int = 100,
    stride: int = 100,
    keep_short: bool = False,
    held_frames: int = _FRAMES_AT_ONCE // 2,
) -> Iterator[WindowGraphs]:
    """Graphs of the windows of one capture that comes in blocks, some windows at a time.

    Blocks are held until they have `held_frames` frames: many windows at once are faster; 1 gives each window as soon
    as the frame behind it is there.

    Window w begins at frame w · stride. The frames after the last whole window are counted in `leftover`; with
    `keep_short` they are a window of their own, if they are two at least.
    """
    if size < 2 or stride < 1:
        raise ValueError(f"a window of {size} frames every {stride}: it needs two frames at least, and a stride of one")
    held: list[Frames] = []
    num_held, num_frames, skip = 0, 0, 0
    begin = 0  # of the next window, counted in the whole capture
    for block in blocks:
        if not len(block):
            continue
        held.append(block)
        num_held += len(block)
        num_frames += len(block)
        if num_held - skip < max(size + 1, held_frames):
            continue
        frames = joined(held)[skip:]
        count = max(0, (len(frames) - 1 - size) // stride + 1)  # one frame behind the end of each
        yield from _full_windows(frames, count, size, stride, begin)
        rest = frames[min(count * stride, len(frames)) :]
        skip = max(0, count * stride - len(frames))
        held, num_held, begin = [rest], len(rest), begin + count * stride
    frames = joined(held)[skip:]
    count = max(0, (len(frames) - size) // stride + 1)
    yield from _full_windows(frames, count, size, stride, begin)
    following = begin + count * stride
    done = following - stride + size if following else 0
    leftover.num_frames = max(0, num_frames - max(done, following))
    short = frames[count * stride :]
    if keep_short and leftover.num_frames and len(short) >= 2:
        yield _graphs(short, np.zeros(1, np.int64), len(short), following)


def _full_windows(frames: Frames, count: int, size: int, stride: int, begin: int) -> Iterator[WindowGraphs]:
    at_once = max(1, _FRAMES_AT_ONCE // size)
    for first in range(0, count, at_once):
        last = min(first + at_once, count)
        part = frames[first * stride : (last - 1) * stride + size + 1]
        yield _graphs(part, np.arange(last - first) * stride, size, begin + first * stride)


def _graphs(frames: Frames, begins: Ids, size: int, begin: int) -> WindowGraphs:
    """Graphs of the windows of `size` frames that begin at `begins`; `begin` is where `frames` begin in the capture."""
    made = _native.window_graphs(frames.id, frames.payload, begins, size)
    num_nodes, num_edges, node_ids, x, sources, targets, edge_attr = made
    label = frames.label[begins[:, None] + np.arange(size)]
    is_known = (label != NO_LABEL).all(axis=1)
    return WindowGraphs(
        num_nodes=num_nodes,
        num_edges=num_edges,
        node_ids=node_ids,
        x=x,
        edge_index=np.stack([sources, targets]),
        edge_attr=edge_attr,
        attack_share=np.where(is_known, (label == 1).mean(axis=1), np.nan).astype(np.float32),
        times=frames.time[np.stack([begins, begins + size - 1], axis=1)],
        first_frames=begins + begin,
    )
