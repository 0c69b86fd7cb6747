"""Searches, with real processes that stand in for the ranks, and the real Optuna."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.base.errors import UserError
from graphmill.cluster.launch.tune import prepare, run_search
from graphmill.record.run_folder import RunFolder, find_runs
from graphmill.record.trials import SearchFolder
from graphmill.spec.load import load_experiment
from graphmill.spec.search import Search

pytest.importorskip("optuna")

RANK = Path(__file__).parents[1] / "programs" / "tuned_rank.py"
PLUGINS = Path(__file__).parents[2] / "plugins"
EXPERIMENT = {"train": {"ranks": 1, "epochs": 10, "batch_size": 10}}
SPACE = {"train.optimizer.lr": {"low": 1e-4, "high": 1.0, "log": True}, "model.hidden_channels": [16, 32]}


def search(**keys) -> Search:
    return Search(**{"name": "s", "experiment": EXPERIMENT, "space": SPACE, "trials": 4, **keys})


@pytest.fixture
def tune(tmp_path, planner, monkeypatch, source_environ):
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])

    def tune(*what: str, epoch_s: float = 0.0, logs_root: Path = tmp_path, **keys):
        program = [str(RANK), str(epoch_s), *what, "--"]
        tuning = prepare(search(**keys), logs_root=logs_root, planner=planner, program=program)
        return run_search(tuning), tuning

    return tune


def test_trials_are_runs_and_the_best_is_by_validation(tmp_path, tune):
    code, tuning = tune()
    assert code == 0
    trials = tuning.folder.trials()
    assert [folder.path.name for folder in find_runs(tmp_path / "s")] == [f"trial-{number:04d}" for number in range(4)]
    complete = [trial for trial in trials if trial.state == "complete"]
    assert tuning.best().end.best[1] == max(trial.end.best[1] for trial in complete)
    for trial in trials:
        assert RunFolder(tmp_path / "s" / trial.name).read_plan().optimizer.lr == trial.values["train.optimizer.lr"]
    before = [trial.values for trial in trials]
    assert tune()[0] == 0
    assert [trial.values for trial in tuning.folder.trials()] == before, "it is done: nothing is added"
    assert tune(trials=5)[0] == 0
    assert len(tuning.folder.trials()) == 5


def test_the_first_trial_is_the_experiment_as_it_is_where_the_space_holds_it(tune):
    _, tuning = tune(space={**SPACE, "model.hidden_channels": [128, 256]}, trials=1)
    assert tuning.folder.trials()[0].values == {"train.optimizer.lr": 0.01, "model.hidden_channels": 256}


def test_the_best_file_trains_the_best_trial(tmp_path, tune):
    _, tuning = tune(trials=3)
    best = tuning.best()
    assert tuning.write_best() == best
    written = load_experiment(tuning.best_path)
    assert written.train.optimizer.lr == best.values["train.optimizer.lr"]
    assert written.model.hidden_channels == best.values["model.hidden_channels"]
    assert tuning.test_scores(best) == [pytest.approx(1 - best.end.best[1])]


def test_the_same_search_asks_for_the_same_trials_and_another_seed_for_others(tmp_path, tune):
    _, first = tune()
    _, again = tune(logs_root=tmp_path / "again", epoch_s=0.01)
    _, other = tune(logs_root=tmp_path / "other", seed=1)
    assert first.folder.trials() == again.folder.trials()
    assert first.folder.trials() != other.folder.trials()


def test_a_trial_that_falls_behind_is_stopped_and_never_resumed(tmp_path, tune):
    """It would hang forever: only the stop ends it."""
    _, tuning = tune("hang", trials=12)
    pruned = [trial for trial in tuning.folder.trials() if trial.state == "pruned"]
    outcomes = [RunFolder(tmp_path / "s" / trial.name).read_outcome() for trial in pruned]
    assert "stopped" in [outcome.status for outcome in outcomes]
    assert all((tmp_path / "s" / trial.name / "starts").read_text().count("\n") == 1 for trial in pruned)
    assert all(trial.end.scores[-1][0] >= 2 for trial in pruned), "a fifth of ten epochs is too early"


@pytest.mark.slow
def test_without_pruning_all_are_complete(tune):
    _, tuning = tune(prune=False, trials=7)
    assert {trial.state for trial in tuning.folder.trials()} == {"complete"}


def test_a_failed_trial_is_recorded_and_the_search_goes_on(tmp_path, tune):
    code, tuning = tune("break", trials=6, prune=False)
    failed = [trial for trial in tuning.folder.trials() if trial.state == "failed"]
    assert (code, len(tuning.folder.trials())) == (0, 6)
    assert [trial for trial in tuning.folder.trials() if trial.values["train.optimizer.lr"] > 0.05] == failed
    assert failed
    assert "too large" in failed[0].end.why


def test_three_failures_at_the_start_end_it(tune):
    space = {"train.optimizer.lr": {"low": 0.1, "high": 1.0}, "model.hidden_channels": [16, 32]}
    with pytest.raises(UserError, match=r"first 3 trials failed.*too large"):
        tune("break", space=space)


def test_with_seeds_a_trial_is_a_run_for_each_and_its_score_the_mean(tmp_path, tune):
    code, tuning = tune(seeds=[3, 1], trials=3)
    trials, best = tuning.folder.trials(), tuning.best()
    assert code == 0
    assert [folder.path.name for folder in find_runs(tmp_path / "s")] == sorted(
        f"trial-{number:04d}__seed-{seed}" for number in range(3) for seed in (1, 3)
    )
    for trial in trials:
        plans = [run.read_plan() for run in tuning.runs(trial)]
        assert [plan.seed for plan in plans] == [3, 1]
        assert {plan.optimizer.lr for plan in plans} == {trial.values["train.optimizer.lr"]}
        scores = [run.read_outcome().best["micro_f1"] for run in tuning.runs(trial)]
        assert list(trial.end.of_seeds) == scores
        assert trial.score == pytest.approx(sum(scores) / 2)
    assert best.score == max(trial.score for trial in trials)
    assert tuning.test_scores(best) == pytest.approx([1 - score for score in best.end.of_seeds])
    assert tuning.write_best() == best
    assert load_experiment(tuning.best_path).train.seed == load_experiment("cora-sage").train.seed
    with pytest.raises(UserError, match="another seeds"):
        tune(seeds=[3], trials=3)


def test_a_trial_that_falls_behind_with_its_first_seed_has_no_other(tmp_path, tune):
    _, tuning = tune("hang", trials=8, seeds=[0, 1])
    pruned = [trial for trial in tuning.folder.trials() if trial.state == "pruned"]
    assert pruned
    assert [[run.path.exists() for run in tuning.runs(trial)] for trial in pruned] == [[True, False]] * len(pruned)


def test_a_trial_whose_first_seed_gets_on_is_complete_though_the_second_falls_behind(tune):
    """With the seed 60 every score is far below those of the five trials before."""
    _, tuning = tune(trials=6, seed=1, seeds=[0, 60])
    assert [len(trial.end.of_seeds) for trial in tuning.folder.trials()] == [2] * 6


def test_a_seed_that_fails_fails_its_trial(tune):
    _, tuning = tune("break_seed", trials=4, prune=False, seeds=[1, 2, 3])
    failed = [trial for trial in tuning.folder.trials() if trial.state == "failed"]
    assert failed == [trial for trial in tuning.folder.trials() if trial.values["train.optimizer.lr"] > 0.05]
    assert [run.path.exists() for run in tuning.runs(failed[0])] == [True, True, False]
    assert "seed 2: " in failed[0].end.why


def test_a_stop_between_two_seeds_goes_on_there(tmp_path, tune, start):
    process = start(0.05, seeds=[1, 2], trials=2)
    wait_until((tmp_path / "s" / "trial-0000__seed-2" / "starts").exists, "the second seed")
    process.kill()
    process.wait()
    assert tune(seeds=[1, 2], trials=2)[0] == 0
    starts = [(run.path / "starts").read_text().count("\n") for run in find_runs(tmp_path / "s")]
    _, never = tune(logs_root=tmp_path / "never", seeds=[1, 2], trials=2)
    assert starts == [1, 2, 1, 1]
    assert SearchFolder(tmp_path / "s").trials() == never.folder.trials()


def test_a_search_that_began_before_there_were_seeds_goes_on(tmp_path, tune):
    tune(trials=1)
    path = tmp_path / "s" / "search.json"
    begun = json.loads(path.read_text())
    del begun["seeds"]
    path.write_text(json.dumps(begun))
    assert tune(trials=2)[0] == 0
    with pytest.raises(UserError, match="another seeds"):
        tune(trials=2, seeds=[1])


def test_a_budget_of_time_ends_it_in_the_midst_of_a_trial_and_more_continues(tune):
    code, tuning = tune(trials=2, hours=0.4 / 3600, epoch_s=0.1)
    assert code == 0
    assert [trial.state for trial in tuning.folder.trials()] == ["unfinished"]
    assert tuning.folder.spent_s() >= 0.4
    assert tune(trials=2, hours=0.4 / 3600)[0] == 0, "none is left"
    assert [trial.state for trial in tuning.folder.trials()] == ["unfinished"]
    assert tune(trials=2, hours=1)[0] == 0
    assert [trial.state for trial in tuning.folder.trials()] == ["complete"] * 2


def test_another_search_in_its_folder_is_refused(tmp_path, tune):
    tune(trials=1)
    with pytest.raises(UserError, match="another seed"):
        tune(seed=3)
    with pytest.raises(UserError, match="another experiment, another space"):
        tune(space={"train.optimizer.lr": [0.1, 0.2]}, set={"train.epochs": 3})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(UserError, match="is no search"):
        tune(name="other")


def test_everything_is_planned_before_anything_runs(tmp_path, tune):
    with pytest.raises(UserError, match="num_layers"):
        tune(space={"train.optimizer.lr": [0.1, 0.2], "model.num_layers": [2, 3]})
    assert [*tmp_path.iterdir()] == []


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from planned_runs import planned
from graphmill.cluster.launch.tune import prepare, run_search
from graphmill.spec.search import Search
search = Search.model_validate_json(sys.argv[3])
sys.exit(run_search(prepare(search, logs_root=Path(sys.argv[1]), planner=planned, program=sys.argv[4:])))
"""


