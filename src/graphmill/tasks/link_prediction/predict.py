"""What a trained model says of links: of those of a split, of given pairs, and the best of given nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.splits import SPLITS, Split
from graphmill.sync.pause import never_pause
from graphmill.tasks.link_prediction.data.links import Links, concatenated
from graphmill.tasks.link_prediction.data.lists import LinkLists
from graphmill.tasks.link_prediction.judging import LinkJudge, RankedSide, pair_scores
from graphmill.tasks.link_prediction.nn.heads import AnyHead
from graphmill.tasks.task import Predictions

Ids = NDArray[np.int64]


def of_splits(judge: LinkJudge, splits: Sequence[Split], rows: Tensor, head: AnyHead) -> Predictions:
    """Score and rank of every link of some splits, whatever `task.val_limit` says."""
    found, names, ranks = [], [], []
    for split in splits:
        links = judge.store.links(split)
        found.append(links)
        names.append(np.full(len(links), split, dtype="U5"))
        of_split = judge.ranks(split, links, np.arange(len(links)), rows, head, never_pause)
        ranks.append(of_split.places.reshape(-1, len(links)))
    links = concatenated(found)
    values = {"split": np.concatenate(names), **_named(judge.store, links), "score": pair_scores(head, rows, links)}
    for side, name in enumerate(("rank", "rank_of_source")):
        if all(len(each) > side for each in ranks):
            values[name] = np.concatenate([each[side] for each in ranks])
    return Predictions({"link": np.arange(len(links))}, values)


def of_pairs(store: LinkLists, pairs: Mapping[str, Sequence[Any]], rows: Tensor, head: AnyHead) -> Predictions:
    """A score of each given pair."""
    links = read_links(store, pairs, ("source", "target"))
    values = {**_named(store, links), "score": pair_scores(head, rows, links)}
    return Predictions({"pair": np.arange(len(links))}, values)


def best_of(
    judge: LinkJudge, sources: Mapping[str, Sequence[Any]] | None, count: int, rows: Tensor, head: AnyHead
) -> Predictions:
    """The best targets of each source that no known link joins to it."""
    store, num_relations = judge.store, judge.task_plan.dataset.num_relations
    if sources is None and num_relations:
        raise UserError(
            f"links of {store.metadata.name} have relations, and --top is for a source and a relation",
            fix="give --pairs FILE with columns source and relation",
        )
    if sources is None:
        every = np.arange(len(rows))
        asked = Links(every, every)
    else:
        asked = read_links(store, sources, ("source",))
    side = RankedSide(head, rows, asked, of_targets=True, num_threads=judge.plan.threads)
    ids, scores = side.best(slice(0, len(asked)), judge.known_links(), min(count, len(rows)))
    is_there = (ids >= 0).reshape(-1)
    repeated = asked.taken(np.repeat(np.arange(len(asked)), ids.shape[1])[is_there])
    links = Links(repeated.sources, ids.reshape(-1)[is_there], repeated.relations)
    place = np.tile(np.arange(1, ids.shape[1] + 1), len(asked))[is_there]
    values = {**_named(store, links), "place": place, "score": scores.reshape(-1)[is_there]}
    return Predictions({"pair": np.arange(len(links))}, values)


def read_links(store: LinkLists, columns: Mapping[str, Sequence[Any]], ends: Sequence[str]) -> Links:
    """Links of columns of ids, or of names; with `ends` source alone the targets are the sources.

    Raises:
        UserError: a column is missing, or a value is no node or no relation.
    """
    relations = list(store.relation_names)
    wanted = [*ends, *(["relation"] if relations else [])]
    for name in wanted:
        if name not in columns:
            raise UserError(
                f"--pairs has no column {name!r}; {did_you_mean(name, list(columns))}",
                fix=f"give columns {', '.join(wanted)}",
            )
    known, found = None, {}
    for name in ends:
        if any(isinstance(value, str) for value in columns[name]) and known is None:
            known = {node: number for number, node in enumerate(store.names_of(range(store.metadata.num_nodes)))}
        found[name] = _numbers(columns[name], known or {}, store.metadata.num_nodes, f"{name} node")
    its = None
    if relations:
        its = _numbers(columns["relation"], {r: n for n, r in enumerate(relations)}, len(relations), "relation")
    return Links(found["source"], found.get("target", found["source"]), its)


def _numbers(values: Sequence[Any], names: Mapping[str, int], count: int, what: str) -> Ids:
    found = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        number = names.get(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
            close = did_you_mean(value, list(names)) if isinstance(value, str) else f"numbers run from 0 to {count - 1}"
            raise UserError(f"row {row} of --pairs: {value!r} is no {what}; {close}", fix="correct or drop that row")
        found[row] = number
    return found


def _named(store: LinkLists, links: Links) -> dict[str, NDArray[Any]]:
    """Columns of links: ids, and names where the data have some."""
    columns: dict[str, NDArray[Any]] = {"source": links.sources, "target": links.targets}
    if store.metadata.has_names:
        for name in ("source", "target"):
            columns[f"{name}_name"] = np.array(store.names_of(columns[name].tolist()), dtype=object)
    if links.relations is not None:
        columns["relation"] = np.array(store.relation_names, dtype=object)[links.relations]
    return columns


def known_splits(splits: Sequence[Split] | None) -> Sequence[Split]:
    """Splits that were asked for; None: all."""
    return SPLITS if splits is None else splits
