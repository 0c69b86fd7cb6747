"""What would fail on hosts, from what they found out: every fault names its host."""

import pytest

from graphmill.diagnose.job_hosts import AllReduce, ClockOffset, HostFacts, HostFolder, HostGpu, HostReport, findings_of

GIB = 1 << 30
DISK = HostFolder(path="/local", file_system="xfs", free_bytes=100 * GIB)
NAMES = ("n1", "n2", "n3")


def host(number: int, **changes: object) -> HostFacts:
    good = {
        "rank": number,
        "host": NAMES[number],
        "torch": "2.13.0",
        "num_cores": 64,
        "memory_bytes": 256 * GIB,
        "gpus": (HostGpu(name="A100", capability="8.0", is_supported=True),),
        "architectures": ("sm_80", "sm_90"),
        "temporary": DISK,
        "sees_files": True,
        "unknown_names": (),
        "clock": ClockOffset(ahead_s=1e-4, error_s=1e-5),
        "all_reduces": (
            AllReduce(num_bytes=4096, seconds=1e-4),
            AllReduce(num_bytes=64 << 20, seconds=0.1),
        ),
    }
    return HostFacts(**{**good, **changes})


def report(*hosts: HostFacts, problem: str = "") -> HostReport:
    return HostReport(job_id="7", expected=NAMES, hosts=hosts, problem=problem)


def of(name: str, *hosts: HostFacts, problem: str = ""):
    found = [finding for finding in findings_of(report(*hosts, problem=problem)) if finding.name == name]
    assert len(found) == 1, name
    return found[0]


def test_nothing_would_fail_on_good_hosts():
    assert {finding.result for finding in findings_of(report(host(0), host(1), host(2)))} == {"ok"}


def test_a_sum_is_told_as_what_a_synchronisation_takes():
    detail = of("all-reduce", host(0), host(1), host(2)).detail
    assert "853 MiB/s (bus)" in detail  # 2 · 2/3 · 64 MiB in 0.1 s
    assert "10,000,000 parameters takes about 60 ms" in detail  # 1e-4 + 4e7 / (64 · 2^20) · 0.1 s


OLD = HostGpu(name="V100", capability="7.0", is_supported=False)
FAULTS = [
    ("names", "fail", {"unknown_names": ("n3",)}, ("n2 does not know n3",)),
    ("shared folder", "fail", {"sees_files": False}, ("n2 do not see",)),
    ("TMPDIR", "warn", {"temporary": DISK.model_copy(update={"free_bytes": GIB})}, ("1.0 GiB free",)),
    ("TMPDIR", "warn", {"temporary": DISK.model_copy(update={"file_system": "tmpfs"})}, ("tmpfs",)),
    ("TMPDIR", "fail", {"temporary": DISK.model_copy(update={"error": "Read-only"})}, ("n2: /local: Read-only",)),
    ("gpus", "fail", {"gpus": (OLD,)}, ("V100", "7.0", "n2", "sm_80")),
    ("gpus", "warn", {"gpus": ()}, ("n2: none",)),
    ("rendezvous", "fail", {"error": "timed out"}, ("n2: timed out",)),
    ("clocks", "warn", {"clock": ClockOffset(ahead_s=2.0, error_s=1e-5)}, ("n2 is +2.000 s from n1",)),
    ("clocks", "warn", {"clock": ClockOffset(ahead_s=-2.0, error_s=1e-5)}, ("n2 is -2.000 s from n1",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "result", "changes", "says"), FAULTS)
def test_a_fault_of_one_host(name, result, changes, says):
    hosts = (host(0), host(1, **changes), host(2))
    finding = of(name, *hosts)
    assert finding.result == result
    assert all(text in finding.detail for text in says), finding.detail
    assert finding.would_fail
    assert sum(each.result != "ok" for each in findings_of(report(*hosts))) == 1


def test_a_host_without_a_word():
    finding = of("hosts", host(0), host(2), problem="srun: error: n2: task 1: Killed")
    assert finding.result == "fail"
    assert "n2" in finding.detail
    assert "Killed" in finding.detail


def test_no_host_answered():
    (finding,) = findings_of(report(problem="srun ended with exit status 1"))
    assert (finding.result, "exit status 1" in finding.detail) == ("fail", True)


def test_a_sum_that_was_not_tried_is_said():
    hosts = [host(number, all_reduces=()) for number in range(3)]
    assert of("all-reduce", *hosts).result == "warn"


def test_one_host_has_no_network_to_look_at():
    alone = HostReport(job_id="7", expected=("n1",), hosts=(host(0, clock=None, all_reduces=()),))
    assert {finding.result for finding in findings_of(alone)} == {"ok"}
    assert "rendezvous" not in {finding.name for finding in findings_of(alone)}
