"""One run after another in this process, each with a disk that fails in another way: `faults.py LOGS RUN`.

On standard input a JSON line for each fault: `operation`, `part` of a path, `after` so many calls, so many `times`,
`error`. On standard output, for each: how the attempt ended, and the one after it, without a fault. The waits between
tries are left out. LD_PRELOAD is the failing disk.
"""

import errno
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from graphmill.base import exits, retries
from graphmill.base.retries import is_io_error
from graphmill.record.attempts import attempt
from graphmill.record.manifest import checkpoint_folders
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.rank import ALONE
from graphmill.train.worker import work
from graphmill.verify.run import verify_run

HIDDEN = (".tmp", ".making", ".removing", ".replaced")
retries._READ_AGAIN_AFTER_S = (0.0, 0.0, 0.0)
retries._WRITE_AGAIN_AFTER_S = (0.0, 0.0, 0.0, 0.0, 0.0)


def one_attempt(folder: RunFolder) -> int:
    try:
        with attempt(folder, command=["faults"]) as begun:
            return work(folder, ALONE, resume=begun.resumed) if begun is not None else exits.DONE
    except Exception as error:  # as the front end and the driver of a job end
        if not is_io_error(error):
            raise
        return exits.IO_ERROR


def set_fault(fault: dict, run: str) -> None:
    Path(os.environ["FAULT_COUNT"]).write_bytes(bytes(4))
    os.environ["FAULT_ERROR"] = str(getattr(errno, fault["error"]))
    os.environ["FAULT_AFTER"], os.environ["FAULT_TIMES"] = str(fault["after"]), str(fault["times"])
    os.environ["FAULT_OPERATIONS"] = f",{fault['operation']},"
    os.environ["FAULT_PATH"] = fault["part"].replace("RUN", run)  # the last: from here on it fails


def no_fault() -> int:
    os.environ["FAULT_PATH"] = "no such path at all"
    return int.from_bytes(Path(os.environ["FAULT_COUNT"]).read_bytes(), "little")


def tensors(folder: RunFolder) -> dict[str, dict[str, np.ndarray]]:
    return {
        f"{path.parent.name}/{path.name}": load_file(path)
        for checkpoint in checkpoint_folders(folder.checkpoints_dir)
        for path in sorted(checkpoint.glob("*.safetensors"))
    }


def same(ours: dict, theirs: dict) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[file].keys() == theirs[file].keys()
        and all(ours[file][name].tobytes() == theirs[file][name].tobytes() for name in ours[file])
        for file in ours
    )


def trial(number: int, fault: dict, logs: Path, like: RunFolder, wanted: dict) -> dict:
    plan = like.read_plan().model_copy(update={"run_id": f"trial-{number}"})
    folder = RunFolder.create(plan, logs)
    set_fault(fault, folder.path.name)
    status = one_attempt(folder)
    met = no_fault()
    end = "" if (outcome := folder.read_outcome()) is None else outcome.status
    again = one_attempt(folder)
    failed = [check for check in verify_run(folder) if check.result == "fail"]
    left = [path.name for path in folder.path.rglob("*") if path.name.endswith(HIDDEN)]
    return {
        "met": met, "status": status, "outcome": end, "again": again, "same": same(tensors(folder), wanted),
        "failed": [f"{check.name}: {check.detail}" for check in failed], "left": left,
    }  # fmt: skip


def main() -> None:
    logs, like = Path(sys.argv[1]), RunFolder(Path(sys.argv[2]))
    wanted = tensors(like)
    for number, line in enumerate(sys.stdin):
        print(json.dumps(trial(number, json.loads(line), logs, like, wanted)), flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    no_fault()
    main()
