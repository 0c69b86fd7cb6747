"""Whose CPU time it was: real processes that burn it, in sessions of their own, orphaned, with and without the mark."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foreign import MARK, OwnTime

BURN_S = 0.6
SEEN_S = 0.5  # the kernel counts in ticks, and may miss some
BURN = f"import time\nwhile time.process_time() < {BURN_S}: sum(range(1000))\n"
# The burner's parent ends at once: nobody of ours waits for it, as for a rank that a daemon of Slurm's started.
ORPHAN = f"""import os, subprocess, sys
null = subprocess.DEVNULL
command = [sys.executable, "-c", {BURN + "time.sleep(600)"!r}]
child = subprocess.Popen(command, stdout=null, stderr=null, start_new_session=True)
print(child.pid, flush=True)
os._exit(0)
"""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("is_marked", [True, False])
def test_an_orphan_of_another_session_is_own_by_its_mark(is_marked):
    own = OwnTime()
    before = own.look()
    environ = dict(os.environ) if is_marked else {name: v for name, v in os.environ.items() if name != MARK}
    done = subprocess.run([sys.executable, "-c", ORPHAN], env=environ, capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    try:
        while cpu_s(pid) < SEEN_S:
            time.sleep(0.02)
        used = own.look() - before
    finally:
        os.kill(pid, 9)
    assert (used >= SEEN_S) == is_marked


def test_a_child_that_ended_between_looks_is_own():
    own = OwnTime()
    before = own.look()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert own.look() - before >= SEEN_S


def test_an_orphan_that_ended_is_not_forgotten():
    own = OwnTime()
    before = own.look()
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    while cpu_s(pid) < SEEN_S:
        time.sleep(0.02)
    own.look()
    os.kill(pid, 9)
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():  # empty: a zombie
        time.sleep(0.02)
    assert own.look() - before >= SEEN_S


def test_nothing_is_counted_twice():
    """A tree that ends as a whole: the grandchild's time goes to the child's, and to ours."""
    own, looking = OwnTime(), time.process_time()
    before = own.look()
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"
    process = subprocess.Popen([sys.executable, "-c", nested])
    while process.poll() is None:
        own.look()
        time.sleep(0.02)
    ours = time.process_time() - looking  # what the looks themselves take is own, too
    assert SEEN_S < own.look() - before - ours < 1.8 * BURN_S
