"""Small prepared links, written without a reader."""

from pathlib import Path

import numpy as np
import pytest
from labelled_stores import split_made

from graphmill.graph.features import DenseFeatures
from graphmill.graph.typed import RawTypes, Relation
from graphmill.tasks.link_prediction.data.links import GivenCandidates, LinkGraph, Links, SharedCandidates
from graphmill.tasks.link_prediction.data.store import LinkStore, write_links

NODES = 120


def write_small(
    path: Path, *, have_direction: bool = True, seed: int = 0, candidates: str = "", typed: bool = False
) -> LinkStore:
    """Nodes on a circle, joined to near ones; features say where on the circle.

    `typed`: with two relations. Without `have_direction` some nodes have a message edge across, which is no link.
    """
    rng = np.random.default_rng(seed)
    angle = np.arange(NODES) * 2 * np.pi / NODES
    sources = rng.integers(0, NODES, 1500)
    targets = (sources + rng.integers(1, 9, 1500)) % NODES
    pairs = np.unique(np.stack([sources, targets]), axis=1)
    pairs = pairs[:, rng.permutation(pairs.shape[1])]
    parts = {"val": pairs[:, :60], "test": pairs[:, 60:130], "train": pairs[:, 130:]}
    x = np.stack([np.cos(angle), np.sin(angle), rng.normal(size=NODES)], axis=1).astype(np.float32)
    given = {
        "": {},
        "given": {
            split: GivenCandidates(*(rng.integers(0, NODES, (parts[split].shape[1], 9)) for _ in range(2)))
            for split in ("val", "test")
        },
        "shared": {split: SharedCandidates(rng.integers(0, NODES, (2, 200))) for split in ("val", "test")},
    }[candidates]
    of_link = {split: its.sum(axis=0) % 2 for split, its in parts.items()}
    types = RawTypes(
        node_type=np.zeros(NODES, np.int8),
        node_names=("node",),
        edge_type=of_link["train"],
        relations=(Relation("node", "even", "node"), Relation("node", "odd", "node")),
    )
    across = np.stack([np.arange(0, NODES, 9), np.arange(0, NODES, 9) + NODES // 2]) % NODES
    raw = LinkGraph(
        edge_index=parts["train"] if have_direction else np.concatenate([parts["train"], across], axis=1),
        features=DenseFeatures(x, "float32"),
        name=path.name,
        source="test",
        synthetic=True,
        links={split: Links(*its, of_link[split] if typed else None) for split, its in parts.items()},
        num_relations=2 if typed else 0,
        types=types if typed else None,
        links_have_direction=have_direction,
        split_note="random",
        candidates=given,
    )
    return write_links(raw, path)


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """A dataset root with `circle` and others, each whole and in three parts."""
    root = tmp_path_factory.mktemp("links")
    write_small(root / "circle")
    write_small(root / "given", candidates="given")
    write_small(root / "shared", candidates="shared")
    write_small(root / "typed", typed=True)
    write_small(root / "mutual", have_direction=False)
    for store in map(LinkStore.open, sorted(root.iterdir())):
        split_made(store, root / "parts" / store.metadata.name / "3-ldg")
    return root
