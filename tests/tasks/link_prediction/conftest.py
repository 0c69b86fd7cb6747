"""Small prepared links, written without a reader."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.graph.features import DenseFeatures
from graphmill.tasks.link_prediction.data.links import GivenCandidates, LinkGraph, Links, SharedCandidates
from graphmill.tasks.link_prediction.data.store import LinkStore, write_links

NODES = 120


def write_small(path: Path, *, have_direction: bool = True, seed: int = 0, candidates: str = "") -> LinkStore:
    """Nodes on a circle, joined to near ones; features say where on the circle."""
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
    raw = LinkGraph(
        edge_index=parts["train"],
        features=DenseFeatures(x, "float32"),
        name=path.name,
        source="test",
        synthetic=True,
        links={split: Links(*its) for split, its in parts.items()},
        links_have_direction=have_direction,
        split_note="random",
        candidates=given,
    )
    return write_links(raw, path)


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """A dataset root with `circle`."""
    root = tmp_path_factory.mktemp("links")
    write_small(root / "circle")
    write_small(root / "given", candidates="given")
    write_small(root / "shared", candidates="shared")
    return root
