"""A run outlives what befalls its jobs: limits, lost ranks, cancelled jobs. On real Slurm, with real ranks.

Whatever happened, the last checkpoint is bit for bit that of a run that was left alone.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lives
import psutil
import pytest
from lives import LONG_S, SHORT, Life, graphmill, prepare_lives, submit

from graphmill.record.events import Start
from graphmill.record.run_folder import RunFolder
from graphmill_devcluster import daemons

SILENCE = "train.hang_timeout_s=6"  # only where a rank falls silent: elsewhere a busy machine must not end the attempt


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The dataset, the experiment, and the runs."""
    return prepare_lives(tmp_path_factory.mktemp("life"))


@pytest.fixture
def begin(slurm, root: Path, request: pytest.FixtureRequest) -> Callable[..., Life]:
    """Submits the run, and waits for its first steps; `settings` are further overrides."""

    def begin(*settings: str, **environ: str) -> Life:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")
        life = submit(slurm, root, name, *settings, **environ)
        life.wait_for_steps()
        return life

    return begin


@pytest.fixture
def is_unharmed(root: Path) -> Callable[[Life], bool]:
    return lambda life: lives.is_unharmed(life, root)


@pytest.mark.parametrize("way", ["requeue", pytest.param("resubmit", marks=pytest.mark.slow)])
def test_a_run_goes_on_after_its_time_limit(slurm, begin, is_unharmed, way):
    life = begin(SHORT, f"slurm.on_time_limit={way}", MY_TOKEN="s3cr3t-of-nobody-else")
    # A limit that moves under its feet: the ranks ask again when they are warned, and stop when their reserve begins.
    started_in_s = life.events(Start)[0].time - life.folder.attempts()[0].time  # the reserve grows with it
    slurm.call("scontrol", "update", f"jobid={life.job}", f"endtime=now+{round(3 + started_in_s)}seconds")
    slurm.call("scancel", "--signal=USR2", life.job)
    slurm.wait_until(lambda: f"by {way}" in life.log(), "the attempt to end", LONG_S)
    if way == "requeue":  # the job keeps its shortened limit
        slurm.call("scontrol", "update", f"jobid={life.job}", "timelimit=10")
    slurm.wait_until(lambda: len(life.folder.attempts()) > 1, "the second attempt", LONG_S)
    life.wait_for_steps_of_attempt()
    assert life.process(0).environ()["MY_TOKEN"] == "s3cr3t-of-nobody-else", "what one job was given, the next one has"
    life.wait_done()
    assert is_unharmed(life)
    holding = [path for path in life.folder.path.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    assert not holding
    assert (len({job.job_id for job in life.folder.jobs()}) > 1) == (way == "resubmit")
    assert f"steps further, by {way}" in life.log()
    assert life.steps_redone() == 0


@contextmanager
def stopped(*processes: psutil.Process, held: bool) -> Iterator[None]:
    """SIGSTOP. Slurm sends SIGCONT before it sends SIGTERM; `held`: that does not help them."""
    over = threading.Event()

    def hold() -> None:
        while held and not over.wait(0.0005):
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()

    for process in processes:
        process.suspend()
    holder = threading.Thread(target=hold)
    holder.start()
    try:
        yield
    finally:
        over.set()
        holder.join()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "held"), [("requeue", True), ("requeue", False), ("resubmit", True)])
def test_a_round_that_outlasts_the_limit_does_not_end_the_run(slurm, begin, is_unharmed, way, held):
    life = begin(f"slurm.on_time_limit={way}")
    first = life.job
    with stopped(life.process(0), life.process(1), held=held):
        slurm.call("scontrol", "update", f"jobid={first}", "endtime=now+1seconds")
        slurm.wait_until(lambda: f"by {way}" in life.log(), "the script to decide", LONG_S)
    if way == "requeue":  # the job keeps its shortened limit
        slurm.wait_for_state(first, "PENDING")
        slurm.call("scontrol", "update", f"jobid={first}", "timelimit=10")
    life.wait_done()
    assert is_unharmed(life)
    assert "SIGTERM: out of time" in life.log()
    assert ("steps since the last checkpoint are lost" in life.log()) == held
    assert life.steps_redone() <= (18 if held else 0)  # the checkpoint's interval
    slurm.wait_for_runs(first, *(["REQUEUED", "COMPLETED"] if way == "requeue" else ["TIMEOUT"]))


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_is_named_first(slurm, begin, is_unharmed):
    life = begin()
    host = life.events(Start, 1)[0].hostname
    life.process(1).kill()
    assert slurm.wait_for_state(life.job) == "FAILED"
    assert (life.outcome.status, life.outcome.exit_code) == ("failed", 1)
    assert life.outcome.message.startswith(f"rank 1 of 2 failed first on {host}: killed by SIGKILL")
    errors = [line for line in life.log().splitlines() if line.startswith("error: ")]
    assert errors == [f"error: {life.outcome.message}"]
    life.resume()
    life.wait_done()
    assert is_unharmed(life)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["requeue", "resubmit"])
