"""Prepared captures: windows of frames as graphs, at rest in flat arrays, and what is known of each window."""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet, arrays_of_graphs
from graphmill.graph.header import Expected, Header
from graphmill.graph.keys import drawn
from graphmill.graph.prepared import PreparedStore
from graphmill.sample.budget import Budget, pack
from graphmill.tasks.intrusion.data.splits import SPLITS, UNUSED, refuse_shared_captures, split_by_time
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.page import KIND, CaptureDatasetSpec, CaptureInfo, DivisionSpec
from graphmill.tasks.intrusion.page.models import NUM_EDGE_FEATURES, NUM_FEATURES

NUM_COLUMNS: Final = 2 + NUM_FEATURES  # of x: the lower and the upper 16 bits of the id first


class CaptureFacts(BaseModel):
    """One capture of a store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="its path below what was given, by which patterns name it")
    fingerprint: str = Field(description="of its ids and payloads, in order")
    num_frames: int
    num_attacked: int = Field(description="frames that are attacks")
    num_windows: int
    num_left: int = Field(description="frames behind the last whole window")
    problems: str = Field(description="lines that gave no frame, by sort")


class CaptureMetadata(Header):
    """What prepared captures say about themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format_version: Literal["windows/1"] = "windows/1"
    source: str = Field(description="where the captures came from")
    window: PositiveInt
    stride: PositiveInt
    captures: tuple[CaptureFacts, ...]
    num_captures: PositiveInt
    num_graphs: PositiveInt
    num_attacked: NonNegativeInt = Field(description="windows with an attack")
    num_nodes: NonNegativeInt
    num_edges: NonNegativeInt
    max_nodes: NonNegativeInt = Field(description="of one window")
    max_edges: NonNegativeInt = Field(description="of one window")
    class_names: tuple[str, ...] = ("benign", "attack")

    def expected_arrays(self) -> Expected:
        """What the arrays must be."""
        graphs = self.num_graphs
        own: Expected = {
            "y": ("int64", (graphs,)),
            "attack_share": ("float32", (graphs,)),
            "times": ("float64", (graphs, 3)),
        }
        return arrays_of_graphs(graphs, self.num_nodes, self.num_edges, NUM_COLUMNS, NUM_EDGE_FEATURES) | own

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := super().disagreement():
            return problem
        counted = sum(each.num_windows for each in self.captures)
        if (counted, len(self.captures)) != (self.num_graphs, self.num_captures):
            return f"{len(self.captures)} captures have {counted} windows, and there are {self.num_graphs}"
        return None


@dataclass(frozen=True, slots=True)
class Windows:
    """What is to be written: the windows of all captures, one after another."""

    name: str
    source: str
    synthetic: bool
    window: int
    stride: int
    captures: tuple[CaptureFacts, ...]
    graphs: WindowGraphs
    attack_begins: NDArray[np.float64]
    """Seconds, of the first frame of a window that is an attack [num_graphs]; NaN: there is none."""


