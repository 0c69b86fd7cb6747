"""sacct's rows and what is in them. The rows are those of a real cluster (22.05)."""

import doctest

from graphmill.slurm import accounting as spent
from graphmill.slurm.accounting import COLUMNS, all_runs, last_run, summary_text


def row(**cells: str) -> dict[str, str]:
    return {**dict.fromkeys(COLUMNS, ""), "JobIDRaw": cells["JobID"], **cells}


JOB = {
    "JobName": "a|b", "NNodes": "2", "AllocCPUS": "4", "ReqMem": "3000M", "TimelimitRaw": "60",
    "AllocTRES": "billing=4,cpu=4,gres/gpu=4,mem=6000M,node=2",
}  # fmt: skip
ROWS = [
    row(JobID="7", State="REQUEUED", Submit="100", Start="110", End="150", ElapsedRaw="40", **JOB),
    row(JobID="7.0", State="CANCELLED by 1000", Submit="111", Start="111", End="150", TotalCPU="01:00", MaxRSS="9G"),
    row(JobID="7", State="COMPLETED", Submit="150", Start="160", End="200", ElapsedRaw="40", **JOB),
    row(JobID="7.batch", State="COMPLETED", Submit="160", Start="160", End="200", TotalCPU="00:03.5", MaxRSS="1"),
    row(
        JobID="7.0", State="COMPLETED", Submit="161", Start="161", End="199", TotalCPU="00:20.250", MaxRSS="524288000",
        NNodes="2", NTasks="4", TRESUsageInTot="cpu=00:00:20,mem=1048576000", AveRSS="262144000",
    ),
]  # fmt: skip


def test_the_last_run_of_a_requeued_job_with_its_own_steps():
    last = last_run(ROWS, "7")
    assert last is not None
    assert (last.state, last.start, last.elapsed_s) == ("COMPLETED", 160, 40)
    assert (last.total_cpu_s, last.max_rss_mib, last.host_rss_mib) == (20.25, 500, 500)
    allocated = last.allocated
    assert (allocated.cores, allocated.memory_mib, allocated.gpus, allocated.time_s) == (2, 3000, 2, 3600)
    assert [run.state for run in all_runs(ROWS)] == ["REQUEUED", "COMPLETED"]
    assert last_run(ROWS, "8") is None


def test_a_job_of_an_array_is_known_by_either_of_its_ids():
    rows = [{**ROWS[0], "JobID": "17_3", "JobIDRaw": "19"}]
    assert last_run(rows, "19") == last_run(rows, "17_3")


def test_a_job_that_has_not_started_has_no_numbers():
    waiting = last_run([row(JobID="9", State="PENDING", Submit="1", Start="Unknown", End="Unknown")], "9")
    assert waiting is not None
    assert (waiting.start, waiting.total_cpu_s, waiting.allocated.time_s) == (None, None, None)
    cancelled = last_run([row(JobID="9", State="CANCELLED by 0", AllocCPUS="0", NNodes="1")], "9")  # by 24.11; 1 before
    assert cancelled is not None
    assert cancelled.allocated.cores is None


def test_the_summary_holds_what_the_seed_looks_for():
    text = summary_text(ROWS)
    assert len(text.splitlines()) == 1 + len(ROWS)
    for word in ("JobID", "COMPLETED", "REQUEUED", "a|b", "524288000"):
        assert word in text


def test_examples():
    assert doctest.testmod(spent).failed == 0


def test_steps_that_are_heard_of_before_their_job_do_not_settle_it():
    early = row(
        JobID="7", State="PENDING", Submit="160", Start="Unknown", End="Unknown", ReqMem="18446744073709551614M"
    )
    step = row(JobID="7.0", State="FAILED", Submit="161", Start="161", End="162")
    assert not spent._is_settled([early, step])
    assert spent._is_settled([{**early, "Start": "160"}, step])
    last = last_run([early, step], "7")
    assert last is not None
    assert last.allocated.memory_mib is None
