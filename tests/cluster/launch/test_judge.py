"""One judge: the same death, seen by three launchers, has the same outcome record."""

import re
import time

import pytest

from graphmill.cluster.jobs.srun_step import exits_in
from graphmill.cluster.launch.judge import LOST_A_PEER, AttemptEvidence, Judgement, LostHost, judge, note_outcome
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record.documents import Outcome
from graphmill.record.endings import ENDINGS, ending_of
from graphmill.record.events import Event, EventWriter, Failure, Finish, Start, Stop
from graphmill.record.run_folder import plan_text
from graphmill.spec.roles import RolesSpec

START = Start(
    resumed=False,
    steps_done=0,
    parameters=1,
    hostname="here",
    world_size=2,
    backend="gloo",
    plan_hash="",
    process_s=0.0,
    data="",
)
AHEAD_S = 1000.0  # of the clock of rank 1's host, over SSH
ECHO = "RuntimeError: [pair.cc:537] Read error [10.0.0.2]:44252: Connection reset by peer"
MISSED = "rank 1 on host2 became unresponsive for 6 s"

# What each rank wrote as its last event (None: nothing), how it left, and what that is.
DEATHS = {
    "killed": ({0: ("error", ECHO, 1), 1: None}, {0: 1, 1: -9}, "Killed", ("failed", "killed by SIGKILL")),
    "segfault": (
        {0: ("error", ECHO, 1), 1: None}, {0: 1, 1: -11}, "Segmentation fault (core dumped)", ("failed", "SIGSEGV"),
    ),
    "an import fails": ({0: None, 1: None}, {1: 1}, "Exited with exit code 1", ("failed", "exit status 1")),
    "an error": (
        {0: ("error", ECHO, 1), 1: ("error", "ValueError: nan", 1)}, {0: 1, 1: 1}, "Exited with exit code 1",
        ("failed", "ValueError: nan"),
    ),
    "a wrong request": (
        {0: ("error", ECHO, 1), 1: ("error", "no GPU here", 2)}, {0: 1, 1: 2}, "Exited with exit code 2",
        ("bad_request", "no GPU here"),
    ),
    "unresponsive": ({0: ("error", MISSED, 74), 1: None}, {0: 74}, "Killed", ("lost", MISSED)),
    "unreadable checkpoints": (
        {0: ("error", "step_1 cannot be read (EIO)", 71), 1: ("error", ECHO, 1)}, {0: 71, 1: 1},
        "Exited with exit code 71", ("io_error", "(EIO)"),
    ),
    "a file server away": (  # its words are like those of ranks that lost each other
        {0: ("error", "[Errno 110] Connection timed out: 'metrics.csv'", 71), 1: ("error", ECHO, 1)}, {0: 71, 1: 1},
        "Exited with exit code 71", ("io_error", "timed out"),
    ),
    "stopped": ({0: ("stop", "", 75), 1: ("stop", "", 75)}, {0: 75, 1: 75},
        "Exited with exit code 75", ("stopped", ""),
    ),
    "done": ({0: ("finish", "", 0), 1: ("finish", "", 0)}, {0: 0, 1: 0}, "", ("done", "")),
}  # fmt: skip


@pytest.fixture
def attempt(new_run):
    """A run folder in which the ranks have written their last events, rank 0 its outcome; and when they did."""

    def make(death: str, launcher: str):
        events = DEATHS[death][0]
        folder, _ = new_run(2, run_id=f"{launcher}-{death}".replace(" ", "-"))
        started = time.time()
        for rank, last in events.items():
            with EventWriter(folder.events_path(rank), rank=rank) as writer:
                if last is not None:
                    writer.write(START)
                    writer.write(_event(*last))
            if launcher == "ssh" and rank == 1:
                path = folder.events_path(1)
                ahead = re.sub(r'"time": ([0-9.]+)', lambda m: f'"time": {float(m[1]) + AHEAD_S}', path.read_text())
                path.write_text(ahead)
        if events[0] is not None:  # of how it ended itself; who was first it does not know
            kind, message, code = events[0]
            own = ending_of(code, "stopped" if kind == "stop" else None).name
            told = {"epochs": 2, "steps_per_rank": 9, "wall_s": 1.0, "message": message}
            folder.write_outcome(Outcome(status=own, exit_code=code, **told))
        return folder, started

    return make


def _event(kind: str, message: str, code: int) -> Event:
    if kind == "error":
        return Failure(message=message, exit_code=code)
    return Finish(steps_done=9, status="done") if kind == "finish" else Stop(steps_done=9, status="stopped")


