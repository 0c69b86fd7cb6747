"""Tables of trials: what became of runs that something was done to."""

from typing import Any

from entries import source


def faults(result: dict[str, Any]) -> str:
    """Detection is the first rank's own word; over, that the job no longer runs."""
    times = {"told_s": "a rank said so, s", "gone_s": "no rank left, s", "over_s": "job over, s"}
    ends = f"{len(result['completed_without_outcome'])} jobs COMPLETED without the outcome `done`."
    if "slurmd_timeout_s" in result:
        timeout = f"`SlurmdTimeout` {result['slurmd_timeout_s']}, and up to a third of that between two pings"
        ends += f" A job that has lost its driver is over when Slurm gives the host up: {timeout}."
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
    then = {"unharmed": "not harmed", "itself": "resumes automatically", "resume": f"ends; `{command} --resume`"}
    for kind in result["kinds"].values():
        spreads = [f"{pair[0]:.0f} ({pair[1]:.0f})" if (pair := kind[key]) else "" for key in columns]
        counts = [f"{kind[key]} of {kind['trials']}" for key in ("as_promised", "identical")]
        lines.append("| " + " | ".join([kind["words"], then[kind["goes_on"]], *counts, *spreads]) + " |")
    lines.append(f"\n{result['num_trials']} trials: {result['num_damaged_checkpoints']} damaged checkpoints,")
    return lines


def preemption(result: dict[str, Any]) -> str:
    """Runs whose job is taken away."""
    columns = {
        "as_promised": "as promised",
        "identical": "bit-identical in the end",
        "left_behind": "runs left behind",
        "left_over": "jobs left over",
        "doubled": "doubled",
        "most_steps_lost": "steps lost, at worst",
    }
    lines = [
        "**Preemption and its neighbours**, at random moments of runs of one host on the dev cluster; a checkpoint"
        f" every {result['checkpoint_every_steps']} steps, a controller away for {result['away_s']:.0f} s\n",
        f"| what happens to the job | trials | {' | '.join(columns.values())} |",
        "|" + "---|" * (2 + len(columns)),
    ]
    rows = ((kind["words"], kind["trials"], *(kind[key] for key in columns)) for kind in result["kinds"].values())
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([*lines, "", source(result, "python benchmarks/preemption.py")])
