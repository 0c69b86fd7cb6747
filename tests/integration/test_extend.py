"""More epochs for a run that is done: to the bit what a run of so many epochs from its beginning is."""

import json
import shutil
from pathlib import Path

import pytest
from slow_cases import with_slow
from typer.testing import CliRunner
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill.cli.app import commands
from graphmill.record.attempts import attempt
from graphmill.record.extend import plan_extension, take_over
from graphmill.record.find_weights import find_initial_weights
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WEIGHTS_FILE, WeightsFile
from graphmill.report.compare import compare
from graphmill.report.export.tracker import read_run
from graphmill.spec.weights import InitFromSpec
from graphmill.verify.run import verify_run

pytestmark = pytest.mark.distributed

ONE_RANK = {"ranks": 1, "batch_size": 35, "early_stopping": {"patience": 50}}
MULTISTEP = {"kind": "adam", "lr": 0.3, "schedule": {"kind": "multistep", "milestones": [4], "warmup_steps": 3}}
TWO_RANKS = {"ranks": 2, "batch_size": 20, "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}}
DILOCO = {**TWO_RANKS, "sync": {"scheme": "diloco", "every": 3}}
CASES = {"one": {**ONE_RANK, "optimizer": MULTISTEP}, "two": DILOCO}


def extend(zygote, ancestor: RunFolder, root: Path, epochs: int, run_id: str = "longer") -> RunFolder:
    folder = RunFolder.create(plan_extension(ancestor, epochs=epochs, run_id=run_id), root)
    take_over(folder)
    folder.note_provenance(["test"])
    codes = zygote.wait(zygote.start(folder, resume=True), patience_s=HANG_S)
    assert set(codes) == {0}, zygote.said(folder)
    return folder


def whole(zygote, plan, root: Path) -> RunFolder:
    folder = RunFolder.create(plan, root)
    folder.note_provenance(["test"])
    codes = zygote.wait(zygote.start(folder, resume=False), patience_s=HANG_S)
    assert set(codes) == {0}, zygote.said(folder)
    return folder


@pytest.fixture(scope="module", params=with_slow(CASES, fast=["two"]))
def runs(request, planned, zygote, tmp_path_factory):
    """A run of 6 epochs; one of 2 that was extended to 4, and that to 6."""
    root, settings = tmp_path_factory.mktemp("logs"), CASES[request.param]
    straight = whole(zygote, planned("straight", epochs=6, **settings), root)
    short = whole(zygote, planned("short", epochs=2, **settings), root)
    before = content(short)
    middle = extend(zygote, short, root, 4, "middle")
    longer = extend(zygote, middle, root, 6)
    assert content(short) == before, "the run that is extended is only read"
    return straight, short, middle, longer


def content(folder: RunFolder) -> dict[str, bytes]:
    """Without what the monitor writes, which lives a moment longer than the ranks."""
    files = (path for path in folder.path.rglob("*") if path.is_file() and path.parent != folder.monitor_dir)
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


def checkpoints(folder: RunFolder) -> dict[str, tuple]:
    """By name: the checksum of the weights, whatever their origin, and the bytes of the resume state of all ranks."""
    return {
        path.name: (
            WeightsFile.read(path / WEIGHTS_FILE).compute_checksum(),
            [state.read_bytes() for state in sorted(path.glob("rank_*.safetensors"))],
        )
        for path in folder.checkpoints_dir.glob("step_*")
    }


def rows(folder: RunFolder) -> list[dict[str, str]]:
    """What is no time, and no byte of this machine's."""
    names = ("epoch", "loss", "val_loss", "val_micro_f1", "best_val_micro_f1", "steps_done", "num_seeds_cum")
    names = (*names, "num_syncs_cum", "measured_mib_cum", "target_global_steps", "replicas_agree")
    return [{name: row[name] for name in names} for row in read_metrics(folder.metrics_path)]


def test_it_is_to_the_bit_the_longer_run(runs):
    straight, _, _, longer = runs
    assert checkpoints(longer) == checkpoints(straight)
    assert rows(longer) == rows(straight)
    one, other = longer.read_outcome(), straight.read_outcome()
    assert (one.test, one.best, one.epochs) == (other.test, other.best, 6)
    assert longer.evaluations_path.read_bytes() == straight.evaluations_path.read_bytes()


def test_it_is_true_to_its_plan_and_says_with_what_it_began(runs):
    _, short, middle, longer = runs
    plan = longer.read_plan()
    assert (plan.extends.run_id, plan.extends.epochs) == ("middle", 4)
    assert middle.read_plan().extends.source == str(short.path)
    assert "short" in middle.read_plan().begins_with
    checks = {(check.group, check.name): check for check in verify_run(longer)}
    assert [check for check in checks.values() if check.result == "fail"] == []
    assert "middle after epoch 4" in checks["checkpoints", "ancestor"].detail
    assert {row["run_id"] for row in read_metrics(longer.metrics_path)} == {"longer"}
    assert [row["attempt"] for row in read_metrics(longer.metrics_path)] == ["1", "1", "2", "2", "3", "3"]
    losses = [point for point in read_run(longer).points if point.name == "loss"]
    assert [point.step for point in losses] == [1, 2, 3, 4, 5, 6]


def test_it_is_compared_with_runs_of_as_many_epochs(runs):
    straight, short, _, longer = runs
    (table,) = compare([straight, short, longer])
    assert table.varied == ("epochs",)
    assert {row.runs: row.begins_with for row in table.rows} == {
        ("straight", "longer"): "middle, extended after epoch 4",
        ("short",): "",
    }


def test_an_ancestor_that_changed_is_noticed(runs, tmp_path):
    _, short, middle, _ = runs
    moved = RunFolder(Path(shutil.copytree(short.path, tmp_path / "moved")))
    folder = RunFolder.create(plan_extension(moved, epochs=9, run_id="next"), tmp_path)
    manifest = max(moved.checkpoints_dir.glob("step_*")) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("true", "false") + "\n")
    with pytest.raises(UserError, match="changed"), attempt(folder, command=["test"]):
        pass
    assert folder.attempts() == []
    replanned = RunFolder(Path(shutil.copytree(short.path, tmp_path / "replanned")))
    folder = RunFolder.create(plan_extension(replanned, epochs=9, run_id="after"), tmp_path)
    replanned.plan_path.write_text(replanned.plan_path.read_text() + "\n")
    with pytest.raises(UserError, match="changed"), attempt(folder, command=["test"]):
        pass
    assert folder.attempts() == []
    copy = RunFolder(Path(shutil.copytree(middle.path, tmp_path / "copy")))
    plan = json.loads(copy.plan_path.read_text())
    plan["extends"]["checksum"] = "0" * 16
    copy.plan_path.write_text(json.dumps(plan))
    failed = [check.name for check in verify_run(copy) if check.result == "fail"]
    assert "ancestor" in failed