def evidence(launcher: str, death: str, started: float) -> AttemptEvidence:
    events, codes, said, _ = DEATHS[death]
    now = time.time() + 1
    if launcher == "slurm":  # srun says who ended badly, in the order it hears of it, and its own status
        first = 1 if 1 in codes else 0
        order = [first, 1 - first] if death in ("killed", "segfault", "an error") else [first]
        lines = (
            [f"srun: error: host{rank + 1}: task {rank}: {_said(codes.get(rank, -9))}" for rank in order]
            if said
            else []
        )
        seen = [found for line in lines for found in exits_in(line)]
        return AttemptEvidence(
            started, seen, status=max((code if code >= 0 else 128 - code) for code in codes.values())
        )
    # The launcher ended whoever was left: the unresponsive rank, the one that waits for it.
    seen = [RankExit(rank, code, now + rank * (0.1 if death == "stopped" else -0.1)) for rank, code in codes.items()]
    killed = now + 5
    seen += [RankExit(rank, -9, killed + 0.1) for rank in events if rank not in codes]
    return AttemptEvidence(started, seen, killed, ahead_s={0: 0.0, 1: AHEAD_S} if launcher == "ssh" else None)


def _said(code: int) -> str:
    return {-9: "Killed", -11: "Segmentation fault (core dumped)"}.get(code, f"Exited with exit code {code}")


@pytest.mark.parametrize("death", DEATHS)
def test_the_same_death_has_the_same_record_under_every_launcher(attempt, death):
    records = []
    for launcher in ("local", "ssh", "slurm"):
        folder, started = attempt(death, launcher)
        judgement = judge(folder, evidence(launcher, death, started))
        note_outcome(folder, judgement, started)
        outcome = folder.read_outcome()
        assert outcome is not None
        records.append(outcome.model_dump(exclude={"wall_s"}))
    status, message = DEATHS[death][3]
    assert records[0]["status"] == status
    assert message in records[0]["message"]
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize(
    ("code", "has_begun", "status"), [(1, False, "stopped"), (1, True, "failed"), (2, False, "bad_request")]
)
def test_a_stop_counts_more_than_the_exit_of_ranks_that_never_began(new_run, code, has_begun, status):
    """Slurm ends tasks with 1 whose prolog the stop has ended; a rank that refused the request has said why."""
    folder, _ = new_run(2)
    started = time.time()
    if has_begun:
        with EventWriter(folder.events_path(0), rank=0) as writer:
            writer.write(START)
    seen = [RankExit(rank, code, None) for rank in (1, 0)]
    assert judge(folder, AttemptEvidence(started, seen, requested="stopped", status=code)).ending.name == status


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun: error: host2: task 1: Killed", [(1, -9)]),
        ("srun: error: host2: tasks 1,3: Exited with exit code 2", [(1, 2), (3, 2)]),
        ("srun: error: node-7: tasks 4-6: Segmentation fault (core dumped)", [(4, -11), (5, -11), (6, -11)]),
        ("srun: error: host1: task 0: Out Of Memory", [(0, -9)]),
        ("srun: launch/slurm: _step_signal: Terminating StepId=3.0", []),
        ("error: host1: task 0: Killed", []),
    ],
)
def test_lines_of_srun_are_read(line, expected):
    assert [(seen.rank, seen.code) for seen in exits_in(line)] == expected
    assert all(seen.time is None for seen in exits_in(line))


@pytest.mark.parametrize(
    "message",
    [
        ECHO,
        "RuntimeError: Socket Timeout",
        "RuntimeError: Broken pipe",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms",
    ],
)
def test_the_loss_of_a_peer_is_recognised(message):
    assert LOST_A_PEER.search(message)


def test_a_lost_host_is_named_unless_a_rank_failed_before(new_run):
    folder, _ = new_run(2)
    started = time.time()
    with EventWriter(folder.events_path(1), rank=1) as events:
        events.write(Failure(message="ValueError: nan", exit_code=1))
    sooner, later = (LostHost("host1", "no answer", time.time() + shift) for shift in (-0.5, 5.0))
    gone = judge(folder, AttemptEvidence(started, [RankExit(1, 1, time.time())], lost=[sooner]))
    assert (gone.ending.name, gone.first.describe()) == ("lost", "host1 was lost: no answer")
    failed = judge(folder, AttemptEvidence(started, [RankExit(1, 1, time.time())], lost=[later]))
    assert (failed.ending.name, failed.first.process) == ("failed", 1)


@pytest.mark.parametrize("asked", ["out_of_time", "preempted", "stopped"])
def test_ranks_that_are_still_in_their_round_end_as_they_were_asked_to(new_run, asked):
    folder, _ = new_run(2)
    started = time.time()
    for rank in (0, 1):
        with EventWriter(folder.events_path(rank), rank=rank) as events:
            events.write(START)
    judgement = judge(folder, AttemptEvidence(started, requested=asked))
    note_outcome(folder, judgement, started)
    assert judgement.ending.name == folder.read_outcome().status == asked
    assert folder.read_outcome().message


