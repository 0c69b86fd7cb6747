"""`partition`: split a prepared graph into parts."""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from graphmill.base.errors import UserError
from graphmill.base.names import counted
from graphmill.cli.options import DatasetRoot, Json, resolved_dataset_root
from graphmill.cli.progress import progress
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.graph.store import GraphStore
    from graphmill.graph.topology import Topology
    from graphmill.partition.estimate import Estimate
    from graphmill.partition.metadata import PartsMetadata
    from graphmill.partition.problem import Ids, Parts
    from graphmill.partition.split import Chosen, Rankings, Wanted

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FANOUTS = "--fanouts"


class PartitionCommand(TyperCommand):
    """Reads `--fanouts 15 10 5`, which typer cannot, as `--fanouts 15 --fanouts 10 --fanouts 5`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Repeat the option before each further number."""
        words: list[str] = []
        for word in args:
            follows = words[-2:-1] == [_FANOUTS] and word.removeprefix("-").isdecimal()
            if words[-1:] == [_FANOUTS] and "," in word:
                raise UserError(f"{_FANOUTS} {word} is one word", fix=f"{_FANOUTS} {' '.join(word.split(','))}")
            words += [_FANOUTS, word] if follows else [word]
        return super().parse_args(ctx, words)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=PartitionCommand)(partition)


def partition(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Name of a prepared graph, or its folder.")],
    num_parts: Annotated[
        int, typer.Option("--num-parts", "--num_parts", "--num_partitions", metavar="P", help="How many parts.")
    ],
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="kaminpar, metis, ldg, random, hotness; auto: kaminpar, or ldg where memory or edges are few.",
        ),
    ] = "auto",
    balance: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            show_default=False,
            help="nodes, edges, train, or weighted (the sum of a node's shares of the three); else all three, each.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", show_default=False, help="Name of the partition; else P-METHOD."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same parts.")] = 0,
    fanouts: Annotated[
        list[int] | None,
        typer.Option(
            _FANOUTS,
            metavar="K …",
            show_default=False,
            help="Also rank hot nodes of other parts for sampling with these fan-outs, first hop first.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a partition of that name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it needs, and write nothing.")] = False,
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Split a prepared graph into parts for training on several hosts.

    Edges within parts are kept as many as possible, and parts are even in nodes, edges and training nodes: the fullest
    exceeds the mean by 5 % at most. Features, labels, splits and features of edges go with their nodes and edges. What
    it needs of memory is said first; features are streamed and never loaded whole.

    --balance with one thing leaves the others as they come: with nodes alone, isolated nodes of a power-law graph make
    up for nearly all edges in one part.

    \b
    Example:
      graphmill partition debian-packages --num-parts 4
      graphmill partition ogbn-products --num-parts 8 --method metis --seed 1
      graphmill partition ogbn-products --num-parts 2 --fanouts 15 10 5
      graphmill partition ogbn-papers100M --num-parts 16 --dry-run
    """
    from graphmill.partition.split import choose
    from graphmill.runtime.machine import machine_info

    folder = resolved_dataset_root(root)
    graph = _graph_store(store, folder)
    wanted = _wanted(num_parts, method, balance, seed, fanouts)
    chosen, needed = choose(graph, wanted, machine_info().available_bytes)
    path = _place(folder, graph.metadata.name, name or f"{num_parts}-{chosen.method}")
    if dry_run:
        _print_estimate(path, graph, chosen, needed, json=json)
        return
    existing = _existing(path, graph, chosen, force=force)
    if existing is not None:
        _print_parts(path, existing, {}, json=json)
        return
    _refuse_full_disk(path, graph)
    for step, own, other in needed.rows():
        beside = f", and {other / 2**20:,.0f} MiB in a process of its own" if other else ""
        _log.info(f"{step}: needs about {own / 2**20:,.0f} MiB{beside}")
    _split(graph, chosen, needed, path, json=json)


def _split(graph: "GraphStore", chosen: "Chosen", needed: "Estimate", path: Path, *, json: bool) -> None:
    from graphmill.cluster.staging.progress import shown_progress
    from graphmill.partition.split import PartitionProgress, split_store

    seconds: dict[str, float] = {}

    @contextmanager
    def timed(title: str, shown: AbstractContextManager[T]) -> Iterator[T]:
        began = time.monotonic()
        with shown as inner:
            yield inner
        seconds[title.split(" ", 1)[0]] = round(time.monotonic() - began, 2)  # such as "writing"

    shown = PartitionProgress(
        lambda title: timed(title, progress(title)),
        lambda title, num_bytes: timed(title, shown_progress(title, num_bytes)),
    )
    with _sigterm_as_ctrl_c():
        written = split_store(graph, chosen, path, shown, _rank)
    took = {
        "seconds": seconds,
        "estimated_bytes": needed.own_bytes,
        "peak_bytes": written.own_bytes,
        "partitioner_estimated_bytes": max(step.other_bytes for step in needed.steps),
        "partitioner_peak_bytes": written.partitioner_bytes,
    }
    beside = f", the partitioner's {written.partitioner_bytes / 2**20:,.0f} MiB" if written.partitioner_bytes else ""
    _log.info(f"peak of memory: {written.own_bytes / 2**20:,.0f} MiB{beside}")
    _print_parts(path, written.metadata, took, json=json)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """What is half written, perhaps as large as the graph, goes with a job that is cancelled."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _rank(topology: "Topology", parts: "Parts", seeds_by_part: "Sequence[Ids]", fanouts: tuple[int, ...]) -> "Rankings":
    """Hot nodes of other parts, by every policy that is known before a run."""
    from graphmill.partition.quality import BATCH_SIZE
    from graphmill.sample.hot.rank import STATIC_POLICIES, Draws, rank_all

    draws = Draws(fanouts=fanouts, batch_size=BATCH_SIZE)
    return {
        str(policy): by_part
        for policy, by_part in rank_all(topology, parts, seeds_by_part, draws, STATIC_POLICIES).items()
    }


