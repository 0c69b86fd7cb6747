"""Which configuration is best: one row for each, over the runs that differ in nothing but their rng seed.

Runs are read from their own folders (plan.json, outcome.json). Data of different names, and different tasks, are never
in one table. The best row is the best on the validation split: the test split only reports.
Where keys are named that the rows stand for, what the runs moved and took stands beside their scores.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean, nearest
from graphmill.record.documents import Outcome
from graphmill.record.judged import lost_on_test
from graphmill.record.run_folder import RunFolder
from graphmill.report.measured_cells import Spread
from graphmill.report.order import Value, sort_key
from graphmill.spec.differences import configuration, flat, keys_that_vary
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.measures import judged_kind
from graphmill.spec.plan import Plan

if TYPE_CHECKING:
    import polars as pl

BY_SCORE = ("val", "test")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The runs of one configuration. A spread is None where none of them has the measure."""

    values: dict[str, Any]  # of the keys that vary in the table, by dotted name
    runs: tuple[str, ...]
    seeds: tuple[int, ...]  # rng seed of each run
    repetitions: tuple[tuple[Any, ...], ...]  # what each run differs in from the others: its rng seed, its fold
    begins_with: str  # the runs that they extend, or whose weights they began with
    lost: tuple[str, ...]  # for each run that loses to a baseline on the test split: how, in words
    val: Spread | None  # of the best epoch of each run
    test: Spread | None  # of the checkpoint of that epoch
    took: Mapping[str, Spread] = field(default_factory=dict)  # num_syncs, measured_mib, … where keys were asked for


