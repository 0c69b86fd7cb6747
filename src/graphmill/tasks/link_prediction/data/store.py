"""Prepared links: the graph that vectors of nodes are computed from, and the links of each split."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.graph.header import Expected, damaged, seal, write_metadata
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.store import GraphStore
from graphmill.graph.topology import Topology, index_dtype
from graphmill.graph.typed import types_in_words
from graphmill.graph.verify import verify_graph
from graphmill.graph.write import new_store, write_all, write_graph
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.link_prediction.data.links import (
    JUDGED,
    Candidates,
    GivenCandidates,
    LinkGraph,
    Links,
    SharedCandidates,
    check_links,
    concatenated,
    is_among,
)
from graphmill.tasks.link_prediction.data.names import packed_names, unpacked_names
from graphmill.tasks.link_prediction.page import LinkInfo
from graphmill.tasks.link_prediction.page.data import NAME

_DRAWS: Final = 100  # of a pair that is no link, before it is given up


class LinkMetadata(GraphMetadata):
    """What prepared links say about themselves; counts of edges and of types of edges are of the message graph."""

    format_version: Literal[1] = 1
    split: str = Field(description="who drew the split")
    links: dict[Split, PositiveInt]
    links_have_direction: bool = Field(description="false: (u, v) and (v, u) are one link, and are there once")
    num_relations: NonNegativeInt = Field(
        description="the first so many edge types are the links' relations; 0: links have none"
    )
    candidates: Literal["all", "given", "shared"] = Field(
        description="what links of val and test are ranked among: all nodes, those given for each, or one pool of pairs"
    )

    def expected_arrays(self) -> Expected:
        """What the arrays of such data must be."""
        ids, rows = index_dtype(self.num_nodes).name, 3 if self.num_relations else 2
        expected = GraphMetadata.expected_arrays(self)
        for split, count in self.links.items():
            expected[f"{split}_links"] = (ids, (rows, count))
        for split in JUDGED if self.candidates != "all" else ():
            expected |= self._expected_candidates(split, ids)
        if self.has_names:
            expected["name_indptr"] = ("int64", (self.num_nodes + 1,))
            expected["name_bytes"] = ("uint8", (self._extent("name_bytes", 0),))
        return expected

    def _expected_candidates(self, split: Split, ids: str) -> Expected:
        if self.candidates == "shared":
            return {f"{split}_pool": (ids, (2, self._extent(f"{split}_pool", 1)))}
        ends = ["target", "source"] if f"{split}_source_candidates" in self.arrays else ["target"]
        names = [f"{split}_{end}_candidates" for end in ends]
        return {name: (ids, (self.links[split], self._extent(name, 1))) for name in names}

    def _extent(self, name: str, axis: int) -> int:
        """How far an array reaches whose own record alone says so."""
        record = self.arrays.get(name)
        return record.shape[axis] if record is not None and len(record.shape) > axis else 0

    @property
    def has_names(self) -> bool:
        """Whether nodes have names."""
        return "name_indptr" in self.arrays

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if set(self.links) != set(SPLITS):
            return f"links are of {sorted(self.links)}, and should be of {', '.join(SPLITS)}"
        if self.num_relations > len(self.edge_types):
            return f"{self.num_relations} relations, and {len(self.edge_types)} edge types"
        return GraphMetadata.disagreement(self)


@dataclass(frozen=True, slots=True)
class LinkStore(GraphStore):
    """Prepared links. Topology, features and types are those of the message graph."""

    metadata: LinkMetadata

    kind = NAME
    own_part = LinkMetadata

    def links(self, split: Split) -> Links:
        """The links of a split, copied into memory."""
        return Links.of(self.array(f"{split}_links"))

    def candidates(self, split: Split) -> Candidates | None:
        """What the links of a split are ranked among, mapped; None: all nodes. Training links have none."""
        if self.metadata.candidates == "all" or split not in JUDGED:
            return None
        if self.metadata.candidates == "shared":
            return SharedCandidates(self.array(f"{split}_pool"))
        has_sources = f"{split}_source_candidates" in self.metadata.arrays
        sources = self.array(f"{split}_source_candidates") if has_sources else None
        return GivenCandidates(self.array(f"{split}_target_candidates"), sources)

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """All nodes [num_nodes], whatever the split: a vector is computed of each."""
        del split
        return np.arange(self.metadata.num_nodes, dtype=np.int64)

    def non_links(self, split: Split) -> Links:
        """For each link of a split a pair with its source that is no link of any split; the same at each call.

        Where none was found, as for a node that is joined to all, the last that was drawn.
        """
        links, num_nodes = self.links(split), self.metadata.num_nodes
        every = concatenated([self.links(each) for each in SPLITS])
        rng = np.random.default_rng(SPLITS.index(split))
        targets, left = np.zeros(len(links), dtype=np.int64), np.arange(len(links))
        for _ in range(_DRAWS):
            targets[left] = rng.integers(0, num_nodes, len(left))
            drawn = Links(links.sources, targets, links.relations).taken(left)
            is_link = is_among(drawn, every, num_nodes, have_direction=self.metadata.links_have_direction)
            left = left[is_link | (drawn.sources == drawn.targets)]
            if not len(left):
                break
        return Links(links.sources, targets, links.relations)

    @property
    def relation_names(self) -> tuple[str, ...]:
        """Names of the links' relations, by number; none of links without."""
        return tuple(each.name for each in self.metadata.edge_types[: self.metadata.num_relations])

    def names_of(self, nodes: Iterable[int]) -> list[str]:
        """Names of these nodes; their ids as text if the data have no names."""
        if not self.metadata.has_names:
            return [str(node) for node in nodes]
        return unpacked_names(self.array("name_indptr"), self.array("name_bytes"), nodes)

    def verify(self) -> None:
        """Read everything: checksums of all files, then what the arrays promise. `UserError` names the first breach."""
        arrays = verify_graph(self.path, self.metadata)
        _verify_ids(self.path, self.metadata, arrays)
        _verify_disjoint(self)

    def info(self, asked: DatasetSpec) -> LinkInfo:
        """What the planner must know."""
        del asked  # whatever is done to features when they are read, the counts stay
        known = self.metadata
        return LinkInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=known.links["train"],
            num_nodes=known.num_nodes,
            num_edges=known.num_edges,
            num_features=known.num_features,
            num_relations=known.num_relations,
            links=dict(known.links),
            links_have_direction=known.links_have_direction,
            candidates=known.candidates,
            has_sparse_features=known.has_sparse_features,
            scales_differ=known.scales_differ,
            edge_features=known.edge_features,
            edge_types=known.relation_names,
            node_types=known.node_type_names,
            type_columns=known.type_columns,
        )

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
            ("ranked among", self._candidates_in_words()),
            ("edges of the message graph", known.num_edges),
            ("features", f"{known.num_features:,} ({form})" if known.num_features else "none"),
            *([("scales of features", "columns differ: standardised by default")] if known.scales_differ else []),
            *([("edge features", ", ".join(features))] if features else []),
            *types_in_words(known.node_types, known.edge_types),
            ("symmetric", known.is_symmetric),
            ("isolated nodes", known.num_isolated_nodes),
            ("self-loops", known.num_self_loops),
            ("names of nodes", known.has_names),
        ]

    def _candidates_in_words(self) -> str:
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
    own = metadata.expected_arrays().keys() - GraphMetadata.expected_arrays(metadata).keys()
    for name in sorted(own - {"name_indptr", "name_bytes"}):
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
    """No link of val or test is an edge that vectors are computed from."""
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
