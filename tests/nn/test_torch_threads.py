"""Native work on torch's OpenMP threads, in programs in which nobody says how these wait."""

import os
import subprocess
import sys

import pytest

SHOWS_THREADS = """
import os, sys
import numpy as np, torch
from graphmill import _native
from graphmill.nn import native
from graphmill.nn.torch_threads import share_torch_threads

def threads():
    return len(os.listdir("/proc/self/task"))

def product(num_threads):
    a, w = (np.random.default_rng(seed).normal(size=(2000, 64)).astype(np.float32) for seed in (0, 1))
    out = np.empty((2000, 2000), np.float32)
    _native.linear(a, w, None, out, False, None, 0.0, num_threads)
    return out

torch.set_num_threads(2)
torch.ones(1_000_000).sum()  # its threads are there
before = threads()
"""


def run(code: str, **environ: str) -> str:
    told = ("OMP_", "GOMP_", "KMP_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    command = [sys.executable, "-c", SHOWS_THREADS + code]
    done = subprocess.run(command, env=plain | environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("environ", "more"), [({}, 0), ({"OMP_WAIT_POLICY": "PASSIVE"}, 1)])
def test_threads_of_torch_are_used_where_they_spin(environ, more):
    assert run("product(2); print(threads() - before)", **environ) == str(more)


def test_results_do_not_depend_on_whose_threads_compute():
    print_checksum = "import zlib; print(zlib.crc32(product(2)))"
    assert run(print_checksum) == run(print_checksum, OMP_WAIT_POLICY="PASSIVE")


def test_other_numbers_of_threads_and_other_threads_use_the_core_s_own():
    assert run("product(3); print(threads() - before)") == "2"
    code = """
import threading, time
worker = threading.Thread(target=product, args=(2,))
worker.start()
worker.join()
give_up = time.monotonic() + 60
while threads() - before > 1 and time.monotonic() < give_up:  # the kernel may list a thread that has ended
    time.sleep(0.01)
print(threads() - before)
"""
    assert run(code) == "1"


def test_a_forked_child_does_not_wait_for_threads_that_it_has_not():
    code = """
product(2)
child = os.fork()
if child == 0:
    product(2)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code) == "7"


def test_what_is_not_loaded_is_not_used():
    assert run("print(_native.use_openmp('/no/such/libgomp.so.1'))") == "False"
