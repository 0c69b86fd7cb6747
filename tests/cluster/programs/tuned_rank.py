"""Stands in for the worker of a search's trial: scores that follow from the learning rate, an epoch at a time.

python tuned_rank.py SECONDS_PER_EPOCH [break|break_seed|hang|deaf] -- RUN_FOLDER [--resume]

`break`: it fails where the rate is above 0.05. `break_seed`: where, besides, the seed is 2. `hang`: from the seventh
trial on, after the sixth epoch, if the score is a bad one. `deaf`: it trains to its end if it is asked to stop.
"""

import math
import os
import signal
import sys
import time
from pathlib import Path

from graphmill.record.documents import Outcome
from graphmill.record.evaluations import append_evaluation, read_evaluations
from graphmill.record.events import EventWriter, Failure, Start
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.stop import StopRequest

SPLIT = sys.argv.index("--")
STOP = StopRequest()


def score(lr: float, epoch: int, seed: int) -> float:
    return round((1 - (math.log10(lr) + 2) ** 2 / 4) * (1 - 0.5**epoch) - (seed / 100 if seed < 100 else 0), 6)


def main() -> int:
    STOP.install()
    signal.alarm(60)  # nothing of a test that fails is left behind
    epoch_s, what = float(sys.argv[1]), sys.argv[2:SPLIT]
    folder = RunFolder.open(Path(sys.argv[SPLIT + 1]))
    plan = folder.read_plan()
    lr, epochs, seed = plan.optimizer.lr, plan.calendar.num_epochs, plan.seed
    hangs = "hang" in what and int(folder.path.name[6:10]) >= 6 and score(lr, epochs, seed) < 0.65
    with (folder.path / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if lr > 0.05 and ("break" in what or ("break_seed" in what and seed == 2)):
        with EventWriter(folder.events_path(0), rank=0) as events:
            events.write(Failure(message="the rate is too large", exit_code=1))
        return 1
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(
            Start(resumed=False, steps_done=0, parameters=1, hostname="here", world_size=1, backend="gloo",
                  plan_hash="", process_s=0.0, data="")
        )  # fmt: skip
    done = max((row.epoch for row in read_evaluations(folder, is_growing=True)), default=0)
    for epoch in range(done + 1, epochs + 1):
        time.sleep(epoch_s)
        while hangs and epoch > 6 and not STOP.requested:
            time.sleep(0.02)
        if STOP.requested and "deaf" not in what:
            return 75
        append_evaluation(folder.evaluations_path, epoch, "val", {"micro_f1": score(lr, epoch, seed)})
    best = {"epoch": epochs, "micro_f1": score(lr, epochs, seed)}
    folder.write_outcome(
        Outcome(
            status="done", exit_code=0, epochs=epochs, steps_per_rank=plan.last_step, best=best,
            test={"micro_f1": 1 - best["micro_f1"]}, wall_s=1.0,
        )
    )  # fmt: skip
    checkpoint = folder.checkpoints_dir / f"step_{plan.last_step:010d}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
