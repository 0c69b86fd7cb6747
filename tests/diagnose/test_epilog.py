"""The epilog where there is no Slurm, or only parts of what it sums up."""

import json

from graphmill.diagnose.epilog import epilog_text, main, write_epilog
from graphmill.monitor.columns import COLUMNS
from graphmill.monitor.sampler import line
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import StagedHost, write_staged
from graphmill.slurm.accounting import COLUMNS as OF_SACCT
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficInfo


def fill(folder: RunFolder) -> None:
    folder.begin_attempt(resumed=False, command=("test",))
    begun = folder.attempts()[0].time
    folder.monitor_dir.mkdir()
    for host, rank in (("a", 0), ("b", 1)):
        lines = [",".join(COLUMNS)]
        for second in range(1, 11):
            clock = f"{begun + second:.3f}"
            lines.append(line(clock, "host", {"busy_percent": 50, "memory_mib": 5000, "memory_total_mib": 8000}))
            memory = {"memory_mib": 900 + rank, "private_mib": 700, "peak_mib": 1000 + rank}
            lines.append(line(clock, f"rank_{rank}", {"cores": 0.5, "cpu_s": second / 2, **memory}))
        folder.monitor_path(host).write_text("\n".join(lines) + "\n")
    write_metrics(
        folder.metrics_path,
        [
            {"epoch": 1, "train_s": 3.0, "wait_s": 2.0, "compute_s": 1.0, "sample_s": 1.5, "eval_s": 1.0, "attempt": 1},
            {"epoch": 2, "train_s": 5.0, "wait_s": 3.0, "compute_s": 2.0, "sample_s": 1.5, "eval_s": 1.0, "attempt": 1},
        ],
        NODES.columns,
    )
    write_staged(
        folder,
        StagedHost(
            hostname="a", time=begun, outcome="copied", source="/shared", to="/fast", checksum="0", bytes=1 << 30,
            seconds=4.0, copy_s=2.0, mib_per_s=512.0, verified="checksums",
        ),
    )  # fmt: skip


def test_what_was_measured_is_summed_up_without_slurm(new_run):
    folder, _ = new_run()
    fill(folder)
    epilog = write_epilog(folder, None)
    assert epilog.peak_mib_by_rank == {0: 1000, 1: 1001}
    assert epilog.used["memory_mib"] == 1001
    assert epilog.used["cpu_s"] == 10
    assert epilog.phases is not None
    assert (epilog.phases["total_s"], epilog.phases["wait_s"]) == (10, 5)
    assert epilog.all_attempts == {"attempts": 1, "epochs_s": 10, "jobs_s": None, "cpu_s": None}
    assert "attempts together" not in epilog_text(epilog), "there is one"
    assert [advice["resource"] for advice in epilog.advice] == ["loader", "staging"]
    assert (epilog.state, epilog.runs, epilog.notes) == (None, [], [])
    assert json.loads(folder.epilog_path.read_text())["used"] == epilog.used
    assert folder.epilog_text_path.read_text() == epilog_text(epilog)
    assert "wait for batches 50 %" in epilog_text(epilog)
    assert "1 GiB in 4.0 s, 512 MiB/s" in epilog_text(epilog)


def test_the_phases_of_traffic_are_found_under_its_own_columns(tmp_path):
    folder = RunFolder.create(traffic_plan(), tmp_path)
    folder.begin_attempt(resumed=False, command=("test",))
    told = {"loss": 1.0, "train_s": 6.0, "wait_s": 1.0, "compute_s": 3.0, "sync_s": 2.0, "eval_s": 2.0, "attempt": 1}
    rows = [{"epoch": epoch, **told} for epoch in (1, 2)]
    write_metrics(folder.metrics_path, rows, TRAFFIC.columns)
    epilog = write_epilog(folder, None)
    assert epilog.phases is not None
    assert (epilog.phases["total_s"], epilog.phases["compute_s"], epilog.phases["wait_s"]) == (16, 6, 2)
    assert "compute 38 %, wait for batches 12 %, sync 25 %, evaluate 25 %" in epilog_text(epilog)


def traffic_plan() -> Plan:
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    experiment = TrafficExperiment.model_validate({"train": {"epochs": 2, "ranks": 1}})
    return resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=0), dataset=facts, run_id="run")


