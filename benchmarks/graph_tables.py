"""Tables of attention, of sets of graphs, and of intrusion detection."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from entries import source

LAYERS = {"gat": "GAT", "gatv2": "GATv2"}


def ratio(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.3g} ({spread['q25']:.3g} to {spread['q75']:.3g})"


def mean_sd(values: Sequence[float], digits: int = 3) -> str:
    sd = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{sd}"


def entries_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in result.items() if name not in ("origins", "excepted")}


def attention(result: dict[str, Any]) -> str:
    """Time and memory of a layer, and the floor under its time: the larger of bytes and operations."""
    lines = [
        "**Attention with features of edges**, forward and backward: 64 channels in, 8 heads of 16, 11 features of an"
        " edge, degree 20. Gradients of nodes (edges: of both) stand beside those of weights. The floor is what moving"
        " each byte once, or what the operations, take at the rates measured beside it\n",
        "| layer | gradients of | edges | form | ms | ÷ graphmill (quartiles) | extra MiB | floor ms |",
        "|" + "---|" * 8,
    ]
    for value in entries_of(result).values():
        floor = value["floor"]
        least_s = max(
            floor["bytes"] / floor["copy_bytes_per_s"]["median"], floor["flop"] / floor["product_flop_per_s"]["median"]
        )
        for form, found in value["contenders"].items():
            start = f"| {value['kind']} | {value.get('gradients', 'weights')} | {value['num_edges']:,} | {form} |"
            if "left_out" in found:
                lines.append(f"{start} not measured: it needs {found['left_out']} | | | |")
                continue
            cells = (f"{1e3 * found['seconds']['median']:.0f}", ratio(found["ratio_to_graphmill"]))
            lines.append(f"{start} {' | '.join(cells)} | {found['extra_mib']:.0f} | {1e3 * least_s:.1f} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/attention.py")])


def collate(result: dict[str, Any]) -> str:
    lines = [
        "**Collation** of synthetic graphs; the floor: a copy of as many bytes; fresh: graphmill in memory that is not"
        " used again\n",
        "| graphs of a batch | | ms | graphs/s | time ÷ graphmill (quartiles) |",
        "|" + "---|" * 5,
    ]
    for case in result["batches"]:
        graphs = case["graphs"]
        for name, seconds in case["seconds"].items():
            median = seconds["median"]
            cells = (f"{1e3 * median:.3g}", f"{graphs / median:,.0f}", ratio(case["ratio_to_graphmill"][name]))
            lines.append(f"| {graphs:,} ({case['mib']:.3g} MiB) | {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/collate.py")])


def graph_epoch(result: dict[str, Any]) -> str:
    lines = [
        f"**An epoch of the GAT of CAN windows**, scale {result['scale']}: {result['num_windows']:,} generated windows,"
        f" batches of {result['batch_size']}, {result['threads']} threads\n",
        "| | s | windows/s | time ÷ graphmill (quartiles) | waits for batches |",
        "|" + "---|" * 5,
    ]
    for name, found in result["sides"].items():
        cells = (
            f"{found['seconds']['median']:.2f}",
            f"{found['windows_per_s']:,.0f}",
            ratio(found["ratio_to_graphmill"]),
            f"{found['waiting_share']:.1%}",
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/graph_epoch.py")])


def batch_size(result: dict[str, Any]) -> str:
    """Whether a batch that was found fits, and whether a larger one does not."""
    over = result["over"]
    lines = [
        f"**Batch sizes found by trial** under a limit of memory; {result['target']:.0%} of the largest that fits is"
        " used\n",
        f"| graphs | limit MiB | attempts | used, graphs | predicted MiB | peak MiB | predicted ÷ peak | peak with"
        f" {over} times as many |",
        "|" + "---|" * 8,
    ]
    for cell in result["cells"]:
        beyond = f"{cell['peak_over_mib']:,.0f}" + ("" if cell["over_exceeds"] else ", which fits")
        peak = f"{cell['peak_mib']:,.0f}" + ("" if cell["within"] else ", over the limit")
        ratio_of_peaks = f"{cell['predicted_mib'] / cell['peak_mib']:.3f}"
        cells = (cell["set"], f"{cell['limit_mib']:,}", str(cell["attempts"]), f"{cell['safe']:,}")
        lines.append("| " + " | ".join((*cells, f"{cell['predicted_mib']:,.0f}", peak, ratio_of_peaks, beyond)) + " |")
    return "\n".join([*lines, "", source(result, "python benchmarks/batch_size.py --tu FOLDER --capture FILE")])


def intrusion(result: dict[str, Any]) -> str:
    """F1 and AUC by case and model; and where no model with a graph is better than the statistic."""
    found = entries_of(result)
    models = list(next(iter(found.values()))["models"])
    seeds = len(next(iter(found.values()))["seeds"])
    sizes = {model: next(iter(found.values()))["models"][model]["num_parameters"] for model in models}
    parts = [
        "**Intrusion detection on CAN buses**: test windows of 100 frames, thresholds chosen on validation windows,"
        f" mean ± sd over {seeds} rng seeds. Captured: another stretch of time of the captures that were trained on;"
        " held out: a capture, a kind of attack or a vehicle that was not trained on. The statistic knows no graph:"
        " counts of ids, and gaps between their frames. Always: the F1 of an alarm at every window, 2a ÷ (a + n) of a"
        " attacked windows among n; what is not above it says nothing. Published for masquerade attacks: F1 0.94 to"
        " 0.996 (MIDS), of other splits and other shares of attacked windows."
        f" Parameters: {', '.join(f'{model} {size:,}' for model, size in sizes.items())}\n"
    ]
    for column, heading, always in (("f1", "F1", always_f1), ("auc", "AUC", lambda _: 0.5)):
        parts += [
            f"| {heading} | attacked windows | always | statistic | {' | '.join(models)} |",
            "|" + "---|" * (4 + len(models)),
        ]
        for case, value in found.items():
            cells = [mean_sd(value["models"][model][column]) for model in models]
            attacked = f"{value['num_attacked']} of {value['num_test']} | {always(value):.3f}"
            parts.append(f"| {case} | {attacked} | {value['statistic'][column]:.3f} | {' | '.join(cells)} |")
        worse = [case for case, value in found.items() if not beats_statistic(value, column)]
        if worse:
            parts.append(f"\nNo model has a higher {heading} than the statistic: {'; '.join(worse)}.")
        parts.append("")
    parts += false_alarms(found, models)
    return "\n".join([*parts, source(result, "python benchmarks/intrusion.py --captures FOLDER")])


def false_alarms(found: dict[str, dict[str, Any]], models: list[str]) -> list[str]:
    """A table: of the windows without an attack, those that were alarmed at; hours are not in the results."""
    lines = [
        f"| false alarms, % of benign windows | benign windows | statistic | {' | '.join(models)} |",
        "|" + "---|" * (3 + len(models)),
    ]
    for case, value in found.items():
        cells = [
            " to ".join(dict.fromkeys(f"{100 * share:.1f}" for share in (min(shares), max(shares))))
            for model in models
            if (shares := alarmed(value, value["models"][model]))
        ]
        benign = value["num_test"] - value["num_attacked"]
        own = alarmed(value, {name: [value["statistic"][name]] for name in ("precision", "recall")})[0]
        lines.append(f"| {case} | {benign} | {100 * own:.1f} | {' | '.join(cells)} |")
    return [*lines, ""]


def alarmed(value: dict[str, Any], model: dict[str, Any]) -> list[float]:
    """By seed: the share of benign windows that were alarmed at, by precision and recall."""
    attacked, benign = value["num_attacked"], value["num_test"] - value["num_attacked"]
    return [
        0.0 if not precision else recall * attacked * (1 / precision - 1) / benign
        for precision, recall in zip(model["precision"], model["recall"], strict=True)
    ]


def always_f1(value: dict[str, Any]) -> float:
    """Of an alarm at every window."""
    return 2 * value["num_attacked"] / (value["num_attacked"] + value["num_test"])


def beats_statistic(value: dict[str, Any], column: str) -> bool:
    best = max(statistics.mean(model[column]) for model in value["models"].values())
    return best > value["statistic"][column]


def detect(result: dict[str, Any]) -> str:
    lines = [
        f"**`graphmill detect`**, one core: ms from the arrival of a window's last frame to its verdict"
        f" (published: {result['published_ms']} ms, MIDS)\n",
        "| model | median (quartiles) | 99 % | a window of a whole capture |",
        "|" + "---|" * 4,
    ]
    for name, found in result["models"].items():
        cells = (ratio(found["arriving"]), f"{found['p99']:.3g}", f"{found['whole']:.3g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/detect.py --capture FILE --runs RUN …")])


def tu(result: dict[str, Any]) -> str:
    lines = [
        "**Graph classification**: test accuracy over ten stratified folds, mean ± sd, beside published figures, which"
        " were written down without the papers at hand (but for GIN on ENZYMES)\n",
        "| study | here | published | by |",
        "|" + "---|" * 4,
    ]
    for name, value in entries_of(result).items():
        published = value["published"]
        figures = f"{mean_sd(value['folds'])} | {published['mean']:.3f} ± {published['sd']:.3f}"
        lines.append(f"| study-{name} | {figures} | {published['by']} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/tu.py --tu FOLDER")])


def defaults(kind: str) -> Callable[[dict[str, Any]], str]:
    """The table of a kind: models with defaults and tuned beside the best baseline of each set."""

    def table(result: dict[str, Any]) -> str:
        rows = entries_of(result)
        lines = [
            f"**With defaults, and tuned: {kind}**, test split, beside the simple methods that each run is judged by\n",
            "| data | measure | defaults | tuned | best baseline | its score | defaults, tuned: not below it |"
            " worse and did not say so |",
            "|" + "---|" * 8,
        ]
        for name, row in rows.items():
            digits = 3 if row["higher_is_better"] else 2 if row["baselines"][row["best"]] > 1 else 4  # a gap; an error
            scores = [mean_sd(row[way], digits) for way in ("defaults", "tuned")]
            best = f"{row['baselines'][row['best']]:.{digits}f}"
            counts = ", ".join(f"{sum(row['not_below'][way])} of {len(row[way])}" for way in ("defaults", "tuned"))
            cells = (row["measure"], *scores, row["best"], best, counts, silent(row))
            lines.append(f"| {name} | {' | '.join(str(cell) for cell in cells)} |")
        return "\n".join([*lines, "", source(result, "python benchmarks/defaults.py KIND --data FOLDER")])

    return table


def silent(row: dict[str, Any]) -> int:
    """Runs below the best baseline that did not say that they lose."""
    pairs = [pair for way in row["said"] for pair in zip(row["not_below"][way], row["said"][way], strict=True)]
    return sum(not one and not other for one, other in pairs)


def attention_headline(result: dict[str, Any]) -> tuple[str, str]:
    """From the least to the most, over all numbers of edges at which a peer was measured."""
    cases = list(entries_of(result).values())
    sizes = sorted(
        {case["num_edges"] for case in cases if all("seconds" in each for each in case["contenders"].values())}
    )
    parts = []
    for kind, layer in LAYERS.items():
        found = [case["contenders"] for case in cases if case["kind"] == kind]
        peers = dict.fromkeys(name for contenders in found for name in contenders if name != "graphmill")
        times = " and ".join(f"{span(ratios_of(found, peer))} times as fast as {peer}" for peer in peers)
        memory = [
            each["PyG"]["extra_mib"] / each["graphmill"]["extra_mib"] for each in found if "extra_mib" in each["PyG"]
        ]
        parts.append(f"{layer} {times}, 1/{min(memory):.0f} of PyG's extra memory")
    edges = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
    return f"attention with edge features, {edges} edges", "; ".join(parts)


def short_attention(result: dict[str, Any]) -> tuple[str, str]:
    """Beside PyG's layers as they come."""
    cases = entries_of(result).values()
    by_layer = {
        layer: span(ratios_of([case["contenders"] for case in cases if case["kind"] == kind], "PyG"))
        for kind, layer in LAYERS.items()
    }
    figures = ", ".join(f"{layer} {ratios}" for layer, ratios in by_layer.items())
    return "attention with edge features", f"{figures} times as fast as PyG"


