"""The dev cluster is a real Slurm on hosts that are apart: jobs, accounting, failures, preemption, logins."""

import os
import subprocess
from pathlib import Path

import pytest
from waiting import HANG_S

SLEEP_ONCE = '[ -n "${SLURM_RESTART_COUNT:-}" ] || srun sleep 300'


def test_four_hosts_run_a_job_each_under_its_own_name(slurm):
    assert sorted(slurm.call("srun", "-N4", "hostname").split()) == ["host1", "host2", "host3", "host4"]


def test_hosts_have_their_own_network_processes_and_memory(slurm):
    assert slurm.call("srun", "-N2", "ls", "/sys/class/net").split().count("eth0") == 2
    slurm.run_on("host1", "touch", "/dev/shm/mine")
    assert slurm.run_on("host2", "ls", "/dev/shm") == ""
    assert "slurmctld" not in slurm.run_on("host1", "sh", "-c", "cat /proc/[0-9]*/cmdline")
    slurm.run_on("host1", "rm", "/dev/shm/mine")


def test_private_folders_differ_and_shared_ones_do_not(slurm):
    write = 'hostname >"$SLURM_TMPDIR/here"; hostname >"there-$(hostname)"'
    job = slurm.submit(f"srun sh -c '{write}'", "-N4", "-o", "out")
    assert slurm.wait_for_state(job) == "COMPLETED"
    for host in slurm.hosts:
        assert slurm.run_on(host, "cat", "/run/local/here") == f"{host}\n"
        assert (slurm.shared / f"there-{host}").read_text() == f"{host}\n"


def test_sacct_knows_states_and_exit_statuses(slurm):
    jobs = {slurm.submit(f"exit {code}", "-o", "out"): code for code in (0, 3)}
    for job, code in jobs.items():
        slurm.wait_for_runs(job, "FAILED" if code else "COMPLETED")
        said = slurm.call("sacct", "-n", "-X", "-P", "-j", job, "-o", "exitcode,account")
        assert said == f"{code}:0|lab\n"


def test_gpus_are_handed_out(slurm):
    assert slurm.call("srun", "--gpus-per-node=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0,1\n"
    assert slurm.call("srun", "--gres=gpu:v100:1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0\n"
    refused = subprocess.run(["srun", "--gres=gpu:a100:1", "true"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0


@pytest.mark.slow
def test_a_crashed_host_fails_its_job_which_goes_on_elsewhere(slurm):
    job = slurm.submit(SLEEP_ONCE, "-N2", "-o", "out", "--open-mode=append")
    slurm.wait_for_state(job, "RUNNING")
    lost = slurm.hosts_of(job)[1]
    slurm.crash(lost)
    with pytest.raises(Exception, match=f"{lost} has no power"):
        slurm.run_on(lost, "true")
    slurm.down(lost)  # else it takes SlurmdTimeout and a ping's interval until Slurm has noticed
    slurm.wait_for_runs(job, "NODE_FAIL", "COMPLETED")
    slurm.boot(lost)
    assert slurm.run_on(lost, "hostname") == f"{lost}\n"


@pytest.mark.slow
def test_slurm_notices_a_crash_by_itself(slurm):
    job = slurm.submit("srun sh -c 'touch $SLURM_JOB_ID.$SLURM_PROCID; sleep 300'", "-N2", "-o", "out", "--no-requeue")
    begun = [slurm.shared / f"{job}.{rank}" for rank in (0, 1)]  # else it is srun that fails to start them
    slurm.wait_until(lambda: all(path.exists() for path in begun), "both tasks to run")
    slurm.crash(slurm.hosts_of(job)[1])
    assert slurm.wait_for_state(job, timeout_s=120) == "NODE_FAIL"


def test_a_host_keeps_its_disk_through_a_crash_and_loses_its_processes(slurm):
    slurm.run_on("host3", "touch", "/run/local/kept")
    slurm.crash("host3")
    slurm.boot("host3")
    assert "kept" in slurm.run_on("host3", "ls", "/run/local")
    slurm.run_on("host3", "rm", "/run/local/kept")


@pytest.mark.slow
def test_a_job_survives_a_cable_that_is_cut_for_a_moment(slurm):
    job = slurm.submit("srun sleep 6", "-N2", "-w", "host1,host2", "-o", "out")
    slurm.wait_for_state(job, "RUNNING")
    slurm.cut("host2")
    reach = ["ssh", "-F", os.environ["GRAPHMILL_SSH_CONFIG"], "-o", "ConnectTimeout=1", "host2", "true"]
    assert subprocess.run(reach, check=False).returncode == 255
    slurm.heal("host2")
    assert slurm.wait_for_state(job) == "COMPLETED"


@pytest.mark.slow
def test_a_preempted_job_is_requeued_and_starts_again(slurm):
    job = slurm.submit(SLEEP_ONCE, "-p", "preempt", "-N4", "--exclusive", "-o", "out", "--open-mode=append")
    slurm.wait_for_state(job, "RUNNING")
    slurm.call("srun", "-Q", "-N1", "true")
    slurm.wait_for_runs(job, "PREEMPTED", "COMPLETED")


@pytest.mark.slow
def test_daemons_can_be_restarted_under_a_job(slurm):
    job = slurm.submit("srun sh -c 'touch begun; sleep 8'", "-o", "out")
    slurm.wait_until((slurm.shared / "begun").exists, "the step to begin")  # srun needs the controller for that
    slurm.restart("slurmctld")
    slurm.restart("munged")
    assert slurm.wait_for_state(job) == "COMPLETED"


def test_every_host_has_a_login_with_a_key_of_its_own(slurm):
    config = Path(os.environ["GRAPHMILL_SSH_CONFIG"])
    logins = [
        subprocess.Popen(["ssh", "-F", str(config), host, "hostname"], stdout=subprocess.PIPE, text=True)
        for host in slurm.hosts
    ]
    assert [login.communicate()[0] for login in logins] == [f"{host}\n" for host in slurm.hosts]
    keys = {line.split()[2] for line in config.with_name("known_hosts").read_text().splitlines()}
    assert len(keys) == 4


def test_accounts_and_qos_are_there(slurm):
    words = ("-n", "-P", "show", "assoc", f"user={slurm.cluster.user}", "format=account,qos")
    assert {"lab|high,normal", "teaching|high,normal"} <= set(slurm.call("sacctmgr", *words).split())


def test_names_nobody_has_are_refused(slurm):
    asked = subprocess.run(
        ["getent", "hosts", "no-such-host.example"], timeout=HANG_S, capture_output=True, check=False
    )
    assert asked.returncode == 2


def test_the_databases_temporary_tables_are_the_clusters_own(slurm):
    """They are named for process ids, which are the same in every cluster; in /tmp, two that came up at once met."""
    answer = slurm.call("mariadb", "--no-defaults", "--socket=/run/graphmill/db.sock", "-Ne", "select @@tmpdir")
    assert Path(answer.strip()).is_relative_to("/run/graphmill")
