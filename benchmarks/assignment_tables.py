"""Tables of the assignment problem: the solver, frames that follow each other, models, training."""

from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

from entries import source
from graph_tables import entries_of, ratio

OWN = ("graphmill", "graphmill, checked", "floor")
PACKAGES = {"SciPy": "scipy"}  # of a peer; all others are of lapx


def assignment(result: dict[str, Any]) -> str:
    cells = dict(sorted(entries_of(result).items(), key=lambda entry: int(entry[0])))
    names = peers_of(cells)
    lines = [
        "**The exact assignment solver**, cold, one thread, processor time; ratios: time ÷ graphmill's. The floor: the"
        " matrix read twice. Empty: over the limit of time. In brackets: it found another cost\n",
        f"| size | family | graphmill, ms | checked | best peer | {' | '.join(names)} | floor |",
        "|" + "---|" * (len(names) + 6),
    ]
    for size, entry in cells.items():
        for family, found in entry["families"].items():
            ratios = [told(found, name) for name in names]
            ms, checked = f"{1e3 * found['seconds']['graphmill']['median']:.2f}", told(found, "graphmill, checked")
            best = with_version(best_peer(found), entry)
            line = (ms, checked, best, *ratios, told(found, "floor"))
            lines.append(f"| {int(size):,} | {family.replace('_', ' ')} | {' | '.join(line)} |")
        lines.append(
            f"| {int(size):,} | geometric mean of best | | | {mean_of_best([entry]):.3g} |{' |' * len(names)} |"
        )
    return "\n".join([*lines, "", source(result, "python benchmarks/assignment.py")])


def peers_of(cells: dict[str, Any]) -> list[str]:
    """All that are in any cell, in their order."""
    ratios = [found["ratio_to_graphmill"] for entry in cells.values() for found in entry["families"].values()]
    return list(dict.fromkeys(name for names in ratios for name in names if name not in OWN))


def told(found: dict[str, Any], name: str) -> str:
    if name not in found["ratio_to_graphmill"]:
        return ""
    value = f"{found['ratio_to_graphmill'][name]['median']:.3g}"
    return f"({value})" if name in found.get("inexact", ()) else value


def best_peer(found: dict[str, Any]) -> str | None:
    """The fastest of those that found the least cost; None: none ended."""
    ratios = found["ratio_to_graphmill"]
    names = [name for name in ratios if name not in (*OWN, *found.get("inexact", ()))]
    return min(names, key=lambda name: float(ratios[name]["median"]), default=None)


def with_version(peer: str | None, entry: dict[str, Any]) -> str:
    if peer is None:
        return "none ended"
    package = PACKAGES.get(peer, "lapx")
    of_package = "" if package == "scipy" else f" of {package}"
    return f"{peer}{of_package} {entry['versions'][package]}" if "versions" in entry else peer


def ratios_of_best(entries: Iterable[dict[str, Any]]) -> list[float]:
    found = [each for entry in entries for each in entry["families"].values()]
    return [each["ratio_to_graphmill"][peer]["median"] for each in found if (peer := best_peer(each)) is not None]


def mean_of_best(entries: Iterable[dict[str, Any]]) -> float:
    return geometric_mean(ratios_of_best(entries))


def assignment_headline(result: dict[str, Any]) -> tuple[str, str]:
    """The mean over the best peer of each cell, and the cell where least is gained."""
    entries = dict(sorted(entries_of(result).items(), key=lambda entry: int(entry[0])))
    cells = [(size, family, each) for size, entry in entries.items() for family, each in entry["families"].items()]
    ended = [
        (each["ratio_to_graphmill"][peer]["median"], size, family, peer)
        for size, family, each in cells
        if (peer := best_peer(each))
    ]
    least, size, family, peer = min(ended)
    sizes, num_families = list(entries), len({family for _, family, _ in cells})
    alone = len(cells) - len(ended)
    return (
        f"the assignment problem, {int(sizes[0]):,} to {int(sizes[-1]):,} rows, {num_families} families",
        f"{mean_of_best(entries.values()):.3g} times as fast as the best of {len(peers_of(entries))} solvers in each"
        f" cell (geometric mean), {least:.2f} where it gains least ({family.replace('_', ' ')},"
        f" {int(size):,} rows, {with_version(peer, entries[size])})"
        + (f"; in {alone} of the cells no other ended within the limit of time" if alone else "")
        + ". Frames of 20 objects: SciPy is faster (docs/measurements.md)",
    )


def assignment_frames(result: dict[str, Any]) -> str:
    lines = [
        "**Frames of a tracker** (gated, infeasible pairs), one thread, processor time\n",
        "| objects | solver | µs a frame | frames/s | time ÷ graphmill (quartiles) |",
        "|" + "---|" * 5,
    ]
    for size, entry in sorted(entries_of(result).items(), key=lambda found: int(found[0])):
        for name, seconds in entry["seconds"].items():
            median = seconds["median"]
            cells = (f"{1e6 * median:.0f}", f"{1 / median:,.0f}", ratio(entry["ratio_to_graphmill"][name]))
            lines.append(f"| {size} | {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/assignment_frames.py")])


