"""How parts are shown: by `partition` when they are made, by `inspect` later."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.cli.progress import progress
from graphmill.cli.show import print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.partition.metadata import PartsMetadata


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


def parts_rows(known: "PartsMetadata") -> list[dict[str, Any]]:
    """A row for each part."""
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
        }
        for part in range(known.num_parts)
    ]


def print_parts(folder: Path, known: "PartsMetadata", title: str) -> None:
    """The report of a partition."""
    print_facts(list(parts_facts(folder, known).items()), title=title)
    rows = parts_rows(known)
    print_table(tuple(rows[0]), [list(row.values()) for row in rows])


def show_parts(folder: Path, *, check: bool, json: bool) -> None:
    """`inspect` of a parts folder: all files are there as they were written; with `check` everything is read."""
    from graphmill.partition.parts import PartedGraph
    from graphmill.partition.verify import verify_parts

    graph = PartedGraph.open(folder)
    if check:
        with progress(f"reading {graph.metadata.name}"):
            verify_parts(graph)
    if json:
        print_json({"path": str(folder), "checked": check, **graph.metadata.model_dump(mode="json")})
        return
    print_parts(folder, graph.metadata, f"{graph.metadata.num_parts} parts of {graph.metadata.name}")
    if check:
        print_line("checksums and structure are as they should be")