def test_an_error_while_saving_is_not_hidden_by_the_wish_to_stop(new_run):
    folder, _ = new_run(2)
    started = time.time()
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(Failure(message="OSError: No space left on device", exit_code=1))
    judgement = judge(folder, AttemptEvidence(started, requested="out_of_time"))
    assert judgement.ending.name == "failed"
    assert "No space left" in judgement.first.describe()


def test_a_rank_that_vanished_under_torchrun_is_named(new_run):
    """torchrun's exit status is 1 whatever happened, and srun sees its agents, not the ranks."""
    folder, _ = new_run(2)
    started = time.time()
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(Failure(message=ECHO, exit_code=1))
    judgement = judge(folder, AttemptEvidence(started, status=1))
    assert (judgement.ending.name, judgement.first.process) == ("failed", 1)


@pytest.mark.parametrize(("behind_s", "seen"), [(500.0, False), (-5.0, True)])
def test_an_error_of_an_earlier_attempt_is_told_by_its_own_hosts_clock(new_run, behind_s, seen):
    """Rank 1's clock is ahead, so its error of before this attempt has a time of after its begin."""
    folder, _ = new_run(2)
    started = time.time()
    with EventWriter(folder.events_path(1), rank=1) as events:
        events.write(Failure(message="ValueError: nan", exit_code=1))
    text = folder.events_path(1).read_text()
    then = started - behind_s + AHEAD_S
    folder.events_path(1).write_text(re.sub(r'"time": [0-9.]+', f'"time": {then}', text))
    exits = [RankExit(1, -9, started + 10)]
    first = judge(folder, AttemptEvidence(started, exits, ahead_s={0: 0.0, 1: AHEAD_S})).first
    assert ("ValueError: nan" in first.describe()) is seen
    assert ("SIGKILL" in first.describe()) is not seen


@pytest.mark.parametrize("first", [0, 1])
def test_who_failed_first_is_told_by_each_hosts_own_clock(new_run, first):
    """Rank 1's clock is ahead: what it writes sooner has a later time."""
    folder, _ = new_run(2)
    started = time.time()
    for rank in (0, 1):
        with EventWriter(folder.events_path(rank), rank=rank) as events:
            events.write(Failure(message=f"ValueError: of rank {rank}", exit_code=1))
        then = started + (1 if rank == first else 2) + (AHEAD_S if rank == 1 else 0)
        text = folder.events_path(rank).read_text()
        folder.events_path(rank).write_text(re.sub(r'"time": [0-9.]+', f'"time": {then}', text))
    exits = [RankExit(rank, 1, started + 10) for rank in (0, 1)]
    found = judge(folder, AttemptEvidence(started, exits, ahead_s={0: 0.0, 1: AHEAD_S})).first
    assert f"of rank {first}" in found.describe()


def test_a_run_is_done_only_where_every_rank_is(new_run):
    folder, _ = new_run(2)
    started = time.time()
    for rank, last in enumerate((Finish(steps_done=9, status="done"), Stop(steps_done=7, status="stopped"))):
        with EventWriter(folder.events_path(rank), rank=rank) as events:
            events.write(last)
    assert judge(folder, AttemptEvidence(started)).ending.name == "out_of_time"
    assert judge(folder, AttemptEvidence(started, requested="stopped")).ending.name == "stopped"


def test_a_rank_whose_host_reboots_is_lost_and_its_host_is_named(new_run):
    """It leaves no word and no exit; the other one is told that its peer is gone, and srun kills what is left."""
    folder, _ = new_run(2)
    started = time.time()
    for rank, host in enumerate(("host1", "host2")):
        with EventWriter(folder.events_path(rank), rank=rank) as writer:
            writer.write(START.model_copy(update={"hostname": host}))
            if rank == 0:
                writer.write(Failure(message=ECHO, exit_code=1))
    judgement = judge(folder, AttemptEvidence(started, exits_in("srun: error: host1: task 0: Killed"), status=137))
    assert (judgement.ending.name, judgement.lost_hosts) == ("lost", ("host2",))


def test_one_rank_alone_loses_no_other(new_run):
    folder, _ = new_run(1)
    started = time.time()
    with EventWriter(folder.events_path(0), rank=0) as writer:
        writer.write(START)
        writer.write(Failure(message="ConnectionError: the licence server timed out", exit_code=1))
    judgement = judge(folder, AttemptEvidence(started, [RankExit(0, 1, None)]))
    assert (judgement.ending.name, judgement.lost_hosts) == ("failed", ())


@pytest.mark.parametrize(("status", "may_pass"), [(-9, True), (137, True), (1, False)])
def test_an_srun_that_a_signal_ended_may_be_tried_again_though_no_rank_left_a_word(new_run, status, may_pass):
    folder, _ = new_run(1)
    judgement = judge(folder, AttemptEvidence(time.time(), status=status))
    assert (judgement.ending.name, judgement.first, judgement.may_pass) == ("failed", None, may_pass)


