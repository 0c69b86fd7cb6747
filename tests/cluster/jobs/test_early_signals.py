"""No run is left behind by a signal that comes before its ranks can hear it: on real Slurm, with real ranks.

A run ends as stopped where a person asked for that, goes on by itself where Slurm took its hosts, and ends with the
weights of a run that was left alone. `--trials 100` strikes at so many random moments, each way; `--first-trial 42`
begins with the 42nd of them.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lives import LONG_S, Life, graphmill, is_unharmed, prepare_lives, submit

EPOCHS = "train.epochs=30"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return prepare_lives(tmp_path_factory.mktemp("early"))


@pytest.fixture
def preempt(slurm) -> Iterator[Callable[..., None]]:
    yield slurm.preempt
    slurm.preempt("requeue")


def begin(slurm, root: Path, name: str, *settings: str) -> Life:
    return submit(slurm, root, name, EPOCHS, *settings)


def wait_for_ranks(life: Life) -> None:
    """Until both are started: they import torch for seconds, and hear nothing meanwhile."""

    def are_there() -> bool:
        try:
            return all(life.process(rank).is_running() for rank in (0, 1))
        except AssertionError:
            return False

    life.slurm.wait_until(are_there, "the ranks", LONG_S)


def has_ended(life: Life) -> bool:
    life.slurm.wait_until(lambda: not life.slurm.call("squeue", "--noheader"), "an empty queue", LONG_S)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("way", ["requeue", "resubmit"])
def test_hosts_that_are_taken_while_the_ranks_import(slurm, root, preempt, way):
    """GraceTime: SIGTERM goes to the ranks only, and the driver has to ask why they died."""
    preempt("cancel", 60)
    life = begin(slurm, root, f"taken-{way}", "slurm.slurm_partition=preempt", f"slurm.on_time_limit={way}")
    wait_for_ranks(life)
    slurm.take_all_hosts()
    life.wait_done()
    assert "ended: preempted" in life.log()
    assert "failed first" not in life.log()
    assert len(life.folder.attempts()) == 2
    assert is_unharmed(life, root)
    assert life.has_left_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["the ranks import", "no rank is there", "it waits"])
def test_a_stop_is_heard_before_the_first_step(slurm, root, when):
    """`no rank is there`: there is no step to be told. The driver sees the file, or a rank does."""
    life = begin(slurm, root, f"stopped-{when.replace(' ', '-')}", 'slurm.setup_lines=["sleep 4"]')
    if when == "the ranks import":
        wait_for_ranks(life)
    elif when == "no rank is there":
        slurm.wait_for_state(life.job, "RUNNING")
    else:
        slurm.wait_for_state(life.job, "PENDING", "RUNNING", "CONFIGURING")
    done = graphmill("stop", life.folder.path)
    assert done.returncode == 0, done.stderr
    assert "still there, so it is cancelled" not in done.stderr
    assert has_ended(life)
    outcome = life.folder.read_outcome()
    assert outcome is None or outcome.status == "stopped", life.log()
    assert (outcome is None) <= (when == "it waits")
    life.resume()
    life.wait_done()
    assert is_unharmed(life, root)


@pytest.mark.slow
def test_a_stop_while_slurm_runs_the_task_prolog_is_no_failure(slurm, root, tmp_path):
    """The ranks are not there yet: SIGTERM ends the prolog, and Slurm says that it failed."""
    begun, prolog = tmp_path / "begun", tmp_path / "prolog"
    prolog.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 30\n")
    prolog.chmod(0o755)
    life = begin(slurm, root, "stopped-in-prolog", f'slurm.setup_lines=["export SLURM_TASK_PROLOG={prolog}"]')
    slurm.wait_until(begun.exists, "the task prolog", LONG_S)
    done = graphmill("stop", life.folder.path)
    assert done.returncode == 0, done.stderr
    assert has_ended(life)
    outcome = life.folder.read_outcome()
    assert outcome is not None, life.log()
    assert outcome.status == "stopped", life.log()
    assert "failed" not in outcome.message


def requeue(life: Life) -> None:
    life.slurm.wait_until(lambda: life.slurm.state(life.job) != "PENDING", "the job to start", LONG_S)
    life.slurm.call("scontrol", "requeue", life.job)


STRIKES: dict[str, Callable[[Life], object]] = {
    "stop": lambda life: graphmill("stop", life.folder.path),
    "scancel": lambda life: life.slurm.call("scancel", life.job),
    "preempt": lambda life: life.slurm.take_all_hosts(),
    "requeue": requeue,
}


@pytest.mark.slow
@pytest.mark.timeout(0)  # as many trials as are asked for; each wait has its own bound
@pytest.mark.parametrize("strike", STRIKES)
def test_struck_at_a_random_moment_before_the_first_step(slurm, root, preempt, request, strike):
    preempt("cancel", 60)
    first, trials = (request.config.getoption(name) for name in ("--first-trial", "--trials"))
    unhurt = begin(slurm, root, f"unhurt-{strike}")
    began = time.monotonic()
    unhurt.wait_for_steps(1)
    until_steps_s = time.monotonic() - began
    unhurt.wait_done()
    for trial in range(first, first + trials):
        dice = random.Random(f"{strike} {trial}")
        moment_s = dice.uniform(0, until_steps_s)
        by = dice.choice(["requeue"] if strike == "requeue" else ["requeue", "resubmit"])  # else Slurm refuses it
        said = f"trial {trial}: {strike}, {by}, {moment_s:.2f} s after submission of {until_steps_s:.2f}"
        settings = ("slurm.slurm_partition=preempt", f"slurm.on_time_limit={by}")
        life = begin(slurm, root, f"{strike}-{trial}", *settings)
        time.sleep(moment_s)
        try:
            STRIKES[strike](life)
            if strike in ("stop", "scancel"):
                assert has_ended(life)
                outcome = life.folder.read_outcome()
                if outcome is not None and outcome.status == "done":  # this one was quicker than the one measured
                    print(said, "struck after the end", flush=True)
                    continue
                assert outcome is None or outcome.status == "stopped", outcome
                life.resume()
            life.wait_done()
            assert is_unharmed(life, root)
            assert life.has_left_nothing()
        except AssertionError as error:
            raise AssertionError(f"{said}\n{life.log()}") from error
        print(said, "attempts", len(life.folder.attempts()), flush=True)
