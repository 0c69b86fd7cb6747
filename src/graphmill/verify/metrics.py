"""Does metrics.csv hold what was planned, does it add up, and do the ranks' own files agree?"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from graphmill.record.documents import Outcome
from graphmill.record.evaluations import Evaluated
from graphmill.record.judged import can_be_best, lost_on_test, not_better_than_it_began
from graphmill.spec.plan import Plan
from graphmill.verify.check import Check, NotYet, judged
from graphmill.verify.events import EventLog
from graphmill.verify.evidence import NO_ROW, NO_TABLE, Evidence, Row
from graphmill.verify.sums import problems_of_sums


def checks(evidence: Evidence) -> Iterator[Check]:
    """The table first: the others read it."""
    plan, rows = evidence.plan, evidence.rows
    if isinstance(rows, str):
        is_early = rows in (NO_TABLE, NO_ROW)
        yield Check("metrics", "table", "unfinished" if is_early else "fail", rows)
    else:
        subjects: list[tuple[str, Callable[[], Iterable[str]], str]] = [
            (
                "epochs",
                lambda: _epochs(plan, rows),
                f"{plan.calendar.num_epochs}, of {plan.last_step} steps of each rank",
            ),
            ("seeds", lambda: _seeds(plan, rows), f"every full epoch saw all {plan.batches.num_seeds}, each once"),
            ("losses", lambda: _losses(evidence, rows), _last_values(evidence, rows[-1])),
            ("agreement", lambda: _agreement(rows), _agreement_text(evidence)),
            ("sums", lambda: problems_of_sums(evidence, rows), "what can be computed again comes to the same"),
            ("identity", lambda: _identity(evidence, rows), "run, dataset, scheme and seed of the plan"),
            (
                "events",
                lambda: _events(evidence, rows),
                f"the files of {len(evidence.throughout)} ranks recorded the same",
            ),
        ]
        for name, problems, good in subjects:
            yield judged("metrics", name, problems, good)
    yield from _evaluations_check(evidence)
    yield judged("metrics", "scores", lambda: _scores(evidence), _scores_text(evidence))


def _epochs(plan: Plan, rows: list[Row]) -> Iterator[str]:
    calendar = plan.calendar
    if len(rows) != calendar.num_epochs:
        counted = f"{len(rows)} rows, but {calendar.num_epochs} epochs were planned"
        yield NotYet(counted) if len(rows) < calendar.num_epochs else counted
    for number, row in enumerate(rows, start=1):
        if row["epoch"] != number:
            yield f"row {number} is that of epoch {row['epoch']}"
            break
    done = 0
    for epoch, row in enumerate(rows):
        due = calendar.steps_in(epoch) if epoch < calendar.num_epochs else 0
        done = _as_integer(row, "steps_done")
        if row["epoch_steps"] != due:
            yield f"epoch {row['epoch']}: epoch_steps is {row['epoch_steps']}, but {due} were planned"
    if done != plan.last_step:
        counted = f"{done} steps of each rank, but {plan.last_step} were planned"
        yield NotYet(counted) if done < plan.last_step else counted


def _seeds(plan: Plan, rows: list[Row]) -> Iterator[str]:
    for row in rows:
        seen = row["num_seeds"]
        wanted = plan.batches.seeds_in(_as_integer(row, "epoch_steps"))
        if wanted is None:  # a part of an epoch, in batches of unequal numbers of seeds
            if not 0 < _as_integer(row, "num_seeds") < plan.batches.num_seeds:
                yield f"epoch {row['epoch']} was cut short, and saw {seen} seeds of {plan.batches.num_seeds}"
        elif seen != wanted:
            yield f"epoch {row['epoch']} saw {seen} seeds of {wanted}"


def _losses(evidence: Evidence, rows: list[Row]) -> Iterator[str]:
    for name in ("loss", "val_loss"):
        known = {row["epoch"]: row[name] for row in rows}
        for epoch, value in known.items():
            if (name == "loss" and value is None) or (isinstance(value, float) and not math.isfinite(value)):
                yield f"epoch {epoch}: {name} is {'empty' if value is None else value}"
        values = [value for value in known.values() if value is not None]
        if len(values) > 1 and len(set(values)) == 1:
            yield f"{name} is {values[0]} in all {len(values)} epochs: nothing was learnt"
    if rows[-1]["val_loss"] is None:
        yield NotYet("the last epoch was not evaluated")


def _agreement_text(evidence: Evidence) -> str:
    if evidence.most_ranks == 1:
        return "one rank: there is nothing to compare"
    return "in every epoch the ranks' parameter hashes were compared after each sync, and equal"


def _agreement(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if row["world_size"] != 1 and row["replicas_agree"] is not True:
            yield f"epoch {row['epoch']}: replicas_agree is {'empty' if row['replicas_agree'] is None else 'false'}"


def _identity(evidence: Evidence, rows: list[Row]) -> Iterator[str]:
    plan = evidence.plan
    wanted: Mapping[str, object] = {
        "run_id": plan.run_id,
        "sync_every": plan.sync.every,
        "sync_scheme": plan.sync.scheme,
        "payload": plan.sync.payload,
        "seed": plan.seed,
        "dataset": plan.dataset.name,
        "synthetic": plan.dataset.synthetic,
    }
    for column, value in wanted.items():
        others = sorted({str(row[column]) for row in rows if row[column] != value})
        if others:
            yield f"{column} is {', '.join(others)}, but {value} in the plan"
    for row in rows:
        world = evidence.world_of(row["attempt"])
        for column, value in {"world_size": world.ranks, "num_hosts": world.hosts_with_ranks}.items():
            if row[column] != value:
                yield f"epoch {row['epoch']}: {column} is {row[column]}, but {value} in attempt {row['attempt']}"


def _events(evidence: Evidence, rows: list[Row]) -> Iterator[str]:
    for log in evidence.throughout:
        listed = {row["epoch"] for row in rows}
        if log.epochs.keys() != listed:
            odd = min(log.epochs.keys() ^ listed, key=str)
            where = f"rank {log.rank}'s events" if odd in log.epochs else "metrics.csv"
            yield f"epoch {odd} is in {where} only"
        for row in rows:
            yield from _one_epoch(evidence, log, row)


def _one_epoch(evidence: Evidence, log: EventLog, row: Row) -> Iterator[str]:
    """Where a row and one rank's events of that epoch differ."""
    number = _as_integer(row, "epoch")
    epoch, evaluation = log.epochs.get(number), log.val.get(number)
    told: dict[str, float] = {}
    if epoch is not None:
        told |= {"loss": epoch.loss, "steps_done": epoch.steps_done, "num_seeds": epoch.num_seeds}
    if evaluation is not None:
        told |= {f"val_{name}": value for name, value in evaluation.measures.items()}
    elif row["val_loss"] is not None:
        yield f"epoch {number} has a val_loss, but rank {log.rank} has no evaluation"
    for name, value in told.items():
        if name in row and not _same(row[name], value):
            yield f"epoch {number}: {name} is {row[name]}, but {value} in the events of rank {log.rank}"


