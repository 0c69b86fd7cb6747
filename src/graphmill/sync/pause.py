"""Where ranks agree to stop in the middle of an evaluation."""

from collections.abc import Callable

Pause = Callable[[], None]
"""Function that all ranks call together, at times, during an evaluation; raises `EvaluationStopped` on all or none."""


def never_pause() -> None:
    """The pause of an evaluation that is never stopped."""


class EvaluationStopped(Exception):  # noqa: N818  # nothing went wrong: it is done again later
    """The ranks agreed to stop in the middle of an evaluation."""
