"""Where the steps of a run went, as its ranks measured it: `profiler_traces/phases.json`.

Times are of graphmill's own clock, in steps with torch's profiler off; operators come from the traced steps after them.
"""

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.base.retries import is_there
from graphmill.record.documents import read_document

PHASES_FILE: Final = "phases.json"
"""Written last: a profile is whole once it is there."""
MERGED_FILE: Final = "merged.trace.json.gz"
OTHER: Final = "other"
"""What of a step lies in no phase: the loop itself, weights of terms, records of events."""
_BETWEEN_STEPS: Final = ("evaluate", "checkpoint")
_HOLDS_PHASES: Final = "step"


class SpanRecord(NamedTuple):
    """A span as it was measured; `time.perf_counter`, s."""

    name: str
    thread: int
    began: float
    ended: float


class StepSpan(NamedTuple):
    """A step, from the wait for its batch until it was done; evaluations and checkpoints are part of no step."""

    began: float
    ended: float


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class DurationSpread(_Document):
    """Seconds: of each step, or of each span."""

    mean_s: float
    median_s: float
    low_s: float = Field(description="lower quartile")
    high_s: float = Field(description="upper quartile")

    @classmethod
    def of(cls, values: Sequence[float]) -> "DurationSpread":
        """Spread of the values, of which there is at least one."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
        return cls(mean_s=statistics.fmean(values), median_s=median, low_s=low, high_s=high)


class Phase(_Document):
    """One phase of the steps of a rank. What is made in the background costs a step only what it waits for it."""

    name: str
    background: bool = Field(description="by another thread, while the step computes")
    per_step: DurationSpread = Field(
        description="without what other phases inside it took; in the background: of each batch"
    )


class Operator(_Document):
    """One operator of the traced steps, or a kernel of the device."""

    name: str
    phase: str
    device: bool = Field(description="a kernel: its time is the device's")
    calls: float = Field(description="per step")
    self_s: float = Field(description="of a step, without the operators that it called; the median of steps")


class RankPhases(_Document):
    """The profile of one rank."""

    rank: int
    host: str
    num_steps: int = Field(description="that were timed")
    step: DurationSpread
    phases: tuple[Phase, ...] = Field(description="of the step's own thread they add up to the step")
    num_traced: int
    traced_step: DurationSpread = Field(description="with torch's profiler on")
    operators: tuple[Operator, ...] = Field(description="the longest first, of those below so many")
    calls: float = Field(description="of operators, per step")
    cores_busy: float = Field(description="by this rank, while steps were timed")
    host_cores_busy: float = Field(description="by all processes of its host meanwhile")
    peaks_mib: dict[str, float] = Field(description="of memory, by what was looked at")
    trace: str = Field(description="file name; empty: left out, see notes")
    notes: tuple[str, ...] = Field(description="what was cut from the trace, and why")


class Profile(_Document):
    """Contents of phases.json."""

    run_id: str
    plan: dict[str, Any] = Field(description="every choice of the run's plan, by dotted name")
    kind: str
    seeds_are: str
    num_cores: int = Field(description="of rank 0's host that the run might use")
    versions: dict[str, str]
    ranks: tuple[RankPhases, ...]
    not_merged: tuple[int, ...] = Field(description="ranks that are left out of the merged trace, for its size")


def summarised(
    spans: Iterable[SpanRecord], steps: Sequence[StepSpan], *, thread: int
) -> tuple[DurationSpread, list[Phase]]:
    """The spread of steps, in order, and the phases of them; `thread`: the one that computes."""
    inside: list[list[SpanRecord]] = [[] for _ in steps]
    behind: defaultdict[str, list[float]] = defaultdict(list)
    ends = [step.ended for step in steps]
    for span in sorted(spans, key=lambda span: (span.began, -span.ended)):
        place = bisect_left(ends, span.ended)
        if place == len(steps) or span.ended <= steps[place].began:
            continue  # of a step that does not count
        if span.thread == thread:
            inside[place].append(span)
        else:
            behind[span.name].append(span.ended - span.began)
    own = [_of_step(step, found) for step, found in zip(steps, inside, strict=True)]
    names = list(dict.fromkeys(name for each in own for name in each if name != OTHER))
    phases = [
        *(
            Phase(name=name, background=False, per_step=DurationSpread.of([each.get(name, 0.0) for each in own]))
            for name in names
        ),
        *(Phase(name=name, background=True, per_step=DurationSpread.of(seconds)) for name, seconds in behind.items()),
        Phase(name=OTHER, background=False, per_step=DurationSpread.of([each[OTHER] for each in own])),
    ]
    return DurationSpread.of([sum(each.values()) for each in own]), phases


def _of_step(step: StepSpan, spans: Sequence[SpanRecord]) -> dict[str, float]:
    """Seconds by phase, each without what is nested in it; they add up to the step."""
    found: defaultdict[str, float] = defaultdict(float)
    aside = 0.0
    for span, inner_s in nested(spans):
        if span.name in _BETWEEN_STEPS:
            aside += span.ended - span.began
        elif span.name != _HOLDS_PHASES:
            found[span.name] += span.ended - span.began - inner_s
    found[OTHER] = max(0.0, step.ended - step.began - aside - sum(found.values()))
    return dict(found)


def nested(spans: Sequence[SpanRecord]) -> Iterator[tuple[SpanRecord, float]]:
    """Each span of one thread, ordered by begin, with the seconds of the spans directly inside it.

    What lies inside an evaluation or a checkpoint is part of that.
    """
    stack: list[tuple[SpanRecord, float]] = []
    for span in [*spans, SpanRecord("", 0, float("inf"), float("inf"))]:
        while stack and stack[-1][0].ended <= span.began:
            done, inner_s = stack.pop()
            if stack:
                outer, sofar = stack.pop()
                stack.append((outer, sofar + done.ended - done.began))
            yield done, inner_s
        if not (stack and stack[-1][0].name in _BETWEEN_STEPS):
            stack.append((span, 0.0))


def write_profile(folder: Path, profile: Profile) -> None:
    """The last file of a profile."""
    write_json(folder / PHASES_FILE, profile.model_dump(mode="json"))


def read_profile(folder: Path) -> Profile:
    """The profile in a folder of traces, or in a run that has one; `UserError` if there is none."""
    found = next((path for path in profile_paths(folder) if is_there(path)), None)
    if found is None:
        raise UserError(
            f"{folder} has no profile: no {PHASES_FILE} in it, nor in profiler_traces/",
            fix="`graphmill profile EXPERIMENT` makes one; so does a run with -O train.profile=true",
        )
    return read_document(found, Profile, "remove the folder that it is in, and profile again")


def profile_paths(folder: Path) -> tuple[Path, Path]:
    """Where a profile of `folder` may be."""
    return folder / PHASES_FILE, folder / "profiler_traces" / PHASES_FILE
