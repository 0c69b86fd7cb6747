"""Clusters of three configurations, on this machine's Slurm and on 24.11: the profile is what was configured."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graphmill.spec.job.site import load_site
from graphmill_devcluster.description import environment
from graphmill_devcluster.requirements import why_not

GRAPHMILL = [sys.executable, "-m", "graphmill.cli"]
PROLOG = '#!/bin/sh\necho "export TMPDIR=/run/local"\n'
NORMAL = {"max_time": "02:00:00", "preempt_mode": "off"}


@dataclass(frozen=True)
class Configuration:
    """How a cluster is set up, and the profile but for what all have."""

    options: str  # of `devcluster run`; {prolog}: a task prolog that sets TMPDIR
    profile: dict[str, Any]
    scheduler: dict[str, Any] = field(default_factory=dict)
    first: str = "true"  # a command before the probe


TYPED = Configuration(
    "--preempt-mode cancel --gpus 4 --gpu-type a100 --hosts 2 --cpus 8 --memory-mib 64000"
    " --set 'PartitionName=short Nodes=ALL MaxTime=15 DefaultTime=5 MaxNodes=1 State=UP'",
    {
        "defaults": {"slurm_partition": "normal", "time": "00:10:00", "gpus_per_host": 4},
        "host_local": "SLURM_TMPDIR",
        "hosts": {
            "8cpu-64000M-4a100": {
                "cpus": 8, "gpus": 4, "gpu_type": "a100", "memory": "64000M", "count": 2,
                "slurm_partitions": ["normal", "preempt", "short"],
            },
        },
        "slurm_partitions": {
            "normal": NORMAL,
            "preempt": {"max_time": "02:00:00", "preempt_mode": "cancel"},
            "short": {"max_time": "00:15:00", "max_hosts": 1, "preempt_mode": "cancel"},
        },
    },
)  # fmt: skip
ENFORCED = Configuration(
    "--preempt-mode requeue --gpus 2 --gpu-type '' --set KillWait=45"
    " --enforce associations --enforce limits --enforce qos",
    {
        "defaults": {"slurm_partition": "normal", "time": "00:10:00", "gpus_per_host": 2},
        "host_local": "SLURM_TMPDIR",
        "hosts": {
            "2cpu-4000M-2gpu": {
                "cpus": 2, "gpus": 2, "memory": "4000M", "count": 4, "slurm_partitions": ["normal", "preempt"],
            },
        },
        "qos": {"normal": {}, "high": {"max_time": "00:30:00", "max_hosts": 1}},
        "slurm_partitions": {"normal": NORMAL, "preempt": {"max_time": "02:00:00", "preempt_mode": "requeue"}},
    },
    scheduler={"kill_wait_s": 45},
    first="sacctmgr --immediate modify qos high set MaxWall=30 MaxTRESPerJob=node=1",
)  # fmt: skip
SUSPENDED = Configuration(
    "--preempt-mode suspend --gpus 0 --hosts 3 --no-accounting --set TaskProlog={prolog}"
    " --set 'PartitionName=long Nodes=host[2-3] MaxTime=7-00:00:00 MaxMemPerCPU=1000 State=UP'"
    " --set 'PartitionName=closed Nodes=ALL State=DOWN'",
    {
        "defaults": {"slurm_partition": "normal", "time": "00:10:00", "gpus_per_host": 0},
        "host_local": "TMPDIR",
        "hosts": {
            "2cpu-4000M": {
                "cpus": 2, "memory": "4000M", "memory_per_cpu": "1000M", "count": 2,
                "slurm_partitions": ["normal", "preempt", "long"],
            },
            "2cpu-4000M.2": {"cpus": 2, "memory": "4000M", "count": 1, "slurm_partitions": ["normal", "preempt"]},
        },
        "slurm_partitions": {
            "normal": NORMAL,
            "preempt": {"max_time": "02:00:00", "preempt_mode": "suspend"},
            "long": {"max_time": "7-00:00:00", "preempt_mode": "suspend"},
        },
        "limits": {"more_memory_takes_more_cpus": True},
    },
)  # fmt: skip
CONFIGURATIONS = {"typed": TYPED, "enforced": ENFORCED, "suspended": SUSPENDED}


@pytest.fixture(params=["own", "trixie"])
def release(request) -> tuple[str, ...]:
    """The version of Slurm, and how `devcluster run` is asked for it."""
    if why_not():
        pytest.skip(why_not())
    if request.param == "own":
        environ = environment(dict(os.environ))
        own = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True, env=environ).stdout
        return (own.split()[-1],)
    return (request.getfixturevalue("trixie").split()[-1], "--release=trixie")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_profile_is_what_was_configured_and_slurm_takes_its_jobs(name, release, tmp_path: Path, record_property):
    version, *asked = release
    configured = CONFIGURATIONS[name]
    prolog, path = tmp_path / "prolog", tmp_path / "ours.yaml"
    prolog.write_text(PROLOG)
    prolog.chmod(0o755)
    options = shlex.split(configured.options.replace("{prolog}", str(prolog)))
    probe = shlex.join([*GRAPHMILL, "site", "probe", "--output", str(path), "--with-job", "--json"])
    inside = f"{configured.first} >&2 && {probe}"
    done = subprocess.run(
        [*GRAPHMILL, "devcluster", "run", "--no-ssh", *asked, *options, "--", "sh", "-c", inside],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout[done.stdout.index("{") :])
    profile = {key: answer["profile"][key] for key in answer["profile"] if key not in ("checked", "description")}
    scheduler = {"slurm_version": version, "kill_wait_s": 5, **configured.scheduler}
    assert profile == {"name": "devcluster", **configured.profile, "scheduler": scheduler}
    assert load_site(str(path), folders=[]).model_dump(exclude_unset=True)["hosts"].keys() == profile["hosts"].keys()
    wanted = [(each, kind) for kind, of in profile["hosts"].items() for each in of["slurm_partitions"]]
    assert [(each["slurm_partition"], each["kind"]) for each in answer["tried"]] == wanted
    assert all(each["is_accepted"] for each in answer["tried"]), answer["tried"]
    record_property("probed", f"Slurm {version}, {name}: profile as configured, {len(wanted)} jobs accepted")
