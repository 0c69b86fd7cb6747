"""Prepare a store under the dataset root from a raw dataset."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.features import FeatureDtype, SparseFeatures, stored_as
from graphmill.graph.typed import with_reverse
from graphmill.spec.targets import TargetKind
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.node_classification.data import several
from graphmill.tasks.node_classification.data.classes import class_counts, notes
from graphmill.tasks.node_classification.data.labelled import LabelledGraph, with_target
from graphmill.tasks.node_classification.data.sources.labels import random_split as draw_split
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, StoreMetadata, write_store
from graphmill.tasks.node_classification.page.data import GraphPrepareOptions
from graphmill.tasks.stores import Preparation, refuse_place, store_path

_log = logging.getLogger(__name__)

_MANY_LOOPS = 0.05  # of the edges: more are remarked upon
_NAMED = 5  # edge types that a remark names
_DOWNLOADS = ".downloads"  # under the dataset root; kept, so that --force does not download again


def prepare_requested(preparation: Preparation) -> LabelledGraphStore:
    """`prepare`, as the kind names it."""
    options = preparation.options
    assert isinstance(options, GraphPrepareOptions)
    return prepare(
        preparation.name,
        root=preparation.root,
        from_path=preparation.from_path,
        save_as=preparation.save_as,
        options=options.of_generator,
        feature_dtype=options.feature_dtype,
        random_split=options.random_split,
        split_seed=options.split_seed,
        typed=options.typed,
        reverse_relations=options.reverse_relations,
        self_loops=options.self_loops,
        target=options.target,
        force=preparation.force,
    )


def prepare(
    name: str,
    *,
    root: Path,
    from_path: Path | None = None,
    save_as: str | None = None,
    options: Mapping[str, Any] | None = None,
    feature_dtype: FeatureDtype | None = None,
    random_split: bool = False,
    split_seed: int = 0,
    typed: bool = True,
    reverse_relations: bool = False,
    self_loops: bool = True,
    target: TargetKind | None = None,
    force: bool = False,
) -> LabelledGraphStore:
    """Build the store `root/name` (or `root/save_as`), whole or not at all.

    `options` are the generator's (`synthetic/sbm`, `synthetic/rmat`). `feature_dtype` rounds dense features to a
    smaller format. `random_split` draws 60/20/20 with `split_seed` in place of the dataset's own split; if a dataset
    has none (`amazon/*`, `coauthor/*`) that is what it gets anyway. Types of edges and nodes are kept where the source
    has them, unless not `typed`; `reverse_relations` adds the other direction of each relation; without `self_loops`
    no edge joins a node to itself. `target` says what y must be; None: its shape does. A store that is there is kept
    if nothing but its name was asked for, and rebuilt with `force`.
    """
    path = store_path(save_as or name, root)
    refuse_place(path, root)
    if not force and (existing := _existing(path)) is not None:
        is_asked = from_path is not None or options or feature_dtype is not None or random_split or target is not None
        if is_asked or not typed or reverse_relations or not self_loops:
            raise UserError(
                f"{path} holds a prepared dataset", fix="rebuild it with --force, or keep both with --as NAME"
            )
        _log.info(f"{existing.metadata.name} is prepared already: {path}")
        return existing
    # Here and not above: planning a job opens a store in a blink, and polars alone takes longer than that to load.
    from graphmill.tasks.node_classification.data.read import ReadRequest, read_raw

    request = ReadRequest(
        name=name,
        stored_name=save_as or name,
        downloads=root / _DOWNLOADS,
        from_path=from_path,
        random_split=random_split,
        split_seed=split_seed,
        options=options or {},
    )
    raw = with_target(read_raw(request), target)
    if random_split:
        split, note = draw_split(raw.labels, split_seed)
        raw = replace(raw, split=split, split_note=note)
    if feature_dtype is not None:
        raw = replace(raw, features=_converted(raw, feature_dtype))
    raw = _with_requested_types(raw, typed=typed, reverse_relations=reverse_relations)
    store = write_store(raw if self_loops else _without_self_loops(raw), path)
    if store.metadata.scales_differ:
        _log.info(
            "features: their columns are of unlike scale, so runs standardise them unless dataset.features=as_stored"
        )
    for note in _notes_on_edges(store.metadata):
        _log.info(note)
    if not store.metadata.num_classes:
        _log.info(
            f"{store.metadata.name} has no labels: it can be inspected, partitioned and sampled"
            " (graphmill.NeighborLoader), and not be trained on"
        )
        return store
    for note in _notes_on_labels(store):
        _log.info(note)
    return store


def _notes_on_labels(store: LabelledGraphStore) -> Iterator[str]:
    labels, split, names = store.labels, store.array("split"), store.metadata.class_names
    if store.metadata.target_kind == "labels":
        return several.notes(several.label_counts(labels, split), labels, names)
    return notes(class_counts(labels, split, store.metadata.num_classes), labels, names)


def _with_requested_types(raw: LabelledGraph, *, typed: bool, reverse_relations: bool) -> LabelledGraph:
    if raw.types is not None and not typed:
        _log.info(f"not used: types of edges and nodes of {raw.name}, as asked (typed=false)")
        raw = replace(raw, types=None)
    return with_reverse(raw) if reverse_relations else raw


def _without_self_loops(raw: LabelledGraph) -> LabelledGraph:
    kept = np.flatnonzero(raw.edge_index[0] != raw.edge_index[1])
    _log.info(
        f"not used: {raw.edge_index.shape[1] - len(kept):,} self-loops of {raw.name}, as asked (self_loops=false)"
    )
    return replace(
        raw,
        edge_index=raw.edge_index[:, kept],
        edge_features=None if raw.edge_features is None else raw.edge_features[kept],
        types=None if raw.types is None else replace(raw.types, edge_type=raw.types.edge_type[kept]),
    )


def _notes_on_edges(known: StoreMetadata) -> Iterator[str]:
    """What edges carry, and what became of those that were given again."""
    loops = known.num_self_loops / known.num_edges
    if loops > _MANY_LOOPS:
        yield (
            f"self-loops: {known.num_self_loops:,} of {known.num_edges:,} edges ({100 * loops:.1f} %) join a node to"
            " itself, and are drawn as neighbours like any other. Without them: -o self_loops=false"
        )
    merged, features = known.num_duplicate_edges, plain_features(known.edge_features, known.relation_names)
    if known.edge_types:
        names = ", ".join(known.relation_names[:_NAMED])
        more = ", …" if len(known.edge_types) > _NAMED else ""
        yield (
            f"typed graph: {len(known.edge_types)} edge types ({names}{more}), node types"
            f" {', '.join(known.node_type_names)}; edges between the same two nodes are merged only if"
            f" they are of one type ({merged:,} were). model.kind=rgcn, rsage and hgt read the"
            " types, other models the edges alone. Without types: -o typed=false"
        )
    if features:
        of_first = f"; of {merged:,} edges that were given again, those of the first are kept" if merged else ""
        names = ", ".join(features)
        yield f"edge features {names}: dataset.edge_features gives them to models by dotted path{of_first}"


def _existing(path: Path) -> LabelledGraphStore | None:
    if not path.exists():
        return None
    try:
        return LabelledGraphStore.open(path)
    except UserError as error:
        _log.warning(f"the store at {path} is damaged and is built again: {error.message}")
        return None


def _converted(raw: LabelledGraph, dtype: FeatureDtype) -> Any:  # noqa: ANN401  # DenseFeatures; the raise narrows it
    if isinstance(raw.features, SparseFeatures):
        raise UserError(
            f"the features of {raw.name} are sparse, and sparse values are always float32",
            fix="leave the feature dtype out",
        )
    return stored_as(raw.features, dtype)