def _graph_store(name: str, root: Path) -> "GraphStore":
    from graphmill.cli.data import store_folder
    from graphmill.graph.header import read_header
    from graphmill.graph.store import GraphStore
    from graphmill.record.staged import near_copy
    from graphmill.spec.kinds import TASKS, default_kind, find_kind
    from graphmill.tasks.stores import not_prepared, open_store

    folder = store_folder(name, root)
    if folder is None:
        raise not_prepared(default_kind(), name, root)
    header = read_header(folder)
    if "parts_version" in header.kind_fields:
        raise UserError(
            f"{folder} holds parts of {header.name} already", fix=f"partition the whole graph: {header.name}"
        )
    folder = near_copy(folder, header, os.environ)
    store = open_store(find_kind(header.kind), folder) if header.kind in TASKS else None
    if not isinstance(store, GraphStore) or store.seeds_of_nodes() is None:
        raise UserError(
            f"{folder} holds data of the task {header.kind}, which are not one graph of nodes with classes or labels,"
            " or of links",
            fix="partition a graph with splits of its nodes or links: graphmill datasets lists what is prepared",
        )
    return store


def _wanted(num_parts: int, method: str, balance: str | None, seed: int, fanouts: list[int] | None) -> "Wanted":
    from graphmill.base.names import nearest
    from graphmill.partition.problem import BALANCES
    from graphmill.partition.split import Wanted
    from graphmill.spec.partition import METHODS

    given: dict[str, Any] = {"num_parts": num_parts, "rng_seed": seed, "fanouts": tuple(fanouts or ())}
    for flag, value, known in (("method", method, ("auto", *METHODS)), ("balance", balance, BALANCES)):
        if value is not None and value not in known:
            match = nearest(value, known)
            raise UserError(f"--{flag} {value!r} is none of {', '.join(known)}", fix=f"--{flag} {match or known[0]}")
        given[flag] = value
    if any(fanout == 0 or fanout < -1 for fanout in given["fanouts"]):
        raise UserError("a fan-out is at least 1, or -1 for all in-neighbours", fix=f"{_FANOUTS} 15 10")
    return Wanted(**given)


