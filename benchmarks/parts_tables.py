"""Tables of graphs in parts: what crosses between parts, by partitioner and cache; presampled epochs."""

from typing import Any

from entries import source

_NAMES = {
    "none": "no cache",
    "degree": "degree",
    "presample": "presample",
    "hotness": "hotness",
    "vip": "vip",
    "oracle": "best in hindsight",
    "lookahead": "lookahead",
}
_ROWS_BAR = 9.7  # RapidGNN's figure for fetches, arXiv 2509.05207
_BARS = (
    ("random", "none", 4, "random parts without a cache"),
    ("hotness", "hotness", 2, "hotness parts with a hotness cache"),
)


def hot_caches(result: dict[str, Any]) -> str:
    """Remote bytes by partitioner and policy, as shares of random parts without a cache."""
    graphs = {name: found for name, found in result.items() if isinstance(found, dict) and "methods" in found}
    first = next(iter(graphs.values()))
    lines = [
        f"**Rows of features that cross between {first['num_parts']} parts** (replayed, not timed): fan-outs"
        f" {list(first['fanouts'])}, caches of {first['ratio']:.0%} of all rows, lookahead"
        f" over {first['window']} batches; bytes ÷ those of random parts without a cache. Lookahead keeps as many"
        " rows between windows as a cache has, as a run does that is given the same `ratio`\n",
        f"| graph, partitioner | cut | {' | '.join(_NAMES.values())} |",
        "|" + "---|" * (2 + len(_NAMES)),
    ]
    for name, found in graphs.items():
        base = found["methods"]["random"]["none"]["fetched_bytes"]
        for method, of in found["methods"].items():
            lines.append(_row(f"{name}, {method}", f"{found['cut'][method]:.0%}", of, base))
        lines.append(_row(f"{name}, {found['default'][0]}, equal seeds", "", found["equal_seeds"], base))
    lines.append("\n" + "\n".join(f"- {name}: {_bars(found)}" for name, found in graphs.items()) + "\n")
    lines += [*_sweep(graphs), ""]
    return "\n".join(lines) + source(result, "python benchmarks/hot_caches.py --dataset-root FOLDER")


def hot_caches_headline(result: dict[str, Any]) -> tuple[str, str]:
    """The default against the two that the bars name."""
    graphs = [found for found in result.values() if isinstance(found, dict) and "methods" in found]
    told = []
    for method, policy, _, words in _BARS:
        shares = [1 / _default_to(found, method, policy) for found in graphs]
        told.append(f"{min(shares):.2g} to {max(shares):.2g} times fewer than {words}")
    what = f"remote feature bytes of an epoch, {graphs[0]['num_parts']} parts, {len(graphs)} graphs"
    return what, "; ".join(told)


def presampled(result: dict[str, Any]) -> str:
    """What reading an epoch takes beside sampling it."""
    lines = [
        "**Presampled epochs**: reading a batch of a file against sampling it, CPU time of one thread (median of paired"
        " rounds, quartiles)\n",
        "| graph | nodes of a batch | bytes of a batch | sampling ms | reading ms | sampling ÷ reading |",
        "|" + "---|" * 6,
    ]
    for name, found in result.items():
        if not isinstance(found, dict) or "ratio" not in found:
            continue
        ratio = found["ratio"]
        lines.append(
            f"| {name} | {found['nodes_per_batch']:,.0f} | {found['bytes_per_batch']:,.0f} |"
            f" {found['sample_s']['median'] * 1e3:.2f} | {found['read_s']['median'] * 1e3:.2f} |"
            f" {ratio['median']:.3g} ({ratio['q25']:.3g} to {ratio['q75']:.3g}) |"
        )
    return "\n".join([*lines, "", source(result, "python benchmarks/presampled.py --dataset-root FOLDER")])


def _row(name: str, cut: str, found: dict[str, Any], base: float) -> str:
    cells = [f"{found[policy]['fetched_bytes'] / base:.3f}" if policy in found else "" for policy in _NAMES]
    return "| " + " | ".join([name, cut, *cells]) + " |"


def _default_to(found: dict[str, Any], method: str, policy: str) -> float:
    return _bytes_of(found, *found["default"]) / _bytes_of(found, method, policy)


def _in_hindsight(found: dict[str, Any], method: str, policy: str) -> str:
    """What no cache that is filled once could do better: the rows that these very epochs read most, of any parts."""
    best = min(of["oracle"]["fetched_bytes"] for of in found["methods"].values())
    return f"; the best such cache in hindsight, of any of these parts: {best / _bytes_of(found, method, policy):.3f}"


def _bytes_of(found: dict[str, Any], method: str, policy: str) -> int:
    return int(found["methods"][method][policy]["fetched_bytes"])


def _bars(found: dict[str, Any]) -> str:
    method, policy = found["default"]
    told = []
    for of, cache, wanted, words in _BARS:
        share = _default_to(found, of, cache)
        met = "" if share <= 1 / wanted else f" (the bar is 1/{wanted}: not met{_in_hindsight(found, of, cache)})"
        told.append(f"{share:.3f} of {words}{met}")
    of = found["methods"][method]
    look, floor, none = of["lookahead"], of["floor"], found["methods"]["metis"]["none"]
    return (
        f"{method} with {policy} moves {' and '.join(told)}. Lookahead fetches {look['fetched'] / floor['fetched']:.2f}"
        f" of the rows that its windows need, each once; against METIS without a cache"
        f" {none['fetched'] / look['fetched']:.1f} times fewer rows{_fewest(of, none)}"
        f" in {none['num_fetches'] / look['num_fetches']:.1f} times fewer exchanges."
    )


