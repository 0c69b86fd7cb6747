"""Baselines that cost something: scored after the last step by rank 0, once for all runs on the same data."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UserError
from graphmill.graph.splits import Split
from graphmill.record.evaluations import recorded_baselines
from graphmill.record.kept_baselines import KeptBaselines, Scores
from graphmill.spec.columns import Baseline
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import BaselineScore, score_baselines

if TYPE_CHECKING:  # who evaluates a run scores them too, and needs no loop
    from graphmill.train.loop import Training

_SPLITS: Final[tuple[Split, ...]] = ("val", "test")


def score_after(training: "Training") -> None:
    """Record the baselines that are `scored="end"` with the run. None of them can end it: what cannot be is said."""
    run_log, task_plan = training.run_log, training.plan.task
    logs_root = run_log.folder.logs_root(training.plan.run_id)
    recorded = recorded_baselines(run_log.folder).get("test", {})
    for baseline in training.plan.kind.baselines.methods:
        if baseline.scored != "end" or baseline.name in recorded:
            continue
        if training.time_left.is_up():
            why = "a stop was requested" if training.time_left.stop.signal is not None else "no time is left"
            run_log.progress.say(f"{baseline.words} and what follows are not scored: {why}")
            return
        scores = costly_scores(logs_root, task_plan, baseline, run_log.progress.say)
        for split in _SPLITS:
            if split in scores:
                run_log.baseline(BaselineScore(baseline.name, split, scores[split]))


def costly_scores(logs_root: Path, task_plan: TaskPlan, baseline: Baseline, say: Callable[[str], None]) -> Scores:
    """Scores of a baseline on a plan's data, kept from before in `logs_root` or scored now; empty: `say` has why."""
    kept = KeptBaselines.of(logs_root, task_plan)
    if (known := kept.read().get(baseline.name)) is not None:
        return known
    say(f"scoring a baseline: {baseline.words} ({baseline.about})")
    try:
        found = list(score_baselines(task_plan, [baseline.name], _SPLITS, bounded=True))
    except Exception as error:  # noqa: BLE001  # whatever it is: the run is done, and stays so
        say(f"{baseline.words} could not be scored: {type(error).__name__}: {error}")
        return {}
    if why_not := next((score.why_not for score in found if score.why_not), ""):
        say(f"{baseline.words} is not scored: {why_not}")
    scores: Scores = {score.split: score.values for score in found if score.values is not None}
    if scores:
        with suppress(OSError, UserError):  # of another user's run, say: then they are scored again next time
            kept.keep(baseline.name, scores)
    return scores
