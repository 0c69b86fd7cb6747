"""Was the run distributed as planned, and did all ranks have the same weights?

The ranks' own files are compared with each other; that a flag says `true` is not enough.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from graphmill.record.events import Start
from graphmill.spec.calendar import Calendar
from graphmill.spec.plan import Plan
from graphmill.spec.world import effect_of, spans_text
from graphmill.verify.check import Check, NotYet, judged
from graphmill.verify.events import EventLog, read_sampler_logs
from graphmill.verify.evidence import Evidence, took_part

_STEP_BACK_S = 1.0  # what a clock may be set back by while a run continues
_SKEW_S = 60.0  # what the clock of a host may be set back by between two attempts; clocks of two hosts say nothing


def checks(evidence: Evidence) -> Iterator[Check]:
    """Ranks, world, backend, hosts, weights, clocks."""
    plan, world, most = evidence.plan, evidence.last_world, evidence.most_ranks
    num_hosts = world.hosts_with_ranks
    hosts = f"{num_hosts} host{'s' if num_hosts > 1 else ''}"
    backend = f"{plan.backend} between all ranks" if world.ranks > 1 else "one rank needs none"
    replicas = "all ranks' own records agree on every sync" if most > 1 else "one rank agrees with itself"
    subjects: list[tuple[str, Callable[[], Iterable[str]], str]] = [
        ("ranks", lambda: _ranks(evidence), f"all {world.ranks} were heard from and finished"),
        *(
            [("samplers", lambda: _samplers(evidence), f"all {world.samplers} served to the end")]
            if world.samplers
            else []
        ),
        ("world size", lambda: _world(evidence), f"{world.ranks}"),
        ("backend", lambda: _backend(evidence), backend),
        ("hosts", lambda: _hosts(evidence), f"{hosts}: {', '.join(sorted(_by_host(evidence))[:8])}"),
        ("replicas", lambda: _replicas(evidence), replicas),
        ("clock", lambda: _clock(evidence), "times only go forward"),
    ]
    for name, problems, good in subjects:
        yield judged("distributed", name, problems, good)
    if {each.ranks for each in evidence.spans} - {plan.ranks}:
        said = f"{spans_text(evidence.spans)}; {plan.ranks} were planned: {effect_of(plan)}"
        yield Check("distributed", "elastic", "warn", said)


def _last_starts(evidence: Evidence) -> list[Start]:
    return [log.starts[-1] for log in evidence.at_the_end if log.starts]


def _ranks(evidence: Evidence) -> Iterator[str]:
    heard, last = {log.rank: log for log in evidence.logs}, evidence.last_world.ranks
    silent = [rank for rank in range(last) if rank not in heard]
    for rank in silent[:3]:
        yield f"rank {rank} was never heard from"
    if len(silent) > 3:
        yield f"{len(silent) - 3} more ranks were never heard from"
    for log in heard.values():
        yield from _its_own(log) if log.rank >= last else _one_rank(evidence, log)


def _samplers(evidence: Evidence) -> Iterator[str]:
    for number, log in enumerate(read_sampler_logs(evidence.folder, evidence.last_world)):
        if log is None or not log.starts:
            yield f"sampler {number} was never heard from" if log is None or not log.problem else log.problem
        elif log.problem:
            yield log.problem
        elif log.finish is None:
            yield NotYet(f"sampler {number} did not finish: its last event is {log.last_kind}")


def _its_own(log: EventLog) -> Iterator[str]:
    if log.problem:
        yield log.problem
    foreign = {event.rank for event in log.events} - {log.rank}
    if foreign:
        yield f"rank_{log.rank}.jsonl holds events of rank {min(foreign)}"


def _one_rank(evidence: Evidence, log: EventLog) -> Iterator[str]:
    yield from _its_own(log)
    if log.problem:
        return
    if not log.starts:
        yield f"rank {log.rank} was never heard from"
    elif log.finish is None:
        yield NotYet(f"rank {log.rank} did not finish: its last event is {log.last_kind}")
    elif log.finish.steps_done != evidence.plan.last_step:
        yield f"rank {log.rank} finished after {log.finish.steps_done} steps of {evidence.plan.last_step}"
    elif log.finish.status != "done":
        yield f"rank {log.rank} finished as {log.finish.status}"
    attempts = evidence.attempts
    if log.starts and isinstance(attempts, list) and attempts:
        behind = attempts[-1].time - log.starts[-1].time
        if behind > _SKEW_S:
            yield f"rank {log.rank} was last heard from {behind:.0f} s before the last attempt began"


def _world(evidence: Evidence) -> Iterator[str]:
    wanted = evidence.last_world.ranks
    for start in _last_starts(evidence):
        if start.world_size != wanted:
            yield f"rank {start.rank} was one of {start.world_size}, but {wanted} began the last attempt"


def _backend(evidence: Evidence) -> Iterator[str]:
    wanted = evidence.plan.backend if evidence.last_world.ranks > 1 else None
    for start in _last_starts(evidence):
        if start.backend != wanted:
            yield f"rank {start.rank} talked by {start.backend or 'nothing'}, but {wanted or 'nothing'} was planned"


def _by_host(evidence: Evidence) -> Counter[str]:
    return Counter(start.hostname for start in _last_starts(evidence))


def _hosts(evidence: Evidence) -> Iterator[str]:
    world, by_host = evidence.last_world, _by_host(evidence)
    wanted = world.hosts_with_ranks
    if len(by_host) != wanted:
        yield f"ranks ran on {len(by_host)} hosts ({', '.join(sorted(by_host)[:8])}), but {wanted} were planned"
        return
    for host, count in sorted(by_host.items()):
        if count != world.ranks_per_host:
            yield f"{count} ranks ran on {host}, but {world.ranks_per_host} were planned"


def _replicas(evidence: Evidence) -> Iterator[str]:
    plan, calendar, logs = evidence.plan, evidence.plan.calendar, evidence.logs
    if not logs:
        yield "no rank recorded a sync"
        return
    for log in logs:
        due = (steps for steps in calendar.round_ends() if took_part(log.rank, evidence.spans, steps))
        missing = next((steps for steps in due if steps not in log.syncs), None)
        if missing is not None:
            lacking = f"rank {log.rank} has no sync at step {missing}, where one was due"
            yield NotYet(lacking) if missing > max(log.syncs, default=0) else lacking
        extra = next((steps for steps in log.syncs if not _may_sync(plan, calendar, steps)), None)
        if extra is not None:
            yield f"rank {log.rank} has a sync at step {extra}, where none was due"
    for steps in sorted(set().union(*(log.syncs for log in logs))):
        hashes = {log.rank: sync.parameter_hash for log in logs if (sync := log.syncs.get(steps))}
        if len(set(hashes.values())) > 1:
            told = ", ".join(f"{value} (rank {rank})" for rank, value in list(hashes.items())[:4])
            yield f"parameters differ after the sync at step {steps}: {told}"
            break
    for log in logs:
        disagreed = next((sync for sync in log.syncs.values() if not sync.replicas_agree), None)
        if disagreed is not None:
            yield f"rank {log.rank} says that replicas did not agree at step {disagreed.steps_done}"
            break


def _may_sync(plan: Plan, calendar: Calendar, steps: int) -> bool:
    if not 0 < steps <= calendar.last_step:
        return False
    # The first steps of local SGD may sync every time.
    return steps <= getattr(plan.sync, "warmup_steps", 0) or calendar.closes_round(steps)


def _clock(evidence: Evidence) -> Iterator[str]:
    for log in evidence.logs:
        host = ""
        for earlier, later in pairwise(log.events):
            host = earlier.hostname if isinstance(earlier, Start) else host
            allowed = _SKEW_S if isinstance(later, Start) else _STEP_BACK_S
            if isinstance(later, Start) and later.hostname != host:
                continue  # another host's clock: it may be minutes behind
            if not later.time - earlier.time >= -allowed:
                yield (
                    f"rank {log.rank}: {later.kind} comes after {earlier.kind}, but its time is"
                    f" {earlier.time - later.time:.1f} s before"
                )
                break
    if isinstance(evidence.attempts, list):
        for number, (earlier_start, later_start) in enumerate(pairwise(evidence.attempts), start=2):
            same = later_start.hostname == earlier_start.hostname
            if same and later_start.time < earlier_start.time - _SKEW_S:
                yield f"attempt {number} began {earlier_start.time - later_start.time:.0f} s before the one before it"
