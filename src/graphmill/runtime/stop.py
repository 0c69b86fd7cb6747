"""Was I asked to stop? A signal handler sets a flag and nothing more (house rule 6)."""

import signal
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
WARNING: Final = signal.SIGUSR2  # not USR1: NCCL catches it


def end_when_interrupted() -> None:
    """Let SIGINT end this process, until `StopRequest` takes over; unless it is ignored, as of a background process.

    SIGTERM does so by itself: a rank that has not met the others has nothing to save, and those that wait for it are
    ended, too. The process that started it judges that it was stopped (`cluster/launch/judge.py`).

    While torch is imported, a KeyboardInterrupt is lost: it and numpy catch errors of their imports, and go on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class StopRequest:
    """Remembers that SIGTERM or SIGINT came, or the scheduler's warning that time runs out.

    The loop reads `requested` and `warned` where all ranks are aligned, and they decide together. A second SIGINT
    raises `KeyboardInterrupt` at once, for users who do not want to wait for the checkpoint.
    """

    def __init__(self) -> None:
        self.requested = False
        self.warned = False
        self.signal: signal.Signals | None = None  # the first one that came
        self.why = ""  # this process stops itself for a reason of its own
        self._interrupts = 0

    def ask(self, why: str) -> None:
        """Note that this process asks itself to stop."""
        self.requested, self.why = True, why

    def note_warnings(self) -> None:
        """Take over USR2, which would end this process."""
        signal.signal(WARNING, self._remember_warning)

    def install(self) -> None:
        """Take over SIGTERM, SIGINT and USR2. Only the main thread can. An interrupt that waited arrives here."""
        self.note_warnings()
        for number in SIGNALS:
            signal.signal(number, self._remember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the launcher blocks it, until it can be handled

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self.requested:
            self.requested, self.signal = True, signal.Signals(number)
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt

    def _remember_warning(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.warned = True