@pytest.mark.parametrize("victim", ["rank", "srun"])
def test_what_a_signal_ended_is_tried_again_where_that_was_asked_for(slurm, begin, is_unharmed, victim, way):
    life = begin("slurm.retries=1", f"slurm.on_time_limit={way}")
    first = life.process(1) if victim == "rank" else life.srun()
    first.kill()
    slurm.wait_until(lambda: len(life.folder.attempts()) == 2, "the retry", LONG_S)
    assert "the last retry (slurm.retries)" in life.log()
    if victim == "rank":
        life.wait_done()
        assert is_unharmed(life)
    else:  # it may be the program's own fault: there is an end of it
        life.wait_for_steps_of_attempt()
        life.process(0).kill()
        assert life.has_left_nothing()
        assert life.outcome.status == "failed"
        assert len(life.folder.attempts()) == 2


@pytest.mark.slow
def test_a_silent_rank_is_missed_and_the_run_goes_on_without_being_asked(slurm, begin, is_unharmed):
    life = begin(SILENCE)
    host = life.events(Start, 1)[0].hostname
    life.process(1).suspend()
    life.wait_done()
    assert is_unharmed(life)
    assert f"error: rank 1 on {host} sent no heartbeat" in life.log()
    assert "by requeue" in life.log()


@pytest.mark.slow
def test_a_cancelled_job_is_not_started_again_but_its_run_can_go_on(slurm, begin, is_unharmed):
    life = begin()
    slurm.call("scancel", life.job)
    assert slurm.wait_for_state(life.job) == "CANCELLED"
    assert len(life.folder.attempts()) == 1
    life.resume()
    life.wait_done()
    assert is_unharmed(life)


@pytest.mark.slow
def test_a_run_goes_on_after_limits_that_nobody_shortened(slurm, begin, is_unharmed):
    # Held after its first steps: on a fast machine too little is left for all others, on a slow one some are done. An
    # attempt that makes no progress ends the run, and rightly so.
    life = begin("slurm.time=1", "train.epochs=400")
    with stopped(life.process(0), life.process(1), held=False):
        slurm.wait_until(
            lambda: "by requeue" in life.log() or life.time_left_s() <= 8, "the limit to come near", LONG_S
        )
    life.wait_done(5 * LONG_S)
    assert len(life.folder.attempts()) > 1
    assert is_unharmed(life)


@pytest.fixture
def preempt(slurm) -> Iterator[Callable[..., None]]:
    """Says how jobs in the slurm_partition `preempt` make room."""
    yield slurm.preempt
    slurm.preempt("requeue")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["requeue", "resubmit"])
@pytest.mark.parametrize(("mode", "grace_s"), [("requeue", 0), ("cancel", 0), ("cancel", 10)])
def test_a_preempted_run_goes_on_when_there_is_room_again(slurm, begin, is_unharmed, preempt, mode, grace_s, way):
    preempt(mode, grace_s)
    life = begin("slurm.slurm_partition=preempt", f"slurm.on_time_limit={way}")
    slurm.take_all_hosts()
    life.wait_done()
    assert is_unharmed(life)
    assert len(life.folder.attempts()) > 1
    assert life.has_left_nothing()


@pytest.mark.parametrize("strikes", ["driver", pytest.param("power", marks=pytest.mark.slow)])
def test_a_successor_goes_on_where_no_script_had_its_say(slurm, begin, is_unharmed, strikes):
    life = begin(SHORT, "slurm.on_time_limit=resubmit")
    first, waits = life.job, life.successor()
    if strikes == "driver":
        life.driver().kill()
    else:
        for host in {life.events(Start, rank)[0].hostname for rank in (0, 1)}:
            slurm.crash(host)
            slurm.down(host)
    life.wait_done()
    assert is_unharmed(life)
    assert [attempt.job_id for attempt in life.folder.attempts()] == [first, waits]
    assert life.has_left_nothing()


@pytest.mark.slow
def test_a_successor_whose_number_was_never_recorded_is_not_submitted_twice(slurm, begin, is_unharmed):
    life = begin("slurm.on_time_limit=resubmit")
    waits = life.successor()
    recorded = life.folder.jobs_path.read_text().splitlines(keepends=True)
    life.folder.jobs_path.write_text(recorded[0])  # as if the driver had died before it wrote the second line
    slurm.call("scontrol", "update", f"jobid={life.job}", "endtime=now+1seconds")
    slurm.call("scancel", "--signal=USR2", life.job)
    life.wait_done()
    assert is_unharmed(life)
    assert life.folder.attempts()[1].job_id == waits
    assert life.has_left_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["stop", "scancel", "stop --now", "scancel of the successor"])
