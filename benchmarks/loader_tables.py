"""Tables of PyG's loaders, layers and models of types beside ours, and of links beside simple methods."""

import statistics
from typing import Any

from entries import source
from graph_tables import entries_of, ratio


def loaders(result: dict[str, Any]) -> str:
    """Whole batches by kind and number of workers, then a batch and a step."""
    lines = [
        "**Batches of loaders** with rows of features, as `for batch in loader` yields them, and construction\n",
        "| batches | workers | ms | PyG's ms | time ÷ graphmill (quartiles) | construction s | PyG's s |",
        "|" + "---|" * 7,
    ]
    for cell in result["cells"]:
        ms = (f"{1e3 * cell['seconds_a_batch'][side]['median']:.1f}" for side in ("graphmill", "PyG"))
        made = (f"{cell['construction_s'][side]:.2f}" for side in ("graphmill", "PyG"))
        lines.append(f"| {' | '.join((cell['cell'], str(cell['workers']), *ms, ratio(cell['ratio']), *made))} |")
    lines += ["", "| a batch and a step of | workers | ms | PyG's time ÷ this (quartiles) |", "|" + "---|" * 4]
    names = {"our loader": "our loader, PyG's layers", "ours": "our loader and layers"}
    for cell in result["beside_a_step"]:
        lines.append(f"| PyG's loader and layers | {cell['workers']} | {cell['ms_a_batch']['PyG']:.0f} | |")
        for key, spread in cell["ratios"].items():
            lines.append(f"| {names[key]} | {cell['workers']} | {cell['ms_a_batch'][key]:.0f} | {ratio(spread)} |")
    load = max(cell["foreign_cores"] for cell in (*result["cells"], *result["beside_a_step"]))
    note = f"Others used up to {load:.2f} cores.\n"
    return "\n".join([*lines, "", note, source(result, "python benchmarks/loaders.py")])


def steps(result: dict[str, Any], title: str, command: str) -> str:
    """A row for each contender of each entry."""
    lines = [f"**{title}**\n", "| | form | ms | time ÷ graphmill (quartiles) |", "|" + "---|" * 4]
    for name, entry in entries_of(result).items():
        for form, found in entry["contenders"].items():
            cells = (f"{1e3 * found['seconds']['median']:.0f}", ratio(found["ratio_to_graphmill"]))
            lines.append(f"| {name} | {form} | {' | '.join(cells)} |")
    load = max(entry["foreign_cores"] for entry in entries_of(result).values())
    note = f"Trimmed forms are beside graphmill's trimmed form. Others used up to {load:.2f} cores.\n"
    return "\n".join([*lines, "", note, source(result, command)])


def loaders_headline(result: dict[str, Any]) -> tuple[str, str]:
    medians = [cell["ratio"]["median"] for cell in result["cells"]]
    mean = statistics.geometric_mean(medians)
    figure = f"least {min(medians):.3g}, most {max(medians):.3g} times as fast as PyG's, {mean:.3g} by geometric mean"
    return f"batches of loaders, {len(medians)} kinds with and without workers", figure


def links(result: dict[str, Any]) -> str:
    """A row for each set and measure."""
    lines = [
        "**Links**: test links ranked among all nodes but other known links, best-val checkpoint, mean ± sd\n",
        "| data | measure | graphmill | best baseline | its score | seeds | median wall s |",
        "|" + "---|" * 7,
    ]
    for name, entry in entries_of(result).items():
        for measure, values in entry["test"].items():
            best, score = best_baseline(entry, measure)
            mean, sd = statistics.fmean(values), statistics.stdev(values)
            cells = (
                f"{mean:.3f} ± {sd:.3f}",
                best,
                f"{score:.3f}",
                len(values),
                f"{statistics.median(entry['wall_s']):.0f}",
            )
            lines.append(f"| {name} | {measure} | {' | '.join(map(str, cells))} |")
    load = max(entry["foreign_cores"] for entry in entries_of(result).values())
    note = f"Others used up to {load:.2f} cores, which changes the seconds alone.\n"
    return "\n".join([*lines, "", note, source(result, "python benchmarks/links.py --data FOLDER")])


def links_headline(result: dict[str, Any]) -> tuple[str, str]:
    found = []
    for name, entry in entries_of(result).items():
        best, score = best_baseline(entry, "mrr")
        found.append(f"{name} {statistics.fmean(entry['test']['mrr']):.3f} ({best} {score:.3f})")
    return "MRR of test links, three seeds (best simple method)", "; ".join(found)


def best_baseline(entry: dict[str, Any], measure: str) -> tuple[str, float]:
    """Name and score of the best one that was scored."""
    scores = {name: its[measure] for name, its in entry["baselines"].items() if measure in its}
    best = max(scores, key=lambda name: scores[name])
    return best, float(scores[best])


LAYERS = "A step of two layers under PyG's names: forward, backward, Adam"
MODELS = "A step of models of types, a graph shaped as ogbn-mag: forward, backward, Adam"
TABLES = {
    "loaders": loaders,
    "layers": lambda result: steps(result, LAYERS, "python benchmarks/layers.py"),
    "typed_models": lambda result: steps(result, MODELS, "python benchmarks/typed_models.py"),
    "links": links,
}

HEADLINES = {"loaders": loaders_headline, "links": links_headline}
