"""Native work on torch's OpenMP threads, in programs in which nobody says how these wait."""

import os
import subprocess
import sys
from functools import cache

import pytest

SHOWS_THREADS = """
import os, sys
import numpy as np, torch
from graphmill import _native
from graphmill.nn import native
from graphmill.nn.define import share_torch_threads

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


LOOKS = """
import zlib
product(2)
two = threads() - before
checksum = zlib.crc32(product(2))
product(3)
print(two, threads() - before, checksum, _native.use_openmp("/no/such/libgomp.so.1"))
"""


@cache
def looked(policy: str) -> list[str]:
    """How many threads came with two and with three, a checksum of the results, and what a library is that is none."""
    return run(LOOKS, **({"OMP_WAIT_POLICY": policy} if policy else {})).split()


@pytest.mark.parametrize(("policy", "more"), [("", "0"), ("PASSIVE", "1")])
def test_threads_of_torch_are_used_where_they_spin(policy, more):
    assert looked(policy)[0] == more


def test_results_do_not_depend_on_whose_threads_compute():
    assert looked("")[2] == looked("PASSIVE")[2]


def test_other_numbers_of_threads_and_other_threads_use_the_core_s_own():
    assert looked("")[1] == "2"
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
    assert looked("")[3] == "False"
