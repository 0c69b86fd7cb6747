"""How long a rank waits for the others before training. A signal ends it at once: no handler is installed yet."""

import time
from dataclasses import dataclass, field
from typing import Final

from graphmill.base.errors import UserError

_TICK_S: Final = 0.02


class NotMetError(UserError):
    """Other ranks of the run did not come, or cannot be reached."""


@dataclass(slots=True)
class PeerTimeout:
    """Deadline of a rank's wait, counted from when it is ready: ranks of one run start at different times."""

    seconds: float
    setting: str = ""  # what to type to wait longer; "": nothing
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def renewed(self) -> "PeerTimeout":
        """Timeout of the same length that begins now, for the next thing to wait for."""
        return PeerTimeout(self.seconds, self.setting)

    @property
    def left_s(self) -> float:
        """Seconds; 0 if it is over."""
        return max(0.0, self._until - time.monotonic())

    def go_on(self) -> bool:
        """Whether to look once more, which is after a moment."""
        time.sleep(_TICK_S)
        return self.left_s > 0
