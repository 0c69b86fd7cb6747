"""Which configuration is best: one row for each, over the runs that differ in nothing but their rng seed.

Runs are read from their own folders (plan.json, outcome.json). Data of different names, and different tasks, are never
in one table. The best row is the best on the validation split: the test split only reports.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.documents import Outcome
from graphmill.record.judged import lost_on_test
from graphmill.record.run_folder import RunFolder
from graphmill.report.measured_cells import Spread
from graphmill.report.table import Value, sort_key
from graphmill.spec.differences import configuration, flat, varied_keys
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.measures import judged_kind
from graphmill.spec.plan import Plan

BY_SCORE = ("val", "test")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The runs of one configuration. A spread is None where none of them has the measure."""

    values: dict[str, Any]  # of the keys that vary in the table, by dotted name
    runs: tuple[str, ...]
    seeds: tuple[int, ...]  # rng seed of each run
    repetitions: tuple[tuple[Any, ...], ...]  # what each run differs in from the others: its rng seed, its fold
    whence: str  # the runs that they extend, or whose weights they began with
    lost: tuple[str, ...]  # for each run that loses to a baseline on the test split: how, in words
    val: Spread | None  # of the best epoch of each run
    test: Spread | None  # of the checkpoint of that epoch


@dataclass(frozen=True, slots=True)
class Beside:
    """What a baseline scores: the lowest and the highest of the runs, which differ where they are judged by other items
    (another horizon).
    """

    words: str
    val: tuple[float, float] | None
    test: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The finished runs of one task on data of one name."""

    task: str
    dataset: str
    synthetic: bool
    measure: str  # what `val` and `test` hold, such as micro-F1
    higher_is_better: bool
    varied: tuple[str, ...]  # dotted names; empty where all runs are repetitions
    rows: tuple[Configuration, ...]
    unfinished: tuple[str, ...]  # run ids of what is in no row
    baselines: dict[str, Beside]  # by name; empty where no run recorded any

    @property
    def best(self) -> Configuration | None:
        """The best mean on the validation split; None where no row has one, or there is one row only."""
        scored = [row for row in self.rows if math.isfinite(_worse(row.val, self))]
        return min(scored, key=lambda row: _worse(row.val, self)) if len(self.rows) > 1 and scored else None

    @property
    def same_seeds(self) -> tuple[str, ...]:
        """Runs that share configuration and rng seed with another: no independent repetitions."""
        return tuple(
            run
            for row in self.rows
            for run, repetition in zip(row.runs, row.repetitions, strict=True)
            if row.repetitions.count(repetition) > 1
        )


@dataclass(frozen=True, slots=True)
class _Run:
    plan: Plan
    outcome: Outcome | None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None and self.outcome.status == "done"

    def score(self, split: Literal["val", "test"], measure: str) -> float | None:
        assert self.outcome is not None, "it is done"
        found = (self.outcome.best if split == "val" else self.outcome.test) or {}
        value = found.get(measure)
        return None if value is None else float(value)

    def baseline(self, split: str, name: str, measure: str) -> float | None:
        assert self.outcome is not None, "it is done"
        return self.outcome.baselines.get(split, {}).get(name, {}).get(measure)


def compare(runs: Sequence[RunFolder], *, sort: str = "val") -> list[Comparison]:
    """One table for each task and dataset. `sort`: val or test (the best first), or a key that varies (rising)."""
    apart: dict[tuple[str, str], list[_Run]] = {}
    for folder in runs:
        run = _Run(folder.read_plan(), folder.read_outcome())
        apart.setdefault((run.plan.task.kind, run.plan.dataset.name), []).append(run)
    tables = [_comparison(members) for _, members in sorted(apart.items())]
    known = [*BY_SCORE, *dict.fromkeys(key for table in tables for key in table.varied)]
    if sort not in known:
        raise UserError(
            f"these runs cannot be sorted by {sort!r}, in which they do not differ; {did_you_mean(sort, known)}",
            fix=f"--sort {', or '.join(known)}",
        )
    return [replace(table, rows=tuple(_sorted(table, sort))) for table in tables]


def span_in_words(values: tuple[float, float] | None) -> str | None:
    """What a baseline scores: one number, or from the lowest to the highest."""
    return None if values is None else " to ".join(dict.fromkeys(f"{value:.4f}" for value in values))


def _comparison(runs: Sequence[_Run]) -> Comparison:
    plans, done = [run.plan for run in runs], [run for run in runs if run.is_done]
    kind = judged_kind(plans[0].task.kind, plans)
    varied = varied_keys([run.plan for run in done])
    groups: dict[str, list[_Run]] = {}
    for run in done:
        groups.setdefault(json.dumps(configuration(run.plan), sort_keys=True), []).append(run)
    return Comparison(
        task=kind.name,
        dataset=runs[0].plan.dataset.name,
        synthetic=any(run.plan.dataset.synthetic for run in runs),
        measure=kind.primary.words,
        higher_is_better=kind.primary.higher_is_better,
        varied=tuple(varied),
        rows=tuple(_row(members, varied, kind.primary.name) for members in groups.values()),
        unfinished=tuple(run.plan.run_id for run in runs if not run.is_done),
        baselines=_baselines(kind, done),
    )


def _baselines(kind: AnyKind, runs: Sequence[_Run]) -> dict[str, Beside]:
    found = {}
    for baseline in kind.baselines.methods:
        val, test = (
            _extremes([run.baseline(split, baseline.name, kind.primary.name) for run in runs]) for split in BY_SCORE
        )
        if val or test:
            found[baseline.name] = Beside(baseline.words, val, test)
    return found


def _extremes(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def _row(runs: Sequence[_Run], varied: Sequence[str], measure: str) -> Configuration:
    """`runs` share a configuration."""
    chosen = configuration(runs[0].plan)
    return Configuration(
        values={key: chosen.get(key) for key in varied},
        runs=tuple(run.plan.run_id for run in runs),
        seeds=tuple(run.plan.seed for run in runs),
        repetitions=tuple(
            (run.plan.seed, *(flat(run.plan).get(key) for key in run.plan.kind.repetitions)) for run in runs
        ),
        whence="; ".join(dict.fromkeys(run.plan.whence for run in runs if run.plan.whence)),
        lost=tuple(str(lost) for run in runs if (lost := lost_on_test(run.plan.kind, run.outcome))),
        val=Spread.of(run.score("val", measure) for run in runs),
        test=Spread.of(run.score("test", measure) for run in runs),
    )


def _sorted(table: Comparison, sort: str) -> list[Configuration]:
    """The best first; or by the values of a key, numbers before text, and by validation where they are equal."""
    by_val = sorted(table.rows, key=lambda row: _worse(row.val, table))
    if sort == "val":
        return by_val
    if sort == "test":
        return sorted(by_val, key=lambda row: _worse(row.test, table))
    return sorted(by_val, key=lambda row: sort_key(_cell(row.values.get(sort))))


def _worse(score: Spread | None, table: Comparison) -> float:
    """Rises as a score gets worse; what has none, or one that is not finite, comes last."""
    if score is None or not math.isfinite(score.mean):
        return math.inf
    return -score.mean if table.higher_is_better else score.mean


def _cell(value: Any) -> Value:  # noqa: ANN401  # whatever a plan holds
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)
