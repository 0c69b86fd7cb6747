"""More epochs for a run that is done: the plan of a longer run that continues it. Pure."""

from typing import Final

from graphmill.base.errors import UserError
from graphmill.spec.calendar import planned_end
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
