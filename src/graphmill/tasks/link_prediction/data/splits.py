"""Split a graph whose edges are the links: a message graph, and the links of each split: given, at random, by time."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.graph.raw import RawGraph, check_raw_graph, refusal
from graphmill.graph.splits import SPLIT_CODES, SPLITS
from graphmill.graph.topology import edge_keys, undirected_keys
from graphmill.tasks.link_prediction.data.links import LinkGraph, Links, identities, is_among
from graphmill.tasks.link_prediction.page.data import LinkPrepareOptions

Codes = NDArray[np.int8]
_TRAIN, _VAL, _TEST = (SPLIT_CODES[split] for split in SPLITS)
_HIGH: Final = np.uint64(32)  # bits of a node id: a pair's key is the same whatever the number of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedGraph(RawGraph):
    """A graph in memory whose edges are the links of all splits, not yet checked. `types`: the links' relations.

    `origin` may also have "times", "split" and "names".
    """

    split: Codes | None = None  # [num_edges] SPLIT_CODES; None: the source has no split
    times: NDArray[Any] | None = None  # [num_edges] since when each link is there
    have_direction: bool | None = None  # None: the source does not say
    node_names: tuple[str, ...] = ()
    split_note: str = "as given"

    @property
    def all_links(self) -> Links:
        """The edges, with their types as relations."""
        edges = self.edge_index.astype(np.int64, copy=False)
        relations = None if self.types is None else self.types.edge_type.astype(np.int64, copy=False)
        return Links(edges[0], edges[1], relations)


def have_direction(edge_index: NDArray[Any], num_nodes: int, *, have_relations: bool, undirected: bool | None) -> bool:
    """Whether (u, v) and (v, u) are two links; where nobody says, they are unless every edge has its reverse.

    Args:
        edge_index: [2, num_edges], ids below num_nodes.
        num_nodes: of the graph.
        have_relations: whether edges have types: then they have direction, too.
        undirected: what was asked for, or what the source says; None: neither.

    Raises:
        UserError: links with relations were asked for without direction.
    """
    if have_relations:
        if undirected:
            raise UserError(
                "undirected is true, and links have relations: which end is the source says something",
                fix="leave undirected out; -o typed=false leaves relations out, -o reverse_relations=true lets"
                " messages go both ways",
            )
        return True
    if undirected is not None:
        return not undirected
    return undirected_keys(edge_keys(edge_index, num_nodes), num_nodes) is not None


def split_as_requested(raw: JoinedGraph, options: LinkPrepareOptions) -> LinkGraph:
    """The links in splits: drawn as `options` ask, else as the source has them.

    Raises:
        UserError: there is no split and none was asked for, or it would leave a split empty.
    """
    check_raw_graph(raw)
    undirected = options.undirected
    if undirected is None and raw.have_direction is not None:
        undirected = not raw.have_direction
    directed = have_direction(
        raw.edge_index, raw.num_nodes, have_relations=raw.types is not None, undirected=undirected
    )
    if options.random_split:
        codes, note = _at_random(raw, options)
    elif options.time_split:
        codes, note = _by_time(raw, options, directed=directed)
    elif raw.split is not None:
        codes, note = _checked_codes(raw, raw.split), raw.split_note
    else:
        by_time = ", or by their times: -o time_split=true" if raw.times is not None else ""
        raise refusal(raw, "split", "there is no split", fix=f"have one drawn: --random-split{by_time}")
    return assigned(raw, codes if directed else _once(raw, codes), note, directed=directed)


def assigned(raw: JoinedGraph, codes: Codes, note: str, *, directed: bool) -> LinkGraph:
    """The links with these codes [num_edges], and a message graph of the training links.

    Of links without direction the message graph has both directions.
    """
    links = raw.all_links
    train = np.flatnonzero(codes == _TRAIN)
    edges, features, types = raw.edge_index[:, train], raw.edge_features, raw.types
    rows = train
    if not directed:
        other = train[edges[0] != edges[1]]
        rows = np.concatenate([train, other])
        edges = np.concatenate([edges, raw.edge_index[::-1, other]], axis=1)
    node_types = None
    if types is not None:
        node_types = type(types)(
            node_type=types.node_type,
            node_names=types.node_names,
            edge_type=types.edge_type[rows],
            relations=types.relations,
        )
    return LinkGraph(
        edge_index=edges,
        features=raw.features,
        name=raw.name,
        source=raw.source,
        synthetic=raw.synthetic,
        origin={**raw.origin, "links": raw.origin.get("edge_index", "edge_index")},
        edge_features=None if features is None else features[rows],
        edge_feature_names=raw.edge_feature_names,
        types=node_types,
        links={split: links.taken(codes == SPLIT_CODES[split]) for split in SPLITS},
        links_have_direction=directed,
        split_note=note,
        num_relations=0 if types is None else len(types.relations),
        node_names=raw.node_names,
    )


def _once(raw: JoinedGraph, codes: Codes) -> Codes:
    """Codes of links without direction, whose sources often list both: (v, u) has none where (u, v) has the same."""
    edges = raw.edge_index.astype(np.int64, copy=False)
    low, high = np.flatnonzero(edges[0] < edges[1]), np.flatnonzero(edges[0] > edges[1])
    listed = Links(edges[0, low], edges[1, low], codes[low].astype(np.int64) + 1)
    reverse = Links(edges[1, high], edges[0, high], codes[high].astype(np.int64) + 1)
    codes = codes.copy()
    codes[high[is_among(reverse, listed, raw.num_nodes, have_direction=True)]] = SPLIT_CODES["none"]
    return codes


def _at_random(raw: JoinedGraph, options: LinkPrepareOptions) -> tuple[Codes, str]:
    """A code for each pair of nodes, by a keyed hash of the pair: no order of edges matters, and no link leaks its
    reverse or another relation between the same nodes. A link from a node to itself is a training link.
    """
    ends = np.sort(raw.edge_index.astype(np.uint64), axis=0)
    pairs, of_edge = np.unique(ends[0] << _HIGH | ends[1], return_inverse=True)
    may_go = np.flatnonzero((pairs >> _HIGH) != (pairs & np.uint64(2**32 - 1)))
    drawn = keys_below(key_of(options.split_seed, Purpose.SPLIT), pairs[may_go].view(np.int64))
    order = may_go[np.argsort(drawn, kind="stable")]
    num_val, num_test = (round(share * len(pairs)) for share in (options.val_fraction, options.test_fraction))
    if not num_val or not num_test or num_val + num_test >= len(order):
        raise refusal(
            raw,
            "edge_index",
            f"of {len(order)} joined pairs {num_val} would be val and {num_test} test",
            fix="set val_fraction and test_fraction so that each split has some",
        )
    codes = np.full(len(pairs), _TRAIN, dtype=np.int8)
    codes[order[:num_val]], codes[order[num_val : num_val + num_test]] = _VAL, _TEST
    shares = f"{options.val_fraction:g} val, {options.test_fraction:g} test"
    return codes[of_edge.reshape(-1)], f"random, by pairs of nodes ({shares}), seed {options.split_seed}"


def _by_time(raw: JoinedGraph, options: LinkPrepareOptions, *, directed: bool) -> tuple[Codes, str]:
    """A link counts from the first time on that it is there."""
    times = _checked_times(raw)
    (number,) = identities([raw.all_links], raw.num_nodes, have_direction=directed)
    _, of_edge = np.unique(number, return_inverse=True)
    of_edge = of_edge.reshape(-1)
    first = np.full(int(of_edge.max()) + 1, np.inf)
    np.minimum.at(first, of_edge, times)
    val_from, test_from = _borders(raw, first, options)
    since = first[of_edge]
    codes = np.where(since >= test_from, _TEST, np.where(since >= val_from, _VAL, _TRAIN)).astype(np.int8)
    empty = [split for split in SPLITS if not (codes == SPLIT_CODES[split]).any()]
    if empty:
        raise refusal(
            raw,
            "times",
            f"val from {val_from:g} and test from {test_from:g} leave no {empty[0]} links: times run from"
            f" {first.min():g} to {first.max():g}",
            fix="set val_from and test_from to times between",
        )
    codes[times != since] = SPLIT_CODES["none"]  # the same link, later: neither features nor another count
    return codes, f"by time: val from {val_from:g}, test from {test_from:g}"


def _borders(raw: JoinedGraph, first: NDArray[np.float64], options: LinkPrepareOptions) -> tuple[float, float]:
    if (options.val_from is None) != (options.test_from is None):
        raise UserError("one of val_from and test_from is set", fix="set both, or neither")
    if options.val_from is not None and options.test_from is not None:
        if options.val_from >= options.test_from:
            raise UserError(
                f"val_from is {options.val_from:g}, and test_from {options.test_from:g} is no later",
                fix="set val_from to the earlier time",
            )
        return options.val_from, options.test_from
    held = options.val_fraction + options.test_fraction
    if held >= 1:
        raise refusal(raw, "times", f"val and test would have {held:g} of the links", fix="set smaller fractions")
    ordered = np.sort(first)
    at = [min(len(first) - 1, round((1 - share) * len(first))) for share in (held, options.test_fraction)]
    return float(ordered[at[0]]), float(ordered[at[1]])


def _checked_times(raw: JoinedGraph) -> NDArray[np.float64]:
    if raw.times is None:
        raise refusal(raw, "times", "links have no time to be split by", fix="give one for each, or use --random-split")
    times = raw.times
    if times.shape != (raw.edge_index.shape[1],) or times.dtype.kind not in "iuf":
        problem = f"times are {times.dtype} {list(times.shape)}, and there are {raw.edge_index.shape[1]} links"
        raise refusal(raw, "times", problem, fix="give one number per link")
    broken = np.flatnonzero(~np.isfinite(times.astype(np.float64)))
    if len(broken):
        raise refusal(raw, "times", f"link {broken[0]} has the time {times[broken[0]]}", fix="give every link a time")
    return times.astype(np.float64)


def _checked_codes(raw: JoinedGraph, split: Codes) -> Codes:
    if split.shape != (raw.edge_index.shape[1],) or not np.isin(split, list(SPLIT_CODES.values())).all():
        raise refusal(
            raw,
            "split",
            f"{list(split.shape)} codes for {raw.edge_index.shape[1]} links, or others than 0, 1, 2 and -1",
            fix="give each link 0 train, 1 val, 2 test or -1 none",
        )
    return split
