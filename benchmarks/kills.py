"""Resume is exact: runs killed at random moments, resumed until they are done, compared with one that was left alone.

    python benchmarks/kills.py [--kills 50] [--terms 10] [--ranks 2] [--dataset-root DIR] [--logs-root DIR]

A short run on Cora with a checkpoint after every sync. Each trial kills the launcher or one of its ranks by SIGKILL,
half of the time as soon as a checkpoint is being written; then `graphmill train --resume` until the run is done. A
trial with SIGTERM expects exit status 75, or 0 where the run was over; before there is a run folder it just ends.
"""

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from harness import ForeignLoad, console, print_table, write_result

EXIT_OUT_OF_TIME = 75


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--terms", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs/kills")
    options = parser.parse_args()
    shutil.rmtree(options.logs_root, ignore_errors=True)
    watch, chance = ForeignLoad(), random.Random(7)
    began = time.perf_counter()
    assert start(options, "undisturbed").wait() == 0
    seconds = time.perf_counter() - began
    expected = digests(options, "undisturbed")
    identical, in_write, terms_right = 0, 0, 0
    for trial in range(options.kills + options.terms):
        name, is_term = f"trial-{trial}", trial >= options.kills
        process = start(options, name)
        in_write += disturb(process, Path(options.logs_root) / name, chance, seconds, is_term=is_term)
        status = process.wait()
        has_run = (Path(options.logs_root) / name / "plan.json").exists()
        terms_right += is_term and (status in {0, EXIT_OUT_OF_TIME} or (status == -signal.SIGTERM and not has_run))
        while status != 0:
            has_run = (Path(options.logs_root) / name / "plan.json").exists()
            status = start(options, name, resume=has_run).wait()
        identical += digests(options, name) == expected
        console.print(
            f"[dim]{name}: {'SIGTERM' if is_term else 'SIGKILL'}, identical so far {identical} of {trial + 1}[/dim]"
        )
    trials = options.kills + options.terms
    print_table(
        "killed and resumed",
        ["SIGKILLs", "inside a checkpoint write", "SIGTERMs", "right exit", "bit-identical"],
        [[str(options.kills), str(in_write), str(options.terms), str(terms_right), f"{identical} of {trials}"]],
    )
    result = {
        "num_runs": trials,
        "num_kills": options.kills,
        "kills_in_checkpoint_write": in_write,
        "num_sigterms": options.terms,
        "sigterms_with_right_exit": terms_right,
        "num_identical": identical,
        "ranks": options.ranks,
        "undisturbed_s": seconds,
        "foreign_cores": watch.cores(),
    }
    write_result("kills", result)
    sys.exit(0 if identical == trials and terms_right == options.terms else 1)


def start(options: argparse.Namespace, name: str, *, resume: bool = False) -> subprocess.Popen:
    command = [sys.executable, "-m", "graphmill.cli", "train", "--logs-root", options.logs_root]
    if resume:
        command += ["--resume", f"{options.logs_root}/{name}"]
    else:
        settings = [
            "train.epochs=40",
            "train.checkpoint.every_steps=1",
            f"train.ranks={options.ranks}",
            "train.device=cpu",
        ]
        settings += ["train.batch_size=16", "train.sync.scheme=local_sgd", "train.sync.every=3"]
        command += ["cora-sage", "--run-id", name, "--dataset-root", options.dataset_root]
        command += [word for setting in settings for word in ("-O", setting)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def disturb(process: subprocess.Popen, folder: Path, chance: random.Random, seconds: float, *, is_term: bool) -> bool:
    """Signal at a random moment, or just as a checkpoint is written. True: it landed inside a checkpoint write."""
    if is_term or chance.random() < 0.5:
        time.sleep(chance.uniform(0, seconds))
    else:
        wait_for_write(process, folder, skip=chance.randrange(40))
    if process.poll() is not None:
        return False
    if is_term:
        process.send_signal(signal.SIGTERM)
        return False
    ranks = psutil.Process(process.pid).children(recursive=True)
    victim = chance.choice([psutil.Process(process.pid), *ranks])
    victim.kill()
    process.wait()
    return any(folder.glob("checkpoints/.step_*"))


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


def digests(options: argparse.Namespace, name: str) -> dict[str, str]:
    """SHA-256 of the tensors of the last checkpoint."""
    last = max((Path(options.logs_root) / name / "checkpoints").glob("step_*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(last.glob("*.safetensors"))}


if __name__ == "__main__":
    main()
