"""How parts are shown: by `partition` when they are made, by `inspect` later."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphmill.base.names import counted
from graphmill.cli.progress import progress
from graphmill.cli.show import print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.partition.metadata import PartsMetadata

_TYPES_SHOWN: Final = 12


def parts_facts(folder: Path, known: "PartsMetadata") -> dict[str, Any]:
    """What there is to say of all parts together."""
    quality: dict[str, Any] = known.quality
    fanouts = ", ".join(map(str, quality["remote_rows_fanouts"]))
    return {
        "parts of": known.name,
        "task": known.kind,
        "synthetic": known.synthetic,
        "method": f"{known.method}, balancing {known.balance}, seed {known.rng_seed}",
        "edges cut": f"{quality['edge_cut']:.2%}",
        "imbalance": ", ".join(f"{name} {quality[f'imbalance_{name}']:.1%}" for name in ("nodes", "edges", "train")),
        "expected remote rows": f"of {quality['remote_rows_batch_size']} seeds of a part, fan-outs {fanouts}",
        "size": f"{known.num_bytes / 2**20:,.1f} MiB",
        "checksum": known.checksum,
        "path": str(folder),
    }


def parts_rows(known: "PartsMetadata", absent: Collection[int] = ()) -> list[dict[str, Any]]:
    """A row for each part; those that are `absent` from this host say so."""
    quality: dict[str, Any] = known.quality
    return [
        {
            "part": part,
            "nodes": quality["nodes"][part],
            "edges": quality["edges"][part],
            "train": quality["train"][part],
            "halo nodes": quality["halo_nodes"][part],
            "remote rows": quality["remote_rows_per_batch"][part],
            "MiB": round(sum(known.arrays[name].bytes for name in known.arrays_of(part)) / 2**20, 1),
            **({"here": "no" if part in absent else "yes"} if absent else {}),
        }
        for part in range(known.num_parts)
    ]


def types_rows(known: "PartsMetadata") -> dict[str, list[dict[str, Any]]]:
    """Tables of a typed graph: how even its nodes of each type are, and how many edges of each relation are cut."""
    if known.by_type is None:
        return {}
    nodes = [
        {"node type": each.name, "nodes": each.num_nodes, "fewest in a part": min(here), "most in a part": max(here)}
        for each, here in zip(known.node_types, known.by_type.nodes, strict=True)
    ]
    edges = [
        {"edge type": str(each.relation), "edges": each.num_edges, "cut": cut, "cut %": _percent(cut, each.num_edges)}
        for each, cut in zip(known.edge_types, known.by_type.cut_edges, strict=True)
    ]
    return {
        "nodes by type": sorted(nodes, key=lambda row: -row["nodes"]),
        "edges by type": sorted(edges, key=lambda row: -row["edges"]),
    }


def _percent(part: int, total: int) -> float | None:
    return round(100 * part / total, 1) if total else None


def print_parts(folder: Path, known: "PartsMetadata", title: str, absent: Collection[int] = ()) -> None:
    """The report of a partition."""
    print_facts(list(parts_facts(folder, known).items()), title=title)
    rows = parts_rows(known, absent)
    print_table(tuple(rows[0]), [list(row.values()) for row in rows])
    for what, of_types in types_rows(known).items():
        print_table(tuple(of_types[0]), [list(row.values()) for row in of_types[:_TYPES_SHOWN]], title=what)
        if len(of_types) > _TYPES_SHOWN:
            print_line(f"and {len(of_types) - _TYPES_SHOWN} more, which --json shows")


def show_parts(folder: Path, *, check: bool, json: bool) -> None:
    """`inspect` of a parts folder: what is there of it is as it was written; with `check` all of that is read."""
    from graphmill.partition.parts import PartedGraph
    from graphmill.partition.verify import verify_parts

    graph = PartedGraph.open_what_is_here(folder)
    known, here, has_topology = graph.metadata, graph.parts, graph.has_topology
    if check:
        with progress(f"reading {known.name}"):
            verify_parts(graph)
    if json:
        found = {"checked": check, "parts_here": here, "whole_topology_here": has_topology}
        print_json({"path": str(folder), **found, **known.model_dump(mode="json")})
        return
    absent = [number for number in range(known.num_parts) if number not in here]
    print_parts(folder, known, f"{counted(known.num_parts, 'part')} of {known.name}", absent)
    if absent or not has_topology:
        print_line(f"not on this host: {_named(absent, has_topology=has_topology)}")
    if check:
        of = "" if not absent and has_topology else f" of what is here: {_parts_text(here)}, the book and the splits"
        print_line(f"checksums and structure are as they should be{of}")


def _named(absent: Sequence[int], *, has_topology: bool) -> str:
    return " and ".join([*([_parts_text(absent)] if absent else []), *([] if has_topology else ["the whole topology"])])


def _parts_text(parts: Sequence[int]) -> str:
    """Name parts in a few words, such as parts 0-2, 7.

    >>> _parts_text((0, 1, 2, 7)), _parts_text((3,)), _parts_text(())
    ('parts 0-2, 7', 'part 3', 'no part')
    """
    from graphmill.record.staged import runs_of

    runs = ["-".join(map(str, run)) for run in runs_of(parts)]
    return f"{'part' if len(parts) == 1 else 'parts'} {', '.join(runs)}" if runs else "no part"
