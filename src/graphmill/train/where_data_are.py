"""Which prepared data a finished run is used on: those it was trained on, wherever they are now, or others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.runtime.roots import dataset_root
from graphmill.spec.plan import Plan
from graphmill.tasks.build import task_class
from graphmill.tasks.stores import require_store


@dataclass(frozen=True, slots=True)
class DataChoice:
    """What the user asks for."""

    dataset: str | None = None  # None: the data that the run was trained on
    root: Path | None = None  # None: as in the plan, else the dataset root of the environment


DATA_OF_THE_RUN: Final = DataChoice()


def plan_over(plan: Plan, choice: DataChoice, environ: Mapping[str, str]) -> Plan:
    """The plan over the chosen data.

    Raises:
        UserError: the data are not there; they do not fit the model; `choice` has a root only, and what is prepared
            there under the dataset's name is not what the run was trained on.
    """
    planned = plan.dataset
    root = dataset_root(choice.root, environ)
    if choice.dataset is not None:
        return _over(plan, choice.dataset, root)
    if choice.root is None and Path(planned.path).is_dir():
        return plan
    try:
        moved = _over(plan, planned.name, root)
    except UserError as error:
        if choice.root is not None:
            raise
        raise UserError(
            f"{planned.name} is neither at {planned.path}, where the run read it, nor prepared under {root}",
            fix="give --dataset-root, or set GRAPHMILL_DATA_ROOT, to where it is now; or --dataset for other data",
        ) from error
    if moved.dataset.checksum != planned.checksum:
        raise UserError(
            f"{moved.dataset.path} has checksum {moved.dataset.checksum}, and the run was trained on"
            f" {planned.name} with checksum {planned.checksum}",
            fix=f"give --dataset {planned.name} if these other data are meant, or another --dataset-root",
        )
    return plan.reading_from(moved.dataset.path)


def _over(plan: Plan, name: str, root: Path) -> Plan:
    choose = getattr(task_class(plan), "on_other_data", None)
    if choose is None:
        raise UserError(
            f"the task {plan.task.kind} does not say how it is used on other data",
            fix="give its class a method on_other_data, or restore the data where the plan says",
        )
    return plan.model_copy(update={"task": choose(plan.task, require_store(plan.kind, name, root))})