@dataclass(frozen=True, slots=True)
class CaptureStore(PreparedStore):
    """Prepared captures."""

    metadata: CaptureMetadata

    kind = KIND.name
    own_part = CaptureMetadata

    @property
    def graphs(self) -> GraphSet:
        """All windows, mapped."""
        return GraphSet.mapped(self.path, self.metadata.arrays)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels of the windows [num_graphs]; 1: a window with an attack."""
        return self.array("y")

    @property
    def attack_share(self) -> NDArray[np.float32]:
        """Share of a window's frames that are attacks [num_graphs]."""
        return self.array("attack_share")

    @property
    def times(self) -> NDArray[np.float64]:
        """Seconds of a window's first and last frame, and of its first attack [num_graphs, 3]; NaN: not known."""
        return self.array("times")

    @property
    def capture(self) -> NDArray[np.int64]:
        """The number of each window's capture, rising [num_graphs]."""
        counts = [each.num_windows for each in self.metadata.captures]
        return np.repeat(np.arange(len(counts)), counts)

    @property
    def first_frames(self) -> NDArray[np.int64]:
        """Where in its capture each window begins [num_graphs]."""
        counts = [each.num_windows for each in self.metadata.captures]
        return np.concatenate([np.arange(count) * self.metadata.stride for count in counts]).astype(np.int64)

    def windows(self) -> WindowGraphs:
        """All windows, edges in the order of their targets."""
        graphs = self.graphs
        num_nodes, num_edges = np.diff(graphs.node_offsets), np.diff(graphs.edge_offsets)
        in_degree = np.diff(graphs.first_in, append=0)
        last = graphs.node_offsets[1:][num_nodes > 0] - 1
        in_degree[last] = num_edges[num_nodes > 0] - graphs.first_in[last]
        places = np.arange(len(graphs.x)) - np.repeat(graphs.node_offsets[:-1], num_nodes)
        return WindowGraphs(
            num_nodes=num_nodes,
            num_edges=num_edges,
            node_ids=ids_of_columns(graphs.x),
            x=graphs.x[:, 2:],
            edge_index=np.stack([graphs.sources, np.repeat(places, in_degree).astype(np.int32)]),
            edge_attr=graphs.edge_attr,
            attack_share=self.attack_share,
            times=self.times[:, :2],
            first_frames=self.first_frames,
        )

    def split_codes(self, spec: DivisionSpec) -> NDArray[np.int8]:
        """Split of every window [num_graphs], a number in `SPLITS`, or `UNUSED`.

        Captures that `val_captures` or `test_captures` match are whole in that split; of others, that `train_captures`
        match, the shares count. Where test captures are named, nothing else is tested; likewise for validation.

        Raises:
            UserError: a pattern matches no capture, a capture is wanted twice, or two splits hold the same frames.
        """
        whole = self._split_of_captures(spec)
        capture, first = self.capture, self.first_frames
        train, val = spec.train_share, spec.val_share
        if spec.test_captures:
            train, val = train / (train + val), val / (train + val)
        if spec.val_captures:
            train, val = train / (1 - val) if not spec.test_captures else 1.0, 0.0
        counts = np.bincount(capture)[capture]
        place = np.arange(len(capture)) - np.searchsorted(capture, capture)
        stretch = capture * spec.blocks + place * spec.blocks // counts
        codes = split_by_time(stretch, first, first + self.metadata.window, (train, val))
        if spec.blocks > 1:
            codes[1:][(np.diff(codes) != 0) & (np.diff(capture) == 0)] = UNUSED
        for number, split in enumerate(whole):
            if split != "by time":
                codes[capture == number] = UNUSED if split == "unused" else SPLITS.index(split)
        return codes

    def _split_of_captures(self, spec: DivisionSpec) -> list[str]:
        names = [each.name for each in self.metadata.captures]
        wanted = {split: _matching(names, getattr(spec, f"{split}_captures"), split) for split in SPLITS}
        for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
            if both := sorted(wanted[one] & wanted[other]):
                raise UserError(
                    f"captures of dataset.{one}_captures and dataset.{other}_captures: {', '.join(both)}",
                    fix="name each in one of them",
                )
        found = []
        for name in names:
            split = next((each for each in ("val", "test") if name in wanted[each]), "by time")
            found.append("unused" if split == "by time" and wanted["train"] and name not in wanted["train"] else split)
        used = [row for row, split in enumerate(found) if split != "unused"]
        prints = [self.metadata.captures[row].fingerprint for row in used]
        refuse_shared_captures([names[row] for row in used], prints, [found[row] for row in used])
        return found

    def train_ids(self, spec: CaptureDatasetSpec) -> NDArray[np.int64]:
        """Ascending numbers of the windows that may be trained on."""
        split = "val" if spec.train_on == "validation" else "train"
        is_train = self.split_codes(spec) == SPLITS.index(split)
        if spec.train_on == "benign":
            is_train &= np.asarray(self.labels) == 0
        return np.flatnonzero(is_train).astype(np.int64, copy=False)

    def num_batches(
        self, spec: CaptureDatasetSpec, *, rng_seed: int, max_nodes: int, max_edges: int, ranks: int
    ) -> int:
        """`tasks.stores.CutsByBudget`."""
        ids = self.train_ids(spec)
        ids = drawn(ids, len(ids) if spec.train_limit is None else spec.train_limit, rng_seed)
        return pack(Budget(max_nodes, max_edges).costs_of(self.graphs, ids), ranks).num_batches

    def info(self, spec: CaptureDatasetSpec) -> CaptureInfo:
        """What the planner must know. `UserError` if a split is empty."""
        known, codes = self.metadata, self.split_codes(spec)
        num_train = len(self.train_ids(spec))
        counts = {"train": num_train} | {name: int((codes == SPLITS.index(name)).sum()) for name in SPLITS[1:]}
        if empty := [split for split in SPLITS if not counts[split]]:
            raise UserError(
                f"{known.name} has no window in {', '.join(empty)}",
                fix="set dataset.train_share and dataset.val_share, or the captures of each split, otherwise, or fewer"
                " dataset.blocks",
            )
        return CaptureInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=num_train,
            num_graphs=known.num_graphs,
            num_nodes=known.num_nodes,
            num_edges=known.num_edges,
            max_nodes=known.max_nodes,
            max_edges=known.max_edges,
            window=known.window,
            stride=known.stride,
            num_captures=known.num_captures,
            num_val=counts["val"],
            num_val_attacked=int(np.asarray(self.labels)[codes == SPLITS.index("val")].sum()),
        )

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known, codes, labels = self.metadata, self.split_codes(DivisionSpec()), np.asarray(self.labels)
        splits = ", ".join(
            f"{name} {int((codes == code).sum()):,} ({int(labels[codes == code].sum()):,} attacked)"
            for code, name in enumerate(SPLITS)
        )
        nodes, edges = np.diff(self.graphs.node_offsets), np.diff(self.graphs.edge_offsets)
        return [
            ("windows", f"{known.num_graphs:,} of {known.window} frames, every {known.stride}"),
            ("attacked", f"{known.num_attacked:,}"),
            (
                "nodes",
                f"{known.num_nodes:,}; {nodes.min()} to {nodes.max()} ids of a window, median {np.median(nodes):.0f}",
            ),
            (
                "edges",
                f"{known.num_edges:,}; {edges.min()} to {edges.max()} of a window, median {np.median(edges):.0f}",
            ),
            ("by time", splits),
            *[(f"capture {each.name}", _of_capture(each)) for each in known.captures],
        ]


