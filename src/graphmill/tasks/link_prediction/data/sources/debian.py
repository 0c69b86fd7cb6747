"""Dependencies of Debian's packages by time: a link is there since the later of its two packages' release."""

from pathlib import Path

import numpy as np

from graphmill.graph.features import sparse
from graphmill.tasks.debian_packages import read_compact, read_shipped
from graphmill.tasks.link_prediction.data.splits import JoinedGraph


def read_dependencies(path: Path | None, name: str) -> JoinedGraph:
    """Read which package depends on which, from the file that ships with graphmill, or from another one.

    Learned from is what joins two packages of bullseye; an end of a val link is new in bookworm, of a test link later.
    """
    packages = read_shipped() if path is None else read_compact(path)
    release = packages.split[packages.edge_index].max(axis=0)  # of packages: 0 bullseye, 1 bookworm, 2 later
    place = "the file shipped with graphmill" if path is None else str(path)
    return JoinedGraph(
        edge_index=packages.edge_index,
        features=sparse(packages.x_indptr, packages.x_indices, packages.x_counts, packages.num_words),
        name=name,
        source=f"Debian package lists, dependencies: {place if path is None else path.name}",
        synthetic=False,
        origin={"edge_index": place},
        split=release.astype(np.int8),
        have_direction=True,
        node_names=packages.names,
        split_note="temporal: train in bullseye, val with an end new in bookworm, test with a later one",
    )
