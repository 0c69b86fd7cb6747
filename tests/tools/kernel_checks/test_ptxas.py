"""The gate behind ptxas, on toys: what it counts, what it refuses, and what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_checks import chips
from kernel_checks.cubins import Resources
from kernel_checks.ptxas import Finding, Limits
from kernel_checks.sass import code_of

pytest.importorskip("triton")
HERE = Path(__file__).parent
TOOLS = HERE.parents[2] / "tools"


def gate(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    environ = {**os.environ, "PYTHONPATH": str(TOOLS), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "kernel_checks", "ptxas", *arguments, "--jobs", "1", "--json", tmp_path / "found"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done, json.loads((tmp_path / "found").read_text())


def test_a_sound_kernel_passes_on_every_architecture(tmp_path):
    done, found = gate(tmp_path, f"{HERE}/toy_variants.py:right", "--occupancy", "0.75")
    assert done.returncode == 0, done.stdout
    assert [each["capability"] for each in found] == [80, 90, 100]
    for each in found:
        # 1,024 values by 128 threads, of which any may be beyond the end: eight loads of 4 bytes a thread.
        assert (each["global_loads"], each["global_stores"], each["bytes_under_way"]) == (8, 8, 32)
        assert (each["stack"], each["local_loads"], each["barriers"], each["atomics"]) == (0, 0, 0, 0)
        assert each["violations"] == []
    assert "a model, not a measurement" in done.stdout


@pytest.mark.slow
def test_a_spill_is_refused_with_what_to_change(tmp_path):
    done, found = gate(tmp_path, f"{HERE}/toy_variants.py:spills")
    assert done.returncode == 1
    (spilled,) = found
    assert spilled["stack"] > 0
    assert spilled["local_loads"] > 0
    assert spilled["local_stores"] > 0
    assert "give it more warps" in done.stdout
    assert "1 beyond the limits" in done.stdout


def test_a_kernel_that_waits_for_each_load_is_refused(tmp_path):
    done, found = gate(tmp_path, f"{HERE}/toy_variants.py:waits", "--in-flight", "18000")
    assert done.returncode == 1
    assert found[0]["bytes_under_way"] <= 8
    assert "below 18.0" in done.stdout


def test_nothing_examined_is_no_pass(tmp_path):
    done, _ = gate(tmp_path, f"{HERE}/toy_variants.py:right", "--only", "tripled")
    assert done.returncode == 1
    assert "nothing was examined" in done.stderr


SASS = """
.text.one:
        /*0000*/                   LDG.E R2, desc[UR4][R8.64] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R8.64+0x10] ;
        /*0020*/                   IADD3 R12, R13, R14, RZ ;
        /*0030*/                   FADD R12, R6, R12 ;
        /*0040*/                   LDG.E.64 R4, desc[UR4][R8.64] ;
        /*0050*/                   STG.E desc[UR4][R10.64], R12 ;
        /*0060*/                   LDG.E.U16 R20, desc[UR4][R4.64] ;
        /*0070*/                   STL [R1+0x4], R20 ;
.text.two:
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0010*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
"""


def test_counts_and_what_is_under_way():
    found = code_of(SASS)
    one, two = found["one"], found["two"]
    assert (one.global_loads, one.global_stores, one.local_stores, one.local_loads) == (4, 1, 1, 0)
    # R6 is of the second load's four registers, so both have come when it is read; the 8 bytes after it stand alone,
    # and have come when they are read as an address.
    assert one.bytes_under_way == 4 + 16
    assert (two.barriers, two.atomics, two.bytes_under_way) == (1, 1, 0)


ASYNC = """
.text.staged:
        /*0000*/                   LDGSTS.E.BYPASS.128 [R43], desc[UR12][R6.64+0x20], P1 ;
        /*0010*/                   LDGDEPBAR ;
        /*0020*/                   LDGSTS.E [R43+0x800], desc[UR12][R6.64+0x20] ;
        /*0030*/                   LDGDEPBAR ;
        /*0040*/                   DEPBAR.LE SB0, 0x1 ;
        /*0050*/                   LDG.E.64 R2, desc[UR4][R8.64] ;
        /*0060*/                   DEPBAR.LE SB0, 0x0 ;
        /*0070*/                   LDGSTS.E.64 [R43+0x800], desc[UR12][R6.64+0x20] ;
"""


def test_loads_into_shared_memory_are_under_way_until_their_group_is_waited_for():
    # 16 and 4 bytes before the first wait, 4 and 8 after it, then 8 and 8.
    assert code_of(ASYNC)["staged"].bytes_under_way == 20
    assert code_of(ASYNC.replace("SB0, 0x1", "SB0, 0x2"))["staged"].bytes_under_way == 28


def finding(**changes) -> Finding:
    of = {"function": "f", "registers": 64, "stack": 0, "shared": 0, "warps": 4, "code": code_of(SASS)["two"]}
    return Finding("f", 90, Resources(**{**of, **changes}))


def test_occupancy_by_hand():
    assert finding().occupancy == 0.5  # 64 registers x 32 x 4 = 8,192 a program: 8 of 65,536, that is 32 warps of 64
    assert finding(warps=1, registers=32).occupancy == 0.5  # 32 programs at most, of one warp each
    assert finding(shared=75 * 1024).occupancy == 3 * 4 / 64  # 228 kB hold three of 76
    assert finding(registers=33).occupancy == 12 * 4 / 64  # given out as 40: 12 programs of 5,120
    assert chips.CHIPS[90].bytes_needed == pytest.approx(17_765, abs=1)


def test_each_limit_is_named():
    assert not Limits().broken(finding())
    assert "occupancy 0.50, below 0.60" in Limits(occupancy=0.6).broken(finding())[0]
    assert "64 registers a thread, beyond 40" in Limits(registers=40).broken(finding())[0]
    assert "kB under way" in Limits(in_flight=18_000).broken(finding())[0]
    assert "8 bytes of stack" in Limits().broken(finding(stack=8))[0]
    assert "1 local stores" in Limits().broken(finding(code=code_of(SASS)["one"]))[0]