def test_only_the_last_attempt_is_summed_up(new_run):
    folder, _ = new_run()
    fill(folder)
    folder.begin_attempt(resumed=True, command=("test",))
    epilog = write_epilog(folder, None)
    assert (epilog.attempt, epilog.phases) == (2, None)


def test_all_attempts_are_added_up(new_run):
    """Also one that was cut: it has no epilog of its own."""
    folder, _ = new_run()
    fill(folder)
    folder.begin_attempt(resumed=True, command=("test",))
    epilog = write_epilog(folder, None)
    assert epilog.phases is None, "no epoch has ended in the second one"
    assert epilog.all_attempts == {"attempts": 2, "epochs_s": 10, "jobs_s": None, "cpu_s": None}
    assert "all 2 attempts together: 00:00:10 in epochs that ended" in epilog_text(epilog)
    given = {"attempts": 2, "epochs_s": 10.0, "jobs_s": 40.0, "cpu_s": 1800.0}
    told = epilog_text(epilog.model_copy(update={"all_attempts": given}))
    assert "all 2 attempts together: 00:00:40 in jobs, 00:00:10 in epochs that ended (25 %), 0.50 CPU hours" in told


def test_a_run_that_left_nothing_has_an_epilog_that_says_so(new_run, monkeypatch):
    folder, _ = new_run()
    monkeypatch.setenv("PATH", "")
    epilog = write_epilog(folder, "17")
    assert epilog.notes[0].startswith("no accounts: sacct is not on PATH")
    assert "nothing was measured" in epilog.notes[1]
    assert "sacct -D -j 17" in epilog_text(epilog)


def test_accounts_that_lag_behind_the_start_of_the_job_are_not_kept(new_run, stand_ins):
    """It has started, since there is something to sum up: that it waits and has no hosts is not to be read later."""
    folder, _ = new_run()
    fill(folder)
    cells = {"JobID": "17", "JobIDRaw": "17", "State": "PENDING", "Submit": "100", "Start": "Unknown", "End": "Unknown"}
    head, row = ("\\037".join(each) for each in (OF_SACCT, [cells.get(name, "") for name in OF_SACCT]))
    stand_ins.says("sacct", f"printf '{head}\\n{row}\\n'")
    epilog = write_epilog(folder, "17", patience_s=0)
    assert epilog.notes[0].startswith("sacct does not know of the start of job 17 yet: python -m")
    assert not folder.sacct_path.exists()
    row = row.replace("PENDING", "RUNNING").replace("Unknown", "110", 1)
    stand_ins.says("sacct", f"printf '{head}\\n{row}\\n'")
    assert write_epilog(folder, "17", patience_s=0).state == "RUNNING"
    assert folder.sacct_path.exists()


def test_cores_are_those_of_a_host_where_no_monitor_ran(new_run, stand_ins):
    folder, _ = new_run()
    folder.begin_attempt(resumed=False, command=("test",))
    job = {
        "JobID": "17", "JobIDRaw": "17", "State": "COMPLETED", "Submit": "100", "Start": "110", "End": "210",
        "ElapsedRaw": "100", "NNodes": "2", "AllocTRES": "cpu=8,mem=4000M,node=2",
    }  # fmt: skip
    step = {**job, "JobID": "17.0", "JobIDRaw": "17.0", "NTasks": "2", "TotalCPU": "00:05:00"}
    rows = [OF_SACCT, *([row.get(name, "") for name in OF_SACCT] for row in (job, step))]
    lines = ["\\037".join(row) for row in rows]
    stand_ins.says("sacct", "printf '" + "\\n".join(lines) + "\\n'")
    epilog = write_epilog(folder, "17", patience_s=0)
    (cores,) = (advice for advice in epilog.advice if advice["resource"] == "cores")
    assert cores["finding"] == "1.5 of 4 cores per host busy"


def test_damaged_parts_are_left_out_and_named(new_run):
    folder, _ = new_run()
    fill(folder)
    folder.metrics_path.write_text("epoch,time\n1")
    folder.staged_path("a").write_text("{")
    folder.monitor_path("a").write_bytes(b"\xff\0,,,\n" * 9)
    epilog = write_epilog(folder, None)
    assert len(epilog.notes) == 2
    assert epilog.peak_mib_by_rank == {1: 1001}


def test_the_command_prints_what_it_wrote(new_run, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    folder, _ = new_run()
    assert main([str(folder.path)]) == 0
    assert capsys.readouterr().out == folder.epilog_text_path.read_text()
    assert main([str(tmp_path)]) == 2
