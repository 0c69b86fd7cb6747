"""The measured figures, from benchmarks/results/*.json: tables in docs/measurements.md, headlines in README.md.

python benchmarks/measured.py            print them
python benchmarks/measured.py --write    put them between the markers of both files
python benchmarks/measured.py --check    exit 1 where one of them says something else
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from harness import RESULTS

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for path, written in ((ROOT / "README.md", headlines()), (ROOT / "docs/measurements.md", tables())):
        text = path.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        section = f"{BEGIN}\n{written}{END}"
        if options.write:
            path.write_text(before + section + after)
        elif not options.check:
            sys.stdout.write(section + "\n")
        elif before + section + after != text:
            sys.exit(f"{path.name} says something else than benchmarks/results → python benchmarks/measured.py --write")


def tables() -> str:
    """All tables whose result is there."""
    return "\n".join(write(result) for name, write in TABLES.items() if (result := read(name)))


def headlines() -> str:
    """One line for each result that has one."""
    lines = ["| what | measured | by |", "|---|---|---|"]
    for name, tell in HEADLINES.items():
        if result := read(name):
            what, figure = tell(result)
            lines.append(f"| {what} | {figure} | `benchmarks/{name}.py` |")
    return "\n".join(lines) + "\n"


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    return {**stored["result"], "provenance": stored["provenance"]}


def source(result: dict[str, Any], command: str) -> str:
    """Where, when and by which command."""
    from_ = result["provenance"]
    cores = f"{from_['num_cores']} cores of {from_['cpu_model']}"
    load = result.get("foreign_cores")
    busy = f", others used {load:.2f} cores" if load is not None else ""
    return f"`{command}`, {cores}, {from_['time_utc'][:10]}{busy}.\n"


def ratio(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3g} ({spread['q25']:.3g} to {spread['q75']:.3g})"


def samplers(result: dict[str, Any], title: str, command: str) -> str:
    graphs = [name for name, value in result.items() if isinstance(value, dict) and "contenders" in value]
    ours, *peers = result[graphs[0]]["contenders"]
    lines = [f"**{title}** (time of the peer ÷ ours, median of paired ratios, quartiles)\n"]
    lines += [f"| graph | {ours} | " + " | ".join(peers) + " |", "|---|---|" + "---|" * len(peers)]
    for name in graphs:
        contenders = result[name]["contenders"]
        seeds = result["batch"] / contenders[ours]["seconds"]["median"]
        cells = [ratio(contenders[peer]["ratio_to_graphmill"]) for peer in peers]
        load = result[name]["foreign_cores"]
        lines.append(f"| {name} (others used {load:.2f} cores) | {seeds:,.0f} seeds/s | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n" + source(result, command)


def step(result: dict[str, Any]) -> str:
    lines = [
        "**One training step**, Reddit-shaped graph (synthetic), 2-layer GraphSAGE, fan-outs [25, 10], batch 1024\n"
    ]
    lines += ["| form | ms | time ÷ graphmill (quartiles) | peak MiB above the data |", "|---|---|---|---|"]
    for name, value in result["contenders"].items():
        memory = result["peak_mib"].get(name)
        cell = f"{memory:.0f}" if memory is not None else ""
        lines.append(
            f"| {name} | {value['seconds']['median'] * 1e3:.0f} | {ratio(value['ratio_to_graphmill'])} | {cell} |"
        )
    rates = ", ".join(
        f"{result['gflops_achieved'] / rate:.0%} of {name}'s {rate:.0f}"
        for name, rate in result["matrix_rates_gflops"].items()
    )
    shares = ", ".join(f"{name} {share:.1%}" for name, share in result["phases_share"].items())
    ahead = result["pipelined"]
    best = max(rate for name, rate in result["matrix_rates_gflops"].items() if name.endswith("float32"))
    gflop, left_out = result["gflop"], result["gflop_left_out"]
    share_ahead = gflop / ahead["seconds_per_step"] / best
    lines.append(
        f"\n{gflop:.1f} GFLOP a step in dense form at {result['gflops_achieved']:.0f} GFLOP/s: {rates}."
        f" ({left_out:.1f} of the {gflop:.1f} are zeros that ReLU and dropout made: the gradient of the weight leaves"
        f" them out.) Phases: {shares} (gathering includes the first layer's mean over neighbours). With batches made"
        f" ahead on a thread, as in training: {ahead['seconds_per_step'] * 1e3:.0f} ms a step, {share_ahead:.0%} of the"
        f" best float32 product's rate, {ahead['waiting_share']:.1%} of the time spent waiting.\n"
    )
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/step.py")


def accuracy(result: dict[str, Any]) -> str:
    lines = ["**Accuracy on real data**: test split, best-val checkpoint, mean ± sd. MAE is in the unit of the data\n"]
    lines += [
        "| recipe | measure | mean ± sd | last value repeated | seeds | median wall s |",
        "|---|---|---|---|---|---|",
    ]
    for name, value in result.items():
        if not isinstance(value, dict) or "test" not in value:
            continue
        for column, found in value["test"].items():
            naive = f"{found['last_value']:.3f}" if "last_value" in found else ""
            digits = 4 if column == "micro_f1" else 3
            spread = f"{found['mean']:.{digits}f} ± {found['sd']:.{digits}f}"
            wall = statistics.median(value["wall_s"])
            lines.append(f"| {name} | {column} | {spread} | {naive} | {len(value['seeds'])} | {wall:.0f} |")
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/accuracy.py")


def traffic_step(result: dict[str, Any]) -> str:
    share, rate, product = (result[key] for key in ("share_of_product", "gflops_achieved", "gflops_product"))
    data = result["data_path"]
    lines = [
        f"**One training step of DCRNN**, {result['graph']}'s graph, batch 64, 12 → 12 steps, 64 units, 2 layers,"
        f" {result['threads']} threads\n",
        "| | s | samples/s | time ÷ graphmill (quartiles) |",
        "|---|---|---|---|",
    ]
    for name, value in result["contenders"].items():
        cells = [
            f"{value['seconds']['median']:.2f}",
            f"{value['samples_per_s']:.1f}",
            ratio(value["ratio_to_graphmill"]),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(
        f"\n{result['gflop']:.0f} GFLOP a step at {rate['median']:.0f} GFLOP/s, {share['median']:.0%} of what our own"
        f" matrix product reaches here ({product['median']:.0f}). The data path holds {data['peak_mib']:.1f} MiB for"
        f" {data['raw_mib']:.1f} MiB of readings: {data['peak_over_raw']:.2f} times.\n"
    )
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/traffic_step.py --peer FOLDER")


def submit(result: dict[str, Any]) -> str:
    cells = ", ".join(f"{name} {spread['median']:.3f} s" for name, spread in result["seconds"].items())
    return f"**Submitting** ({result['rounds']} rounds): {cells}. " + source(result, "python benchmarks/submit.py")


def monitor(result: dict[str, Any]) -> str:
    cells = ", ".join(f"{name} {case['core_share']:.2%} of a core" for name, case in result["cases"].items())
    return f"**Monitor** at 1 Hz for {result['seconds']:.0f} s: {cells}. " + source(
        result, "python benchmarks/monitor.py"
    )


def schemes(result: dict[str, Any]) -> str:
    lines = [f"**Synchronisation schemes**: {result['dataset']}, {result['ranks']} ranks, {result['epochs']} epochs\n"]
    lines += [
        "| scheme | k | val micro-F1 | test micro-F1 | syncs | modelled MiB | payload MiB | interface MiB |",
        "|" + "---|" * 8,
    ]
    for row in result["rows"]:
        spread = f" ± {row['test_sd']:.4f}" if row["test_sd"] is not None else ""
        lines.append(
            f"| {row['scheme']} | {row['k']} | {row['val']:.4f} | {row['test']:.4f}{spread} | {row['syncs']} |"
            f" {row['modelled_mib']:.1f} | {row['payload_mib']:.1f} | {row['interface_mib']:.1f} |"
        )
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/schemes.py")


def startup(result: dict[str, Any]) -> str:
    cells = ", ".join(f"`{name}` {spread['median']:.2f} s" for name, spread in result["seconds"].items())
    return f"**Start-up**: {cells}. " + source(result, "python benchmarks/startup.py")


def equality(result: dict[str, Any]) -> str:
    differences = ", ".join(
        f"{ranks} ranks {found['loss']:.1e} (validation {found['val_loss']:.1e})"
        for ranks, found in result["largest_difference"].items()
        if int(ranks) > 1
    )
    covered = all(result["seeds_are_the_training_set"].values())
    worlds = len(result["seeds_are_the_training_set"])
    return (
        f"**Equality** on {result['experiment']}, one global batch of {result['global_batch']},"
        f" {result['epochs']} epochs, dropout on: largest difference of an epoch's loss from one process:"
        f" {differences}. Seeds of an epoch are the"
        f" training set, none twice, for 1 to {worlds} ranks: {'yes' if covered else 'no'}. "
    ) + source(result, "python benchmarks/equality.py")


def kills(result: dict[str, Any]) -> str:
    return (
        f"**Resume**: {result['num_kills']} SIGKILLs at random moments of {result['num_runs']} runs"
        f" ({result['kills_in_checkpoint_write']} inside a checkpoint write), {result['num_sigterms']} SIGTERMs:"
        f" {result['num_identical']} of {result['num_runs']} runs ended bit-identical to the undisturbed one. "
    ) + source(result, "python benchmarks/kills.py")


def scaling(result: dict[str, Any]) -> str:
    parts = ["**Scaling on this machine**, one thread a rank; mean ± sd over repeats, first epoch left out\n"]
    for name, study in result.items():
        if not isinstance(study, dict) or study.get("kind") not in ("strong", "weak"):
            continue
        parts.append(f"`{name}`: {study['work']}\n")
        parts += [
            "| ranks | s an epoch | samples/s | speed-up | these cores at best | efficiency | in collectives |",
            "|" + "---|" * 7,
        ]
        for row in study["rows"]:
            speedup = row.get("speedup", row.get("scaled_speedup"))
            share = row["sync_sec"] / row["epoch_time_sec"]
            parts.append(
                f"| {row['ranks']} | {row['epoch_time_sec']:.2f} ± {row['epoch_time_sec_sd']:.2f} |"
                f" {row['throughput_samples_per_sec']:,.0f} | {speedup:.2f} |"
                f" {min(row['ranks'], row['cores_per_host'])} | {row['efficiency']:.0%} | {share:.0%} |"
            )
        busy = max(row["others_cores_avg"] for row in study["rows"])
        parts.append(f"\nOther processes used up to {busy:.2f} cores meanwhile.\n")
    return "\n".join(parts) + "\n" + source(result, "python benchmarks/scaling.py")


def sensitivity(result: dict[str, Any]) -> str:
    lines = []
    for name, study in result.items():
        if not isinstance(study, dict) or study.get("kind") != "sensitivity":
            continue
        lines += [f"**What the speed depends on**: `{name}`\n", "| " + " | ".join([*study["keys"], "samples/s"]) + " |"]
        lines += ["|" + "---|" * (len(study["keys"]) + 1)]
        for each in study["combinations"]:
            rate = each["throughput"]
            lines.append("| " + " | ".join([*each["values"], f"{rate['mean']:,.0f} ± {rate['sd']:,.0f}"]) + " |")
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/scaling.py") if lines else ""


def limits(result: dict[str, Any]) -> str:
    lines = [
        f"**Time limits of {result['limit_s']} s**, two hosts, dev cluster: the same run without a limit, and cut into"
        " attempts\n",
        "| run | ended | attempts | jobs | steps made twice, at worst | last checkpoint |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["runs"]:
        lost = str(max(row["steps_lost"], default=0))
        same = {True: "bit-identical", False: "DIFFERS", None: ""}[row.get("identical")]
        lines.append(
            f"| {row['name']} | {row['status'].replace('_', ' ')} | {row['attempts']} | {row['jobs']} | {lost}"
            f" | {same} |"
        )
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/limits.py")


def faults(result: dict[str, Any]) -> str:
    """Detection is the first rank's own word; over, that the job no longer runs."""
    times = {"told_s": "a rank said so, s", "over_s": "attempt over, s"}
    ends = f"{len(result['completed_without_outcome'])} jobs COMPLETED without the outcome `done`."
    lines = faults_table(result, "two-host runs on the dev cluster", "submit", times)
    return "\n".join([*lines, ends]) + " " + source(result, "python benchmarks/faults.py")


