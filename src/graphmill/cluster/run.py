"""One run from plan to outcome: make or reopen its folder, note the attempt, start the ranks."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.local import WORKER, run_ranks
from graphmill.record.provenance import collect_provenance
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan

Say = Callable[[str], None]

_OF_THE_MACHINE: Final = {"run_id", "threads", "dataset.path"}
"""What a plan decides by the machine it is made on. A run that is continued keeps what it began with."""


def start_run(plan: Plan, *, logs_root: Path, command: Sequence[str] = WORKER) -> int:
    """Begin a run in a new folder and wait for its end. Returns its exit status."""
    folder = RunFolder.create(plan, logs_root)
    with folder.lock():
        return _attempt(folder, plan, resumed=False, command=command)


def resume_run(folder: RunFolder, *, say: Say, asked: Plan | None = None, command: Sequence[str] = WORKER) -> int:
    """Continue a run as it was planned, and wait for its end. Returns its exit status.

    `asked` is what the person would plan now: where it differs, the request is refused.
    """
    plan = folder.read_plan()
    if asked is not None:
        refuse_other_plan(folder, plan, asked)
    with folder.lock():
        outcome = folder.read_outcome()
        if outcome is not None and outcome.status == "done":
            say(f"{folder.path} is done already: {outcome.epochs} epochs")
            return exits.DONE
        return _attempt(folder, plan, resumed=True, command=command)


def refuse_other_plan(folder: RunFolder, plan: Plan, asked: Plan) -> None:
    """Raise a `UserError` where a run was planned otherwise than it is asked for now."""
    differences = plan_differences(plan, asked)
    if differences:
        raise UserError(
            f"{folder.path} was planned otherwise: {'; '.join(differences)}",
            fix="leave the change out to continue that run, or give another --run-id to start a new one",
        )


def plan_differences(one: Plan, other: Plan) -> list[str]:
    """What two plans ask for differently, as `train.lr: 0.01 there, 0.02 here`."""
    there, here = _flat(one.model_dump(mode="json")), _flat(other.model_dump(mode="json"))
    keys = [key for key in {**there, **here} if key not in _OF_THE_MACHINE and there.get(key) != here.get(key)]
    return [f"{key} is {json.dumps(there.get(key))} there and {json.dumps(here.get(key))} here" for key in keys]


def _attempt(folder: RunFolder, plan: Plan, *, resumed: bool, command: Sequence[str]) -> int:
    folder.begin_attempt(resumed=resumed, command=sys.argv)
    if not folder.provenance_path.exists():
        dataset = plan.dataset
        folder.write_provenance(
            collect_provenance(sys.argv, dataset_checksum=dataset.checksum, synthetic=dataset.synthetic)
        )
    return run_ranks(folder, plan, resume=resumed, command=command)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat
