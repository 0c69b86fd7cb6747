"""The measured figures of README.md, from benchmarks/results/*.json.

python benchmarks/measured.py            print them
python benchmarks/measured.py --write    put them between the markers of README.md
python benchmarks/measured.py --check    exit 1 where README.md says something else
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from harness import RESULTS

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    section = f"{BEGIN}\n{markdown()}{END}"
    if options.write:
        README.write_text(before + section + after)
    elif options.check:
        sys.exit(0 if before + section + after == text else 1)
    else:
        sys.stdout.write(section + "\n")


def markdown() -> str:
    """All tables whose result is there."""
    parts = [write(result) for name, write in TABLES.items() if (result := read(name))]
    return "\n".join(parts)


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
    lines.append(
        f"\n{result['gflop']:.1f} GFLOP a step at {result['gflops_achieved']:.0f} GFLOP/s: {rates}. Phases: {shares}"
    )
    ahead = result["pipelined"]
    lines[-1] += (
        " (gathering includes the first layer's mean over neighbours). With batches made ahead on a thread, as in"
        f" training: {ahead['seconds_per_step'] * 1e3:.0f} ms a step, {ahead['waiting_share']:.1%} spent waiting.\n"
    )
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/step.py")


def accuracy(result: dict[str, Any]) -> str:
    lines = ["**Accuracy on real data**: test micro-F1 of the best-val checkpoint, exact inference\n"]
    lines += ["| recipe | mean ± sd | seeds | median wall s |", "|---|---|---|---|"]
    for name, value in result.items():
        if isinstance(value, dict) and "test_micro_f1" in value:
            wall = sorted(value["wall_s"])[len(value["wall_s"]) // 2]
            lines.append(f"| {name} | {value['mean']:.4f} ± {value['sd']:.4f} | {len(value['seeds'])} | {wall:.0f} |")
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/accuracy.py")


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
    lines = [
        f"**Faults** at random moments of two-host runs on the dev cluster; `train.hang_timeout_s`"
        f" {result['hang_timeout_s']}, a checkpoint every {result['checkpoint_every_steps']} steps."
        " Median (longest); s from the fault\n",
        "| fault | then | as promised | bit-identical in the end | a rank said so, s | attempt over, s | steps lost |",
        "|" + "---|" * 7,
    ]
    then = {"unharmed": "not harmed", "itself": "goes on by itself", "resume": "ends; `submit --resume`"}
    for kind in result["kinds"].values():
        spreads = [f"{p[0]:.0f} ({p[1]:.0f})" if (p := kind[k]) else "" for k in ("told_s", "over_s", "steps_lost")]
        counts = [f"{kind[key]} of {kind['trials']}" for key in ("as_promised", "identical")]
        lines.append("| " + " | ".join([kind["words"], then[kind["goes_on"]], *counts, *spreads]) + " |")
    lines.append(
        f"\n{result['num_trials']} trials: {result['num_damaged_checkpoints']} damaged checkpoints,"
        f" {len(result['completed_without_outcome'])} jobs COMPLETED without the outcome `done`."
    )
    return "\n".join(lines) + " " + source(result, "python benchmarks/faults.py")


TABLES = {
    "sampler": lambda r: samplers(r, "Raw sampling", "python benchmarks/sampler.py"),
    "sampler_dgl": lambda r: samplers(r, "Raw block sampling", "python benchmarks/sampler_dgl.py"),
    "step": step,
    "accuracy": accuracy,
    "schemes": schemes,
    "equality": equality,
    "kills": kills,
    "limits": limits,
    "faults": faults,
    "startup": startup,
}

if __name__ == "__main__":
    main()
