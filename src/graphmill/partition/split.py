"""Split a store into parts: choose the method, assign, even out, measure, write; whole or not at all."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.names import counted
from graphmill.graph.header import Header, seal, write_metadata
from graphmill.graph.store import GraphStore
from graphmill.graph.topology import Topology
from graphmill.graph.write import new_store
from graphmill.partition.balance import (
    amounts_of,
    balanced,
    even_out,
    has_few_edges,
    in_edges,
    limits_of,
    single_weight,
    warn_if_uneven,
)
from graphmill.partition.estimate import Estimate, PartitionSizes, estimate
from graphmill.partition.metadata import PartsMetadata
from graphmill.partition.methods.packages import PartitionResult, partition_with, require_package
from graphmill.partition.problem import DEFAULT_FANOUTS, Balance, Ids, PartitionProblem, Parts, Seeds, default_balance
from graphmill.partition.quality import MeasuredPartition, imbalances, measure, warn_if_near_random
from graphmill.partition.streams import Advance
from graphmill.partition.types import types_in_parts
from graphmill.partition.write import PartsFolder, bytes_to_write, write_parts, write_rankings
from graphmill.runtime.machine import peak_bytes
from graphmill.spec.partition import Method

_log = logging.getLogger(__name__)

Rankings = Mapping[str, Sequence[NDArray[Any]]]
"""Nodes of other parts by descending hotness, for each policy and part."""
Rank = Callable[[Topology, Parts, Sequence[Ids], tuple[int, ...]], Rankings]
"""Function of a topology, the part of each node, the training nodes of each part, and fan-outs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asks for."""

    num_parts: int
    method: Method | Literal["auto"] = "auto"
    balance: Balance | None = None  # None: what the method balances
    rng_seed: int = 0
    fanouts: tuple[int, ...] = ()  # that hot nodes are ranked for; none: they are not


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is done: nothing is left open."""

    num_parts: int
    method: Method
    balance: Balance
    rng_seed: int
    fanouts: tuple[int, ...]


