"""Is a run whole and true to its plan? A first form: files, outcome, metrics, seeds, losses, replicas, ranks, data."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import xxhash

from graphmill.base.errors import UserError
from graphmill.record.events import read_events
from graphmill.record.metrics import COLUMNS, read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan

Rows = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    result: Literal["ok", "warn", "fail"]
    detail: str


def verify_run(folder: RunFolder) -> list[Check]:
    """All checks of one run, in the order a person would look. A check that cannot be made says why, as a failure."""
    plan = folder.read_plan()
    checks = [_files(folder), _outcome(folder), _ranks(folder, plan), _checkpoints(folder), *_data(folder, plan)]
    try:
        rows = read_metrics(folder.metrics_path)
    except (UserError, OSError) as error:
        message = error.message if isinstance(error, UserError) else "metrics.csv is missing"
        return [*checks, Check("metrics", "fail", message)]
    missing = [name for name in COLUMNS if rows and name not in rows[0]]
    if missing or not rows:
        return [
            *checks,
            Check("metrics", "fail", f"no column {', '.join(missing)}" if missing else "no epoch is in it"),
        ]
    about_rows: list[tuple[str, Callable[[Plan, Rows], Iterator[str]], str]] = [
        ("metrics", _epochs_and_steps, f"{plan.epochs} epochs, {plan.steps_per_rank} steps of each rank, as planned"),
        ("seeds", _seeds, f"every full epoch saw all {plan.dataset.num_train} training nodes"),
        ("losses", _losses, "finite in every epoch"),
        ("replicas", _replicas, "bit-equal after every sync" if plan.ranks > 1 else "one rank has nothing to agree on"),
        ("identity", _identity, "metrics.csv names the run, dataset, scheme and seed of the plan"),
    ]
    return [*checks, *(_over_rows(name, problems, good, plan, rows) for name, problems, good in about_rows)]


def _over_rows(name: str, problems: Callable[[Plan, Rows], Iterator[str]], good: str, plan: Plan, rows: Rows) -> Check:
    try:
        found = list(problems(plan, rows))
    except ValueError as error:
        found = [f"metrics.csv holds a cell that is no number: {error}"]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return Check(name, "fail", "; ".join(found[:3]) + more) if found else Check(name, "ok", good)


def _files(folder: RunFolder) -> Check:
    paths = (
        folder.plan_path,
        folder.provenance_path,
        folder.attempts_path,
        folder.metrics_path,
        folder.outcome_path,
        folder.events_dir,
        folder.checkpoints_dir,
    )
    missing = [path.name for path in paths if not path.exists()]
    return Check("files", "fail", f"missing: {', '.join(missing)}") if missing else Check("files", "ok", "all there")


def _outcome(folder: RunFolder) -> Check:
    try:
        outcome = folder.read_outcome()
    except UserError as error:
        return Check("outcome", "fail", error.message)
    if outcome is None:
        return Check("outcome", "fail", "none: the run is under way, or died without a word; --resume continues it")
    if outcome.status != "done":
        return Check(
            "outcome", "fail", f"{outcome.status} after {outcome.epochs} epochs: {outcome.message or 'no reason'}"
        )
    if outcome.test is None:
        return Check("outcome", "fail", "done, but the test split was not evaluated")
    return Check("outcome", "ok", f"done in {outcome.wall_s:.1f} s")


def _ranks(folder: RunFolder, plan: Plan) -> Check:
    problems = []
    for rank in range(plan.ranks):
        path = folder.events_path(rank)
        try:
            kinds = [event.get("kind") for event in read_events(path)] if path.exists() else []
        except UserError as error:
            problems.append(error.message)
            continue
        if "start" not in kinds:
            problems.append(f"rank {rank} was never heard from")
        elif "finish" not in kinds:
            problems.append(f"rank {rank} did not finish: its last word is {kinds[-1]}")
    return Check("ranks", "fail", "; ".join(problems)) if problems else Check("ranks", "ok", f"{plan.ranks} finished")


def _checkpoints(folder: RunFolder) -> Check:
    """A checkpoint exists once its manifest does; the manifest holds the checksums of its files."""
    manifests = sorted(folder.checkpoints_dir.glob("step_*/manifest.json"))
    for manifest in manifests:
        try:
            files: dict[str, str] = json.loads(manifest.read_bytes())["content"]["files"]
            damaged = [name for name, known in files.items() if _xxh3(manifest.with_name(name)) != known]
        except (ValueError, KeyError, TypeError, AttributeError):
            return Check("checkpoints", "fail", f"{manifest} is damaged")
        except OSError as error:
            return Check("checkpoints", "fail", f"{error.filename} cannot be read: {error.strerror}")
        if damaged:
            return Check("checkpoints", "fail", f"{manifest.with_name(damaged[0])} does not match its checksum")
    if not manifests:
        return Check("checkpoints", "fail", "none is complete")
    detail = f"{len(manifests)} complete, files match their checksums; the last is {manifests[-1].parent.name}"
    return Check("checkpoints", "ok", detail)


def _xxh3(path: Path) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _data(folder: RunFolder, plan: Plan) -> Iterator[Check]:
    from graphmill.graph.store import GraphStore

    dataset = plan.dataset
    try:
        checksum = GraphStore.open(Path(dataset.path)).metadata.checksum
    except UserError as error:
        yield Check("dataset", "warn", f"not here to be compared: {error.message}")
    else:
        same = checksum == dataset.checksum
        detail = (
            "the one that was planned with" if same else f"checksum {checksum}, but planned with {dataset.checksum}"
        )
        yield Check("dataset", "ok" if same else "fail", detail)
    try:
        provenance = folder.read_provenance()
    except UserError as error:
        yield Check("provenance", "fail", error.message)
        return
    if provenance is None:
        yield Check("provenance", "fail", "missing")
    elif provenance.synthetic is not dataset.synthetic or provenance.dataset_checksum != dataset.checksum:
        yield Check("provenance", "fail", "speaks of other data than the plan")
    else:
        kind = "synthetic data, and says so" if dataset.synthetic else "real data"
        yield Check(
            "provenance", "ok", f"{kind}; {_code(provenance.code is not None and provenance.code.dirty is False)}"
        )


def _code(clean: bool) -> str:
    return "code of a clean commit" if clean else "code of no clean commit"


def _epochs_and_steps(plan: Plan, rows: Rows) -> Iterator[str]:
    epochs = [int(row["epoch"]) for row in rows]
    if epochs != list(range(1, plan.epochs + 1)):
        yield f"epochs {epochs[0]} to {epochs[-1]} in {len(epochs)} rows, but {plan.epochs} were planned"
    steps = int(rows[-1]["local_steps"])
    if steps != plan.steps_per_rank:
        yield f"{steps} steps of each rank, but {plan.steps_per_rank} were planned"
    done = 0
    for row in rows:
        done += int(row["epoch_steps"])
        if done != int(row["local_steps"]):
            yield f"epoch {row['epoch']}: epoch_steps add up to {done}, but local_steps is {row['local_steps']}"
            return


def _seeds(plan: Plan, rows: Rows) -> Iterator[str]:
    for row in rows:
        seen, whole = int(row["seed_nodes_epoch_global"]), int(row["epoch_steps"]) == plan.steps_per_epoch
        wanted = plan.dataset.num_train
        if (whole and seen != wanted) or seen > wanted:
            yield f"epoch {row['epoch']} saw {seen} seeds of {wanted}"


def _losses(plan: Plan, rows: Rows) -> Iterator[str]:
    del plan
    for row in rows:
        for column in ("loss", "val_loss"):
            text = row[column]
            if (column == "loss" and not text) or (text and not math.isfinite(float(text))):
                yield f"epoch {row['epoch']}: {column} is {text or 'empty'}"


def _replicas(plan: Plan, rows: Rows) -> Iterator[str]:
    for row in rows:
        if row["replicas_agree"] != "true" and (plan.ranks > 1 or row["replicas_agree"] == "false"):
            yield f"epoch {row['epoch']}: replicas_agree is {row['replicas_agree'] or 'empty'}"


def _identity(plan: Plan, rows: Rows) -> Iterator[str]:
    wanted: Mapping[str, object] = {
        "run_id": plan.run_id,
        "world_size": plan.ranks,
        "sync_every": plan.sync.every,
        "sync_scheme": plan.sync.scheme,
        "seed": plan.seed,
        "dataset": plan.dataset.name,
        "synthetic": str(plan.dataset.synthetic).lower(),
    }
    for column, value in wanted.items():
        others = sorted({row[column] for row in rows} - {str(value)})
        if others:
            yield f"{column} is {', '.join(others)}, but {value} in the plan"
