"""The profile of a rank, from steps that are made here: when it begins and ends, and what it leaves."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from trace_format import assert_trace

from graphmill import memory_snapshot
from graphmill.base.errors import UserError
from graphmill.record.phases import read_profile
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.stop import StopRequest
from graphmill.sync.group import Group
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.profile import StepProfile

CPU = torch.device("cpu")


@pytest.fixture
def profile_of(new_run):
    """Makes the profile of a run of one rank: 3 steps timed, 1 for the profiler to warm up, 2 traced."""
    options = {"wait": 3, "warmup": 1}

    def make(*, ends_run: bool = False, folder: RunFolder | None = None, **more) -> StepProfile:
        if folder is None:
            folder, _ = new_run(1, profile=True, profile_steps=2, profiler={**options, **more}, epochs=9)
        plan = folder.read_plan()
        assert plan.profile is not None
        asked = plan.profile.model_copy(update={"ends_run": ends_run})
        group = Group(0, 1, CPU)
        stats = EpochStats(plan=plan, group=group, num_parameters=1, interface=None, attempt=1, num_hosts=1)
        stats.begin_epoch()
        made = StepProfile(asked, plan, group, folder, StopRequest(), stats.paused, lambda: None)
        made.begin()
        return made

    return make


def make_steps(profile: StepProfile, number: int) -> None:
    x = torch.ones(4, 4)
    for _ in range(number):
        with profile.group.spans("wait"):
            pass
        with profile.group.spans("step"):
            with profile.group.spans("forward"):
                x @ x
            with profile.group.spans("backward"):
                x + x
        profile.step_ended()


def files(profile: StepProfile) -> set[str]:
    folder = profile.run.profile_dir
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def is_listening(profile: StepProfile) -> bool:
    return bool(profile.group.spans.listeners) or profile.group.spans.around is not None


def test_it_is_complete_after_the_steps_that_it_takes(profile_of):
    profile = profile_of()
    make_steps(profile, 5)
    assert files(profile) == set()
    make_steps(profile, 1)
    assert files(profile) == {"phases.json", "merged.trace.json.gz", "rank_0.pt.trace.json.gz"}
    assert not is_listening(profile)
    assert not profile.stop.requested
    (rank,) = read_profile(profile.run.path).ranks
    assert (rank.num_steps, rank.num_traced) == (2, 2)
    assert {"aten::matmul", "aten::add"} <= {each.name for each in rank.operators}
    assert {each.phase for each in rank.operators if each.name == "aten::add"} == {"backward"}
    make_steps(profile, 3)
    profile.close()
    assert read_profile(profile.run.path).ranks == (rank,)


def test_a_run_is_profiled_once(profile_of):
    first = profile_of()
    make_steps(first, 6)
    resumed = profile_of(folder=first.run)
    assert not is_listening(resumed)
    make_steps(resumed, 6)
    resumed.close()
    assert read_profile(first.run.path).ranks[0].num_steps == 2


def test_an_attempt_that_ends_before_leaves_nothing_and_the_next_one_makes_it(profile_of, caplog):
    killed = profile_of()
    make_steps(killed, 5)
    killed.close()
    assert files(killed) == set()
    assert not is_listening(killed)
    assert "before its profile was complete (6)" in caplog.text
    resumed = profile_of(folder=killed.run)
    make_steps(resumed, 6)
    assert "phases.json" in files(resumed)


def test_what_a_killed_writer_left_is_written_anew(profile_of):
    profile = profile_of()
    profile.run.profile_dir.mkdir()
    profile.run.trace_path(0).write_bytes(b"of an attempt that was killed before phases.json")
    make_steps(profile, 6)
    assert_trace(profile.run.trace_path(0))


def test_the_command_s_own_run_is_asked_to_stop(profile_of):
    profile = profile_of(ends_run=True)
    make_steps(profile, 6)
    assert profile.stop.requested
    assert "complete" in profile.stop.why


def test_writing_is_no_time_of_the_epoch(profile_of):
    profile = profile_of()
    stats: EpochStats = profile.paused.__self__  # type: ignore[attr-defined]  # a bound method
    before = stats.elapsed_s()
    with stats.paused():
        began = time.perf_counter()
        with profile.group.spans("sync"):
            while time.perf_counter() < began + 0.05:
                pass
    after = stats.elapsed_s()
    assert profile.group.spans.seconds["sync"] == 0
    assert after - before < time.perf_counter() - began


def test_a_trace_that_is_far_too_large_is_left_out_and_the_phases_are_kept(profile_of, monkeypatch):
    monkeypatch.setattr("graphmill.train.profile._UNREAD", 0)
    profile = profile_of()
    make_steps(profile, 6)
    assert files(profile) == {"phases.json"}
    (rank,) = read_profile(profile.run.path).ranks
    assert rank.trace == ""
    assert "train.profile_steps" in rank.notes[0]
    assert {phase.name for phase in rank.phases} >= {"forward", "backward", "wait"}


def test_without_cuda_a_memory_snapshot_is_refused(tmp_path: Path):
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    with pytest.raises(UserError, match="no CUDA device"), memory_snapshot(tmp_path / "snapshot.pickle"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_memory_snapshot_is_written_also_where_the_block_fails(tmp_path: Path):
    path = tmp_path / "snapshot.pickle"
    with suppress(ZeroDivisionError), memory_snapshot(path):
        kept = torch.ones(1000, device="cuda")
        raise ZeroDivisionError
    assert path.stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    del kept