class Written(NamedTuple):
    """A parts folder, and what it took to make it."""

    metadata: PartsMetadata
    own_bytes: int  # the most memory that this process has had, mapped files included
    partitioner_bytes: int  # that of a partitioner's process; 0: there was none


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How the work is shown while it lasts."""

    step: Callable[[str], AbstractContextManager[None]]
    copying: Callable[[str, int], AbstractContextManager[Advance]]  # so many bytes


def choose(store: GraphStore, wanted: Wanted, available_bytes: int) -> tuple[Chosen, Estimate]:
    """The method and the balance that are used, and what the work needs.

    `auto`: KaMinPar, or LDG where KaMinPar does not fit into `available_bytes`, and where nearly no node has an edge:
    a partitioner knows the others only, and would cut between them.
    """
    if wanted.method == "auto" and has_few_edges(store.metadata.num_edges, store.metadata.num_nodes):
        _log.info("few nodes have edges: they are streamed with ldg, and edges are not balanced")
        return _with_method(store, wanted, "ldg")
    method: Method = "kaminpar" if wanted.method == "auto" else wanted.method
    require_package(method)
    found, needed = _with_method(store, wanted, method)
    if needed.total_bytes <= available_bytes:
        return found, needed
    sizes = f"{needed.total_bytes / 2**30:.1f} GiB, and {available_bytes / 2**30:.1f} GiB are available"
    if wanted.method == "auto":
        _log.warning(f"{method} needs {sizes}: the graph is streamed with ldg instead")
        return _with_method(store, wanted, "ldg")
    _log.warning(f"{method} needs {sizes}: it may be killed; --method ldg needs less")
    return found, needed


def _with_method(store: GraphStore, wanted: Wanted, method: Method) -> tuple[Chosen, Estimate]:
    _check(store, wanted.num_parts)
    balance = _balance_of(method, wanted.balance)
    found = Chosen(
        num_parts=wanted.num_parts,
        method=method,
        balance=balance,
        rng_seed=wanted.rng_seed,
        fanouts=wanted.fanouts,
    )
    return found, estimate(_sizes(store, found), method, ranked=bool(wanted.fanouts))


def _sizes(store: GraphStore, chosen: Chosen) -> PartitionSizes:
    known, seeds = store.metadata, _seeds_of(store)
    return PartitionSizes(
        num_nodes=known.num_nodes,
        num_isolated=known.num_isolated_nodes,
        num_train=int(np.count_nonzero(seeds)),
        num_links=0 if seeds.dtype == np.bool_ else int(seeds.sum(dtype=np.int64)),
        num_entries=known.num_undirected_edges,
        is_symmetric=known.is_symmetric,
        num_parts=chosen.num_parts,
        num_amounts=3 if chosen.balance == "all" else 1,
        largest_bytes=max(record.bytes for record in known.arrays.values()),
        base_bytes=psutil.Process().memory_info().rss,  # type: ignore[no-untyped-call]  # psutil ships no types
    )


def _balance_of(method: Method, balance: Balance | None) -> Balance:
    if default_balance(method) == "nodes" and balance not in (None, "nodes"):
        raise UserError(
            f"--method {method} makes parts of equally many nodes, and --balance {balance} asks for other ones",
            fix="leave --balance out, or choose --method kaminpar, metis or ldg",
        )
    return balance or default_balance(method)


def _check(store: GraphStore, num_parts: int) -> None:
    _seeds_of(store)
    if not 1 <= num_parts <= store.metadata.num_nodes:
        raise UserError(
            f"{num_parts} parts of a graph of {store.metadata.num_nodes} nodes",
            fix="set --num-parts to at least 1, and at most one per node",
        )


def _seeds_of(store: GraphStore) -> Seeds:
    seeds = store.seeds_of_nodes()
    if seeds is None:
        raise UserError(
            f"{store.metadata.name} says of no node that a model learns from it, and such graphs are not partitioned",
            fix="partition a graph with splits of its nodes or links: graphmill datasets lists what is prepared",
        )
    return seeds


def split_store(store: GraphStore, chosen: Chosen, path: Path, shown: PartitionProgress, rank: Rank) -> Written:
    """Write the parts folder `path`, whole or not at all; one that is there is replaced."""
    with new_store(path) as folder:
        measured, partitioner_bytes = _assigned(store, chosen, folder, shown)
        with shown.step("measuring the parts"):
            quality = measure(measured)
            by_type = types_in_parts(store, measured.parts, chosen.num_parts)
        warn_if_uneven(imbalances(quality), balanced(chosen.balance, measured.edges))
        if chosen.method != "random":
            warn_if_near_random(float(quality["edge_cut"]), chosen.num_parts)  # type: ignore[arg-type]
        rankings: Rankings = {}
        if chosen.fanouts:
            with shown.step("ranking hot nodes of other parts"):
                rankings = rank(measured.graph, measured.parts, _seeds_by_part(measured), chosen.fanouts)
        parts = measured.parts
        del measured
        with shown.copying("writing the parts", bytes_to_write(store)) as advance:
            target = PartsFolder(folder, parts, chosen.num_parts, advance)
            offsets = write_parts(store, target)
            write_rankings(target, rankings)
        metadata = PartsMetadata(
            kind=store.metadata.kind,
            name=store.metadata.name,
            synthetic=store.metadata.synthetic,
            arrays=target.records,
            store=_own_part(store.metadata),
            store_checksum=store.metadata.checksum,
            num_parts=chosen.num_parts,
            method=chosen.method,
            balance=chosen.balance,
            rng_seed=chosen.rng_seed,
            offsets=tuple(offsets.tolist()),
            quality=quality,
            by_type=by_type,
            fanouts=chosen.fanouts,
        )
        if problem := metadata.disagreement():
            raise RuntimeError(f"the parts of {store.metadata.name} were written wrongly: {problem}")
        sealed = seal(metadata)
        write_metadata(folder, sealed)
    return Written(sealed, peak_bytes(), partitioner_bytes)


def _assigned(
    store: GraphStore, chosen: Chosen, scratch: Path, shown: PartitionProgress
) -> tuple[MeasuredPartition, int]:
    """The part of each node with what it is measured by, and the memory of a partitioner's process."""
    graph = store.topology(undirected=True)
    edges = in_edges(store.topology(undirected=False))
    seeds = _seeds_of(store)
    amounts = amounts_of(chosen.balance, edges, seeds)
    problem = PartitionProblem(
        graph=graph,
        amounts=amounts,
        limits=limits_of(amounts, chosen.num_parts),
        weights=single_weight(chosen.balance, edges, graph, seeds),
        train=np.flatnonzero(seeds).astype(np.int64, copy=False),
        num_parts=chosen.num_parts,
        rng_seed=chosen.rng_seed,
        fanouts=chosen.fanouts or DEFAULT_FANOUTS,
    )
    with shown.step(f"assigning nodes to {counted(chosen.num_parts, 'part')} with {chosen.method}"):
        parts, partitioner_bytes = _assign(problem, chosen.method, scratch)
    if chosen.method not in ("random", "hotness"):
        with shown.step("evening out the parts"):
            even_out(problem, parts, refine=True)
    measured = MeasuredPartition(
        graph=graph,
        edges=edges,
        train=problem.train,
        seeds=seeds,
        parts=parts,
        num_parts=chosen.num_parts,
        fanouts=problem.fanouts,
    )
    return measured, partitioner_bytes


def _assign(problem: PartitionProblem, method: Method, scratch: Path) -> PartitionResult:
    match method:
        case "kaminpar" | "metis":
            return partition_with(method, problem, scratch)
        case "ldg":
            from graphmill.partition.methods.own import ldg

            return PartitionResult(ldg(problem), 0)
        case "random":
            from graphmill.partition.methods.own import random_parts

            return PartitionResult(random_parts(problem), 0)
        case "hotness":
            from graphmill.partition.methods.own import hotness_parts

            return PartitionResult(hotness_parts(problem), 0)


def _seeds_by_part(measured: MeasuredPartition) -> list[Ids]:
    owner = measured.parts[measured.train]
    return [measured.train[owner == part] for part in range(measured.num_parts)]


def _own_part(known: Header) -> dict[str, Any]:
    """What the store says of itself beside the header that all prepared data have."""
    said = known.model_dump(mode="json")
    return {key: value for key, value in said.items() if key not in Header.model_fields}
