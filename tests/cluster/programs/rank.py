"""Stands in for the worker: a real process that does what its command line says, and needs no torch to start.

python rank.py 0:sleep 1:crash:0.2 -- RUN_FOLDER [--resume]
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import xxhash

from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.events import EventWriter, Failure, Finish, Start
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.rank import current_rank
from graphmill.runtime.stop import StopRequest
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.page import KIND as NODES

RANK = current_rank(os.environ)
SPLIT = sys.argv.index("--")
FOLDER = Path(sys.argv[SPLIT + 1])
STOP = StopRequest()


def main() -> int:
    orders = [word.split(":") for word in sys.argv[1:SPLIT]]
    order = next((order for order in orders if order[0] == str(RANK.rank)), [str(RANK.rank), "done"])
    what, delay = order[1], float(order[2]) if len(order) > 2 else 0.0
    if what not in ("deaf_at_first", "listen_late"):
        STOP.install()
    (FOLDER / f"started_{RANK.rank}").write_text(f"{os.getpid()}\n{sys.argv[SPLIT + 2 :]}")
    time.sleep(delay)
    return globals()[f"do_{what}"]()


def do_done() -> int:
    return 0


def do_sleep() -> int:
    """Work until asked to stop, as a rank does: finish the step, checkpoint, exit 75."""
    while not STOP.requested:
        time.sleep(0.02)
    time.sleep(0.2)
    (FOLDER / f"checkpoint_{RANK.rank}").write_text(str(STOP.signal))
    return 75


def do_deaf_at_first() -> int:
    """Still importing: default signal handlers."""
    time.sleep(600)
    return 0


def do_listen_late() -> int:
    """Still importing when Ctrl-C comes, which would be a KeyboardInterrupt anywhere in torch."""
    while signal.SIGINT not in signal.sigpending():
        time.sleep(0.02)
    STOP.install()
    return do_sleep()


def do_hang() -> int:
    """A collective whose peer is gone: signals set a flag, and nobody looks."""
    for _ in range(6000):  # ten minutes: nothing of a test that fails is left behind for long
        with suppress(KeyboardInterrupt):
            time.sleep(0.1)
        if STOP.requested:
            (FOLDER / f"asked_{RANK.rank}").write_text(str(STOP.signal))
    return 0


def do_crash() -> int:
    raise RuntimeError(f"rank {RANK.rank} met a bug")


def do_slow_crash() -> int:
    """Says what is wrong, and takes a while to die, as a process with torch in it does."""
    with EventWriter(FOLDER / "events" / f"rank_{RANK.rank}.jsonl", rank=RANK.rank) as events:
        events.write(Failure(message="the first error", exit_code=1))
    print("the first error", file=sys.stderr, flush=True)
    time.sleep(0.7)
    return 1


def do_echo() -> int:
    """Notices the loss of another rank before that is quite dead: a killed process closes its connections first."""
    message = "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:44252: Connection reset by peer."
    with EventWriter(FOLDER / "events" / f"rank_{RANK.rank}.jsonl", rank=RANK.rank) as events:
        events.write(Failure(message=message, exit_code=1))
    raise RuntimeError(message)


def do_refuse() -> int:
    error = UserError("the batch does not fit", fix="set train.batch_size=1")
    print(f"error: {error}", file=sys.stderr)
    return 2


def do_die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def do_talk() -> int:
    print("a line for the terminal", flush=True)
    print("a warning", file=sys.stderr, flush=True)
    return 0


def do_environ() -> int:
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "OMP_NUM_THREADS",
        "GLOO_SOCKET_IFNAME",
    )
    (FOLDER / f"token_{RANK.rank}").write_text(os.environ["GRAPHMILL_TOKEN"])
    (FOLDER / f"environ_{RANK.rank}").write_text("\n".join(f"{name}={os.environ[name]}" for name in names))
    if RANK.rank == 0:
        with socket.socket() as listening:  # what rank 0's store does
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
            listening.listen()
            listening.accept()
        return 0
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return 0
    return 1


def do_finish_when_asked() -> int:
    """Asked to stop after the last step, as while baselines are scored: it is done all the same."""
    for _ in range(2000):  # of 10 ms: nothing waits for ever where nobody asks
        if STOP.requested:
            break
        time.sleep(0.01)
    return do_finish()


def do_finish() -> int:
    """Leave everything behind that a finished rank does, true to the plan."""
    folder = RunFolder.open(FOLDER)
    plan = folder.read_plan()
    with EventWriter(folder.events_path(RANK.rank), rank=RANK.rank) as events:
        where = {
            "hostname": "here",
            "world_size": plan.ranks,
            "backend": "gloo",
            "plan_hash": "",
            "process_s": 0.0,
            "data": "",
        }
        events.write(Start(resumed=False, steps_done=0, parameters=1, **where))
        events.write(Finish(steps_done=plan.last_step, status="done"))
    if RANK.rank > 0:
        return 0
    checkpoint = folder.checkpoints_dir / f"step_{plan.last_step:010d}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    files = {"model.safetensors": xxhash.xxh3_64(b"weights").hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps({"content": {"files": files}}))
    rows = [row_of(plan, epoch) for epoch in range(1, plan.calendar.num_epochs + 1)]
    write_metrics(folder.metrics_path, rows, NODES.columns)
    folder.write_outcome(
        Outcome(
            status="done",
            exit_code=0,
            epochs=plan.calendar.num_epochs,
            steps_per_rank=plan.last_step,
            test={"val_micro_f1": 0.9},
            wall_s=1.0,
        )
    )
    return 0


def row_of(plan: Plan, epoch: int) -> dict[str, object]:
    return {
        "run_id": plan.run_id, "sync_every": plan.sync.every, "sync_scheme": plan.sync.scheme, "seed": plan.seed,
        "world_size": plan.ranks, "dataset": plan.dataset.name, "synthetic": plan.dataset.synthetic, "epoch": epoch,
        "loss": 1.0 / epoch, "val_loss": 1.0, "best_val_micro_f1": 0.9, "steps_done": plan.calendar.steps_done(epoch),
        "epoch_steps": plan.calendar.steps_in(epoch - 1),
        "num_seeds": plan.dataset.num_train, "replicas_agree": True,
    }  # fmt: skip


def do_spawn() -> int:
    """Start a child of its own, then die."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    (FOLDER / "grandchild").write_text(str(child))
    return 1


if __name__ == "__main__":
    sys.exit(main())
