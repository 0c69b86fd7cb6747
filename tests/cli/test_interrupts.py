"""Ctrl-C at any moment of a command, from its first import on: no traceback, and nothing of it looks like a bug."""

import signal
import subprocess
import sys

import pytest

# Real SIGINTs at moments that repeat: at the import of a module, or at the n-th import.
PROGRAM = """
import os, signal, sys
import graphmill.cli
moment, *sys.argv = sys.argv[1:]
seen = 0

def strike(event, arguments):
    global seen
    if event == "import":
        seen += 1
        if arguments[0] == moment or str(seen) == moment:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(strike)
try:
    graphmill.cli.main()
finally:
    print("imports:", seen)
"""
DIED = -signal.SIGINT  # of it: no command had begun, or it was over
INTERRUPTED = 130


def struck(moment: object, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", PROGRAM, str(moment), "graphmill", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "status"),
    [("graphmill.cli.tree", DIED), ("graphmill.tasks.planning", INTERRUPTED), ("graphmill.spec.plan", INTERRUPTED)],
)
def test_an_interrupted_import_leaves_no_traceback(toy, source_environ, module, status):
    done = struck(module, source_environ, "plan", str(toy))
    assert done.returncode == status
    assert done.stderr == ("" if status == DIED else "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("plan", "toy.yaml"), ("list",), ("datasets",), ("merge",), ("doctor",)])
def test_no_import_of_a_command_leaves_a_traceback(toy, source_environ, monkeypatch, words):
    monkeypatch.chdir(toy.parent)
    whole = struck(0, source_environ, *words)
    num_imports = int(whole.stdout.rpartition("imports: ")[2])
    assert num_imports > 50
    for number in range(1, num_imports, 25):
        done = struck(number, source_environ, *words)
        assert done.returncode in (DIED, INTERRUPTED), (number, done)
        assert done.stderr in ("", "interrupted\n"), (number, done.stderr)


def test_an_interrupt_that_native_code_made_another_error_of_is_none_of_our_bugs(source_environ):
    program = (
        "import os, signal, sys; sys.argv = ['graphmill', 'doctor']; import graphmill.runtime.checks as checks\n"
        "def examine(**_):\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise ValueError('as pydantic does')\n"
        "checks.examine = examine\n"
        "from graphmill.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=source_environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "interrupted\n")


def test_an_interrupt_that_is_lost_in_a_finalizer_comes_again(source_environ):
    program = (
        "import os, signal, sys, time; sys.argv = ['graphmill', 'doctor']; import graphmill.runtime.checks as checks\n"
        "class Ends:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT); time.sleep(0)\n"
        "def examine(**_):\n"
        "    Ends()\n"
        "    while True: time.sleep(0.1)\n"
        "checks.examine = examine\n"
        "from graphmill.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=source_environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "interrupted\n")
