"""The commands. Importing this is fast: heavy modules are imported inside the command that needs them."""

import signal


def main() -> None:
    """The entry point. Until a command begins there is nothing to save: Ctrl-C ends the process in silence."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, as of a background process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from graphmill.cli.app import run

    run()
