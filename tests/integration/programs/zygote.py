"""Starts ranks in a blink: everything is imported once, and each rank is a fork of this process, real and mortal.

Reads one request a line: {"ranks": 2, "folder": "…", "resume": true, "port": 1234, "token": "…", "log": "…",
"die_at": 0}. Answers with the process ids, then, when all have ended, with their exit codes. With `die_at` = n the last
rank kills itself before its n-th change of the file system (fsyncs, renames, removals); -1 makes rank 0 count them into
`log`.count.
With "dies": [rank, "mapped"] a rank kills itself when it maps memory that it shares, with "filled" once rows are there,
with "step 29" before the first checkpoint at or past that step; with "freezes 29" it stops there (SIGSTOP) until it
is sent SIGCONT.
"""

import gc
import json
import mmap
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphmill.spec.kinds import all_kinds
from graphmill.tasks.stores import load
from graphmill.train import worker

CHANGES = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir")


def rank(number: int, request: dict[str, Any]) -> None:
    ranks = request["ranks"]
    own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(request["port"])})
    os.environ["GRAPHMILL_TOKEN"] = request["token"]
    log = os.open(f"{request['log']}.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    counted = count_changes(request["die_at"] if number == ranks - 1 else 0)
    if request["dies"] and request["dies"][0] == number:
        moment = request["dies"][1]
        word, _, step = moment.partition(" ")
        signals = {"step": signal.SIGKILL, "freezes": signal.SIGSTOP}
        sys.addaudithook(before_checkpoint(int(step), signals[word]) if step else sees_memory(moment))
    code = worker.main([request["folder"], *(["--resume"] if request["resume"] else [])])
    if request["die_at"] < 0 and number == 0:
        Path(f"{request['log']}.count").write_text(str(counted()))
    sys.stdout.flush()
    os._exit(code)


def count_changes(die_at: int) -> Callable[[], int]:
    count = 0

    def counting(change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return counted

    if die_at:
        for name in CHANGES:
            setattr(os, name, counting(getattr(os, name)))
    return lambda: count


def before_checkpoint(step: int, number: signal.Signals) -> Callable[[str, tuple[Any, ...]], None]:
    """For `sys.addaudithook`: this process gets a signal, once, before a checkpoint at or past `step` gets its name."""
    sent = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal sent
        if event == "os.rename" and not sent:
            found = re.fullmatch(r"step_(\d+)", Path(os.fsdecode(arguments[1])).name)
            if found and int(found[1]) >= step:
                sent = True
                os.kill(os.getpid(), number)

    return hook


def sees_memory(moment: str) -> Callable[[str, tuple[Any, ...]], None]:
    """For `sys.addaudithook`: this process is killed once it maps memory of ours, or once it is being filled."""
    seen = threading.Event()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "mmap.__new__" or seen.is_set() or arguments[0] < 0:
            return
        if Path(f"/proc/self/fd/{arguments[0]}").readlink().name.startswith("memfd:graphmill"):
            seen.set()
            if moment == "mapped":
                os.kill(os.getpid(), signal.SIGKILL)
            content = mmap.mmap(arguments[0], os.fstat(arguments[0]).st_size)
            threading.Thread(target=die_when_filled, args=(content,), daemon=True).start()

    return hook


def die_when_filled(content: mmap.mmap) -> None:
    """As soon as there is more than what the memory is known by, which takes 64 bytes."""
    while not any(content[64 : 64 + mmap.PAGESIZE]):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    for kind in all_kinds():
        load(kind.task)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pids = []
        for number in range(request["ranks"]):
            pid = os.fork()
            if pid == 0:
                rank(number, request)
            pids.append(pid)
        sys.stdout.write(json.dumps(pids) + "\n")
        sys.stdout.flush()
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        sys.stdout.write(json.dumps(codes) + "\n")
        sys.stdout.flush()


main()
