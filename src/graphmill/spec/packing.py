"""Which jobs the stages of a pipeline run in. Pure: from predicted times and memory to what each job asks for.

Jobs run one after another. A job may hold several stages, and a stage may span jobs: it is resumed from a checkpoint.
What is packed is the upper end of each prediction, so a job that runs out of time was mispredicted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MINUTE_S: Final = 60  # Slurm counts limits in minutes
_LEAST_PIECE_S: Final = 1.0  # of work; a job that would do less is not worth its start-up


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted quantity: the measure lies between the two, unless the prediction was wrong."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job's hosts must have. Stages of different shapes are never in one job: it would ask for too much."""

    hosts: int = 1
    ranks_per_host: int = 1
    device: str = "cpu"
    others: str = ""  # whatever else jobs must agree on; compared, and no more


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage is predicted to take."""

    name: str
    shape: Shape
    start_s: float  # from the start of an attempt to its first step; every job of the stage pays it
    work_s: Interval  # what is left of steps, evaluations and periodic checkpoints
    piece_s: float  # the longest piece of work that no checkpoint can be in: a round, or an evaluation
    end_s: float  # reserved at the end of an attempt, to save a checkpoint and exit
    memory_mib: Interval  # peak of each host
    needs: tuple[str, ...] = ()  # stages whose weights it takes
    expected_s: float = 0.0  # of all that is left, in one attempt; jobs are packed by the intervals


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A stage of which nothing is predicted: it has a job of its own, with all that a job may ask for."""

    name: str
    shape: Shape
    needs: tuple[str, ...]
    why: str  # it was not measured


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job may ask for at most."""

    time_s: float
    memory_mib: float | None = None  # of a host; None: not limited

    @property
    def whole_minutes_s(self) -> int:
        """The time limit as Slurm counts it."""
        return int(self.time_s // MINUTE_S) * MINUTE_S


@dataclass(frozen=True, slots=True)
class StagePart:
    """The work of one stage that one job does: from `begin_s` to `end_s` of `work_s.high`."""

    stage: str
    begin_s: float
    end_s: float
    is_last: bool
    takes_s: float  # with start-up and what is reserved for its end


@dataclass(frozen=True, slots=True)
class PackedJob:
    """One job: its parts in order, and what it asks for."""

    parts: tuple[StagePart, ...]
    shape: Shape
    time_s: int  # whole minutes
    memory_mib: int  # of each host; 0: not given

    @property
    def takes_s(self) -> float:
        """Predicted seconds, at most."""
        return sum(part.takes_s for part in self.parts)

    @property
    def hands_over(self) -> bool:
        """Whether the next job continues its last stage."""
        return not self.parts[-1].is_last


@dataclass(frozen=True, slots=True)
class Misfit:
    """A stage that no job can run, and why."""

    stage: str
    why: str


@dataclass(frozen=True, slots=True)
class Packing:
    """The jobs, in the order in which they run, and the stages that are in none."""

    jobs: tuple[PackedJob, ...]
    misfits: tuple[Misfit, ...]


def pack(stages: Sequence[StageCost | Unmeasured], limits: JobLimits) -> Packing:
    """Fill one job after another, in the order of the stages."""
    misfits = _misfits(stages, limits)
    packer = _Packer(limits)
    for stage in stages:
        if stage.name in misfits:
            continue
        if isinstance(stage, StageCost):
            packer.add(stage)
        else:
            packer.add_whole(stage)
    packer.close()
    return Packing(tuple(packer.jobs), tuple(Misfit(stage, why) for stage, why in misfits.items()))


class _Packer:
    """The job that is being filled, and those that are full."""

    def __init__(self, limits: JobLimits) -> None:
        self.limits = limits
        self.jobs: list[PackedJob] = []
        self._open: list[tuple[StageCost, StagePart]] = []

    def add(self, stage: StageCost) -> None:
        """Put a stage into the open job, and into as many new ones as it needs."""
        if self._open and self._open[0][0].shape != stage.shape:
            self.close()
        done = 0.0
        while True:
            end = self._end_of_part(stage, done)
            if end is None:
                self.close()
                continue
            is_last = end >= stage.work_s.high
            takes_s = stage.start_s + (end - done) + stage.end_s
            self._open.append((stage, StagePart(stage.name, done, end, is_last, takes_s)))
            if is_last:
                return
            self.close()
            done = end

    def add_whole(self, stage: Unmeasured) -> None:
        """Give a stage a job of its own."""
        self.close()
        self.jobs.append(whole_job(stage.name, stage.shape, self.limits))

    def close(self) -> None:
        """Close the open job: further stages go into a new one."""
        if not self._open:
            return
        takes_s = sum(part.takes_s for _, part in self._open)
        memory_mib = math.ceil(max(stage.memory_mib.high for stage, _ in self._open))
        if self.limits.memory_mib is not None:
            memory_mib = min(memory_mib, math.floor(self.limits.memory_mib))
        minutes = max(1, math.ceil(takes_s / MINUTE_S))
        time_s = min(minutes * MINUTE_S, self.limits.whole_minutes_s)
        parts = tuple(part for _, part in self._open)
        self.jobs.append(PackedJob(parts, self._open[0][0].shape, time_s, memory_mib))
        self._open = []

    def _end_of_part(self, stage: StageCost, done: float) -> float | None:
        """How far the open job gets with a stage; None: another job is needed."""
        room_s = _room_s(stage, self.limits) - sum(part.takes_s for _, part in self._open)
        if room_s >= stage.work_s.high - done:
            return stage.work_s.high
        least_s = _least_s(stage) if not self._open else max(_least_s(stage), stage.start_s)  # not all start-up
        return done + room_s if room_s >= least_s else None


def whole_job(stage: str, shape: Shape, limits: JobLimits) -> PackedJob:
    """The job of a stage without a prediction: it may take all that a job may ask for."""
    time_s = limits.whole_minutes_s
    part = StagePart(stage, 0.0, float(time_s), is_last=True, takes_s=float(time_s))
    return PackedJob((part,), shape, time_s, 0 if limits.memory_mib is None else math.floor(limits.memory_mib))


def least_time_s(stage: StageCost) -> float:
    """A job with less time left is not worth an attempt at this stage."""
    return stage.start_s + min(_least_s(stage), stage.work_s.high) + stage.end_s


def _misfits(stages: Sequence[StageCost | Unmeasured], limits: JobLimits) -> dict[str, str]:
    found: dict[str, str] = {}
    for stage in stages:
        why = _why_not(stage, limits) if isinstance(stage, StageCost) else _why_no_job(limits)
        missing = [name for name in stage.needs if name in found]
        if why is None and missing:
            why = f"it takes weights of {', '.join(missing)}, which does not fit"
        if why is not None:
            found[stage.name] = why
    return found


def _why_not(stage: StageCost, limits: JobLimits) -> str | None:
    memory_mib = limits.memory_mib
    if memory_mib is not None and stage.memory_mib.low > memory_mib:
        return f"it takes at least {stage.memory_mib.low:.0f} MiB of a host, but a job may ask for {memory_mib:.0f} MiB"
    least_s = min(_least_s(stage), stage.work_s.high)
    if _room_s(stage, limits) < least_s:
        return (
            f"a job may run for {limits.whole_minutes_s} s, but start-up ({stage.start_s:.1f} s), the longest work"
            f" between two checkpoints ({least_s:.1f} s) and the end with a checkpoint ({stage.end_s:.1f} s) take"
            f" {stage.start_s + least_s + stage.end_s:.1f} s"
        )
    return None


def _why_no_job(limits: JobLimits) -> str | None:
    return None if limits.whole_minutes_s else f"a job may run for {limits.time_s:.0f} s, and Slurm counts in minutes"


def _room_s(stage: StageCost, limits: JobLimits) -> float:
    """Seconds for work in a job that runs this stage alone."""
    return limits.whole_minutes_s - stage.start_s - stage.end_s


def _least_s(stage: StageCost) -> float:
    """Work that a part does at least, unless it is the last one."""
    return max(stage.piece_s, _LEAST_PIECE_S)
