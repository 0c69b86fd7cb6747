"""Advice is pure: facts in, findings out. The examples of the issue, the thresholds from both sides, and bounds."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.diagnose import advice
from graphmill.diagnose.advice import JobUsage, advise, nice_memory, nice_time
from graphmill.diagnose.rules import Finding
from graphmill.diagnose.thresholds import Bound

GIB = 1024.0


ASKED = {"memory_asked_mib": "memory_mib", "cores_asked": "cores", "time_asked_s": "time_s", "gpus_asked": "gpus"}
USED = {
    "memory_used_mib": "memory_mib", "cores_busy": "cores", "cores_busy_p90": "cores_p90",
    "host_busy_percent": "busy_percent", "time_used_s": "time_s", "gpu_busy_percent": "gpu_busy_percent",
    "staging_s": "staging_s", "staged_mib": "staged_mib",
}  # fmt: skip


def usage(**known) -> JobUsage:
    asked, used = ({names[key]: known[key] for key in known if key in names} for names in (ASKED, USED))
    return JobUsage(requested=asked, used=used, **{key: known[key] for key in known if key not in ASKED | USED})


def resources(facts: JobUsage) -> list[str]:
    return [each.subject for each in advise(facts)]


def slow(bound: Bound, *suggestions: str) -> Finding:
    return Finding(bound, "warn", "40 %", suggestions, {"share": 0.4, "threshold": 0.2})


def test_the_examples_of_the_issue():
    facts = usage(
        is_done=True, memory_asked_mib=85 * GIB, memory_used_mib=12 * GIB, cores_asked=8, cores_busy=2.1,
        cores_busy_p90=2.3, time_asked_s=7200, time_used_s=2400,
    )  # fmt: skip
    assert [str(each) for each in advise(facts)] == [
        "memory: used 12 of 85 GiB per host; request 16 GiB (slurm.mem=16G)",
        "cores: 2.1 of 8 cores per host busy; request 3 (slurm.cpus_per_host=3)",
        "time: used 00:40:00 of 02:00:00; a shorter job starts sooner; request 01:00:00 (slurm.time=01:00:00)",
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (usage(memory_asked_mib=10 * GIB, memory_used_mib=6 * GIB), []),
        (usage(memory_asked_mib=10 * GIB, memory_used_mib=9.5 * GIB), ["memory"]),
        (usage(memory_asked_mib=1 * GIB, memory_used_mib=100), []),  # too little to give back
        (usage(memory_asked_mib=1 * GIB, state="OUT_OF_MEMORY", memory_used_mib=500), ["memory"]),
        (usage(memory_asked_mib=85 * GIB), []),  # not measured: nothing is said
        (usage(cores_asked=8, cores_busy=6.5), []),
        (usage(cores_asked=8, cores_busy=1, cores_busy_p90=7.5), []),  # often idle, but then they are needed
        (usage(cores_asked=8, cores_busy=1, num_ranks=8), []),  # one for each rank
        (usage(cores_asked=2, cores_busy=1.01), ["cores"]),
        (usage(time_asked_s=7200, time_used_s=60), []),  # not done: it says nothing of the time it takes
        (usage(is_done=True, time_asked_s=7200, time_used_s=7000), ["time"]),
        (usage(is_done=True, time_asked_s=7200, time_used_s=5000), []),
        (usage(time_asked_s=7200, time_used_s=7201, state="TIMEOUT"), ["time"]),
        (usage(gpus_asked=2), ["gpus"]),
        (usage(gpus_asked=2, uses_gpus=True), []),  # no driver to ask
        (usage(gpus_asked=2, uses_gpus=True, gpu_busy_percent=3), ["gpus"]),
        (usage(gpus_asked=2, uses_gpus=True, gpu_busy_percent=90), []),
        (usage(gpu_busy_percent=3), []),
        (usage(staging_s=30, time_used_s=100, staged_mib=5000), ["staging"]),
        (usage(staging_s=5, time_used_s=100), []),
        (usage(), []),
    ],
)
def test_thresholds(facts: JobUsage, expected: list[str]):
    assert resources(facts) == expected


def test_advice_on_a_crowded_host_says_so():
    (found,) = advise(usage(cores_asked=8, cores_busy=2, host_busy_percent=99))
    assert "99 %" in found.fixes[0]


def test_what_slows_a_run_down_is_advised_on_as_the_bottleneck_has_it():
    starved = usage(gpus_asked=1, uses_gpus=True, gpu_busy_percent=3)
    findings = [slow("loader", "train.prefetch=2", "staging.to=host_local"), slow("memory", "slurm.mem")]
    gpus, loader = advise(starved, findings)
    assert (gpus.subject, "loader" in gpus.fixes[0]) == ("gpus", True)
    assert (loader.subject, loader.fixes) == ("loader", ("train.prefetch=2", "staging.to=host_local"))
    assert (loader.text, loader.amounts) == ("40 %", {"used": 40})
    assert "loader" not in advise(starved)[0].fixes[0]


AMOUNT = st.floats(0, 1e6)
MAYBE = st.none() | AMOUNT


@given(asked=st.floats(1, 1e7), used=st.floats(0, 1e7))
def test_what_is_advised_would_have_been_enough(asked: float, used: float):
    for found in advise(usage(is_done=True, memory_asked_mib=asked, memory_used_mib=used)):
        assert found.amounts["suggested"] >= used
        assert (found.amounts["suggested"] < asked) == (used < 0.5 * asked)
    for found in advise(usage(is_done=True, time_asked_s=asked, time_used_s=used)):
        assert found.amounts["suggested"] >= used
    for found in advise(usage(cores_asked=asked, cores_busy=used)):
        assert used - 0.05 <= found.amounts["suggested"] <= asked - 1


@given(st.builds(usage, **dict.fromkeys(
    ("memory_asked_mib", "memory_used_mib", "cores_asked", "cores_busy", "cores_busy_p90", "time_asked_s",
     "time_used_s", "gpus_asked", "gpu_busy_percent", "staging_s", "staged_mib"), MAYBE)))  # fmt: skip
def test_any_facts_can_be_advised_on(facts: JobUsage):
    assert all(str(found) for found in advise(facts))


@given(st.floats(0, 1e9))
def test_nice_amounts_hold_what_they_must(amount: float):
    assert amount <= nice_memory(amount) <= max(256, 2 * amount + 256)
    assert amount <= nice_time(amount)


def test_examples():
    assert doctest.testmod(advice).failed == 0