def ratios_of(cases: Sequence[dict[str, Any]], peer: str) -> list[float]:
    found = [case[peer] for case in cases if "ratio_to_graphmill" in case.get(peer, {})]
    return [each["ratio_to_graphmill"]["median"] for each in found]


def span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def collate_headline(result: dict[str, Any]) -> tuple[str, str]:
    cases = result["batches"]
    peers, floors = ([case["ratio_to_graphmill"][name]["median"] for case in cases] for name in ("PyG", "floor"))
    sizes = " / ".join(f"{case['graphs']:,}" for case in cases)
    return (
        f"a batch of {sizes} graphs",
        f"{' / '.join(f'{each:.3g}' for each in peers)} times as fast as PyG's;"
        f" {' / '.join(f'{1 / each:.3g}' for each in floors)} times a plain copy",
    )


def graph_epoch_headline(result: dict[str, Any]) -> tuple[str, str]:
    peers = {name: side for name, side in result["sides"].items() if name != "graphmill"}
    figures = [f"{side['ratio_to_graphmill']['median']:.3g} times as fast as {name}" for name, side in peers.items()]
    return "an epoch of GAT over CAN windows", "; ".join(figures)


def tu_headline(result: dict[str, Any]) -> tuple[str, str]:
    figures = [f"{name} {value['mean']:.3f} ± {value['sd']:.3f}" for name, value in entries_of(result).items()]
    return "accuracy over ten folds", "; ".join(figures)