def faults_ssh(result: dict[str, Any]) -> str:
    """The launcher's end, and that of the last agent or rank on any host, one that is cut off or not."""
    times = {"told_s": "a rank said so, s", "over_s": "launcher over, s", "gone_s": "no process left, s"}
    runs = f"runs of `graphmill launch` on {result['num_hosts']} hosts of the dev cluster"
    ends = f"{result['num_left']} processes left on a host."
    lines = faults_table(result, runs, "launch", times)
    return "\n".join([*lines, ends]) + " " + source(result, "python benchmarks/faults_ssh.py")


def faults_table(result: dict[str, Any], runs: str, command: str, times: dict[str, str]) -> list[str]:
    """`times`: headings of the columns, by the key of each kind's summary."""
    columns = {**times, "steps_lost": "steps lost"}
    lines = [
        f"**Faults** at random moments of {runs}; `train.hang_timeout_s`"
        f" {result['hang_timeout_s']}, a checkpoint every {result['checkpoint_every_steps']} steps."
        " Median (longest); s from the fault\n",
        f"| fault | then | as promised | bit-identical in the end | {' | '.join(columns.values())} |",
        "|" + "---|" * (4 + len(columns)),
    ]
    then = {"unharmed": "not harmed", "itself": "goes on by itself", "resume": f"ends; `{command} --resume`"}
    for kind in result["kinds"].values():
        spreads = [f"{pair[0]:.0f} ({pair[1]:.0f})" if (pair := kind[key]) else "" for key in columns]
        counts = [f"{kind[key]} of {kind['trials']}" for key in ("as_promised", "identical")]
        lines.append("| " + " | ".join([kind["words"], then[kind["goes_on"]], *counts, *spreads]) + " |")
    lines.append(f"\n{result['num_trials']} trials: {result['num_damaged_checkpoints']} damaged checkpoints,")
    return lines