@pytest.fixture
def start(tmp_path, source_environ):
    processes = []

    def start(epoch_s: float, *what: str, **keys) -> subprocess.Popen:
        words = [str(tmp_path), str(PLUGINS), search(**keys).model_dump_json(), str(RANK), str(epoch_s), *what, "--"]
        processes.append(
            subprocess.Popen([sys.executable, "-c", PROGRAM, *words], env=source_environ, stderr=subprocess.DEVNULL)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_stop_saves_and_the_same_command_goes_on(tmp_path, tune, start):
    process = start(0.05)
    wait_until((tmp_path / "s" / "trial-0001" / "starts").exists, "the second trial")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    before = SearchFolder(tmp_path / "s").trials()
    assert before[-1].end is None
    _, tuning = tune()
    assert [trial.values for trial in tuning.folder.trials()][: len(before)] == [trial.values for trial in before]
    _, never = tune(logs_root=tmp_path / "never")
    assert tuning.folder.trials() == never.folder.trials()


def test_a_stop_that_comes_too_late_for_a_run_begins_no_other(tmp_path, start):
    """The run ends as if nobody had asked, and its trial is over; the search has heard all the same."""
    process = start(0.2, "deaf", set={"train.epochs": 3})
    wait_until((tmp_path / "s" / "trial-0000" / "starts").exists, "the first trial")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    assert [trial.state for trial in SearchFolder(tmp_path / "s").trials()] == ["complete"]


def test_several_processes_share_the_trials_out(tmp_path, tune, start):
    """What each choice and each pruning knew can be told again from the lines alone."""
    others = [start(0.05, trials=14) for _ in range(2)]
    code, tuning = tune(trials=14, epoch_s=0.05)
    assert code == 0
    assert [process.wait(HANG_S) for process in others] == [0, 0]
    trials = tuning.folder.trials()
    assert [trial.number for trial in trials] == [*range(14)]
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
    assert [len(RunFolder(tmp_path / "s" / trial.name).attempts()) for trial in trials] == [1] * 14
    assert any(trial.running for trial in trials)
    for trial in trials[1:]:
        assert trial.values == tuning.asking.values(trial.knew(trials)), trial
    for trial in trials:
        pruned = tuning.asking.prunes_at(trial.knew(trials), trial.end.scores, after=2)
        assert trial.end.why == ("" if pruned is None else f"at epoch {pruned}")


def test_a_trial_of_a_process_that_was_killed_is_taken_up_by_another(tmp_path, tune, start):
    first = start(5.0, trials=2)
    wait_until((tmp_path / "s" / "trial-0000" / "starts").exists, "the first trial")
    first.send_signal(signal.SIGSTOP)
    assert tune(trials=1)[0] == 0, "it is in other hands, however slow"
    code, tuning = tune(trials=2)
    assert (code, [trial.state for trial in tuning.folder.trials()]) == (0, ["unfinished", "complete"])
    assert f"process {first.pid} on" in tuning.elsewhere()["trial-0000"]
    assert tuning.folder.trials()[1].running == (0,)
    first.kill()
    first.wait()
    assert tune(trials=2)[0] == 0
    assert [trial.state for trial in tuning.folder.trials()] == ["complete", "complete"]
    assert tuning.elsewhere() == {}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_any_moment_no_trial_is_lost_or_doubled(tmp_path, tune, start, seed):
    _, never = tune(logs_root=tmp_path / "never")
    moments, kills, told = random.Random(seed), 0, tmp_path / "s" / "trials.jsonl"

    def lines_told() -> int:
        return told.read_text().count("\n") if told.exists() else 0

    while kills < 10:
        until, process = lines_told() + moments.randrange(2), start(0.03)
        wait_until(lambda p=process, n=until: lines_told() >= n or p.poll() is not None, "what the search tells")
        time.sleep(moments.uniform(0.0, 0.3))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
    assert kills > 1
    assert tune()[0] == 0
    lines = (tmp_path / "s" / "trials.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted((tmp_path / "never" / "s" / "trials.jsonl").read_text().splitlines())
    assert SearchFolder(tmp_path / "s").trials() == never.folder.trials()


@pytest.mark.parametrize("cut", [20, pytest.param(1, marks=pytest.mark.slow), pytest.param(-1, marks=pytest.mark.slow)])
def test_killed_while_a_line_is_written(tmp_path, tune, cut):
    """The line that was not whole is as if it had not begun."""
    _, tuning = tune(trials=2)
    whole = tuning.folder.trials()
    path = tmp_path / "s" / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for keep in range(len(lines)):
        path.write_text("".join(lines[:keep]) + lines[keep][:cut])
        assert tune(trials=2)[0] == 0
        assert tuning.folder.trials() == whole, keep


def test_killed_between_a_trial_and_its_run(tmp_path, tune):
    _, never = tune(logs_root=tmp_path / "never", trials=2)
    folder = SearchFolder(tmp_path / "s")
    tune(trials=1)
    with folder.lock():
        folder.ask(never.folder.trials()[1].values)
    assert folder.trials()[1].state == "unfinished"
    assert tune(trials=2)[0] == 0
    assert folder.trials() == never.folder.trials()


def test_a_damaged_file_is_named(tmp_path, tune):
    _, tuning = tune(trials=1)
    path = tmp_path / "s" / "trials.jsonl"
    path.write_text('{"trial": "x", "values": 3}\n')
    with pytest.raises(UserError, match="damaged"):
        tuning.folder.trials()
