"""`profile` and `train.profile=true` with real ranks: what they write, what they print, what they refuse."""

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file
from trace_format import assert_trace, nested_spans

from graphmill.record.phases import read_profile
from graphmill.record.run_folder import RunFolder

PHASES = {"wait", "forward", "backward", "optimizer", "other"}
BEHIND = {"sample", "gather"}


@pytest.fixture
def ran(graphmill, toy, capfd):
    """Runs a command that starts ranks; what it prints, and all messages."""

    def run(*words: str) -> tuple[str, str]:
        done = graphmill(*words)
        err = done.err + capfd.readouterr().err
        assert done.code == 0, err
        assert "Traceback" not in err
        return done.out, err

    return run


LONG = ("--epochs", "12", "-O", "train.evaluate_every_epochs=0", "-O", "train.baselines=false")
PROFILED = ("-O", "train.profile=true", "-O", "train.profile_steps=3", "-O", "train.profiler.wait=6")


@pytest.mark.distributed
def test_a_profiled_run_of_two_ranks(ran, graphmill, tmp_path):
    words = ("train", "toy.yaml", "--ranks", "2", *LONG)
    ran(
        *words,
        "--run-id",
        "profiled",
        *PROFILED,
        "-O",
        "train.profiler.shapes=true",
        "-O",
        "train.profiler.memory=true",
    )
    ran(*words, "--run-id", "plain")
    folder = RunFolder.open(tmp_path / "logs" / "profiled")
    assert {path.name for path in folder.profile_dir.iterdir()} == {
        "phases.json",
        "merged.trace.json.gz",
        "rank_0.pt.trace.json.gz",
        "rank_1.pt.trace.json.gz",
    }
    _same_weights(tmp_path / "logs" / "profiled", tmp_path / "logs" / "plain")
    _adds_up(folder.path)
    _spans_of_each_rank(folder.profile_dir)
    assert graphmill("verify", "profiled").code == 0
    (folder.profile_dir / "phases.json").write_text("{}")
    assert "profiler_traces/phases.json was changed" in graphmill("verify", "profiled").out
    assert graphmill("profile", "profiled").code == 2


def _same_weights(one: Path, other: Path) -> None:
    names = sorted(path.relative_to(one) for path in one.glob("checkpoints/*/model.safetensors"))
    assert names
    for name in names:
        found, expected = load_file(one / name), load_file(other / name)
        assert found.keys() == expected.keys()
        assert all(found[key].equal(expected[key]) for key in found)


def _adds_up(run: Path) -> None:
    found = read_profile(run)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    for rank in found.ranks:
        assert (rank.num_steps, rank.num_traced) == (5, 3)
        own = [phase for phase in rank.phases if not phase.background]
        assert {phase.name for phase in own} == PHASES | {"sync"}
        assert {phase.name for phase in rank.phases if phase.background} == BEHIND
        total = sum(phase.per_step.mean_s for phase in own)
        assert total == pytest.approx(rank.step.mean_s, rel=1e-9)
        assert rank.peaks_mib["tensors allocated in traced steps"] > 0
        assert {each.phase for each in rank.operators} >= {"forward", "backward", "optimizer"}
        assert sum(each.self_s for each in rank.operators) < rank.num_traced * rank.traced_step.mean_s


def _spans_of_each_rank(folder: Path) -> None:
    for rank in (0, 1):
        events = assert_trace(folder / f"rank_{rank}.pt.trace.json.gz")["traceEvents"]
        spans = [each for each in events if each.get("cat") == "user_annotation"]
        names = {each["name"].removeprefix("graphmill::") for each in spans}
        assert names >= PHASES - {"other"} | BEHIND | {"sync", "step"}
        assert sum(each["name"] == "graphmill::step" for each in spans) == 3
        assert sum(each["name"].startswith("ProfilerStep#") for each in spans) == 3, "TensorBoard counts these"
        assert any("Input Dims" in each["args"] for each in events if each.get("cat") == "cpu_op")
        (own,) = {(each["pid"], each["tid"]) for each in spans if each["name"] == "graphmill::step"}
        others = {(each["pid"], each["tid"]) for each in spans if each["name"] == "graphmill::gather"}
        assert own not in others, "each epoch has a thread that makes its batches"
        for place in (own, *others):
            nested_spans(events, *place)
    _syncs_overlap(assert_trace(folder / "merged.trace.json.gz")["traceEvents"])