TABLES = {
    "sampler": lambda r: samplers(r, "Raw sampling", "python benchmarks/sampler.py"),
    "sampler_dgl": lambda r: samplers(r, "Raw block sampling", "python benchmarks/sampler_dgl.py"),
    "step": step,
    "traffic_step": traffic_step,
    "accuracy": accuracy,
    "schemes": schemes,
    "equality": equality,
    "kills": kills,
    "scaling": lambda r: "\n".join(filter(None, [scaling(r), sensitivity(r)])),
    "limits": limits,
    "faults": faults,
    "faults_ssh": faults_ssh,
    "submit": submit,
    "monitor": monitor,
    "startup": startup,
}


def sampler_headline(result: dict[str, Any]) -> tuple[str, str]:
    graphs = [value for value in result.values() if isinstance(value, dict) and "contenders" in value]
    found = []
    for peer in graphs[0]["contenders"]:
        if peer.startswith("graphmill"):
            continue
        medians = [graph["contenders"][peer]["ratio_to_graphmill"]["median"] for graph in graphs]
        found.append(f"{min(medians):.3g} to {max(medians):.3g} times as fast as {peer}")
    return f"sampling, {len(graphs)} graphs", "; ".join(found)


def step_headline(result: dict[str, Any]) -> tuple[str, str]:
    peers = {name: each for name, each in result["contenders"].items() if not name.startswith("graphmill")}
    found = [f"{each['ratio_to_graphmill']['median']:.3g} times as fast as {name}" for name, each in peers.items()]
    return "a GraphSAGE step", "; ".join(found)