def _fewest(of: dict[str, Any], none: dict[str, Any]) -> str:
    """Where lookahead's rows miss their bar: what nothing could better."""
    if none["fetched"] / of["lookahead"]["fetched"] >= _ROWS_BAR:
        return ""
    kept, once = (none["fetched"] / of[least]["fetched"] for least in ("lookahead_oracle", "once"))
    return (
        f" (the bar is {_ROWS_BAR}: not met; who knows all that is to come and keeps as many rows: {kept:.2f};"
        f" each row once in all epochs: {once:.2f})"
    )


def _sweep(graphs: dict[str, Any]) -> list[str]:
    lines = [
        "Lookahead by window and by rows kept between windows, against METIS without a cache: times fewer rows, times"
        " fewer exchanges, and rows of other parts that a part holds at most, as a share of all nodes\n",
        "| graph | window | kept | rows | exchanges | held |",
        "|" + "---|" * 6,
    ]
    for name, found in graphs.items():
        none = found["methods"]["metis"]["none"]
        lines += [
            f"| {name} | {one['window']} | {one['ratio']:.0%} | {none['fetched'] / one['fetched']:.1f} |"
            f" {none['num_fetches'] / one['num_fetches']:.1f} | {one['most_held'] / found['num_nodes']:.0%} |"
            for one in found["methods"][found["default"][0]]["sweep"]
        ]
    return lines


def parts_training(result: dict[str, Any]) -> str:
    """An epoch by each way to get at the parts, against the graph stored whole."""
    lines = [
        "**Training on parts**: GraphSAGE, fan-outs [25, 10], four ranks, each a host in a network namespace of its own"
        " with one part; medians of runs that take turns. *crossed*: received on the interfaces of all hosts beyond"
        " what the run on the whole graph received, against what the loaders recorded\n",
    ]
    for name, found in result.items():
        if not isinstance(found, dict) or "ways" not in found:
            continue
        whole = found["ways"]["whole"]
        lines += [
            f"| {name}, {found['rounds']} rounds | epoch s | ÷ whole | processor s ÷ whole | waits | rows fetched |"
            " loaders MiB | crossed ÷ recorded | peak MiB of a rank |",
            "|" + "---|" * 9,
        ]
        for way, of in found["ways"].items():
            ratio, recorded = of["epoch_over_whole"], of["loader_mib"]
            work = f"{of['processor_over_whole']['median']:.2f}" if "processor_over_whole" in of else ""
            crossed = f"{(of['received_mib'] - whole['received_mib']) / recorded:.3f}" if recorded else ""
            lines.append(
                f"| {way} | {of['epoch_s']:.2f} | {ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f}) |"
                f" {work} | {of['waiting']:.0%} | {of['fetched_rows']:,.0f} | {of['loader_mib']:,.1f} | {crossed} |"
                f" {of['peak_rss_mib']:,.0f} |"
            )
        lines.append("")
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/parts_training.py --dataset-root FOLDER")


def parts_faults(result: dict[str, Any]) -> str:
    """Seconds until every rank had ended."""
    lines = [
        "**A rank that is silent**: four ranks on hosts in network namespaces train on parts, by the default of"
        " `train.hang_timeout_s`; s until the last of the others had ended, the longest round\n",
        "| fault | s | that rank itself, s |",
        "|" + "---|" * 3,
    ]
    for fault, runs in (result.get("four hosts") or {}).items():
        if isinstance(runs, list):
            own = [run["victim_s"] for run in runs if run["victim_s"] is not None]
            lines.append(
                f"| {fault} | {max(run['others_s'] for run in runs):.1f} | {f'{max(own):.1f}' if own else ''} |"
            )
    return "\n".join([*lines, "", source(result, "python benchmarks/parts_faults.py --dataset-root FOLDER")])


def parts_memory(result: dict[str, Any]) -> str:
    """What a rank takes beyond the interpreter, beside its part and cache."""
    lines = [
        "**Memory of a rank in parts**: topology in parts too, four ranks on four hosts, MiB. *interpreter*: a rank"
        " that trains the same model on a graph of 100 nodes; *mapped*: `ru_maxrss`, pages of files included, over part"
        " and cache, as is *with evaluation*; *own*: anonymous and shared pages beyond the interpreter's and the cache."
        " *limit*: the ranks finish in control groups of that much, 1.15 times part and cache above the interpreter's"
        " charge, without swap\n",
        "| graph | rounds | part | cache | interpreter | training | mapped ÷ (part + cache) | with evaluation | own |"
        " limit | time under it |",
        "|" + "---|" * 11,
    ]
    for name, found in result.items():
        if isinstance(found, dict) and "own_over_cache_mib" in found:
            limit = f"{found['limit_mib']:,.0f}" if "limit_mib" in found else ""
            times = f"{found['limited_over_free_s']:.2f} times" if "limit_mib" in found else ""
            lines.append(
                f"| {name} | {found['rounds']} | {found['part_mib']:,.0f} | {found['cache_mib']:,.0f} |"
                f" {found['interpreter_mib']:,.0f} | {found['training_mib']:,.0f} | {found['ratio']:.2f} |"
                f" {found['ratio_with_evaluation']:.2f} | {found['own_over_cache_mib']:,.0f} | {limit} | {times} |"
            )
    return "\n".join([*lines, "", source(result, "python benchmarks/parts_memory.py --dataset-root FOLDER")])


TABLES = {
    "hot_caches": hot_caches,
    "presampled": presampled,
    "parts_training": parts_training,
    "parts_faults": parts_faults,
    "parts_memory": parts_memory,
}
HEADLINES = {"hot_caches": hot_caches_headline}