def test_a_person_ends_the_chain(slurm, begin, is_unharmed, by):
    life = begin("slurm.on_time_limit=resubmit")
    first, waits = life.job, life.successor()
    if by == "scancel":
        slurm.call("scancel", first)
    elif by == "scancel of the successor":
        slurm.call("scancel", waits)
        slurm.call("scontrol", "update", f"jobid={first}", "endtime=now+1seconds")
        slurm.call("scancel", "--signal=USR2", first)
    else:
        assert graphmill("stop", life.folder.path, *by.split()[1:]).returncode == 0
    assert life.has_left_nothing()
    assert [attempt.job_id for attempt in life.folder.attempts()] == [first]
    assert slurm.wait_for_state(waits) == "CANCELLED"
    life.resume()
    life.wait_done()
    assert is_unharmed(life)
    assert life.has_left_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", ["crash", "cut"])
def test_a_run_goes_on_elsewhere_when_it_loses_a_host(slurm, begin, is_unharmed, fault, rank):
    life = begin(SILENCE)
    lost = life.events(Start, rank)[0].hostname
    {"crash": slurm.crash, "cut": slurm.cut}[fault](lost)
    life.wait_done()
    assert is_unharmed(life)
    assert lost not in {life.events(Start, number)[-1].hostname for number in (0, 1)}


@pytest.mark.slow
def test_a_driver_that_nobody_hears_lets_the_run_go(slurm, begin, is_unharmed):
    """Its host is cut off, and it has decided that the job is to be requeued long before Slurm gives the host up."""
    life = begin(SILENCE)
    first = life.events(Start)[0].hostname
    with keeping_hosts(slurm):
        slurm.cut(first)
        slurm.wait_until(lambda: "asked again" in life.log(), "the driver to ask in vain", LONG_S)
        driver = life.driver()
        slurm.down(first)
        life.wait_done()
        assert is_unharmed(life)
        assert len(life.folder.attempts()) == 2
        slurm.heal(first)
        slurm.wait_until(lambda: not driver.is_running(), "the first driver to leave", LONG_S)
    assert life.outcome.status == "done"
    assert life.has_left_nothing()


@pytest.mark.slow
def test_ranks_are_started_once_the_controller_answers(slurm, root, is_unharmed):
    """It goes away between the start of the script and that of the ranks."""
    where = ("--dataset-root", root / "data", "--logs-root", root / "logs", "--run-id", "no-controller")
    option = 'slurm.setup_lines=["sleep 5"]'
    assert graphmill("submit", root / "life.yaml", *where, "-O", option).returncode == 0
    life = Life(slurm, RunFolder(root / "logs" / "no-controller"))
    slurm.wait_for_state(life.job, "RUNNING")
    daemons.stop("slurmctld")
    try:
        slurm.wait_until(lambda: "no rank has begun" in life.log(), "srun to give up", LONG_S)
    finally:
        daemons.start_slurmctld()
    life.wait_done()
    assert is_unharmed(life)
    assert len(life.folder.attempts()) == 1


@contextmanager
def keeping_hosts(slurm) -> Iterator[None]:
    """Slurm gives no host up by itself."""
    conf = Path(os.environ["SLURM_CONF"])
    before = conf.read_text()
    try:
        conf.write_text(re.sub(r"(?m)^SlurmdTimeout=.*", "SlurmdTimeout=600", before))
        slurm.call("scontrol", "reconfigure")
        yield
    finally:
        conf.write_text(before)
        slurm.call("scontrol", "reconfigure")


@pytest.mark.slow
def test_hosts_with_different_code_are_refused_by_name(slurm, root, begin, tmp_path):
    import graphmill.sync.schemes as victim

    changed = tmp_path / "changed.py"
    changed.write_text(Path(victim.__file__).read_text() + "\nCHANGED = True\n")
    slurm.run_on("host2", "mount", "--bind", str(changed), victim.__file__)
    try:
        where = ("--dataset-root", root / "data", "--logs-root", root / "logs", "--run-id", "other-code")
        option = 'slurm.sbatch_args=["--nodelist=host1,host2"]'
        assert graphmill("submit", root / "life.yaml", *where, "-O", option).returncode == 0
        life = Life(slurm, RunFolder(root / "logs" / "other-code"))
        assert slurm.wait_for_state(life.job) == "FAILED"
    finally:
        slurm.run_on("host2", "umount", victim.__file__)
    assert (life.outcome.status, life.outcome.exit_code) == ("bad_request", 2)
    assert "graphmill's code is" in life.outcome.message
    assert "host2" in life.outcome.message
