"""Which windows are trained on: split by time, and what is fitted on the training rows alone.

Neighbouring windows are never shuffled between splits: they are nearly the same, and a score would say nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.frames import Frames
from graphmill.tasks.intrusion.data.windows import Ids, WindowGraphs

SPLITS: Final = ("train", "val", "test")
UNUSED: Final = -1


def split_by_time(capture: Ids, first_frames: Ids, ends: Ids, shares: tuple[float, float]) -> NDArray[np.int8]:
    """Split of each window [num_graphs], a number in `SPLITS`: the first of every capture train, the last test.

    `capture` [num_graphs] numbers the capture of a window, `first_frames` and `ends` [num_graphs] are where in it the
    window begins and ends; `shares` are those of train and val. A window that overlaps one of an earlier split
    is `UNUSED`. Without overlap one id is shared: the target of a last pair is the first frame of the next window.
    """
    train, val = shares
    if not (train > 0 and val >= 0 and train + val <= 1):
        raise UserError(
            f"the shares of train and val are {train} and {val}", fix="give shares of 0 to 1, together 1 at most"
        )
    split = np.full(len(capture), UNUSED, np.int8)
    for number in np.unique(capture):  # captures are few
        rows = np.flatnonzero(capture == number)
        rows = rows[np.argsort(first_frames[rows], kind="stable")]
        bounds = [round(len(rows) * train), round(len(rows) * (train + val))]
        part = np.searchsorted(bounds, np.arange(len(rows)), side="right").astype(np.int8)
        for bound in bounds:
            if 0 < bound < len(rows):
                behind = (np.arange(len(rows)) >= bound) & (first_frames[rows] < ends[rows[bound - 1]])
                part[behind] = UNUSED
        split[rows] = part
    return split


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the training windows, and of no other."""

    vocabulary: NDArray[np.uint32]
    """The ids of training nodes, rising."""
    node_mean: NDArray[np.float32]
    node_std: NDArray[np.float32]
    """Of a feature that does not vary: 1."""
    edge_mean: NDArray[np.float32]
    edge_std: NDArray[np.float32]


def fit(graphs: WindowGraphs, is_training: NDArray[np.bool_]) -> Statistics:
    """Vocabulary, means and deviations of the graphs that `is_training` [num_graphs] selects: at least one."""
    if not is_training.any():
        raise UserError("no window is for training", fix="give train a larger share, or a capture")
    of_nodes = np.repeat(is_training, graphs.num_nodes)
    of_edges = np.repeat(is_training, graphs.num_edges)
    return Statistics(
        np.unique(graphs.node_ids[of_nodes]), *_moments(graphs.x[of_nodes]), *_moments(graphs.edge_attr[of_edges])
    )


def _moments(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    std = rows.std(axis=0, dtype=np.float64)
    return rows.mean(axis=0, dtype=np.float64).astype(np.float32), np.where(std > 0, std, 1).astype(np.float32)


def fingerprint(frames: Frames) -> str:
    """A hash of ids and payloads in their order: times and labels may differ where a capture was copied."""
    digest = xxhash.xxh3_128()
    for column in (frames.id, frames.length, frames.payload):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def refuse_shared_captures(names: Sequence[str], fingerprints: Sequence[str], splits: Sequence[str]) -> None:
    """`UserError` if two captures of different splits have the same frames."""
    first: dict[str, int] = {}
    clashes = []
    for row, each in enumerate(fingerprints):
        other = first.setdefault(each, row)
        if splits[other] != splits[row]:
            clashes.append(f"{names[other]} ({splits[other]}) and {names[row]} ({splits[row]})")
    if clashes:
        raise UserError(
            f"captures of different splits hold the same frames: {'; '.join(clashes)}",
            fix="leave one of each pair out, or put both into one split",
        )