@pytest.mark.parametrize(
    ("has_begun", "message"), [(False, "exit status 127: apptainer: not found"), (True, "exit status 127")]
)
def test_why_a_rank_never_began(new_run, has_begun, message):
    """What its launcher saw is told for a rank that had no say; of another it may be of anything."""
    folder, _ = new_run(1)
    started = time.time()
    with EventWriter(folder.events_path(0), rank=0) as writer:
        if has_begun:
            writer.write(START)
    judgement = judge(folder, AttemptEvidence(started, [RankExit(0, 127, None)], message="apptainer: not found"))
    assert judgement.first is not None
    assert judgement.first.describe() == f"rank 0 of 1 failed first: {message}"


@pytest.fixture
def served_run(new_run):
    """A run of two ranks that one process serves: it is the last of the three."""
    folder, plan = new_run(2)
    plan = plan.model_copy(update={"roles": RolesSpec(samplers=1, trainers=2)})
    folder.plan_path.write_text(plan_text(plan))
    return folder


def test_a_sampler_that_fails_first_is_named_as_such(served_run):
    started = time.time()
    for rank in range(2):
        with EventWriter(served_run.events_path(rank), rank=rank) as events:
            events.write(START)
            events.write(Failure(message=ECHO, exit_code=1))
    judgement = judge(served_run, AttemptEvidence(started, [RankExit(2, -9, started + 1), RankExit(0, 1, started + 2)]))
    assert judgement.first.describe().startswith("sampler 0 of 1 failed first: killed by SIGKILL")
    assert served_run.log_path_of(served_run.world().role_rank(judgement.first.process)).name == "sampler_0.log"


def test_a_run_is_done_when_its_samplers_are_too(served_run):
    started = time.time()
    for path, rank in ((served_run.events_path(0), 0), (served_run.events_path(1), 1)):
        with EventWriter(path, rank=rank) as events:
            events.write(Finish(steps_done=9, status="done"))
    assert judge(served_run, AttemptEvidence(started)).ending.name == "failed"
    with EventWriter(served_run.events_dir / "sampler_0.jsonl", rank=0) as events:
        events.write(Finish(steps_done=9, status="done"))
    assert judge(served_run, AttemptEvidence(started)).ending.name == "done"


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        (["host2: task 1: Terminated", "host1: task 0: Terminated"], "stopped"),
        (["host1: task 0: Interrupt", "host2: task 1: Killed"], "stopped"),
        (["host2: task 1: Killed", "host1: task 0: Terminated"], "failed"),
        (["host2: task 1: Exited with exit code 1", "host1: task 0: Terminated"], "failed"),
    ],
    ids=["SIGTERM", "SIGINT", "the kernel killed one, srun the other", "an import failed, srun ended the other"],
)
def test_ranks_that_a_request_to_stop_ended_before_they_could_hear_it(new_run, lines, ending):
    folder, _ = new_run(2)
    seen = [found for line in lines for found in exits_in(f"srun: error: {line}")]
    judgement = judge(folder, AttemptEvidence(time.time(), seen, status=143))
    assert judgement.ending.name == ending
    assert (judgement.first is None) == (ending == "stopped")


def test_a_rank_that_srun_ended_is_no_cause_of_what_another_one_lost(new_run):
    """Rank 1 only says that it lost a peer; srun ended rank 0 for that, which had not begun."""
    folder, _ = new_run(2)
    started = time.time()
    with EventWriter(folder.events_path(1), rank=1) as events:
        events.write(Failure(message=ECHO, exit_code=1))
    lines = ("srun: error: host2: task 1: Exited with exit code 1", "srun: error: host1: task 0: Terminated")
    seen = [found for line in lines for found in exits_in(line)]
    judgement = judge(folder, AttemptEvidence(started, seen, status=1))
    assert judgement.ending.name == "lost"
    assert judgement.first.process == 1


def test_what_rank_0_wrote_outlasts_a_launcher_that_could_not_read_it(new_run):
    folder, _ = new_run(2)
    folder.write_outcome(Outcome(status="stopped", exit_code=75, epochs=2, steps_per_rank=9, wall_s=1.0, message="why"))
    known = folder.read_outcome()
    note_outcome(folder, Judgement(ENDINGS["io_error"], None, "events cannot be read"), time.time())
    assert folder.read_outcome() == known
    folder.outcome_path.unlink()
    note_outcome(folder, Judgement(ENDINGS["io_error"], None, "events cannot be read"), time.time())
    assert (folder.read_outcome().status, folder.read_outcome().message) == ("io_error", "events cannot be read")
