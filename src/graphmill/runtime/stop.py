"""Was I asked to stop? A signal handler sets a flag and nothing more (house rule 6)."""

import signal
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Remembers that SIGTERM or SIGINT came.

    The loop reads `asked` where all ranks are aligned, and they decide together. A second SIGINT raises
    `KeyboardInterrupt` at once, for the person who does not want to wait for the checkpoint.
    """

    def __init__(self) -> None:
        self.asked = False
        self.signal: signal.Signals | None = None  # the first one that came
        self._interrupts = 0

    def install(self) -> None:
        """Take over SIGTERM and SIGINT. Only the main thread can."""
        for number in SIGNALS:
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self.asked:
            self.asked, self.signal = True, signal.Signals(number)
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
