"""Run a study: its cells one after another, each a run of its own under `<logs root>/<study>/`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.cluster.launch.check_model import unfit_problems
from graphmill.cluster.launch.local import WORKER
from graphmill.cluster.launch.run import resume_run, start_run
from graphmill.config.problems import Problem, refuse
from graphmill.record.endings import State
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.spec.experiment import Experiment
from graphmill.spec.plan import Plan
from graphmill.spec.study import Cell, Study, expand, load_cell
from graphmill.spec.study_kinds import refuse_hosts_here

_log = logging.getLogger(__name__)

Planner = Callable[[Experiment, str], Plan]
"""Makes the plan of one run from its experiment and run id. The caller has it, since it must open the dataset."""

_STOPS: Final = (exits.OUT_OF_TIME, exits.INTERRUPTED)  # a user or a scheduler asked: the whole study stops


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell and what became of it so far."""

    cell: Cell
    run_id: str
    folder: Path
    status: State


def cell_states(study: Study, logs_root: Path) -> list[CellState]:
    """All cells of a study with the state of their runs, in order."""
    return [_state(study, cell, logs_root) for cell in expand(study)]


def run_study(study: Study, *, logs_root: Path, planner: Planner, command: Sequence[str] = WORKER) -> int:
    """Run what is not done yet; continue what was interrupted. Returns the study's exit status.

    Every cell is planned before the first one runs, and every user-defined model tried, so a wrong value in the last
    cell costs no hours. A cell that fails is left as failed and the study continues (1 at the end). A stop (75, or 130)
    stops the study; start it again.
    """
    refuse_hosts_here(study)
    states = cell_states(study, logs_root)
    plans = _plans(study, states, planner)
    failed: list[str] = []
    for number, (state, plan) in enumerate(zip(states, plans, strict=True), start=1):
        title = f"[{number}/{len(states)}] {state.cell.name}"
        if state.status == "done":
            _log.info(f"{title}: done already")
            continue
        _log.info(f"{title}: {'starts' if state.status == 'new' else 'continues'}")
        code = _run(state, plan, logs_root=logs_root, command=command)
        if code in _STOPS:
            _log.info(f"{title}: stopped; the same command continues from here")
            return code
        if code != exits.DONE:
            _log.info(f"{title}: failed (exit status {code}); the study continues")
            failed.append(state.cell.name)
    if failed:
        _log.info(f"{len(failed)} of {len(states)} cells failed: {', '.join(failed)}")
    return exits.ANSWER_IS_NO if failed else exits.DONE


def refuse_wrong_cells(study: Study) -> None:
    """`UserError` with all problems of the cells' experiments; no data are opened."""
    problems: dict[str, Problem] = {}
    for cell in expand(study):
        try:
            load_cell(study, cell)
        except UserError as error:
            problems.setdefault(error.message, Problem(f"cell {cell.name}", error.message, error.fix))
    refuse(list(problems.values()), f"study {study.name}")


def _state(study: Study, cell: Cell, logs_root: Path) -> CellState:
    run_id = f"{study.name}/{cell.name}"
    folder = RunFolder(logs_root / run_id)
    status: State = "new"
    if folder.plan_path.exists():
        outcome = folder.read_outcome()
        status = "unfinished" if outcome is None else outcome.status
    return CellState(cell, run_id, folder.path, status)


def _plans(study: Study, states: Sequence[CellState], planner: Planner) -> list[Plan]:
    problems: list[Problem] = []
    plans: list[Plan] = []
    for state in states:
        try:
            plan = planner(load_cell(study, state.cell), state.run_id)
            if state.status != "new":
                folder = RunFolder.open(state.folder)
                refuse_other_plan(folder, folder.read_plan(), plan)
            plans.append(plan)
        except UserError as error:
            if error.message not in {problem.what for problem in problems}:
                problems.append(Problem(f"cell {state.cell.name}", error.message, error.fix))
    if not problems:
        new = [number for number, state in enumerate(states) if state.status == "new"]
        names = [f"cell {states[number].cell.name}" for number in new]
        problems = list(unfit_problems(names, [plans[number] for number in new]))
    refuse(problems, f"study {study.name}")
    return plans


def _run(state: CellState, plan: Plan, *, logs_root: Path, command: Sequence[str]) -> int:
    try:
        if state.status == "new":
            return start_run(plan, logs_root=logs_root, command=command, is_tried=True)
        return resume_run(RunFolder.open(state.folder), command=command)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except UnreadableError as error:
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