SEEDED = {
    "vs_scipy": "model + solver vs SciPy",
    "vs_lap": "vs lapjv",
    "vs_best_trivial": "vs our best trivial seed",
    "cold_vs_scipy": "cold vs SciPy",
    "cold_vs_lap": "cold vs lapjv",
    "oracle_vs_cold": "oracle vs cold",
    "auto_vs_cold": "auto vs cold",
}


def assignment_seeded(result: dict[str, Any]) -> str:
    lines = [
        f"**Potentials that a model predicts** (OneGNN, trained on {result['trained_on']}, {result['epochs']} epochs),"
        " one thread, wall time, features and model counted: speed-ups, geometric means. Below 1 the model costs more"
        " than it saves; the trivial seeds are none, u = 0, and row minima; auto is `graphmill.SeededSolver`\n",
        f"| family | size | {' | '.join(SEEDED.values())} | auto takes | dual gap |",
        "|" + "---|" * (len(SEEDED) + 4),
    ]
    for line in result["summary"]:
        cells = [number(line[name]) for name in SEEDED]
        family = line["family"].replace("_", " ")
        lines.append(
            f"| {family} | {line['size']} | {' | '.join(cells)} | {line['auto_seed']} | {line['dual_gap']:.3g} |"
        )
    return "\n".join([*lines, "", source(result, "python benchmarks/assignment_seeded.py")])


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def assignment_training(result: dict[str, Any]) -> str:
    floor, batch = result["floor"], result["batch_size"]
    lines = [
        f"**A training step on assignment problems** of size {result['size']}, batches of {batch},"
        f" {result['threads']} threads: OneGNN of the recipe with its {result['sweeps']} sweeps over the costs, beside"
        " the step that the task comes from, written again from its description. The floor: the bytes of a step, moved"
        " once at the rate of a copy\n",
        "| | instances/s | time ÷ graphmill (quartiles) |",
        "|" + "---|" * 3,
    ]
    for name, rate in result["instances_per_s"].items():
        found = result["ratio_to_graphmill"].get(name)
        lines.append(f"| {name} | {rate['median']:,.1f} | {'1' if found is None else ratio(found)} |")
    least_s = floor["bytes"] / floor["copy_bytes_per_s"]["median"]
    lines.append(f"| floor | {batch / least_s:,.0f} | |")
    return "\n".join([*lines, "", source(result, "python benchmarks/assignment_training.py")])


def assignment_training_headline(result: dict[str, Any]) -> tuple[str, str]:
    found = result["ratio_to_graphmill"]["the original"]["median"]
    return "training on assignment problems", f"{found:.3g} times as fast as the step that it comes from"


WAYS = ("trial", "formula")


def assignment_limits(result: dict[str, Any]) -> str:
    bars, stages, jobs = result["bars"], result["stages"], result["jobs"]
    lines = [
        f"**Size buckets in jobs of {result['limit_s'] // 60} min at most** (`pipeline-assignment-small`, lengthened;"
        f" dev cluster, {len(jobs)} jobs, {result['num_killed']} of them with a rank that its limit killed in"
        " mid-epoch), against the same pipeline without limits. Predicted ÷ taken; bars:"
        f" {bars['time']:.0%} of the time, {bars['memory']:.0%} of the memory\n",
        "| stage | s without limits | time ÷ | peak MiB | memory ÷, by trial | by formula | attempts"
        " | resumed in mid-epoch | steps made twice | best and last weights |",
        "|" + "---|" * 10,
    ]
    for each in stages:
        same = "bit-identical" if each["identical"] else "DIFFER"
        ratios = [each["predicted_s"] / each["took_s"], *(each[f"{by}_mib"] / each["peak_mib"] for by in WAYS)]
        by_time, by_trial, by_formula = (f"{value:.2f}" for value in ratios)
        cells = (
            *(each["stage"], f"{each['took_s']:.0f}", by_time, f"{each['peak_mib']:.0f}", by_trial, by_formula),
            *(str(each[key]) for key in ("attempts", "resumed_in_mid_epoch", "steps_made_twice")),
        )
        lines.append(f"| {' | '.join(cells)} | {same} |")
    same = "are equal" if result["evaluations_identical"] else "DIFFER"
    took = ", ".join(f"{job['took_s']:.0f} s of {job['asked_min']} min ({', '.join(job['stages'])})" for job in jobs)
    lines.append(f"\nThe jobs: {took}. The evaluations of every stage on all buckets {same}.\n")
    load = (
        f"Others used {result['foreign_cores']:.2f} cores, and {result['foreign_cores_under_limits']:.2f} under limits."
    )
    return "\n".join([*lines, load, "", source(result, "python benchmarks/assignment_limits.py")])


def assignment_limits_headline(result: dict[str, Any]) -> tuple[str, str]:
    stages = result["stages"]
    same = sum(each["identical"] for each in stages)
    attempts = sum(each["attempts"] for each in stages)
    figure = f"{same} of {len(stages)} bit-identical to no limit, {attempts} attempts in {len(result['jobs'])} jobs"
    return f"four size buckets in jobs of {result['limit_s'] // 60} min", figure


TABLES = {
    "assignment": assignment,
    "assignment_frames": assignment_frames,
    "assignment_seeded": assignment_seeded,
    "assignment_training": assignment_training,
    "assignment_limits": assignment_limits,
}
HEADLINES = {
    "assignment": assignment_headline,
    "assignment_training": assignment_training_headline,
    "assignment_limits": assignment_limits_headline,
}