def _syncs_overlap(events: list[dict]) -> None:
    """No rank leaves a collective before the last has entered it: on one clock they overlap."""
    by_rank: dict[int, list[tuple[float, float]]] = {}
    for event in sorted(events, key=lambda each: each["ts"]):
        if event["name"] == "graphmill::sync":
            by_rank.setdefault(event["pid"], []).append((event["ts"], event["ts"] + event["dur"]))
    ours, theirs = by_rank.values()
    assert len(ours) == len(theirs) >= 3
    for (began, ended), (other_began, other_ended) in zip(ours, theirs, strict=True):
        assert max(began, other_began) <= min(ended, other_ended)


@pytest.mark.distributed
def test_profile_compare_and_refusals(ran, graphmill, tmp_path):
    out, err = ran("profile", "toy.yaml", "--steps", "4", "-O", "train.profile_steps=2", "-O", "train.prefetch=0")
    assert "the profile is complete" in err, "what the ranks say is no part of the answer"
    for words in ("forward", "backward", "the one thing to change:", "ui.perfetto.dev", "tensorboard --logdir"):
        assert words in out
    assert re.search(r"^sample +step ", out, re.MULTILINE), "without prefetch the step's own thread makes batches"
    (folder,) = (tmp_path / "logs" / "profiles").iterdir()
    assert not (folder / "plan.json").exists()
    assert "holds no runs" in graphmill("bottleneck").err, "a profile is no run"
    shown = json.loads(graphmill("profile", folder, "--json").out)
    assert shown["profile"]["ranks"][0]["num_steps"] == 3
    assert {row["phase"] for row in shown["phases"]} >= PHASES | {"step"}
    same = graphmill("profile", "--compare", folder.name, folder)
    assert same.code == 0
    assert "the step is within noise" in same.out
    compared = json.loads(graphmill("profile", "--compare", folder, folder, "--json").out)
    assert {change["ratio"] for change in compared["changes"]} <= {1.0, None}
    refused = graphmill("profile", folder, "--steps", "9")
    assert refused.code == 2
    assert "has a profile already" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("toy.yaml", "--steps", "1"), "the first step is left out"),
        (("toy.yml",), "toy.yml"),
        (("toy.yaml", "-O", "train.profiler.shape=true"), "did you mean 'shapes'"),
        (("toy.yaml", "-O", "train.profiler.memory_snapshot=true"), "CUDA"),
        (("--compare", "a", "b"), "'a' is no run"),
        (("--compare", "a", "b", "--steps", "3"), "give --compare A B alone"),
        (("toy.yaml", "--compare", "a", "b"), "give --compare A B alone"),
    ],
)
def test_what_is_refused_before_anything_runs(graphmill, toy, tmp_path, words, said):
    refused = graphmill("profile", *words)
    assert refused.code == 2
    assert said in refused.err
    assert sorted(tmp_path.iterdir()) == [toy]


def test_a_run_without_a_profile_says_how_to_get_one(graphmill, toy, tmp_path, make_plan):
    RunFolder.create(make_plan("plain"), tmp_path / "logs")
    refused = graphmill("profile", "plain")
    assert refused.code == 2
    assert "has no profile" in refused.err
    assert "train.profile=true" in refused.err


@pytest.mark.slow
@pytest.mark.distributed
def test_a_run_that_ends_before_its_profile_is_complete_has_none(ran, tmp_path):
    words = ("train", "toy.yaml", "--run-id", "short", "--epochs", "6", "-O", "train.early_stopping.patience=1")
    _, err = ran(*words, "-O", "train.early_stopping.min_delta=1", *PROFILED)
    folder = RunFolder.open(tmp_path / "logs" / "short")
    assert folder.read_outcome().stopped_early
    assert "before its profile was complete (11)" in err
    assert not folder.profile_dir.exists()