def _place(root: Path, dataset: str, name: str) -> Path:
    from graphmill.spec.partition import PARTS_FOLDER
    from graphmill.tasks.stores import store_path

    if "/" in name:
        raise UserError(f"--name {name!r} names a folder in a folder", fix="give a name without /")
    return store_path(f"{PARTS_FOLDER}/{dataset}/{name}", root)


def _existing(path: Path, store: "GraphStore", chosen: "Chosen", *, force: bool) -> "PartsMetadata | None":
    """What is there, if it is what is asked for; `UserError` if other data are in the place."""
    from graphmill.graph.header import is_prepared
    from graphmill.partition.parts import PartedGraph

    if not path.is_dir():
        return None
    if not is_prepared(path) and any(path.iterdir()):
        raise UserError(f"{path} is there already, and holds other files", fix="move it away, or choose another --name")
    if force:
        return None
    try:
        known = PartedGraph.open(path).metadata
    except UserError as error:
        raise UserError(error.message, fix="partition the graph again with --force") from None
    differing = _differing(known, store.metadata.checksum, chosen)
    if differing:
        raise UserError(
            f"{path} holds another partition of {known.name}: {', '.join(differing)}",
            fix="replace it with --force, or keep both with --name NAME",
        )
    _log.info(f"{known.name} is partitioned like this already: {path}")
    return known


def _differing(known: "PartsMetadata", checksum: str | None, chosen: "Chosen") -> list[str]:
    """What parts that are there have otherwise than those that are asked for, in words."""
    pairs: list[tuple[str, object, object]] = [
        ("--num-parts", known.num_parts, chosen.num_parts),
        ("--method", known.method, chosen.method),
        ("--balance", known.balance, chosen.balance),
        ("--seed", known.rng_seed, chosen.rng_seed),
        ("--fanouts", " ".join(map(str, known.fanouts)) or "none", " ".join(map(str, chosen.fanouts)) or "none"),
    ]
    words = [f"{name} is {there} there and {here} here" for name, there, here in pairs if there != here]
    return words if known.store_checksum == checksum else [f"{known.name} was prepared otherwise since", *words]


def _refuse_full_disk(path: Path, store: "GraphStore") -> None:
    """`UserError` if the parts will not fit, before the work."""
    from graphmill.partition.write import bytes_to_write
    from graphmill.runtime.machine import free_disk_bytes

    needed, free = bytes_to_write(store), free_disk_bytes(path)
    if needed > free:
        raise UserError(
            f"the parts take about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free at {path.parent}",
            fix="free some space, or choose another place with --dataset-root",
        )


def _print_estimate(path: Path, store: "GraphStore", chosen: "Chosen", needed: "Estimate", *, json: bool) -> None:
    from graphmill.partition.write import bytes_to_write
    from graphmill.runtime.machine import free_disk_bytes

    disk, free = bytes_to_write(store), free_disk_bytes(path)
    if json:
        steps = [{"step": step, "own_bytes": own, "partitioner_bytes": other} for step, own, other in needed.rows()]
        told = {"path": str(path), "method": chosen.method, "balance": chosen.balance, "estimate": steps}
        print_json({**told, "disk_bytes": disk, "free_disk_bytes": free})
        return
    rows: list[list[Cell]] = [[step, round(own / 2**20), round(other / 2**20)] for step, own, other in needed.rows()]
    print_line(f"would write {path}: about {disk / 2**20:,.0f} MiB, where {free / 2**20:,.0f} MiB are free")
    print_table(("step", "needs MiB", "and a partitioner's process MiB"), rows)


def _print_parts(path: Path, known: "PartsMetadata", took: dict[str, Any], *, json: bool) -> None:
    from graphmill.cli.parts import print_parts

    if json:
        print_json({"path": str(path), "took": took, **known.model_dump(mode="json")})
    else:
        print_parts(path, known, f"{counted(known.num_parts, 'part')} of {known.name}")
