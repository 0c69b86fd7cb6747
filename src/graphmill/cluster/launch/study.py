"""Run a study: its cells one after another, each a run of its own under `<logs root>/<study>/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.cluster.launch.local import WORKER
from graphmill.cluster.launch.run_graph import Planner, RunGraph, Wording, checked_plans, run_graph
from graphmill.config.problems import Problem, add_problem, refuse
from graphmill.spec.plan import Plan
from graphmill.spec.study import Study, expand, load_cell, refuse_hosts_here

_WORDING: Final = Wording(
    noun="study",
    one="cell",
    resumes="continues",
    stopped="stopped; the same command continues from here",
    failed="failed (exit status {code}); the study continues",
    left="{few} of {all} cells failed: {names}",
)


def runs_of_study(study: Study, logs_root: Path) -> RunGraph:
    """The cells as runs, of which none needs another."""
    return RunGraph(study.name, logs_root, _WORDING, {cell.name: () for cell in expand(study)})


def run_study(study: Study, *, logs_root: Path, planner: Planner, program: Sequence[str] = WORKER) -> int:
    """Run what is not done yet; continue what was interrupted. Returns the study's exit status, as `run_graph` does.

    Every cell is planned before the first one runs, and every user-defined model tried.
    """
    refuse_hosts_here(study)
    runs, cells = runs_of_study(study, logs_root), {cell.name: cell for cell in expand(study)}

    def plan_of(name: str) -> Plan:
        return planner(load_cell(study, cells[name]), f"{study.name}/{name}")

    plans = dict(zip(cells, checked_plans(runs, [*cells], plan_of), strict=True))
    return run_graph(runs, cells, plan_of=plans.__getitem__, program=program)


def refuse_wrong_cells(study: Study) -> None:
    """`UserError` with all problems of the cells' experiments; no data are opened."""
    problems: list[Problem] = []
    for cell in expand(study):
        try:
            load_cell(study, cell)
        except UserError as error:
            add_problem(problems, f"cell {cell.name}", error)
    refuse(problems, f"study {study.name}")