def _evaluations_check(evidence: Evidence) -> Iterator[Check]:
    rows = evidence.evaluations
    if isinstance(rows, str):
        yield Check("metrics", "evaluations", "fail", rows)
    elif rows or any(log.evaluations for log in evidence.throughout):
        sets = ", ".join(dict.fromkeys(row.set for row in rows))
        good = f"evaluations.csv: {len(rows)} measures of {sets}, as all ranks recorded them"
        yield judged("metrics", "evaluations", lambda: _evaluations(evidence, rows), good)


def _evaluations(evidence: Evidence, rows: list[Evaluated]) -> Iterator[str]:
    """Where evaluations.csv and the events of one rank differ."""
    listed = {(row.epoch, row.set, row.measure): row.value for row in rows}
    if len(listed) < len(rows):
        yield f"evaluations.csv: {len(rows) - len(listed)} rows repeat an epoch, set and measure"
    by_rank_0 = {each.name for each in evidence.plan.kind.baselines.methods if each.scored == "end"}
    of_all = {key: value for key, value in listed.items() if key[1].partition("/")[2] not in by_rank_0}
    for log in evidence.throughout:
        listed = listed if log.rank == 0 else of_all
        told = {
            (epoch, name, measure): value
            for (epoch, name), event in log.evaluations.items()
            for measure, value in event.measures.items()
        }
        for key in sorted(listed.keys() ^ told.keys()):
            where = "evaluations.csv" if key in listed else f"the events of rank {log.rank}"
            yield f"epoch {key[0]}: {key[2]} of {key[1]} is in {where} only"
        for key in listed.keys() & told.keys():
            if not _same(listed[key], told[key]):
                said = f"{listed[key]} in evaluations.csv, but {told[key]} in the events of rank {log.rank}"
                yield f"epoch {key[0]}: {key[2]} of {key[1]} is {said}"


