"""How many neighbours each hop draws: of all relations together, or of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphmill.base.errors import UserError
from graphmill.spec.typed_graph import TypedInfo, no_union_of_types

FanOuts = tuple[int, ...] | dict[str, tuple[int, ...]]
"""First hop first, -1: all; for all relations together, or by relation ("source:name:target"), where 0 is none."""


@dataclass(frozen=True, slots=True)
class ResolvedFanOuts:
    """What a plan holds of them."""

    of_hops: tuple[int, ...]  # of each hop, over all relations: at most so many, -1: no bound
    by_relation: tuple[tuple[int, ...], ...]  # of each relation in turn; (): for all together


def check_fanouts(num_neighbors: FanOuts) -> None:
    """Raise ValueError unless they are counts of neighbours, or -1."""
    if not isinstance(num_neighbors, Mapping):
        if not num_neighbors or any(k == 0 or k < -1 for k in num_neighbors):
            raise ValueError(
                f"num_neighbors {list(num_neighbors)} must hold positive fan-outs, or -1 for all neighbours"
            )
        return
    for relation, fanouts in num_neighbors.items():
        if not fanouts or any(k < -1 for k in fanouts):
            raise ValueError(
                f"num_neighbors of {relation} are {list(fanouts)}; they must be fan-outs, -1 for all neighbours,"
                " 0 for none"
            )
    lengths = {len(fanouts) for fanouts in num_neighbors.values()}
    if len(lengths) != 1:
        raise ValueError(f"num_neighbors must have as many fan-outs for each relation, and has {sorted(lengths)}")
    for hop, of_hop in enumerate(zip(*num_neighbors.values(), strict=True)):
        if not any(of_hop):
            raise ValueError(f"num_neighbors draw nothing at hop {hop + 1}: each relation has 0")


def resolve_fanouts(
    num_neighbors: FanOuts, dataset: TypedInfo, *, undirected: bool, num_parts: int | None, presampled: str | None
) -> ResolvedFanOuts:
    """Resolve the fan-outs for a prepared graph. `UserError` if they do not name its relations or are not supported.

    Args:
        num_neighbors: as written.
        dataset: the prepared graph.
        undirected: whether messages pass along both directions of every edge.
        num_parts: into which the graph is cut; None: it is whole.
        presampled: folder of sampled epochs; None: none is read.
    """
    if not isinstance(num_neighbors, Mapping):
        return ResolvedFanOuts(num_neighbors, ())
    names = dataset.edge_types
    if not names:
        raise UserError(
            f"train.num_neighbors has fan-outs by relation, and the edges of {dataset.name} have no types",
            fix="give a list of fan-outs, such as [25, 10]",
        )
    if undirected:
        raise no_union_of_types(dataset.name)
    _refuse_other_names(list(num_neighbors), names, dataset.name)
    for what, is_asked in (("train.presampled", presampled is not None), ("a graph in parts", num_parts is not None)):
        if is_asked:
            raise UserError(
                "train.num_neighbors has fan-outs by relation, which are drawn of a whole graph in training, and not"
                f" for {what}",
                fix="give a list of fan-outs for all relations together"
                + ("" if presampled is None else ", or leave train.presampled out")
                + ("" if num_parts is None else ", or name the graph that was partitioned"),
            )
    by_relation = tuple(tuple(num_neighbors[name]) for name in names)
    return ResolvedFanOuts(
        tuple(-1 if -1 in of_hop else sum(of_hop) for of_hop in zip(*by_relation, strict=True)), by_relation
    )


def held_bytes(num_nodes: int, num_edges: int, num_relations: int) -> int:
    """What drawing by relation keeps in memory: of each edge a source, its place and its type; where rows begin."""
    return 16 * num_edges + 8 * (num_nodes + 1) * num_relations


def _refuse_other_names(given: Sequence[str], names: Sequence[str], dataset: str) -> None:
    missing, strange = [each for each in names if each not in given], [each for each in given if each not in names]
    if strange or missing:
        said = " and ".join(
            f"{verb} {', '.join(each)}" for verb, each in (("lacks", missing), ("has", strange)) if each
        )
        raise UserError(
            f"train.num_neighbors {said}; the relations of {dataset} are {', '.join(names)}",
            fix="give each relation a list of fan-outs, 0 where none shall be drawn; or one list for all together",
        )
