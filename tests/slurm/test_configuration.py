"""What Slurm says of a cluster, read. The lines are those of real clusters (22.05), shortened."""

import doctest

import pytest

from graphmill.slurm import configuration
from graphmill.slurm.configuration import host_of, partition_of

NORMAL = {
    "PartitionName": "normal", "Default": "YES", "State": "UP", "RootOnly": "NO", "ReqResv": "NO",
    "AllowAccounts": "ALL", "AllowQos": "ALL", "MaxTime": "1-02:00:00", "DefaultTime": "00:10:00",
    "MaxNodes": "UNLIMITED", "PreemptMode": "OFF", "JobDefaults": "(null)", "MaxMemPerCPU": "UNLIMITED",
}  # fmt: skip
HOST = {
    "NodeName": "n1",
    "CPUTot": "64",
    "RealMemory": "256000",
    "Partitions": "gpu,debug",
    "AvailableFeatures": "(null)",
}


def test_a_partition_without_limits():
    found = partition_of({**NORMAL, "MaxTime": "UNLIMITED", "DefaultTime": "NONE"}, None)
    assert (found.max_time_s, found.default_time_s, found.max_hosts, found.max_memory_per_cpu_mib) == (None,) * 4
    assert (found.is_default, found.is_open, found.accounts, found.qos, found.cpus_per_gpu) == (
        True,
        True,
        None,
        None,
        None,
    )


def test_a_partition_with_all_limits():
    limits = {
        "MaxNodes": "16", "MaxMemPerCPU": "4000", "AllowAccounts": "a,b", "AllowQos": "high",
        "PreemptMode": "GANG,SUSPEND", "JobDefaults": "DefCpuPerGPU=12,DefMemPerGPU=1000",
    }  # fmt: skip
    found = partition_of(NORMAL | limits, "off")
    assert (found.max_time_s, found.default_time_s, found.max_hosts) == (93600, 600, 16)
    assert (found.max_memory_per_cpu_mib, found.cpus_per_gpu, found.preempt_mode) == (4000, 12, "suspend")
    assert (found.accounts, found.qos) == ({"a", "b"}, {"high"})


@pytest.mark.parametrize("state", [{"State": "DOWN"}, {"State": "DRAIN"}, {"RootOnly": "YES"}, {"ReqResv": "YES"}])
def test_a_partition_that_takes_no_job_is_not_open(state):
    assert not partition_of(NORMAL | state, None).is_open


def test_nothing_is_preempted_where_preemption_is_off_whatever_a_partition_says():
    assert partition_of({**NORMAL, "PreemptMode": "REQUEUE"}, None).preempt_mode == "off"
    assert partition_of({**NORMAL, "PreemptMode": "REQUEUE"}, "cancel").preempt_mode == "requeue"
    assert partition_of({**NORMAL, "PreemptMode": ""}, "cancel").preempt_mode == "cancel"


@pytest.mark.parametrize(
    ("gres", "gpus", "gpu_type"),
    [
        ("(null)", 0, None),
        ("gpu:4", 4, None),
        ("gpu", 1, None),
        ("gpu:a100:4(S:0-1)", 4, "a100"),
        ("gpu:v100:2(S:0,1),nvme:1", 2, "v100"),
        ("gpu:a100_1g.5gb:7", 7, "a100_1g.5gb"),
        ("gpu:a100:1,gpu:v100:2", 3, None),  # two types: no one name asks for all
        ("nvme:1,craynetwork:4", 0, None),
    ],
)
def test_gpus_with_and_without_types(gres, gpus, gpu_type):
    found = host_of({**HOST, "Gres": gres})
    assert (found.gpus, found.gpu_type) == (gpus, gpu_type)


def test_cores_and_memory_that_slurm_keeps_for_itself_are_not_for_jobs():
    found = host_of({**HOST, "CPUEfctv": "62", "MemSpecLimit": "6000", "AvailableFeatures": "rome,ib"})
    assert (found.cpus, found.memory_mib, found.features) == (62, 250000, ("rome", "ib"))
    assert found.slurm_partitions == ("gpu", "debug")


def test_values_with_blanks_do_not_hide_what_follows():
    line = "NodeName=n1 OS=Linux 6.1 #1 SMP @0  RealMemory=4000 Reason=bad disk [root@x] Partitions=a"
    found = dict(configuration._ENTRY.findall(line))
    assert (found["RealMemory"], found["Partitions"]) == ("4000", "a")


def test_the_examples():
    failed, tried = doctest.testmod(configuration)
    assert tried > 0
    assert failed == 0
