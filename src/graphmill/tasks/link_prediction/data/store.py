"""Prepared links: the graph that vectors of nodes are computed from, and the links of each split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.header import damaged, seal, write_metadata
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.splits import SPLITS
from graphmill.graph.store import GraphStore
from graphmill.graph.topology import Topology, index_dtype
from graphmill.graph.typed import describe_types
from graphmill.graph.verify import verify_graph
from graphmill.graph.write import new_store, write_all, write_graph
from graphmill.partition.methods.files import row_blocks
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.link_prediction.data.links import (
    JUDGED,
    LinkGraph,
    Links,
    SharedCandidates,
    check_links,
    is_among,
)
from graphmill.tasks.link_prediction.data.lists import OTHER_EDGES, LinkLists, LinkMetadata, link_info, packed_names
from graphmill.tasks.link_prediction.page import LinkInfo
from graphmill.tasks.link_prediction.page.data import NAME

_ENTRIES_AT_A_TIME: Final = 2**22  # that are looked up among the training links


@dataclass(frozen=True, slots=True)
class LinkStore(GraphStore, LinkLists):
    """Prepared links. Topology, features and types are those of the message graph."""

    metadata: LinkMetadata

    kind = NAME
    own_part = LinkMetadata

    def known_edges(self) -> NDArray[np.int64]:
        """All edges of the message graph."""
        return _edges_as_links(self).ends

    def seeds_of_nodes(self) -> NDArray[np.uint32]:
        """Training links that begin at each node [num_nodes]."""
        sources = self.array("train_links")[0]
        return np.bincount(sources, minlength=self.metadata.num_nodes).astype(np.uint32)

    def lists(self) -> Mapping[str, NDArray[Any] | None]:
        """Links, candidates, names; and the message edges that are no training links: no negative may be one."""
        known, learnt, topology = self.metadata, Links.of(self.links("train").ends), self.topology(undirected=False)
        others = [np.empty((2, 0), dtype=np.int64)]
        for start, stop in row_blocks(topology.indptr, _ENTRIES_AT_A_TIME):
            rows = np.repeat(np.arange(start, stop), np.diff(topology.indptr[start : stop + 1]))
            sources = topology.indices[topology.indptr[start] : topology.indptr[stop]]
            edges = Links.of(np.stack([sources, rows]))
            is_learnt = is_among(edges, learnt, known.num_nodes, have_direction=known.links_have_direction)
            others.append(edges.ends[:, ~is_learnt])
        unlearnt = np.concatenate(others, axis=1).astype(index_dtype(known.num_nodes))
        return {**dict.fromkeys(known.expected_lists()), OTHER_EDGES: unlearnt}

    def verify(self) -> None:
        """Read everything: checksums of all files, then what the arrays promise. `UserError` names the first breach."""
        arrays = verify_graph(self.path, self.metadata)
        _verify_ids(self.path, self.metadata, arrays)
        _verify_disjoint(self)

    def info(self, spec: DatasetSpec) -> LinkInfo:
        """What the planner must know."""
        del spec  # whatever is done to features when they are read, the counts stay
        known = self.metadata
        return link_info(self.path, known, has_sparse_features=known.has_sparse_features, num_parts=None)

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known = self.metadata
        form = "sparse" if known.has_sparse_features else known.feature_dtype
        features = plain_features(known.edge_features, known.relation_names)
        links = ", ".join(f"{split} {known.links[split]:,}" for split in SPLITS)
        return [
            ("nodes", known.num_nodes),
            ("links", f"{links} ({known.split})"),
            ("links have direction", known.links_have_direction),
            *([("relations", known.num_relations)] if known.num_relations else []),
            ("ranked among", self._candidates_text()),
            ("edges of the message graph", known.num_edges),
            ("features", f"{known.num_features:,} ({form})" if known.num_features else "none"),
            *([("scales of features", "columns differ: standardised by default")] if known.scales_differ else []),
            *([("edge features", ", ".join(features))] if features else []),
            *describe_types(known.node_types, known.edge_types),
            ("symmetric", known.is_symmetric),
            ("isolated nodes", known.num_isolated_nodes),
            ("self-loops", known.num_self_loops),
            ("names of nodes", known.has_names),
        ]

    def _candidates_text(self) -> str:
        known = self.metadata
        if known.candidates == "all":
            return "all nodes, other known links left out"
        if known.candidates == "shared":
            counts = ", ".join(f"{split} {known.arrays[f'{split}_pool'].shape[1]:,}" for split in JUDGED)
            return f"a pool of pairs: {counts}"
        per_link = known.arrays["val_target_candidates"].shape[1]
        both = " for its target, and as many for its source" if "val_source_candidates" in known.arrays else ""
        return f"{per_link:,} nodes given for each link{both}"


def write_links(raw: LinkGraph, path: Path) -> LinkStore:
    """Check `raw`, build its topologies and write the folder `path`, whole or not at all.

    A store that is there is replaced. Leftovers of writers that were killed are removed.
    """
    check_links(raw)
    with new_store(path) as folder:
        known = write_graph(raw, folder, NAME)
        own = write_all(folder, _own_arrays(raw))
        of_graph = {name: getattr(known, name) for name in GraphMetadata.model_fields}
        metadata = LinkMetadata(
            **{**of_graph, "arrays": known.arrays | own},
            split=raw.split_note,
            links={split: len(raw.links[split]) for split in SPLITS},
            links_have_direction=raw.links_have_direction,
            num_relations=raw.num_relations,
            candidates=_kind_of_candidates(raw),
        )
        sealed = seal(metadata)
        write_metadata(folder, sealed)
    return LinkStore(path, sealed)


def _kind_of_candidates(raw: LinkGraph) -> Literal["all", "given", "shared"]:
    if not raw.candidates:
        return "all"
    return "shared" if isinstance(raw.candidates["val"], SharedCandidates) else "given"


def _own_arrays(raw: LinkGraph) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {f"{split}_links": raw.links[split].columns for split in SPLITS}
    for split, given in raw.candidates.items():
        if isinstance(given, SharedCandidates):
            arrays[f"{split}_pool"] = given.pairs
            continue
        arrays[f"{split}_target_candidates"] = given.targets
        if given.sources is not None:
            arrays[f"{split}_source_candidates"] = given.sources
    ids = index_dtype(raw.num_nodes)
    arrays = {name: array.astype(ids) for name, array in arrays.items()}
    return arrays | (packed_names(raw.node_names) if raw.node_names else {})


def _verify_ids(folder: Path, metadata: LinkMetadata, arrays: dict[str, NDArray[Any]]) -> None:
    """Links and candidates name nodes and relations that are there; names lie one after the other."""
    for name in sorted(metadata.expected_lists().keys() - {"name_indptr", "name_bytes"}):
        ids, array = arrays[name][:2] if name.endswith("_links") else arrays[name], arrays[name]
        if ids.size and not 0 <= ids.min() <= ids.max() < metadata.num_nodes:
            raise damaged(folder / f"{name}.npy", f"it names node {ids.max()} of {metadata.num_nodes}, or one below 0")
        if (
            len(array) == 3
            and name.endswith("_links")
            and not 0 <= array[2].min() <= array[2].max() < metadata.num_relations
        ):
            raise damaged(folder / f"{name}.npy", f"it names a relation that is not one of {metadata.num_relations}")
    if metadata.has_names:
        indptr = arrays["name_indptr"]
        if indptr[0] != 0 or indptr[-1] != len(arrays["name_bytes"]) or (np.diff(indptr) < 0).any():
            raise damaged(folder / "name_indptr.npy", "it does not say where names begin")


def _verify_disjoint(store: LinkStore) -> None:
    """Verify that no link of val or test is an edge that vectors are computed from."""
    known, read = store.metadata, _edges_as_links(store)
    for split in JUDGED:
        also = is_among(store.links(split), read, known.num_nodes, have_direction=known.links_have_direction)
        if also.any():
            raise damaged(
                store.path / f"{split}_links.npy", f"link {int(np.argmax(also))} is an edge of the message graph"
            )


def _edges_as_links(store: LinkStore) -> Links:
    topology: Topology = store.topology(undirected=False)
    sources = topology.indices.astype(np.int64, copy=False)
    targets = np.repeat(np.arange(topology.num_nodes, dtype=np.int64), np.diff(topology.indptr))
    if not store.metadata.num_relations:
        return Links(sources, targets)
    return Links(sources, targets, store.array("edge_attr")[:, -1].astype(np.int64))