def traffic_headline(result: dict[str, Any]) -> tuple[str, str]:
    peer = result["contenders"]["torch-geometric-temporal"]["ratio_to_graphmill"]["median"]
    return "a DCRNN step, 207 sensors", f"{peer:.3g} times as fast as torch-geometric-temporal"


def accuracy_headline(result: dict[str, Any]) -> tuple[str, str]:
    found = []
    for name, column in (("debian-packages-sage", "micro_f1"), ("traffic-metr-la-10", "mae_30min")):
        entry = result[name]["test"][column]
        found.append(f"{name}: {column} {entry['mean']:.3g} ± {entry['sd']:.1g}")
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
    promised = sum(kind["as_promised"] for kind in result["kinds"].values())
    same = sum(kind["identical"] for kind in result["kinds"].values())
    longest = max(kind["over_s"][1] for kind in result["kinds"].values() if kind["over_s"])
    figure = (
        f"{promised} of {result['num_trials']} trials of {len(result['kinds'])} kinds as promised, {same} bit-identical"
        f" in the end, {result['num_damaged_checkpoints']} damaged checkpoints, over within {longest:.0f} s"
    )
    return f"faults, {over}", figure


HEADLINES = {
    "sampler": sampler_headline,
    "sampler_dgl": sampler_headline,
    "step": step_headline,
    "traffic_step": traffic_headline,
    "accuracy": accuracy_headline,
    "kills": kills_headline,
    "limits": limits_headline,
    "faults": lambda r: faults_headline(r, "on Slurm"),
    "faults_ssh": lambda r: faults_headline(r, "over SSH"),
}

if __name__ == "__main__":
    main()