def intrusion_headline(result: dict[str, Any]) -> tuple[str, str]:
    """The worst and the best of captured and of held-out cases, of the GAT."""
    parts = []
    for words in ("captured", "held out"):
        cases = [value for case, value in entries_of(result).items() if case.endswith(words)]
        f1, auc = ([statistics.mean(value["models"]["GAT"][name]) for value in cases] for name in ("f1", "auc"))
        siren = [always_f1(value) for value in cases]
        most = max(max(alarmed(value, value["models"]["GAT"])) for value in cases)
        above = sum(own > always for own, always in zip(f1, siren, strict=True))
        parts.append(
            f"{words}: F1 {min(f1):.3f} to {max(f1):.3f}, where an alarm at every window has {min(siren):.3f} to"
            f" {max(siren):.3f} (above it in {above} of {len(cases)} cases), AUC {min(auc):.3f} to {max(auc):.3f},"
            f" false alarms at up to {most:.1%} of the benign windows"
        )
    return "attacks on CAN buses, a GAT", "; ".join(parts)


def end_to_end(result: dict[str, Any]) -> str:
    """Each row by its time and processor time; others' load is part of the origin's line."""
    lines = [
        "**From start to end**: `graphmill train` beside a plain script (torchrun for ranks) that trains the same"
        " model on the same file for as many epochs, evaluates after each and tests the best weights\n",
        "| | epochs | graphmill s, score | script s, score | time ÷ graphmill (quartiles) | CPU ÷ graphmill |",
        "|" + "---|" * 6,
    ]
    rows = entries_of(result)
    for name, row in rows.items():
        cells = [
            f"{row['seconds'][side]['median']:.3g}, {row['scores'][side]:.3f}" for side in ("graphmill", "plain script")
        ]
        ratios = (ratio(row["times_as_long"]), ratio(row["times_the_cpu"]))
        lines.append(f"| {name} | {row['epochs']} | {' | '.join((*cells, *ratios))} |")
    load = max(row["foreign_cores"] for row in rows.values())
    note = (
        f"Scores: accuracy on the test split, of DCRNN the mean absolute error, of assignment problems"
        f" the median dual gap. Others used up to {load:.2f} cores.\n"
    )
    return "\n".join([*lines, "", note, source(result, "python benchmarks/end_to_end.py --temporal FOLDER")])


def end_to_end_headline(result: dict[str, Any]) -> tuple[str, str]:
    medians = [row["times_as_long"]["median"] for row in entries_of(result).values()]
    mean = statistics.geometric_mean(medians)
    figure = f"least {min(medians):.3g} times as fast as the plain script, {mean:.3g} by geometric mean"
    return f"a training from start to end, {len(medians)} kinds", figure


TABLES = {
    "attention": attention,
    "end_to_end": end_to_end,
    "collate": collate,
    **{f"defaults_{kind}": defaults(kind) for kind in ("nodes", "graphs", "series", "captures", "links", "costs")},
    "graph_epoch": graph_epoch,
    "batch_size": batch_size,
    "tu": tu,
    "intrusion": intrusion,
    "detect": detect,
}

HEADLINES = {
    "attention": attention_headline,
    "end_to_end": end_to_end_headline,
    "collate": collate_headline,
    "graph_epoch": graph_epoch_headline,
    "tu": tu_headline,
    "intrusion": intrusion_headline,
}