@dataclass(frozen=True, slots=True)
class ComparedBaseline:
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
    baselines: dict[str, ComparedBaseline]  # by name; empty where no run recorded any

    @property
    def best(self) -> Configuration | None:
        """The best mean on the validation split; None where no row has one, or there is one row only."""
        scored = [row for row in self.rows if math.isfinite(_worse(row.val, self))]
        return min(scored, key=lambda row: _worse(row.val, self)) if len(self.rows) > 1 and scored else None

    @property
    def same_seeds(self) -> tuple[str, ...]:
        """Runs that share configuration and rng seed with another: no independent repetitions."""
        found: list[str] = []
        for row in self.rows:
            told = [repr(repetition) for repetition in row.repetitions]
            counts = Counter(told)
            found += [run for run, repetition in zip(row.runs, told, strict=True) if counts[repetition] > 1]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A run to compare, as it was read from its folder."""

    folder: RunFolder
    plan: Plan
    outcome: Outcome | None
    choices: Mapping[str, Any]  # `flat` of the plan

    @classmethod
    def of(cls, folder: RunFolder, plan: Plan, outcome: Outcome | None) -> "ReadRun":
        """Run of which plan and outcome are read."""
        return cls(folder, plan, outcome, flat(plan))

    @property
    def configuration(self) -> Mapping[str, Any]:
        """What was run."""
        return configuration(self.plan, self.choices)

    @property
    def is_done(self) -> bool:
        """Whether all its steps are done: only then it is compared."""
        return self.outcome is not None and self.outcome.status == "done"

    def score(self, split: Literal["val", "test"], measure: str) -> float | None:
        """Measure of the best epoch on a split."""
        assert self.outcome is not None, "it is done"
        found = (self.outcome.best if split == "val" else self.outcome.test) or {}
        value = found.get(measure)
        return None if value is None else float(value)

    def baseline(self, split: str, name: str, measure: str) -> float | None:
        """Measure of a baseline on a split."""
        assert self.outcome is not None, "it is done"
        return self.outcome.baselines.get(split, {}).get(name, {}).get(measure)


def compare(runs: Sequence[RunFolder], *, sort: str | None = None, by: Sequence[str] = ()) -> list[Comparison]:
    """One table for each task and dataset.

    `sort`: val or test (the best first), or a key that varies (rising); None: by the keys in `by`, else val.
    `by`: keys of a plan or of an experiment; there is a row for each of their values, with what its runs took.
    """
    return compare_read([ReadRun.of(folder, folder.read_plan(), folder.read_outcome()) for folder in runs], sort, by)


def compare_read(runs: Sequence[ReadRun], sort: str | None = None, by: Sequence[str] = ()) -> list[Comparison]:
    """`compare` of runs that were read before."""
    apart: dict[tuple[str, str], list[ReadRun]] = {}
    for run in runs:
        apart.setdefault((run.plan.task.kind, run.plan.dataset.name), []).append(run)
    keys = _keys_of_plans(by, [run.choices for run in runs])
    tables = [_comparison(members, keys) for _, members in sorted(apart.items())]
    if sort is None:
        return [replace(table, rows=tuple(_sorted(table, *(keys or ("val",))))) for table in tables]
    known = [*BY_SCORE, *dict.fromkeys(key for table in tables for key in table.varied)]
    if sort not in known:
        raise UserError(
            f"these runs cannot be sorted by {sort!r}, in which they do not differ; {did_you_mean(sort, known)}",
            fix=f"--sort {', or '.join(known)}",
        )
    return [replace(table, rows=tuple(_sorted(table, sort))) for table in tables]


def frame_of(tables: Sequence[Comparison]) -> "pl.DataFrame":
    """The rows of all tables in one: what the runs are, the keys that vary, their scores; null where there is none."""
    rows = [
        {
            "task": table.task,
            "dataset": table.dataset,
            "measure": table.measure,
            **{key: _cell(row.values[key]) for key in table.varied},
            "runs": list(row.runs),
            **_flat_spread("val", row.val),
            **_flat_spread("test", row.test),
            **{name: spread.mean for name, spread in row.took.items()},
            "best": row is table.best,
        }
        for table in tables
        for row in table.rows
    ]
    import polars as pl

    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _flat_spread(name: str, score: Spread | None) -> dict[str, float | None]:
    return {name: None if score is None else score.mean, f"{name}_sd": None if score is None else score.sd}


def _keys_of_plans(names: Sequence[str], plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys by the names that they have in plans: an experiment's section `train` is not a section of a plan."""
    known = dict.fromkeys(key for plan in plans for key in plan) if names else {}
    keys = [key if key in known else key.removeprefix("train.") for key in names]
    for name, key in zip(names, keys, strict=True):
        if key not in known:
            near = nearest(key, known)
            raise UserError(
                f"no run has the key {name!r}; {did_you_mean(key, known)}",
                fix=f"--by {near}" if near else "`graphmill plan EXPERIMENT` shows the keys",
            )
    return keys


def span_text(values: tuple[float, float] | None) -> str | None:
    """What a baseline scores: one number, or from the lowest to the highest."""
    return None if values is None else " to ".join(dict.fromkeys(f"{value:.4f}" for value in values))


def _comparison(runs: Sequence[ReadRun], by: Sequence[str]) -> Comparison:
    plans, done = [run.plan for run in runs], [run for run in runs if run.is_done]
    kind = judged_kind(plans[0].task.kind, plans)
    varied = by or keys_that_vary([run.configuration for run in done])
    groups: dict[str, list[ReadRun]] = {}
    for run in done:
        told_by = {key: run.choices.get(key) for key in by} if by else run.configuration
        groups.setdefault(json.dumps(told_by, sort_keys=True), []).append(run)
    for members in groups.values():
        _refuse_other_keys(members, by)
    return Comparison(
        task=kind.name,
        dataset=runs[0].plan.dataset.name,
        synthetic=any(run.plan.dataset.synthetic for run in runs),
        measure=kind.primary.words,
        higher_is_better=kind.primary.higher_is_better,
        varied=tuple(varied),
        rows=tuple(_row(members, varied, kind.primary.name, with_took=bool(by)) for members in groups.values()),
        unfinished=tuple(run.plan.run_id for run in runs if not run.is_done),
        baselines=_baselines(kind, done),
    )