def test_killed_while_it_takes_over_it_begins_again(runs, tmp_path):
    _, short, _, _ = runs
    folder = RunFolder.create(plan_extension(short, epochs=3, run_id="next"), tmp_path)
    take_over(folder)
    expected = content(folder)
    folder.attempts_path.unlink()
    folder.metrics_path.write_text("torn")
    shutil.rmtree(next(folder.checkpoints_dir.iterdir()))
    take_over(folder)
    found = content(folder)
    assert {name for name in found if not name.startswith("events")} <= expected.keys()
    for name in expected.keys() - {name for name in expected if name.startswith("events")}:
        assert found[name] == expected[name], name


def command(*words: object):
    words = [str(word) for word in words]
    result = CliRunner().invoke(commands(words), words, prog_name="graphmill")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_commands_show_what_a_run_begins_with(runs, tmp_path):
    straight, short, _, longer = runs
    initial = find_initial_weights(InitFromSpec(run=str(short.path)), lambda *said: None)
    tuned = short.read_plan().model_copy(update={"run_id": "tuned", "init_from": initial})
    shown = command("inspect", RunFolder.create(tuned, tmp_path).path).stdout
    assert str(short.path) in shown
    assert initial.checksum in shown
    shown = command("inspect", longer.path).stdout
    for word in ("middle, extended after epoch 4", longer.read_plan().extends.source):
        assert word in shown
    assert "short, extended after epoch 2" in command("list", "--logs-root", short.path.parent).stdout
    assert f"weights of {short.path}" in command("list", "--logs-root", tmp_path).stdout
    assert "middle, extended after epoch 4" in command("compare", straight.path, longer.path).stdout


