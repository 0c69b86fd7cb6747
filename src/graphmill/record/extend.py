"""More epochs for a run that is done, in a run folder of its own: its plan, and what it takes over from the other.

The new run has the history of the other, up to the checkpoint that it continues: checkpoints (the last, the best),
rows of metrics.csv and evaluations.csv, events of all ranks, attempts. So its curves, sums and counters are those of a
run of so many epochs from its beginning, and whatever reads a run reads it as one. The other run is only read.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.retries import insist, is_io_error, is_there, make_folder, remove_folder
from graphmill.record.events import EventWriter, Extended
from graphmill.record.lines import complete_lines
from graphmill.record.manifest import MANIFEST, Manifest, error_text, file_checksum
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import checkpoint_name, furthest_whole
from graphmill.spec.calendar import planned_end
from graphmill.spec.columns import Cell
from graphmill.spec.optimizer import ConstantSchedule, MultistepSchedule
from graphmill.spec.plan import Plan
from graphmill.spec.weights import Ancestor

_OF_A_POSITION: Final = (ConstantSchedule, MultistepSchedule)
"""Schedules that do not ask how long the run is."""


def extended(plan: Plan, ancestor: Ancestor, *, epochs: int, run_id: str) -> Plan:
    """The plan of a run of `epochs` epochs in all, whose first ones are those of `ancestor`, which had `plan`.

    Raises a `UserError` where such a run would not be what one of `epochs` epochs from its beginning is.
    """
    calendar, schedule = plan.calendar, plan.optimizer.schedule
    afresh = f"start a new run with `train.epochs={epochs}`; or one with `init_from.run={ancestor.source}`"
    if epochs <= calendar.num_epochs:
        raise UserError(
            f"{ancestor.run_id} has {calendar.num_epochs} epochs already, and {epochs} were asked for in all",
            fix=f"--epochs {calendar.num_epochs + epochs}, to train {epochs} more",
        )
    if calendar.steps_in(calendar.num_epochs - 1) < calendar.length(calendar.num_epochs - 1):
        raise UserError(
            f"{ancestor.run_id} ended in the middle of epoch {calendar.num_epochs}, at train.max_steps: its last round"
            " and its last evaluation are not those of a longer run",
            fix=afresh,
        )
    if ancestor.steps_done < plan.last_step:
        raise UserError(
            f"{ancestor.run_id} stopped early, after step {ancestor.steps_done} of {plan.last_step}: with more epochs"
            " it would have stopped there, too",
            fix="start a new run with train.early_stopping.patience=0, or a larger one",
        )
    if not isinstance(schedule, _OF_A_POSITION):
        raise UserError(
            f"train.optimizer.schedule of {ancestor.run_id} is {schedule.kind}, which ends with the run: over {epochs}"
            f" epochs every rate since the first step would have been another",
            fix=f"{afresh}, which begins a schedule of its own",
        )
    epoch_lengths, last_step = planned_end(plan.batches, epochs=epochs, max_steps=None)
    return plan.model_copy(
        update={"run_id": run_id, "extends": ancestor, "epoch_lengths": epoch_lengths, "last_step": last_step}
    )


def plan_extension(ancestor: RunFolder, *, epochs: int, run_id: str) -> Plan:
    """The plan of a run that continues `ancestor` up to `epochs` epochs in all. Nothing is written.

    Raises a `UserError` if `ancestor` is not done, its last checkpoint is damaged, or more epochs clash with its plan.
    """
    plan = ancestor.read_plan()
    if not ancestor.is_done():
        raise UserError(
            f"{ancestor.path} is not done, and only a run that is can be extended",
            fix=f"continue it as it was planned: `graphmill train --resume {ancestor.path}`",
        )
    damaged: list[str] = []
    last = furthest_whole(
        ancestor.checkpoints_dir, ancestor.plan_hash(), lambda *words: damaged.append(": ".join(words))
    )
    outcome = ancestor.read_outcome()
    if last is None or damaged or outcome is None or last.steps_done != outcome.steps_per_rank:
        raise UserError(
            f"{ancestor.path} does not hold the whole checkpoint of its end{': ' + damaged[0] if damaged else ''}",
            fix="copy its checkpoints again from where it was trained (`graphmill pull --checkpoints`)",
        )
    origin = Ancestor(
        run_id=plan.run_id,
        source=str(ancestor.path.absolute()),
        plan_hash=ancestor.plan_hash(),
        epochs=outcome.epochs,
        steps_done=last.steps_done,
        checksum=file_checksum(_checkpoint(ancestor, last.steps_done) / MANIFEST),
    )
    return _with_its_own_copies(ancestor, extended(plan, origin, epochs=epochs, run_id=run_id))


def take_over(folder: RunFolder) -> None:
    """Copy into a run that has not begun what it takes over, if its plan extends another; the attempts come last.

    So if this is killed, the next start does it again. Raises a `UserError` if the other run has changed.
    """
    plan = folder.read_plan()
    if plan.extends is None or folder.attempts():
        return
    ancestor = RunFolder.open(Path(plan.extends.source))
    _refuse_changed(ancestor, plan.extends)
    last = Manifest.read(_checkpoint(ancestor, plan.extends.steps_done))
    best = last.positions[0].best
    remove_folder(folder.checkpoints_dir)
    for steps in {last.steps_done, *([] if best is None else [best.step])}:
        _copy_checkpoint(ancestor, folder, steps)
    rows: list[dict[str, Cell]] = [
        {**row, "run_id": plan.run_id, "target_global_steps": plan.last_step * plan.ranks}
        for row in read_metrics(ancestor.metrics_path)
    ]
    write_metrics(folder.metrics_path, rows, plan.kind.columns)
    if is_there(ancestor.evaluations_path):
        insist(lambda: shutil.copyfile(ancestor.evaluations_path, folder.evaluations_path))
    attempts = ancestor.attempts()
    for rank in range(max([plan.ranks, *(each.world.ranks for each in attempts if each.world is not None)])):
        path = ancestor.events_path(rank)
        earlier = complete_lines(path) if is_there(path) else []
        write_text(folder.events_path(rank), "".join(f"{line}\n" for line in earlier))
        with EventWriter(folder.events_path(rank), rank=rank) as events:
            events.write(Extended(run_id=plan.extends.run_id, steps_done=plan.extends.steps_done))
    write_text(folder.attempts_path, "".join(f"{attempt.model_dump_json()}\n" for attempt in attempts))


def _with_its_own_copies(ancestor: RunFolder, plan: Plan) -> Plan:
    """Weights that the other run began with, or uses: from its own copies, since their sources may be gone."""
    update: dict[str, object] = {}
    if plan.init_from is not None:
        update["init_from"] = plan.init_from.model_copy(update={"path": str(ancestor.initial_weights_path.absolute())})
    update["sources"] = {
        name: source.model_copy(update={"path": str(ancestor.source_path(name).absolute())})
        for name, source in plan.sources.items()
    }
    return plan.model_copy(update=update)


def _refuse_changed(ancestor: RunFolder, known: Ancestor) -> None:
    manifest = _checkpoint(ancestor, known.steps_done) / MANIFEST
    if not is_there(manifest) or file_checksum(manifest) != known.checksum or ancestor.plan_hash() != known.plan_hash:
        raise UserError(
            f"{ancestor.path} has changed since it was extended: {manifest.parent.name} is not the checkpoint of"
            f" {known.run_id} that the plan names",
            fix=f"restore it, or remove this run and `graphmill train --extend {ancestor.path}` again",
        )


def _copy_checkpoint(ancestor: RunFolder, folder: RunFolder, steps: int) -> None:
    """Copy a checkpoint's files byte for byte, and its manifest under the plan of the new run."""
    source, target = _checkpoint(ancestor, steps), _checkpoint(folder, steps)
    try:
        manifest = Manifest.read(source)
        make_folder(target)
        for name in manifest.files:
            insist(partial(shutil.copyfile, source / name, target / name))
        problem = manifest.damage(target)
    except (OSError, ValueError) as error:
        if is_io_error(error):
            raise
        problem = error_text(error)
    if problem:
        raise UserError(f"{source} is damaged: {problem}", fix="copy it again from where the run was trained")
    manifest.model_copy(update={"plan_hash": folder.plan_hash()}).write(target)


def _checkpoint(folder: RunFolder, steps: int) -> Path:
    return folder.checkpoints_dir / checkpoint_name(steps)
