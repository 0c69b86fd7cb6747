"""The best weights of every stage, evaluated on the data of every stage, so that forgetting shows.

`<logs root>/<pipeline>/evaluations.csv` has the long form: stage, weights, epoch, set, measure, value. A set is a
stage whose validation split was evaluated; the test split is read at the end of each run only.
"""

import csv
import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

from graphmill.base import exits
from graphmill.base.cells import as_written, csv_text
from graphmill.base.errors import AbsentDataError, UserError
from graphmill.base.files import write_text
from graphmill.base.json_text import parse_json
from graphmill.base.python import as_module
from graphmill.cluster.launch.local import WORKER, environment_of_ranks, imports_of
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import NEW, PlanOf
from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder, plan_text
from graphmill.runtime.fork_server import output_of
from graphmill.spec.pipeline import StageSpec

_log = logging.getLogger(__name__)

EVALUATIONS_FILE: Final = "evaluations.csv"
_PROGRAM: Final = "graphmill.train.evaluate_sets"
_SPLIT: Final = "val"


@dataclass(frozen=True, slots=True)
class EvaluatedSet:
    """One row of the file: a measure of a stage's best weights on one set."""

    stage: str  # whose best weights
    weights: str  # their checksum
    epoch: int  # of that stage, at which they are the best
    set: str  # the stage whose data were evaluated; of an evaluation set of its task's own, <stage>/<name>
    measure: str
    value: float


def evaluate_on_all(
    stages: Stages,
    stage: StageSpec,
    plan_of: PlanOf,
    *,
    python: Sequence[str] | None = None,
) -> None:
    """Evaluate the best weights of a stage that is done, unless that was done before.

    `python`: the command that starts an interpreter which has torch; in a job it goes through srun. None: what
    evaluates is forked from what the ranks of the stage were forked from.
    """
    path = stages.logs_root / stages.pipeline.name / EVALUATIONS_FILE
    folder = stages.state(stage).folder
    weights = weights_of(folder, "best", lambda name, problem: _log.warning(f"{name} is damaged: {problem}")).checked()
    known = read_evaluations(path)
    if any((row.stage, row.weights) == (stage.name, weights) for row in known):
        return
    with tempfile.TemporaryDirectory(prefix=".plans-", dir=path.parent) as root:  # there a container sees it, too
        plans: list[tuple[StageSpec, Path]] = []
        for other in stages.pipeline.stages:
            try:
                plans.append((other, _plan_path(stages, other, plan_of, Path(root))))
            except AbsentDataError as error:  # of a stage that was not asked for
                _log.info(f"{stage.name} is not evaluated on the data of {other.name}: {error.message}")
        found = _run(folder, [path for _, path in plans], python)
    rows = []
    for (other, _), result in zip(plans, found, strict=True):
        if "refused" in result:
            _log.info(f"{stage.name} is not evaluated on the data of {other.name}: {result['refused']}")
            continue
        sets = {other.name: result["measures"]} | {
            f"{other.name}/{own}": measures for own, measures in result["sets"].items()
        }
        rows += [
            EvaluatedSet(stage.name, weights, result["epoch"], evaluated, name, value)
            for evaluated, measures in sets.items()
            for name, value in measures.items()
        ]
    write_text(path, _text([*(row for row in known if row.stage != stage.name), *rows]))


def read_evaluations(path: Path) -> list[EvaluatedSet]:
    """All rows of the file; none if there is no file. `UserError` if it is damaged."""
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{name: as_written(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
        return [
            EvaluatedSet(
                row["stage"], row["weights"], int(row["epoch"]), row["set"], row["measure"], float(row["value"])
            )
            for row in rows
        ]
    except (KeyError, ValueError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged", fix="remove it, and run the pipeline again") from None


def _plan_path(stages: Stages, stage: StageSpec, plan_of: PlanOf, root: Path) -> Path:
    """A file with the plan of a stage, in today's form: of its run if it has begun, else as it will be planned."""
    state = stages.state(stage)
    plan = plan_of(stage.name) if state.status == NEW else state.folder.read_plan()
    path = root / f"{stage.name}.json"
    path.write_text(plan_text(plan), encoding="utf-8")
    return path


def _run(folder: RunFolder, plans: list[Path], python: Sequence[str] | None) -> list[dict[str, Any]]:
    program = [*as_module(_PROGRAM), str(folder.path), *(str(path) for path in plans), "--split", _SPLIT]
    if python is None:
        plan = folder.read_plan()
        imports = (*imports_of(WORKER, plan), _PROGRAM)
        status, said = output_of(program, environment_of_ranks(os.environ, plan), imports=imports)
    else:
        child = subprocess.run(
            [*python, *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        status, said = child.returncode, child.stdout
    if status != exits.DONE:
        raise UserError(
            f"evaluating {folder.path} failed with exit status {status}; the error is above",
            fix="run the pipeline again, or set evaluate_on: own",
        )
    found: list[dict[str, Any]] = parse_json(said)
    return found


def _text(rows: list[EvaluatedSet]) -> str:
    return csv_text([[field.name for field in fields(EvaluatedSet)], *(astuple(row) for row in rows)])
