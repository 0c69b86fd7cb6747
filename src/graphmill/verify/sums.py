"""Columns of metrics.csv that follow from others: computed again and compared."""

import math
from collections import Counter
from collections.abc import Iterator

from graphmill.spec.columns import PRECISIONS
from graphmill.verify.evidence import Evidence, Row

_MIB = 1024 * 1024


def problems_of_sums(evidence: Evidence, rows: list[Row]) -> Iterator[str]:
    """Cells that differ from the recomputed value."""
    numbers = [{name: cell for name, cell in row.items() if isinstance(cell, int | float)} for row in rows]
    for row in numbers:
        for name, wanted in _within(evidence, row):
            if name in row and not _close(float(row[name]), wanted):
                yield _text(row, name, wanted)
        for name in ("train_s", "eval_s", "sample_s", "gather_s", "wait_s", "compute_s", "sync_s", "peak_rss_mib"):
            if name in row and not 0 <= row[name] < math.inf:
                yield f"epoch {row.get('epoch')}: {name} is {row[name]}"
    before: dict[str, float] = {}
    for row in numbers:
        yield from _after(before, row)
        before = {**row, **{name: row.get(name, before.get(name, 0)) for name in _RUNNING}}
    yield from _bests(evidence, numbers)
    yield from _attempts(evidence, numbers)
    yield from _syncs(evidence, numbers)


def _within(evidence: Evidence, row: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Name and value of what follows from the plan and the row's other cells."""
    plan = evidence.plan
    yield "global_steps", row.get("steps_done", 0) * plan.ranks
    yield "target_global_steps", evidence.planned.last_step * plan.ranks
    if row.get("train_s", 0) > 0:
        yield "seeds_per_s", row.get("num_seeds", 0) / row["train_s"]
    parameters = {start.parameters for log in evidence.logs for start in log.starts}
    if len(parameters) == 1:
        for name, size in PRECISIONS.items():
            mib = next(iter(parameters)) * size / _MIB
            yield f"modelled_mib_per_sync_{name}", mib
            yield f"modelled_mib_epoch_{name}", row.get("num_syncs", 0) * mib
            yield f"modelled_mib_cum_{name}", row.get("num_syncs_cum", 0) * mib


_RUNNING = {  # running total: what each epoch adds
    "steps_done": "epoch_steps",
    "num_seeds_cum": "num_seeds",
    "num_syncs_cum": "num_syncs",
    "measured_mib_cum": "measured_mib_epoch",
}


def _after(before: dict[str, float], row: dict[str, float]) -> Iterator[str]:
    for total, part in _RUNNING.items():
        wanted = before.get(total, 0) + row.get(part, 0)
        if total in row and not _close(row[total], wanted):
            yield _text(row, total, wanted)
    for name in ("interface_mib_cum", "peak_rss_mib", "attempt"):  # may grow by more than the epoch's own
        if name == "peak_rss_mib" and row.get("attempt") != before.get("attempt"):
            continue  # another process
        if name in row and name in before and row[name] < before[name]:
            yield f"epoch {row.get('epoch')}: {name} falls from {before[name]} to {row[name]}"


def _bests(evidence: Evidence, rows: list[dict[str, float]]) -> Iterator[str]:
    """Check that the best so far is the best of those so far, where a measure was taken."""
    for measure in evidence.plan.kind.measures:
        fact, best = f"val_{measure.name}", None
        for row in rows:
            if fact not in row:
                continue
            best = row[fact] if best is None or measure.is_better(row[fact], best) else best
            if f"best_{fact}" in row and not _close(row[f"best_{fact}"], best):
                yield f"epoch {row.get('epoch')}: best_{fact} is not the best {measure.words} so far"
                break


def _attempts(evidence: Evidence, rows: list[dict[str, float]]) -> Iterator[str]:
    if isinstance(evidence.attempts, str) or not evidence.attempts:
        return
    for row in rows:
        if not 1 <= row.get("attempt", 0) <= len(evidence.attempts):
            yield f"epoch {row.get('epoch')}: attempt {row.get('attempt')}, but there were {len(evidence.attempts)}"


def _syncs(evidence: Evidence, rows: list[dict[str, float]]) -> Iterator[str]:
    """Check that every sync that a row counts is recorded by every rank, and by the last checkpoint."""
    if evidence.most_ranks == 1:
        return
    for log in evidence.throughout:
        told = Counter(sync.epoch for sync in log.syncs.values())
        for row in rows:
            number = told[int(row.get("epoch", 0))]
            if row.get("num_syncs") != number:
                yield f"epoch {row.get('epoch')}: {row.get('num_syncs')} syncs, but rank {log.rank} has {number}"
    last = evidence.last_saved
    if last is not None and rows and last.positions and last.steps_done == evidence.plan.last_step:
        counted = last.positions[0].books.counters
        if rows[-1].get("num_syncs_cum") != counted.num_syncs:
            yield f"{rows[-1].get('num_syncs_cum')} syncs in all, but {counted.num_syncs} in the last checkpoint"
        if not _close(rows[-1].get("measured_mib_cum", 0), counted.payload_bytes / _MIB):
            yield _text(rows[-1], "measured_mib_cum", counted.payload_bytes / _MIB)


def _close(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)


def _text(row: dict[str, float], name: str, wanted: float) -> str:
    return f"epoch {row.get('epoch')}: {name} is {row[name]}, but it comes to {wanted:.10g}"
