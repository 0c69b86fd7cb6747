"""Runs under one name, and what each of them needs: the cells of a study, or the stages of a pipeline.

Each is a run of its own in `<logs root>/<name>/`. On this machine they run one after another, by one loop.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import AbsentDataError, UnreadableError, UserError
from graphmill.base.retries import is_io_error
from graphmill.cluster.launch.check_model import unfit_problems
from graphmill.cluster.launch.local import WORKER, StopNoted
from graphmill.cluster.launch.run import resume_run, start_run
from graphmill.config.problems import Problem, add_problem, refuse
from graphmill.record.endings import State
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.spec.experiment import Experiment
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

NEW: Final[State] = "new"
UNFINISHED: Final[State] = "unfinished"  # it has begun, and has no outcome: it runs, or was killed
DONE: Final[State] = "done"
STOPS: Final = (exits.OUT_OF_TIME, exits.INTERRUPTED)  # a user or a scheduler asked: all that follows stops, too

Planner = Callable[[Experiment, str], Plan]
"""Makes the plan of one run from its experiment and run id. The caller has it, since it must open the dataset."""
PlanOf = Callable[[str], Plan]
"""Makes the plan of a run by its name. It names its initial weights and its sources once the runs that these come from
are done."""


@dataclass(frozen=True, slots=True)
class RunState:
    """One run and what became of it so far."""

    name: str  # in the graph
    run_id: str
    folder: RunFolder
    status: State


@dataclass(frozen=True, slots=True)
class Wording:
    """How messages speak of the runs; `failed` and `left` are formats."""

    noun: str
    one: str
    resumes: str
    stopped: str
    failed: str
    left: str


@dataclass(frozen=True, slots=True)
class RunGraph:
    """Runs in order, and for each the earlier ones whose weights it takes."""

    name: str
    logs_root: Path
    wording: Wording
    needs: Mapping[str, Sequence[str]]
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the needs: what its task uses all the time

    def state(self, name: str) -> RunState:
        """State of one run, by its run folder."""
        run_id = f"{self.name}/{name}"
        folder, status = RunFolder(self.logs_root / run_id), NEW
        if folder.plan_path.exists():
            outcome = folder.read_outcome()
            status = UNFINISHED if outcome is None else outcome.status
        return RunState(name, run_id, folder, status)

    def states(self) -> list[RunState]:
        """States of all runs, in order."""
        return [self.state(name) for name in self.needs]

    def missing(self, name: str) -> list[str]:
        """The runs whose weights this one takes, and which are not done."""
        return [need for need in self.needs[name] if self.state(need).status != DONE]

    def missing_sources(self, name: str) -> list[str]:
        """Unfinished runs whose weights this run's task uses all the time: until they are done, it cannot be tried."""
        missing = self.missing(name)
        return [need for need in self.sources.get(name, ()) if need in missing]


def run_graph(
    runs: RunGraph,
    chosen: Iterable[str],
    *,
    plan_of: PlanOf,
    program: Sequence[str] = WORKER,
    after: Callable[[str], None] | None = None,
) -> int:
    """Run those of the chosen that are not done yet; continue what was interrupted. Returns the exit status.

    All are planned before (`checked_plans`), so that a wrong value in the last one costs no hours. A run that fails, or
    cannot begin for an I/O error, stops those that take its weights, and no others: 1 at the end. A stop (75, or 130)
    stops all. `after` is called with each run that is done: at its end, and again whenever the graph is run.
    """
    left: list[str] = []
    chosen = [*chosen]
    stop = StopNoted()
    for name in chosen:
        if stop.is_requested:
            _log.info(f"{name} and what follows: not run: a stop was requested; the same command continues")
            return exits.OUT_OF_TIME
        code = _run(runs, name, left, plan_of=plan_of, program=program, stop=stop)
        if code in STOPS:
            return code
        if code != exits.DONE:
            left.append(name)
        elif after is not None:
            after(name)
    if left:
        _log.info(runs.wording.left.format(few=len(left), all=len(chosen), names=", ".join(left)))
    return exits.ANSWER_IS_NO if left else exits.DONE


def _run(
    runs: RunGraph, name: str, left: Sequence[str], *, plan_of: PlanOf, program: Sequence[str], stop: StopNoted
) -> int:
    """One run, whose exit status is returned; `left`: those that did not get done before it."""
    names, said = [*runs.needs], runs.wording
    title = f"[{names.index(name) + 1}/{len(names)}] {name}"
    try:
        missing = [need for need in runs.needs[name] if need in left or runs.state(need).status != DONE]
        if missing:
            _log.info(f"{title}: not run, because it takes weights of {', '.join(missing)}, which is not done")
            return exits.ANSWER_IS_NO
        state = runs.state(name)
        if state.status == DONE:
            _log.info(f"{title}: done already")
            return exits.DONE
        if state.status == NEW:
            _log.info(f"{title}: starts")  # what needs nothing was tried with this plan before
            tried = not runs.needs[name]
            code = start_run(plan_of(name), logs_root=runs.logs_root, program=program, is_tried=tried, watch=stop)
        else:
            _log.info(f"{title}: {said.resumes}")
            code = resume_run(state.folder, program=program, watch=stop)
    except UserError as error:
        _log.error(f"{error}")
        code = exits.BAD_REQUEST
    except (UnreadableError, OSError) as error:
        if not is_io_error(error):
            raise
        _log.error(f"{error}\n  → {error.fix}" if isinstance(error, UnreadableError) else f"{error}")
        code = exits.IO_ERROR
    if code != exits.DONE:
        what = said.stopped if code in STOPS else said.failed
        _log.info(f"{title}: {what.format(code=code, folder=runs.logs_root / runs.name / name)}")
    return code


def checked_plans(runs: RunGraph, chosen: Sequence[str], plan_of: PlanOf, *, also: Sequence[str] = ()) -> list[Plan]:
    """The plans of the chosen runs, or one `UserError` with all problems. Runs and changes nothing.

    `also`: runs that are not chosen, and with which nothing else may be wrong than that their data are not there.
    """
    problems: list[Problem] = []
    plans: list[Plan] = []
    one = runs.wording.one
    for name in chosen:
        try:
            plans.append(checked_plan(runs, name, plan_of))
        except UserError as error:
            add_problem(problems, f"{one} {name}", error)
    for name in also:
        try:
            plan_of(name)
        except AbsentDataError:
            continue
        except UserError as error:
            add_problem(problems, f"{one} {name}", error)
    if not problems:
        new = {
            f"{one} {name}": plan
            for name, plan in zip(chosen, plans, strict=True)
            if runs.state(name).status == NEW and not runs.missing_sources(name)
        }
        problems = list(unfit_problems([*new], [*new.values()]))
    refuse(problems, f"{runs.wording.noun} {runs.name}")
    return plans


def checked_plan(runs: RunGraph, name: str, plan_of: PlanOf) -> Plan:
    """The plan of one run; `UserError` if it has begun by another one."""
    plan, state = plan_of(name), runs.state(name)
    if state.status == NEW:
        return plan
    begun = state.folder.read_plan()
    missing = runs.missing(name)
    if missing and (begun.init_from is not None or begun.sources):
        raise UserError(
            f"{state.folder.path} has begun with weights of {', '.join(missing)}, which is not done any more",
            fix=f"move {state.folder.path} away, to run the {runs.wording.one} from the start",
        )
    refuse_other_plan(state.folder, begun, plan)
    return plan