def test_the_command_refuses_what_it_would_not_do(runs, tmp_path):
    run = runs[1].path
    for words, told in (
        ((run,), "--epochs"),
        (("--epochs", 5), "which run"),
        ((run, "--epochs", 5, "--sync_every", 2), "train.sync.every"),
        ((run, "--epochs", 5, "--ranks", 3), "train.ranks"),
        ((run, "--epochs", 5, "-O", "train.epoch"), "train.epoch"),
        ((run, "--epochs", 5, "--resume"), "--resume"),
        ((run, "--epochs", 5, "--dataset-root", tmp_path), "--dataset-root"),
        ((run, "--epochs", "many"), "many"),
    ):
        result = command("train", "--extend", *words, "--logs-root", tmp_path)
        assert (result.exit_code, told in result.stderr) == (2, True), (words, result.stderr)
    planned = command("train", "--extend", run, "--epochs", 5, "--dry-run", "--logs-root", tmp_path)
    assert "short" in planned.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "outcome", "epochs", "words"),
    [
        ({}, {}, 2, "2 epochs already"),
        ({"optimizer": {"kind": "adam", "schedule": {"kind": "cosine"}}}, {}, 4, "cosine"),
        ({"optimizer": {"kind": "adam", "schedule": {"kind": "linear"}}}, {}, 4, "linear"),
        ({}, {"status": "out_of_time"}, 4, "not done"),
        ({"max_steps": 3, "epochs": None}, {}, 4, "middle of epoch 1"),
    ],
)
def test_what_clashes(planned, zygote, tmp_path, changes, outcome, epochs, words):
    folder = whole(zygote, planned("short", **{"ranks": 1, "batch_size": 35, **changes}), tmp_path)
    folder.write_outcome(folder.read_outcome().model_copy(update=outcome))
    with pytest.raises(UserError, match=words):
        plan_extension(folder, epochs=epochs, run_id="longer")


def test_a_run_that_stopped_early_and_one_without_its_checkpoint(planned, zygote, tmp_path):
    settings = {"optimizer": {"kind": "sgd", "lr": 1e-9}, "early_stopping": {"patience": 1}, "epochs": 6}
    folder = whole(zygote, planned("short", ranks=1, batch_size=70, **settings), tmp_path)
    assert folder.read_outcome().stopped_early
    with pytest.raises(UserError, match="stopped early"):
        plan_extension(folder, epochs=9, run_id="longer")
    earlier, last = sorted(folder.checkpoints_dir.iterdir())
    shutil.rmtree(last)
    with pytest.raises(UserError, match="whole checkpoint of its end"):
        plan_extension(folder, epochs=9, run_id="longer")
    shutil.rmtree(earlier)
    with pytest.raises(UserError, match="whole checkpoint"):
        plan_extension(folder, epochs=9, run_id="longer")


def test_a_best_checkpoint_that_is_not_the_last_is_taken_over_too(planned, zygote, tmp_path):
    """With a rate of nothing no epoch is better than the first."""
    settings = {"ranks": 1, "batch_size": 70, "optimizer": {"kind": "sgd", "lr": 1e-30}}
    short = whole(zygote, planned("short", **settings), tmp_path)
    assert (short.read_outcome().best["epoch"], len(checkpoints(short))) == (1, 2)
    folder = RunFolder.create(plan_extension(short, epochs=4, run_id="longer"), tmp_path)
    take_over(folder)
    assert checkpoints(folder) == checkpoints(short)
