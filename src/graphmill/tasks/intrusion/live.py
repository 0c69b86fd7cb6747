"""Windows of a capture judged as their frames arrive, each with the ids and the edges that weigh most."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.graph_set import offsets_of
from graphmill.tasks.intrusion.data.captures import iterate_arriving
from graphmill.tasks.intrusion.data.frames import EXTENDED, Frames, Problems
from graphmill.tasks.intrusion.data.windows import Leftover, WindowGraphs, graphs_of
from graphmill.tasks.intrusion.threshold import tells
from graphmill.tasks.task import Verdict

_log = logging.getLogger(__name__)

MOST_CAUSES: Final = 5
"""Ids, and edges, that a verdict names."""
_AT_ONCE: Final = 8
"""Windows that are judged together: what is computed of them stays in the processor's caches."""


@dataclass(frozen=True, slots=True)
class CauseWeights:
    """What is unusual in graphs: zero or more each; only shares within a graph are reported."""

    of_nodes: NDArray[np.floating[Any]]
    """[n], in the order of `WindowGraphs`."""
    of_edges: NDArray[np.floating[Any]]
    """[e]"""
    missing: NDArray[np.floating[Any]]
    """Of pairs of ids, by how much they are less often in a graph than usual [num_graphs, num_pairs]."""
    pairs: NDArray[np.uint32]
    """The ids of these pairs [2, num_pairs]."""