def _scores(evidence: Evidence) -> Iterator[str]:
    """The best of the validation split and the scores of the test split, as the ranks recorded them."""
    outcome = evidence.outcome
    if not isinstance(outcome, Outcome):
        yield NotYet("no outcome to compare with")
        return
    test, best = outcome.test or {}, outcome.best or {}
    for log in evidence.throughout:
        if log.test is None:
            yield NotYet(f"rank {log.rank} has no evaluation of the test split")
            continue
        for name, value in log.test.measures.items():
            if not _same(test.get(name), value):
                yield f"test {name} is {test.get(name)} in outcome.json, but {value} in the events of rank {log.rank}"
    for log in evidence.throughout:
        yield from _best(evidence.plan, best, log)


def _best(plan: Plan, best: Mapping[str, object], log: EventLog) -> Iterator[str]:
    """The first measure chose the best epoch; the others are that epoch's, or of older runs the best of any epoch."""
    if not best and not any(can_be_best(epoch) for epoch in log.val):
        yield NotYet(f"rank {log.rank} has no evaluation of the validation split")
        return
    chosen = log.val.get(best["epoch"]) if isinstance(best.get("epoch"), int) else None  # type: ignore[call-overload]
    if chosen is None:
        yield f"rank {log.rank} has no evaluation in epoch {best.get('epoch')}, which is to be the best"
        return
    counted = [each.measures for epoch, each in log.val.items() if can_be_best(epoch)]
    for number, measure in enumerate(plan.kind.measures):
        told = [measures[measure.name] for measures in counted if measure.name in measures]
        if not told:
            continue
        top = max(told) if measure.higher_is_better else min(told)
        claimed, recorded = best.get(measure.name), chosen.measures.get(measure.name)
        allowed = (top,) if number == 0 else (recorded, top)
        if not any(_same(claimed, value) for value in allowed):
            yield f"best {measure.name} is {claimed} in outcome.json, but {allowed[0]} by the events of rank {log.rank}"
        elif number == 0 and not _same(recorded, top):
            yield f"epoch {best['epoch']} is to be the best, but rank {log.rank} recorded a better {measure.name}"


def _scores_text(evidence: Evidence) -> str:
    test = evidence.outcome.test if isinstance(evidence.outcome, Outcome) else None
    names = ("loss", *(measure.name for measure in evidence.plan.kind.measures[:3] if measure.is_shown))
    values = [f"{name} {value:.4f}" for name in names if isinstance(value := (test or {}).get(name), float)]
    outcome = evidence.outcome if isinstance(evidence.outcome, Outcome) else None
    rows = evidence.evaluations if isinstance(evidence.evaluations, list) else []
    began = not_better_than_it_began(rows, evidence.plan.kind, outcome.best if outcome else None)
    lost = str(lost_on_test(evidence.plan.kind, outcome) or "")
    return "; ".join(filter(None, [f"test {', '.join(values)}", "equal in the events of all ranks", began, lost]))


def _last_values(evidence: Evidence, last: Row) -> str:
    measures = (f"val_{measure.name}" for measure in evidence.plan.kind.measures[:2])
    shown = ("loss", "val_loss", *measures, "seeds_per_s")
    values = [f"{name} {value:.5g}" for name in shown if isinstance(value := last.get(name), float)]
    return f"finite, and not constant; last {', '.join(values)}"


def _same(cell: object, value: object) -> bool:
    """Equal, as far as ranks that add up in the same order can be; a cell that is not a number equals nothing."""
    if isinstance(cell, bool) or not isinstance(cell, int | float) or not isinstance(value, int | float):
        return cell == value
    return math.isclose(cell, value, rel_tol=1e-12, abs_tol=1e-300) or (math.isnan(cell) and math.isnan(value))


def _as_integer(row: Row, column: str) -> int:
    value = row[column]
    if not isinstance(value, int):
        raise ValueError(f"epoch {row['epoch']}: {column} is empty")  # noqa: TRY004  # damage of a file, not of a type
    return value
