"""Resume is exact: runs killed at random moments, resumed until they are done, compared with one that was left alone.

    python benchmarks/kills.py [--kills 50] [--terms 10] [--ranks 2] [--dataset-root DIR] [--logs-root DIR]

A short run on Cora with a checkpoint after every sync. Each trial kills the launcher or one of its ranks by SIGKILL,
half of the time as soon as a checkpoint is being written; then `graphmill train --resume` until the run is done. The
random moments are spread evenly from the first sync of a run to its last. A trial counts where its victim died of the
signal after the first sync and before the run was over; the others are made again, and told of. SIGTERM goes to the
launcher, and expects exit status 75.

In the end these must be those of the undisturbed run: all weights and resume states that are kept (SHA-256), the best
epoch and its measures, the test measures, and every column of metrics.csv that two undisturbed runs agree on.
"""

import argparse
import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from graphmill.monitor.ranks_here import rank_processes
from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile
from harness import ForeignLoad, console, print_table, write_result
from origin import Origin

EXIT_OUT_OF_TIME = 75
MOST_TRIALS_A_KILL = 4
# Columns that a resumed run has otherwise: by intention, or because the monitor may have looked in one run only.
PER_ATTEMPT = {"attempt", "cpu_util_avg", "gpu_util_avg", "peak_rss_mib", "peak_gpu_mib"}


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What a signal did. `is_counted`: the victim died of it, between the first sync and the end of the run."""

    is_counted: bool
    in_write: bool = False
    right_exit: bool = False
    after_s: float = 0.0  # from the first sync


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--terms", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--experiment", default="cora-sage")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs/kills")
    options = parser.parse_args()
    shutil.rmtree(options.logs_root, ignore_errors=True)
    origin, watch, chance = Origin.now(), ForeignLoad(), random.Random(7)
    for name in ("undisturbed", "undisturbed-too"):
        if start(options, name).wait() != 0:
            raise SystemExit(f"the run {options.logs_root}/{name} failed")
    expected, columns = ending(options, "undisturbed"), steady_columns(options)
    lasts_s = sync_times(folder_of(options, "undisturbed"))
    found = trials(options, chance, lasts_s[-1] - lasts_s[0], expected, columns)
    result = {**found, "ranks": options.ranks, "compared_columns": columns, "foreign_cores": watch.cores()}
    report(result)
    write_result("kills", result, origin)
    good = found["num_identical"] == found["num_runs"] and found["sigterms_with_right_exit"] == options.terms
    sys.exit(0 if good else 1)


def trials(
    options: argparse.Namespace, chance: random.Random, lasts_s: float, expected: dict[str, Any], columns: list[str]
) -> dict[str, Any]:
    """Until enough of each signal count."""
    wanted = {signal.SIGKILL: options.kills, signal.SIGTERM: options.terms}
    counted: dict[signal.Signals, list[Disturbed]] = {kind: [] for kind in wanted}
    number = identical = 0
    for kind, enough in wanted.items():
        while len(counted[kind]) < enough:
            if number >= MOST_TRIALS_A_KILL * (options.kills + options.terms):
                raise SystemExit(f"of {number} trials only {len(counted[kind])} of {kind.name} counted")
            name, number = f"trial-{number}", number + 1
            process = start(options, name)
            disturbed = disturb(process, folder_of(options, name), chance, lasts_s, kind)
            finish(options, name, process)
            if disturbed.is_counted:
                counted[kind].append(disturbed)
                same = ending(options, name) == expected and rows(options, name, columns) == rows(
                    options, "undisturbed", columns
                )
                identical += same
                console.print(f"[dim]{name}: {kind.name}, {'identical' if same else 'DIFFERENT'}[/dim]")
    kills, terms = counted[signal.SIGKILL], counted[signal.SIGTERM]
    return {
        "num_runs": len(kills) + len(terms),
        "num_not_counted": number - len(kills) - len(terms),
        "num_kills": len(kills),
        "kills_in_checkpoint_write": sum(trial.in_write for trial in kills),
        "num_sigterms": len(terms),
        "sigterms_with_right_exit": sum(trial.right_exit for trial in terms),
        "num_identical": identical,
        "first_to_last_sync_s": lasts_s,
        "after_first_sync_s": sorted(trial.after_s for trial in kills + terms),
    }


def report(result: dict[str, Any]) -> None:
    columns = ["SIGKILLs", "inside a checkpoint write", "SIGTERMs", "right exit", "not counted", "identical"]
    keys = ("num_kills", "kills_in_checkpoint_write", "num_sigterms", "sigterms_with_right_exit", "num_not_counted")
    same = f"{result['num_identical']} of {result['num_runs']}"
    print_table("killed and resumed", columns, [[*(str(result[key]) for key in keys), same]])


# --- runs


def folder_of(options: argparse.Namespace, name: str) -> RunFolder:
    return RunFolder(Path(options.logs_root) / name)


def start(options: argparse.Namespace, name: str, *, resume: bool = False) -> subprocess.Popen:
    command = [sys.executable, "-m", "graphmill.cli", "train", "--logs-root", options.logs_root]
    if resume:
        command += ["--resume", f"{options.logs_root}/{name}"]
    else:
        settings = [f"train.epochs={options.epochs}", "train.checkpoint.every_steps=1", f"train.ranks={options.ranks}"]
        settings += ["train.device=cpu", "train.batch_size=16", "train.sync.scheme=local_sgd", "train.sync.every=3"]
        command += [options.experiment, "--run-id", name, "--dataset-root", options.dataset_root]
        command += [word for setting in settings for word in ("-O", setting)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(options: argparse.Namespace, name: str, process: subprocess.Popen) -> None:
    """Resume until the run is done."""
    status = process.wait()
    while status != 0:
        status = start(options, name, resume=folder_of(options, name).plan_path.exists()).wait()


# --- signals


def disturb(
    process: subprocess.Popen, folder: RunFolder, chance: random.Random, lasts_s: float, kind: signal.Signals
) -> Disturbed:
    """Signal a random moment after the first sync, or just as a checkpoint is written."""
    while process.poll() is None and not sync_times(folder):
        time.sleep(0.005)
    first = time.time()
    if kind is signal.SIGTERM or chance.random() < 0.5:
        time.sleep(chance.uniform(0, lasts_s))
    else:
        wait_for_write(process, folder.path, skip=chance.randrange(40))
    after_s = time.time() - first
    candidates = [process.pid, *rank_processes(folder.path)]
    victim = process.pid if kind is signal.SIGTERM else chance.choice(candidates)
    if process.poll() is not None or not strike(victim, kind):
        return Disturbed(is_counted=False)
    status = process.wait()
    in_write = any(folder.path.glob("checkpoints/.step_*"))
    if kind is signal.SIGTERM:
        return Disturbed(is_counted=status != 0, right_exit=status == EXIT_OUT_OF_TIME, after_s=after_s)
    died = status == -signal.SIGKILL if victim == process.pid else status != 0  # a launcher ends with a rank that dies
    return Disturbed(is_counted=died, in_write=in_write, after_s=after_s)


def strike(victim: int, kind: signal.Signals) -> bool:
    """False: it had ended before."""
    try:
        process = psutil.Process(victim)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.send_signal(kind)
    except psutil.Error:
        return False
    return True


def wait_for_write(process: subprocess.Popen, folder: Path, *, skip: int) -> None:
    """Wait until a checkpoint is being made, `skip` of them later."""
    seen = ""
    while process.poll() is None:
        making = next(iter(folder.glob("checkpoints/.step_*")), None)
        if making is not None and making.name != seen:
            seen, skip = making.name, skip - 1
            if skip < 0:
                return
        time.sleep(0.0005)


def sync_times(folder: RunFolder) -> list[float]:
    """When its first rank synchronised, Unix time (s)."""
    path = folder.events_path(0)
    return [sync.time for sync in events_in(path, Sync)] if path.exists() else []


# --- what must be the same


def ending(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Checksums of all tensors that are kept, by their place in the run folder; best epoch; test measures."""
    folder = folder_of(options, name)
    outcome = folder.read_outcome()
    assert outcome is not None, f"{folder.path} is done"
    facts = json.loads(outcome.model_dump_json())
    digests = {
        str(path.relative_to(folder.path)): WeightsFile.read(path).compute_checksum()
        for path in sorted(folder.path.rglob("*.safetensors"))
    }
    return {"tensors": digests, "best": facts["best"], "test": facts["test"], "status": facts["status"]}


def rows(options: argparse.Namespace, name: str, columns: list[str]) -> list[list[str]]:
    with folder_of(options, name).metrics_path.open() as file:
        return [[row[column] for column in columns] for row in csv.DictReader(file)]


def steady_columns(options: argparse.Namespace) -> list[str]:
    """Columns of metrics.csv that two undisturbed runs have in common: no times, no memory, no name of the run."""
    with folder_of(options, "undisturbed").metrics_path.open() as file:
        names = [name for name in csv.DictReader(file).fieldnames or [] if name not in PER_ATTEMPT]
    return [name for name in names if rows(options, "undisturbed", [name]) == rows(options, "undisturbed-too", [name])]


if __name__ == "__main__":
    main()
