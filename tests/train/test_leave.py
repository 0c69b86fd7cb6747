"""The end of a rank's process, while a thread of it waits for the store."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, time
from torch.distributed import TCPStore
from graphmill.runtime.process import leave

store = TCPStore("127.0.0.1", 0, is_master=True)

def beat():  # as the watchdog does, but all the time
    while True:
        store.set("beat", "1")
        store.get("beat")

threading.Thread(target=beat, daemon=True).start()
time.sleep(0.2)
print("all is told")
leave(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.slow), 74])
def test_a_thread_that_waits_for_the_store_does_not_abort_a_rank_that_leaves(status):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(status)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "all is told\n"), done.stderr
    assert "terminate called" not in done.stderr  # torch may warn there of host names it cannot look up