def id_columns(node_ids: NDArray[np.uint32]) -> NDArray[np.float32]:
    """The lower and the upper 16 bits of ids, [n] → [n, 2]: float32 holds them, and not 32 bits."""
    return np.stack([node_ids & 0xFFFF, node_ids >> 16], axis=1).astype(np.float32)


def ids_of_columns(x: NDArray[np.float32]) -> NDArray[np.uint32]:
    """The inverse, of the first two columns of `x`."""
    return (x[:, 0].astype(np.uint32) | (x[:, 1].astype(np.uint32) << 16)).astype(np.uint32)


def write_windows(raw: Windows, path: Path) -> CaptureStore:
    """Write the folder `path`, whole or not at all; an existing store is replaced."""
    made = raw.graphs
    x = np.concatenate([id_columns(made.node_ids), made.x], axis=1)
    graphs = GraphSet.of(made.num_nodes, made.num_edges, made.edge_index, x, made.edge_attr)
    labels = np.nan_to_num(made.attack_share, nan=0.0) > 0
    own: dict[str, NDArray[Any]] = {
        "y": labels.astype(np.int64),
        "attack_share": np.nan_to_num(made.attack_share, nan=0.0),
        "times": np.concatenate([made.times, raw.attack_begins[:, None]], axis=1),
    }
    metadata = CaptureMetadata(
        kind=KIND.name,
        name=raw.name,
        synthetic=raw.synthetic,
        arrays={},
        source=raw.source,
        window=raw.window,
        stride=raw.stride,
        captures=raw.captures,
        num_captures=len(raw.captures),
        num_graphs=len(made),
        num_attacked=int(labels.sum()),
        num_nodes=int(made.num_nodes.sum()),
        num_edges=int(made.num_edges.sum()),
        max_nodes=int(made.num_nodes.max()),
        max_edges=int(made.num_edges.max()),
    )
    return CaptureStore.write(path, graphs.arrays | own, metadata)


def _matching(names: Iterable[str], patterns: Sequence[str], split: str) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matched = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
        if not matched:
            raise UserError(
                f"dataset.{split}_captures: no capture is called {pattern!r}",
                fix=f"there are {', '.join(list(names)[:20])}",
            )
        found |= matched
    return found


def _of_windows(sizes: NDArray[np.int64]) -> str:
    return f"{sizes.min():,} to {sizes.max():,} of a window, median {np.median(sizes):,.0f}"


def _of_capture(facts: CaptureFacts) -> str:
    words = f"{facts.num_frames:,} frames, {facts.num_attacked:,} of attacks; {facts.num_windows:,} windows"
    words += f", {facts.num_left} frames left" if facts.num_left else ""
    return words + (f"; {facts.problems}" if facts.problems else "")
