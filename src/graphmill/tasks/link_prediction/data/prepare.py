"""Prepare a store under the dataset root from raw links."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures, stored_as
from graphmill.graph.splits import SPLITS
from graphmill.graph.typed import with_reverse
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.link_prediction.data.leaks import notes_on, without_leaks
from graphmill.tasks.link_prediction.data.links import LinkGraph, Links
from graphmill.tasks.link_prediction.data.lists import LinkMetadata
from graphmill.tasks.link_prediction.data.splits import JoinedGraph, split_as_requested
from graphmill.tasks.link_prediction.data.store import LinkStore, write_links
from graphmill.tasks.link_prediction.page.data import LinkPrepareOptions
from graphmill.tasks.stores import Preparation, refuse_place, store_path

_log = logging.getLogger(__name__)
_NAMED = 5  # relations that a remark names


def prepare_requested(preparation: Preparation) -> LinkStore:
    """Build the store that is asked for, whole or not at all; an existing one is kept, unless `force`."""
    options = preparation.options
    assert isinstance(options, LinkPrepareOptions)
    stored = preparation.save_as or preparation.name
    path = store_path(stored, preparation.root)
    refuse_place(path, preparation.root)
    if not preparation.force and (existing := _existing(path)) is not None:
        if preparation.from_path is not None or options.model_fields_set:
            raise UserError(
                f"{path} holds a prepared dataset", fix="rebuild it with --force, or keep both with --as NAME"
            )
        _log.info(f"{stored} is prepared already: {path}")
        return existing
    # Here and not above: planning a job opens a store in a blink, and polars alone takes longer than that to load.
    from graphmill.tasks.link_prediction.data.read import LinkRequest, read_links

    raw = read_links(LinkRequest(preparation.name, stored, preparation.from_path, options, preparation.root))
    links, notes = without_leaks(_with_split(raw, options))
    if options.feature_dtype is not None:
        if isinstance(links.features, SparseFeatures):
            raise UserError(
                f"the features of {stored} are sparse, and sparse values are always float32",
                fix="leave the feature dtype out",
            )
        links = replace(links, features=stored_as(links.features, options.feature_dtype))
    if options.reverse_relations:
        links = with_reverse(links)
    store = write_links(links, path)
    for note in (*notes, *notes_on(links), *_notes_on_store(store.metadata)):
        _log.info(note)
    return store


def _with_split(raw: LinkGraph | JoinedGraph, options: LinkPrepareOptions) -> LinkGraph:
    """Typed and split as asked."""
    if options.random_split and options.time_split:
        raise UserError("random_split and time_split are both set", fix="set one of them")
    if raw.types is not None and not options.typed:
        _log.info(f"not used: relations of links and types of nodes of {raw.name}, as asked (typed=false)")
        raw = replace(raw, types=None)
        if isinstance(raw, LinkGraph):
            bare = {split: Links(each.sources, each.targets) for split, each in raw.links.items()}
            raw = replace(raw, links=bare, num_relations=0)
    if isinstance(raw, JoinedGraph):
        if raw.synthetic and not (options.random_split or options.time_split):
            options = options.model_copy(update={"random_split": True})  # it has no other
        return split_as_requested(raw, options)
    if options.random_split or options.time_split:
        raise UserError(
            f"{raw.name} has links of train, val and test of its own",
            fix="leave random_split and time_split out, or give its edges alone",
        )
    return raw


def _notes_on_store(known: LinkMetadata) -> Iterator[str]:
    counts = ", ".join(f"{split} {known.links[split]:,}" for split in SPLITS)
    arrows = "with direction" if known.links_have_direction else "without direction: (u, v) and (v, u) are one link"
    yield f"links: {counts} ({known.split}), {arrows}"
    yield (
        f"message graph: {known.num_edges:,} edges, {known.num_duplicate_edges:,} repeated ones merged,"
        f" {known.num_self_loops:,} self-loops"
    )
    if known.scales_differ:
        yield "features: their columns are of unlike scale, so runs standardise them unless dataset.features=as_stored"
    if known.num_relations:
        names = ", ".join(each.name for each in known.edge_types[: min(_NAMED, known.num_relations)])
        more = ", …" if known.num_relations > _NAMED else ""
        yield f"relations: {known.num_relations} ({names}{more}). Links without: -o typed=false"
    if features := plain_features(known.edge_features, known.relation_names):
        yield f"edge features: {', '.join(features)}"


def _existing(path: Path) -> LinkStore | None:
    if not path.exists():
        return None
    try:
        return LinkStore.open(path)
    except UserError as error:
        _log.warning(f"the store at {path} is damaged and is built again: {error.message}")
        return None
