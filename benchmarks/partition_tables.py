"""Tables of benchmarks/partitioning.py for docs/measurements.md, and its headline for README.md."""

from typing import Any

from entries import source
from graph_tables import entries_of

MIB = 2**20
BALANCED = ("nodes", "edges", "train")


def partitioning(result: dict[str, Any]) -> str:
    """Cut, balance, time and memory by graph, number of parts and method."""
    parts = [
        "**Partitioning** R-MAT graphs: edges cut, by how much the fullest part exceeds the mean, time of the whole"
        " command, peak of memory (mapped files included), and what was said before: estimate ÷ peak, of this process,"
        " of the partitioner's. Rows: of other parts, expected in a batch of 1,024 seeds with fan-outs 15, 10, 5, mean"
        " over parts. Floor: as many bytes copied in the same chunks.\n"
    ]
    for name, found in entries_of(result).items():
        parts.append(_graph(name, found))
    return "\n".join([*parts, source(result, "python benchmarks/partitioning.py --root FOLDER")])


def _graph(name: str, found: dict[str, Any]) -> str:
    sizes = (
        f"{found['num_nodes']:,} nodes ({found['num_isolated_nodes']:,} without edges), {found['num_edges']:,} edges"
    )
    lines = [
        f"{name}: {sizes}, {found['num_features']} features; others used {found['foreign_cores']:.2f} cores.\n",
        "| parts | method | cut | nodes | edges | train | rows | s | writing ÷ floor | peak MiB | partitioner's MiB |"
        " estimate ÷ peak |",
        "|" + "---|" * 12,
    ]
    lines += [_cell(each) for each in found["cells"]]
    lines += [
        f"| {each['parts']} | KaMinPar alone | {each['edge_cut']:.2%} |"
        f" {each['imbalance_nodes_with_edges']:.1%} of those with edges | {each['imbalance_edges']:.1%} |" + " |" * 7
        for each in found["kaminpar_alone"]
    ]
    if found["prepared"]:
        took = found["prepared"]
        lines.append(f"\nGenerated in {took['seconds']:.0f} s with a peak of {took['peak_bytes'] / 2**30:.1f} GiB.")
    return "\n".join([*lines, ""])


def _cell(each: dict[str, Any]) -> str:
    quality, memory = each["quality"], each["memory"]
    rows = quality["remote_rows_per_batch"]
    own, other = memory["peak_bytes"], memory["partitioner_peak_bytes"]
    estimate = f"{memory['estimated_bytes'] / own:.2f}"
    if other:
        estimate += f", {memory['partitioner_estimated_bytes'] / other:.2f}"
    cells = [
        str(each["parts"]),
        each["method"],
        f"{quality['edge_cut']:.2%}",
        *(f"{quality[f'imbalance_{name}']:.1%}" for name in BALANCED),
        f"{sum(rows) / len(rows):,.0f}",
        f"{each['seconds']:.0f}",
        f"{each['steps']['writing'] / each['floor_of_writing_s']:.1f}",
        f"{own / MIB:,.0f}",
        f"{other / MIB:,.0f}" if other else "",
        estimate,
    ]
    return "| " + " | ".join(cells) + " |"


def partitioning_headline(result: dict[str, Any]) -> tuple[str, str]:
    """The most parts, by the method that is used by default."""
    found = next(iter(entries_of(result).values()))
    each = max((each for each in found["cells"] if each["method"] == "kaminpar"), key=lambda each: each["parts"])
    quality, sizes = each["quality"], f"{found['num_nodes'] / 1e6:.0f}M nodes, {found['num_edges'] / 1e6:.0f}M edges"
    worst = max(quality[f"imbalance_{name}"] for name in BALANCED)
    return (
        f"partitioning: R-MAT of {sizes}, {found['num_features']} features, in {each['parts']} parts",
        f"{quality['edge_cut']:.1%} of the edges cut, nodes, edges and training nodes within {worst:.1%}, peak"
        f" {each['memory']['peak_bytes'] / MIB:,.0f} MiB beside KaMinPar's"
        f" {each['memory']['partitioner_peak_bytes'] / MIB:,.0f} MiB",
    )


TABLES = {"partitioning": partitioning, "partitioning_large": partitioning}
HEADLINES = {"partitioning": partitioning_headline}