@dataclass(slots=True)
class LiveWindows:
    """A detector (`tasks.task.Detector`) of windows of frames, by any scores. Causes are reported for alarms."""

    score: Callable[[WindowGraphs], NDArray[np.floating[Any]]]
    """Of each graph [num_graphs]."""
    attribute: Callable[[WindowGraphs], CauseWeights]
    """Asked of alarms alone: it may take longer than the score."""
    threshold: float | None
    size: int
    stride: int
    _problems: Problems = field(default_factory=Problems, init=False)
    _leftover: Leftover = field(default_factory=Leftover, init=False)
    _scores: list[float] = field(default_factory=list, init=False)
    _truths: list[bool | None] = field(default_factory=list, init=False)
    _used: float = field(default=0.0, init=False)
    _num_frames: int = field(default=0, init=False)
    _attacks: NDArray[np.int64] = field(default_factory=lambda: np.empty((2, 0), np.int64), init=False)
    """Frames that the capture calls attacks and that a window may still hold: their numbers, their ids [2, n]."""
    _named: list[bool] = field(default_factory=list, init=False)
    """Of right alarms: whether an id of the attack is among those that were named."""

    def verdicts(self, arriving: IO[bytes], source: str, *, layout: str, threshold: float) -> Iterator[Verdict]:
        """Verdict of each window that is whole; the window after the last of them is not judged."""
        self._used = threshold
        blocks = iterate_arriving(arriving, source, self._problems, layout, self._num_missing)
        frames = self._telling(blocks, source)
        for graphs in graphs_of(frames, self._leftover, size=self.size, stride=self.stride, held_frames=1):
            for part in graphs.parts(_AT_ONCE):
                yield from self._judged(part, threshold)

    def notes(self) -> Iterator[str]:
        """How many windows and alarms, how right they were where the capture says, and what was not judged."""
        scores = np.array(self._scores)
        yield f"{len(scores):,} windows, {int((scores >= self._used).sum()):,} alarms (score {self._used:.6g} or more)"
        known = np.array([truth is not None for truth in self._truths], bool)
        if known.any():
            truths = np.array([bool(truth) for truth in self._truths])
            measures = tells(scores[known], truths[known], self._used)
            yield "by the labels of the capture: " + ", ".join(
                f"{name} {value:.4f}" for name, value in measures.items()
            )
        if self._named:
            yield (
                f"an attacked id is among the {MOST_CAUSES} first ids of {sum(self._named):,} of {len(self._named):,}"
                f" right alarms ({np.mean(self._named):.1%})"
            )
        if self._leftover.num_frames:
            yield f"{self._leftover.num_frames} frames behind the last whole window of {self.size} are not judged"
        if self._problems.counts:
            yield f"lines with problems: {self._problems}"

    def _telling(self, blocks: Iterator[Frames], source: str) -> Iterator[Frames]:
        """Pass on `blocks`; each sort of problem is reported when it first occurs, for a stream may never end."""
        told: set[str] = set()
        for frames in blocks:
            attacked = np.flatnonzero(frames.label == 1)
            held = self._attacks[:, self._attacks[0] >= len(self._scores) * self.stride]
            self._attacks = np.hstack([held, [attacked + self._num_frames, frames.id[attacked]]])
            self._num_frames += len(frames)
            for kind in self._problems.counts.keys() - told:
                told.add(kind)
                _log.warning(f"{source}, line {self._problems.first_lines[kind]}: {kind}; further ones are counted")
            yield frames

    def _num_missing(self) -> int:
        """Frames until the next window can be judged: to its end, and one behind it."""
        return max(1, len(self._scores) * self.stride + self.size + 1 - self._num_frames)

    def _judged(self, graphs: WindowGraphs, threshold: float) -> Iterator[Verdict]:
        scores = np.asarray(self.score(graphs), np.float64)
        is_alarm = scores >= threshold
        causes = self._attributions(graphs.chosen(is_alarm)) if is_alarm.any() else iter(())
        for row, truth in enumerate(graphs.labels.tolist()):
            number = len(self._scores)
            self._scores.append(float(scores[row]))
            self._truths.append(bool(truth) if truth >= 0 else None)
            found = next(causes) if is_alarm[row] else {}
            if is_alarm[row] and truth == 1:
                self._named.append(not self._attacked(number).isdisjoint(name for name, _ in found["ids"]))
            yield Verdict(
                number=number,
                begin_s=float(graphs.times[row, 0]),
                end_s=float(graphs.times[row, 1]),
                score=self._scores[-1],
                is_alarm=bool(is_alarm[row]),
                is_attack=self._truths[-1],
                attributions=found,
            )

    def _attacked(self, number: int) -> set[str]:
        """Ids that the capture calls attacks in a window."""
        begin = number * self.stride
        here = slice(*np.searchsorted(self._attacks[0], [begin, begin + self.size]))
        return {id_text(identity) for identity in np.unique(self._attacks[1, here]).astype(np.uint32)}

    def _attributions(self, graphs: WindowGraphs) -> Iterator[dict[str, list[tuple[str, float]]]]:
        weights = self.attribute(graphs)
        nodes, edges = offsets_of(graphs.num_nodes), offsets_of(graphs.num_edges)
        for row in range(len(graphs)):
            ids = graphs.node_ids[nodes[row] : nodes[row + 1]]
            ends = ids[graphs.edge_index[:, edges[row] : edges[row + 1]]]
            of_nodes = weights.of_nodes[nodes[row] : nodes[row + 1]]
            yield {
                "ids": [(id_text(ids[at]), share) for at, share in _heaviest(of_nodes)],
                "edges": _named(ends, weights.of_edges[edges[row] : edges[row + 1]]),
                "missing": _named(weights.pairs, weights.missing[row]),
            }


def id_text(identity: np.uint32) -> str:
    """Write an id as candump does: three digits, or eight of a 29-bit id."""
    plain = int(identity & ~EXTENDED)
    return f"{plain:08X}" if identity & EXTENDED else f"{plain:03X}"


def _named(ends: NDArray[np.uint32], weights: NDArray[np.floating[Any]]) -> list[tuple[str, float]]:
    """The heaviest of pairs of ids [2, n], and their shares."""
    return [(f"{id_text(ends[0, at])}>{id_text(ends[1, at])}", share) for at, share in _heaviest(weights)]


def _heaviest(weights: NDArray[np.floating[Any]]) -> Iterator[tuple[np.int64, float]]:
    """Places of the largest of `weights` [n], the first of equals first, and their shares; none that is 0."""
    own = np.asarray(weights, np.float64)
    for at in np.argsort(-own, kind="stable")[:MOST_CAUSES]:
        if own[at] > 0:
            yield at, round(float(own[at] / own.sum()), 4)
