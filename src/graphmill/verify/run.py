"""All checks of one run, in the order in which a user would look."""

from collections.abc import Iterator
from dataclasses import replace

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.retries import is_there
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.roles import fits
from graphmill.verify import checkpoints, data, distributed, files, job, metrics, own_code
from graphmill.verify.check import Check, in_a_line, judged
from graphmill.verify.evidence import Evidence, gather


def verify_run(folder: RunFolder) -> list[Check]:
    """Every check of the run in `folder`. Nothing is raised for damage: it is a failed check that says what it is."""
    try:
        if not is_there(folder.plan_path):
            return [Check("files", "plan", "fail", "plan.json is missing, and nothing else records what was planned")]
        plan = folder.read_plan()
    except (UserError, UnreadableError) as error:
        return [Check("files", "plan", "fail", in_a_line(error))]
    impossible = judged("files", "plan", lambda: _impossible(plan), "")
    if impossible.result == "fail":
        return [impossible]
    evidence = gather(folder, plan)
    found = [
        judged("files", "plan", lambda: _changed(evidence), "possible, and the one that the ranks read"),
        *files.checks(evidence),
        *job.checks(evidence),
        *own_code.checks(evidence),
        *metrics.checks(evidence),
        *distributed.checks(evidence),
        *data.checks(evidence),
        *checkpoints.checks(evidence),
    ]
    return found if evidence.is_open else [_of_an_end(check) for check in found]


def _of_an_end(check: Check) -> Check:
    """What is missing of a run that says it is at its end will not follow."""
    return replace(check, result="fail") if check.result == "unfinished" else check


def _impossible(plan: Plan) -> Iterator[str]:
    """Values that a plan cannot have, whatever the run did. Other checks would fail on them."""
    none = [name for name in ("hosts", "ranks", "last_step", "batch_size") if getattr(plan, name) < 1]
    if none:
        yield f"plan.json was changed: {', '.join(f'{name} is {getattr(plan, name)}' for name in none)}"
        return
    roles = plan.roles
    if roles is not None and (roles.trainers != plan.ranks or not fits(roles.samplers, plan.ranks, plan.hosts)):
        yield (
            f"plan.json was changed: {roles.samplers} samplers and {roles.trainers} trainers, of {plan.ranks} ranks, do"
            f" not fit {plan.hosts} hosts"
        )
        return
    if roles is None and plan.ranks % plan.hosts:
        yield f"plan.json was changed: {plan.ranks} ranks do not divide among {plan.hosts} hosts"
    steps = plan.batches.num_steps
    others = sorted({length for _, length in plan.epoch_lengths} - {steps})
    if others:
        yield (
            f"plan.json was changed: epochs have {others[0]} steps, but {plan.batches.num_seeds} seeds in"
            f" batches of {plan.batch_size} on {plan.ranks} ranks take {steps}"
        )
    else:
        yield from _impossible_calendar(plan)


def _impossible_calendar(plan: Plan) -> Iterator[str]:
    try:
        _ = plan.calendar
    except ValueError as error:
        yield f"plan.json was changed: {error}"


def _changed(evidence: Evidence) -> Iterator[str]:
    known = evidence.folder.plan_hash()
    for log in evidence.logs:
        if any(start.plan_hash != known for start in log.starts):
            yield f"plan.json is not the plan that rank {log.rank} read"
    for saved in evidence.saved:
        if saved.manifest is not None and saved.manifest.plan_hash != known:
            yield f"{saved.path.name} was written by another plan"
