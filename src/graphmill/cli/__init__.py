"""The commands. Importing this is fast: heavy modules are imported inside the command that needs them."""

import atexit
import gc
import signal
from typing import Final

_OBJECTS_A_COLLECTION: Final = 50_000


def main() -> None:
    """The entry point. Until a command begins there is nothing to save: Ctrl-C ends the process in silence.

    Garbage is collected seldom, and not at the end: what is imported is none, and Python would look through it at every
    700 objects more (a fifth of the time that torch's import takes), and for 0.1 s when the process ends.
    """
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    atexit.register(gc.freeze)  # runs last of all that is registered
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, as of a background process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from graphmill.cli.app import run

    run()
