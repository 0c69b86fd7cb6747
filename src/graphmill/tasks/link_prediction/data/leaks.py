"""What a split must not have: a link of val or test that is learned from, or that vectors are computed from."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import SPLITS, Split
from graphmill.tasks.link_prediction.data.links import (
    JUDGED,
    LinkGraph,
    check_arrays_of_links,
    concatenated,
    first_of_each,
    is_among,
    message_links,
)


def without_leaks(raw: LinkGraph) -> tuple[LinkGraph, list[str]]:
    """The graph without repeated links, and without links of val and test among those of train and message edges.

    Returns:
        The graph, and what was left out, in words.

    Raises:
        UserError: nodes, links or candidates do not fit together.
    """
    check_arrays_of_links(raw)
    notes: list[str] = []
    raw = _each_once(raw, notes)
    held = concatenated([raw.links[split] for split in JUDGED])
    directed = raw.links_have_direction
    leaks = is_among(raw.links["train"], held, raw.num_nodes, have_direction=directed)
    if leaks.any():
        notes.append(f"{_counted(leaks)} training links are links of val or test, too: not learned from")
        raw = _with_links(raw, "train", ~leaks)
    if (also := is_among(raw.links["test"], raw.links["val"], raw.num_nodes, have_direction=directed)).any():
        notes.append(f"{_counted(also)} test links are val links, too: kept in both")
    leaks = is_among(message_links(raw), held, raw.num_nodes, have_direction=directed)
    if leaks.any():
        notes.append(f"{_counted(leaks)} message edges are links of val or test: left out of the message graph")
        raw = _with_edges(raw, np.flatnonzero(~leaks))
    return raw, notes


def notes_on(raw: LinkGraph) -> Iterator[str]:
    """What is worth knowing of links and of nodes: those that no message reaches."""
    loops = {split: int(np.count_nonzero(raw.links[split].sources == raw.links[split].targets)) for split in SPLITS}
    if any(loops.values()):
        counts = ", ".join(f"{split} {count:,}" for split, count in loops.items())
        yield f"self-loops: links from a node to itself: {counts}"
    touched = np.zeros(raw.num_nodes, dtype=np.bool_)
    touched[raw.edge_index.reshape(-1)] = True
    bare = raw.num_nodes - np.count_nonzero(touched)
    if bare:
        ends = np.concatenate([raw.links[split].ends for split in JUDGED], axis=1)
        unreached = np.count_nonzero(~touched[ends].all(axis=0))
        yield (
            f"nodes without message edges: {bare:,} of {raw.num_nodes:,}; {unreached:,} links of val and test end at"
            " one, and are told by features alone"
        )


def _each_once(raw: LinkGraph, notes: list[str]) -> LinkGraph:
    repeated = {}
    for split in SPLITS:
        rows = first_of_each(raw.links[split], raw.num_nodes, have_direction=raw.links_have_direction)
        if len(rows) < len(raw.links[split]):
            repeated[split] = len(raw.links[split]) - len(rows)
            raw = _with_links(raw, split, rows)
    if repeated:
        counts = ", ".join(f"{split} {count:,}" for split, count in repeated.items())
        notes.append(f"repeated links were merged: {counts}")
    return raw


def _with_links(raw: LinkGraph, split: Split, rows: NDArray[np.int64] | NDArray[np.bool_]) -> LinkGraph:
    candidates = dict(raw.candidates)
    if split in candidates:
        candidates[split] = candidates[split].taken(rows)
    return replace(raw, links={**raw.links, split: raw.links[split].taken(rows)}, candidates=candidates)


def _with_edges(raw: LinkGraph, rows: NDArray[np.int64]) -> LinkGraph:
    return replace(
        raw,
        edge_index=raw.edge_index[:, rows],
        edge_features=None if raw.edge_features is None else raw.edge_features[rows],
        types=None if raw.types is None else replace(raw.types, edge_type=raw.types.edge_type[rows]),
    )


def _counted(mask: NDArray[np.bool_]) -> str:
    return f"{np.count_nonzero(mask):,} of {len(mask):,}"
