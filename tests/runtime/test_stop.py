"""Real signals to real processes."""

import signal
import subprocess
import sys
import time

from waiting import HANG_S

PROGRAM = """
import sys, time
from graphmill.runtime.stop import StopRequest
stop = StopRequest()
stop.install()
print("ready", flush=True)
try:
    while not stop.requested:
        time.sleep(0.02)
    print("asked", stop.signal.name, flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    print("at once", flush=True)
"""


def start(environ) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_signal_sets_a_flag_and_nothing_more(source_environ):
    for number in (signal.SIGTERM, signal.SIGINT):
        process = start(source_environ)
        process.send_signal(number)
        assert process.stdout.readline() == f"asked {number.name}\n"
        time.sleep(0.1)
        assert process.poll() is None
        process.kill()
        process.wait()


def test_a_second_interrupt_stops_at_once(source_environ):
    process = start(source_environ)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked SIGINT\n"
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert process.poll() is None, "only Ctrl-C is impatient"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "at once\n"
    assert process.wait(HANG_S) == 0
