"""Headlines: one line for each result that has one, and the short ones of README."""

from typing import Any

from assignment_tables import HEADLINES as OF_ASSIGNMENT
from graph_tables import HEADLINES as OF_GRAPHS
from graph_tables import short_attention
from loader_tables import HEADLINES as OF_LOADERS
from partition_tables import HEADLINES as OF_PARTITIONING
from parts_tables import HEADLINES as OF_PARTS


def graphs_of(result: dict[str, Any]) -> list[str]:
    return [name for name, value in result.items() if isinstance(value, dict) and "contenders" in value]


def road_graph(result: dict[str, Any]) -> str:
    return "a generated road graph" if result["graph"] == "synthetic" else f"{result['graph']}'s road graph"


def sampler_headline(result: dict[str, Any]) -> tuple[str, str]:
    graphs = [result[name] for name in graphs_of(result)]
    found = []
    for peer in graphs[0]["contenders"]:
        if peer.startswith("graphmill"):
            continue
        medians = [graph["contenders"][peer]["ratio_to_graphmill"]["median"] for graph in graphs]
        found.append(f"{min(medians):.3g} to {max(medians):.3g} times as fast as {peer}")
    threads = "" if "old" in result else ", equal threads"
    return f"sampling, {len(graphs)} graphs{threads}", "; ".join(found)


def step_headline(result: dict[str, Any]) -> tuple[str, str]:
    peers = {name: each for name, each in result["contenders"].items() if not name.startswith("graphmill")}
    found = [f"{each['ratio_to_graphmill']['median']:.3g} times as fast as {name}" for name, each in peers.items()]
    return "a GraphSAGE step", "; ".join(found)


def short_step(result: dict[str, Any]) -> tuple[str, str]:
    peers = [each for name, each in result["contenders"].items() if not name.startswith("graphmill")]
    medians = [each["ratio_to_graphmill"]["median"] for each in peers]
    return "a GraphSAGE step", f"{min(medians):.3g} to {max(medians):.3g} times as fast as {len(peers)} forms of PyG"


def traffic_headline(result: dict[str, Any]) -> tuple[str, str]:
    peer = result["contenders"]["torch-geometric-temporal"]["ratio_to_graphmill"]["median"]
    return f"a DCRNN step, 207 sensors, {road_graph(result)}", f"{peer:.3g} times as fast as torch-geometric-temporal"


def accuracy_headline(result: dict[str, Any]) -> tuple[str, str]:
    found = []
    for name, column in (("debian-packages-sage", "micro_f1"), ("traffic-metr-la-10", "mae_30min")):
        entry, copies = result[name]["test"][column], result[name].get("near_copies")
        without = f" ({copies['micro_f1_without']:.3g} without near-copies of training nodes)" if copies else ""
        found.append(f"{name}: {column} {entry['mean']:.3g} ± {entry['sd']:.1g}{without}")
    return "test split, three seeds", "; ".join(found)


def kills_headline(result: dict[str, Any]) -> tuple[str, str]:
    return "killed and resumed", f"{result['num_identical']} of {result['num_runs']} runs ended bit-identical"


def limits_headline(result: dict[str, Any]) -> tuple[str, str]:
    cut = [row for row in result["runs"] if row["status"] == "done" and row["attempts"] > 1]
    same = sum(bool(row["identical"]) for row in cut)
    lost = max(max(row["steps_lost"], default=0) for row in cut)
    attempts = " and ".join(str(row["attempts"]) for row in cut)
    figure = f"{attempts} attempts each, {lost} steps made twice, {same} of {len(cut)} bit-identical in the end"
    return f"cut by limits of {result['limit_s']} s on Slurm", figure


def faults_headline(result: dict[str, Any], over: str) -> tuple[str, str]:
    """A job that has lost its driver runs until Slurm gives the host up; its ranks do not."""
    kinds = result["kinds"]
    promised, same = (sum(kind[key] for kind in kinds.values()) for key in ("as_promised", "identical"))
    heard = [kind for name, kind in kinds.items() if not name.endswith("_first")]
    longest = max(kind["over_s"][1] for kind in heard if kind["over_s"])
    asked = _trials_asked(result) * len(kinds)
    early = f" ({asked} were asked for; ended early)" if asked > result["num_trials"] else ""
    figure = (
        f"{promised} of {result['num_trials']} trials{early} of {len(kinds)} kinds as promised, {same} bit-identical"
        f" in the end, {result['num_damaged_checkpoints']} damaged checkpoints, over within {longest:.0f} s"
    )
    unheard = [kind for kind in kinds.values() if kind not in heard]
    if unheard:
        gone, noticed = (max(kind[key][1] for kind in unheard) for key in ("gone_s", "over_s"))
        timeout = result["slurmd_timeout_s"]
        figure += (
            f"; driver lost: ranks gone within {gone:.0f} s, job over within {noticed:.0f} s (SlurmdTimeout {timeout})"
        )
    return f"faults, {over}", figure


def _trials_asked(result: dict[str, Any]) -> int:
    """Of each kind, by the command."""
    words = next(iter(result["origins"].values()))["argv"]
    return int(words[words.index("--trials") + 1]) if "--trials" in words else 0


def preemption_headline(result: dict[str, Any]) -> tuple[str, str]:
    kinds = result["kinds"].values()
    trials, promised, same, behind, over, doubled = (
        sum(kind[key] for kind in kinds)
        for key in ("trials", "as_promised", "identical", "left_behind", "left_over", "doubled")
    )
    figure = (
        f"{promised} of {trials} trials of {len(kinds)} kinds as promised, {same} bit-identical in the end;"
        f" {behind} runs left behind, {over} jobs left over, {doubled} doubled"
    )
    return "preempted, cancelled, powered off, no controller", figure


def short_preemption(result: dict[str, Any]) -> tuple[str, str]:
    what, figure = preemption_headline(result)
    return what, figure.split(";", maxsplit=1)[0]


HEADLINES = {
    "sampler": sampler_headline,
    "sampler_dgl": sampler_headline,
    "step": step_headline,
    "traffic_step": traffic_headline,
    "accuracy": accuracy_headline,
    **OF_ASSIGNMENT,
    **OF_GRAPHS,
    **OF_LOADERS,
    **OF_PARTS,
    **OF_PARTITIONING,
    "kills": kills_headline,
    "limits": limits_headline,
    "faults": lambda r: faults_headline(r, "on Slurm"),
    "preemption": preemption_headline,
    "faults_ssh": lambda r: faults_headline(r, "over SSH"),
}
"""All of them, for docs/measurements.md."""
FRONT = {
    "end_to_end": OF_GRAPHS["end_to_end"],
    "sampler": sampler_headline,
    "step": short_step,
    "attention": short_attention,
    "accuracy": accuracy_headline,
    "kills": kills_headline,
    "preemption": short_preemption,
}
"""Those of README."""