def _refuse_other_keys(runs: Sequence[ReadRun], by: Sequence[str]) -> None:
    """Runs that differ in more than their rng seed are never averaged."""
    if other := keys_that_vary([run.configuration for run in runs]):
        raise UserError(
            f"{runs[0].plan.run_id} and others are alike in {', '.join(by)}, and differ in {', '.join(other)}",
            fix=f"--by {','.join([*by, *other])}, or name fewer runs",
        )


def _baselines(kind: AnyKind, runs: Sequence[ReadRun]) -> dict[str, ComparedBaseline]:
    found = {}
    for baseline in kind.baselines.methods:
        val, test = (
            _extremes([run.baseline(split, baseline.name, kind.primary.name) for run in runs]) for split in BY_SCORE
        )
        if val or test:
            found[baseline.name] = ComparedBaseline(baseline.words, val, test)
    return found


def _extremes(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def _row(runs: Sequence[ReadRun], varied: Sequence[str], measure: str, *, with_took: bool) -> Configuration:
    """Row of a table for `runs` that share a configuration."""
    chosen = runs[0].choices
    return Configuration(
        values={key: chosen.get(key) for key in varied},
        runs=tuple(run.plan.run_id for run in runs),
        seeds=tuple(run.plan.seed for run in runs),
        repetitions=tuple(
            (run.plan.seed, *(run.choices.get(key) for key in run.plan.kind.repetitions)) for run in runs
        ),
        begins_with="; ".join(dict.fromkeys(run.plan.begins_with for run in runs if run.plan.begins_with)),
        lost=tuple(str(lost) for run in runs if (lost := lost_on_test(run.plan.kind, run.outcome))),
        val=Spread.of(run.score("val", measure) for run in runs),
        test=Spread.of(run.score("test", measure) for run in runs),
        took=_spreads([_took(run) for run in runs]) if with_took else {},
    )


def _took(run: ReadRun) -> dict[str, float]:
    """What one run moved and took over all its epochs, start-up left out; of one rank no communication."""
    from graphmill.report.table import metrics_of, rows_of

    tables = metrics_of([(run.plan, rows_of(run.folder, run.plan, _columns_of_took))], _columns_of_took)
    if not tables:
        return {}
    rows = tables[0].frame.sort("epoch")
    last, train_s = rows.row(-1, named=True), float(rows["train_s"].sum())
    took = {"num_syncs": last["num_syncs_cum"], "measured_mib": last["measured_mib_cum"]} if run.plan.ranks > 1 else {}
    took["seeds_per_s"] = float(rows["num_seeds"].sum()) / train_s if train_s else None
    took["wall_s"] = train_s + float(rows["eval_s"].sum())
    return {name: float(value) for name, value in took.items() if value is not None}


def _columns_of_took(_: AnyKind) -> tuple[str, ...]:
    return ("epoch", "num_syncs_cum", "measured_mib_cum", "train_s", "eval_s", "num_seeds")


def _spreads(facts: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Spread of each quantity, over the runs that have it."""
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: spread for name in names if (spread := Spread.of(each.get(name) for each in facts))}


def _sorted(table: Comparison, *sort: str) -> list[Configuration]:
    """The best first; or by the values of keys, numbers before text, and by validation where they are equal."""
    by_val = sorted(table.rows, key=lambda row: _worse(row.val, table))
    if sort == ("val",):
        return by_val
    if sort == ("test",):
        return sorted(by_val, key=lambda row: _worse(row.test, table))
    return sorted(by_val, key=lambda row: [sort_key(_cell(row.values.get(key))) for key in sort])


def _worse(score: Spread | None, table: Comparison) -> float:
    """Key that rises as a score gets worse; what has none, or one that is not finite, comes last."""
    if score is None or not math.isfinite(score.mean):
        return math.inf
    return -score.mean if table.higher_is_better else score.mean


def _cell(value: Any) -> Value:  # noqa: ANN401  # whatever a plan holds
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)
