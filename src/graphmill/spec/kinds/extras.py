"""What few tasks have: a page gives them as `Kind(extras=(…))`, and `Kind.extra` finds them by their type.

All names here are dotted, `package.module:NAME`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphmill.config.frozen import Spec


@dataclass(frozen=True, slots=True)
class Bench:
    """What trained runs are worth beyond their scores: `graphmill bench KIND RUN`."""

    measure: str  # function: tasks.task.Benches
    options: type[Spec]  # what `graphmill bench KIND RUN -o key=value` takes; `split` among it
    brief: Mapping[str, Any] = field(default_factory=dict)  # what of these `evaluate --speed-ups` sets


@dataclass(frozen=True, slots=True)
class Sampling:
    """Batches that are sampled, so that others than the ranks can do it."""

    presample: str  # function: Plan → sample.presampled.schedule.EpochSource
    serve: str  # class of what samplers do: tasks.task.ServesBatches


def _none(plan: object, given: Iterable[str]) -> Sequence[str]:
    """Return that no source is missing: whatever is given is enough."""
    del plan, given
    return ()


@dataclass(frozen=True, slots=True)
class Sources:
    """Further weights that the ranks use: tasks.task.UsesSources."""

    names: tuple[str, ...]
    missing: Callable[[Any, Iterable[str]], Sequence[str]] = _none
    """The task's part of a plan, and the names that are given → those which it needs beside them."""
