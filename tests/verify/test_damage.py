"""Every kind of damage to a finished run is found, with exit status 1 and the reason.

Each is done to a copy of a real run. Where the seal was renewed after the damage, the other
witnesses alone must find it.
"""

import json
import shutil

import pytest
from typer.testing import CliRunner

from graphmill.base import exits
from graphmill.cli.app import commands
from graphmill.diagnose.epilog import write_epilog
from graphmill.record.checksums import checksums_path
from graphmill.record.manifest import Manifest, file_checksum
from graphmill.record.metrics import read_table

CLI = CliRunner()


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


def swap_rows(run):
    with run.rows() as rows:
        rows[0], rows[1] = rows[1], rows[0]


def remove_row(run):
    with run.rows() as rows:
        del rows[1]


def repeat_row(run):
    with run.rows() as rows:
        rows.insert(1, dict(rows[1]))


def another_value(run):
    path = run.folder.evaluations_path
    *lines, last = path.read_text().splitlines()
    path.write_text("\n".join([*lines, f"{last.rpartition(',')[0]},0.125"]) + "\n")


def remove_evaluation(run):
    path = run.folder.evaluations_path
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def repeat_evaluation(run):
    path = run.folder.evaluations_path
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[-1])


def remove_column(run):
    table = read_table(run.folder.metrics_path)
    column = table.header.index("seeds_per_s")
    lines = [",".join((*row[:column], *row[column + 1 :])) for row in (table.header, *table.rows)]
    run.folder.metrics_path.write_text("\n".join(lines) + "\n")


def no_text(run):
    run.folder.events_path(1).write_bytes(b"\xff\0\n")


def torn_checkpoint(run):
    cut(run.checkpoint() / "rank_0.safetensors", -8)


def only_a_header(run):
    cut(run.folder.metrics_path, run.folder.metrics_path.read_text().index("\n") + 1)


def a_blank_more(run):
    run.folder.plan_path.write_text(run.folder.plan_path.read_text() + " ")


def an_earlier_checkpoint(run):
    shutil.rmtree(run.checkpoint())
    shutil.copytree(run.checkpoint(0), run.folder.checkpoints_dir / "step_0000000099")


def a_later_attempt(run):
    attempt = json.loads(run.folder.attempts_path.read_text())
    run.folder.attempts_path.write_text(json.dumps({**attempt, "time": 4e9}) + "\n")


def constant_loss(run):
    """As consistent as can be: metrics.csv and both witnesses."""
    with run.rows() as rows:
        for row in rows:
            row["loss"] = "1.5"
    for rank in (0, 1):
        run.events(rank, lambda known: [e.update(loss=1.5) for e in known if e["kind"] == "epoch"])


def remove_syncs(run):
    run.events(1, lambda known: known.__setitem__(slice(None), [e for e in known if e["kind"] != "sync"]))


def remove_one_sync(run):
    def change(known):
        known.remove([e for e in known if e["kind"] == "sync"][1])

    run.events(1, change)


def events_of_another_run(run, other, ranks=(0, 1)):
    for rank in ranks:
        shutil.copy(other.events_path(rank), run.folder.events_path(rank))


def silent_rank(run):
    """Rank 1 of the last attempt: nothing after its start."""
    run.events(1, lambda known: known.__setitem__(slice(1, None), []))


def clock_back(run):
    def change(known):
        for event in known[len(known) // 2 :]:
            event["time"] -= 3600

    run.events(1, change)


def one_host_more(run):
    run.event(1, "start", hostname="elsewhere")


def cells(row, **changes):
    return lambda run: run.edit(row, **changes)


def event(rank, kind, number=-1, **changes):
    return lambda run: run.event(rank, kind, number, **changes)


def plan(**changes):
    return lambda run: run.json(run.folder.plan_path, **changes)


def outcome(**changes):
    return lambda run: run.json(run.folder.outcome_path, **changes)


def world(**changes):
    """Of the last attempt."""

    def damage(run):
        path = run.path / "attempts.jsonl"
        *before, last = path.read_text().splitlines()
        one = json.loads(last)
        one["world"] = {**(one["world"] or {"hosts": 1, "ranks": 2, "threads": 1}), **changes}
        path.write_text("\n".join([*before, json.dumps(one)]) + "\n")

    return damage


def provenance(**changes):
    return lambda run: run.json(run.folder.provenance_path, **changes)


def manifest(**changes):
    """A manifest that is in order, and says something else."""
    return lambda run: Manifest.read(run.checkpoint()).model_copy(update=changes).write(run.checkpoint())


def a_rank_behind(run):
    """A manifest whose last rank was a step behind the others."""
    saved = Manifest.read(run.checkpoint())
    *others, last = saved.positions
    behind = last.model_copy(update={"steps_done": last.steps_done - 1})
    saved.model_copy(update={"positions": (*others, behind)}).write(run.checkpoint())


def best_is_gone(run):
    """The first checkpoint was the best, by outcome and manifest, and somebody removed it."""
    first = Manifest.read(run.checkpoint(0)).positions[0].best
    saved = Manifest.read(run.checkpoint())
    positions = tuple(each.model_copy(update={"best": first}) for each in saved.positions)
    saved.model_copy(update={"positions": positions}).write(run.checkpoint())
    run.json(run.folder.outcome_path, best=first.facts())
    shutil.rmtree(run.checkpoint(0))


def longer_than_its_header(run):
    """Bytes after the last tensor, under a checksum that is right."""
    path = run.checkpoint() / "model.safetensors"
    path.write_bytes(path.read_bytes() + bytes(8))
    saved = Manifest.read(run.checkpoint())
    saved.model_copy(update={"files": {**saved.files, path.name: file_checksum(path)}}).write(run.checkpoint())


def a_monitor(run):
    return run.folder.monitor_path("node7")


def gone(name):
    return lambda run: (run.path / name).unlink()


def copied(source, target):
    return lambda run: shutil.copy(run.path / source, run.path / target)


def torn(name, size):
    return lambda run: cut(run.path / name, size)


# name: (damage, failed check, words of the reason)
DAMAGES = {
    # files
    "provenance.json is missing": (gone("provenance.json"), "files/required", "provenance.json"),
    "attempts.jsonl is missing": (gone("attempts.jsonl"), "files/required", "attempts.jsonl"),
    "attempts.jsonl: hosts that ranks do not divide among": (
        world(hosts=3), "job/attempts", "attempts.jsonl is damaged",
    ),
    "metrics.csv is missing": (gone("metrics.csv"), "files/required", "metrics.csv"),
    "outcome.json is missing": (gone("outcome.json"), "job/outcome", "running, or killed"),
    "checkpoints are missing": (lambda r: shutil.rmtree(r.folder.checkpoints_dir), "checkpoints/whole", "none is"),
    "events of a rank are missing": (gone("events/rank_1.jsonl"), "distributed/ranks", "rank 1 was never"),
    "events of one rank too many": (
        copied("events/rank_1.jsonl", "events/rank_2.jsonl"), "files/required", "events of rank 2",
    ),
    # plan
    "plan: another seed": (plan(seed=9), "files/plan", "not the plan that rank 0 read"),
    "plan: another learning rate": (plan(optimizer__lr=0.5), "files/plan", "not the plan that rank 0"),
    "plan: fewer epochs": (plan(epoch_lengths=[[2, 4]]), "files/plan", "do not end with step"),
    "plan: more ranks": (plan(ranks=3), "files/plan", "on 3 ranks take"),
    "plan: no ranks": (plan(ranks=0), "files/plan", "ranks is 0"),
    "plan: another dataset": (plan(task__dataset__checksum="0" * 32), "data/dataset", "has checksum"),
    "plan: torn": (torn("plan.json", 400), "files/plan", "plan.json is damaged"),
    "plan: one blank more": (a_blank_more, "files/checksums", "plan.json changed"),
    # outcome
    "outcome: failed": (outcome(status="failed"), "job/outcome", "failed after 3 epochs"),
    "outcome: done with exit code 1": (outcome(exit_code=1), "job/outcome", "exit code is 1"),
    "outcome: fewer steps": (outcome(steps_per_rank=3), "job/outcome", "after 3 steps"),
    "outcome: no test": (outcome(test=None), "job/outcome", "test split was not evaluated"),
    "outcome: better test scores": (
        outcome(test__micro_f1=0.999), "metrics/scores", "test micro_f1 is 0.999",
    ),
    "outcome: better best": (outcome(best__micro_f1=0.999), "metrics/scores", "best micro_f1 is 0.999 in outcome"),
    "outcome: best of another measure": (
        outcome(best__macro_f1=0.999), "metrics/scores", "best macro_f1 is 0.999 in outcome",
    ),
    "outcome: another best epoch": (outcome(best__epoch=7), "metrics/scores", "to be the best"),
    "outcome: faster": (outcome(wall_s=-1.5), "job/outcome", "done in -1.5 s, but rank 0 worked"),
    "outcome: torn": (torn("outcome.json", 60), "job/outcome", "damaged"),
    # metrics.csv
    "metrics: torn": (torn("metrics.csv", -40), "metrics/table", "middle of a line"),
    "metrics: zero bytes": (lambda r: r.folder.metrics_path.write_bytes(b"\0" * 99), "metrics/table", "zero bytes"),
    "metrics: no rows": (only_a_header, "metrics/table", "no epoch"),
    "metrics: a column is gone": (remove_column, "metrics/table", "no column seeds_per_s"),
    "metrics: a row is gone": (remove_row, "metrics/epochs", "2 rows, but 3 epochs"),
    "metrics: a row twice": (repeat_row, "metrics/epochs", "4 rows, but 3 epochs"),
    "metrics: rows swapped": (swap_rows, "metrics/epochs", "row 1 is that of epoch 2"),
    "metrics: loss NaN": (cells(1, loss="nan"), "metrics/losses", "epoch 2: loss is nan"),
    "metrics: loss empty": (cells(1, loss=""), "metrics/losses", "epoch 2: loss is empty"),
    "metrics: val_loss infinite": (cells(2, val_loss="inf"), "metrics/losses", "epoch 3: val_loss is inf"),
    "metrics: constant loss": (constant_loss, "metrics/losses", "1.5 in all 3 epochs"),
    "metrics: lower loss": (cells(2, loss="0.01"), "metrics/events", "loss is 0.01, but"),
    "metrics: higher val_micro_f1": (cells(2, val_micro_f1="0.99"), "metrics/events", "val_micro_f1 is 0.99, but"),
    "metrics: higher best": (cells(2, best_val_macro_f1="0.99"), "metrics/sums", "best_val_macro_f1 is not the best"),
    "metrics: seeds dropped": (
        cells(1, num_seeds="30"), "metrics/seeds", "epoch 2 saw 30 seeds of",
    ),
    "metrics: seeds doubled": (
        cells(1, num_seeds="999"), "metrics/seeds", "epoch 2 saw 999 seeds of",
    ),
    "metrics: fewer steps": (cells(1, epoch_steps="1"), "metrics/epochs", "epoch_steps is 1, but"),
    "metrics: other total": (cells(2, num_seeds_cum="7"), "metrics/sums", "is 7, but it comes to"),
    "metrics: higher throughput": (cells(2, seeds_per_s="1e+06"), "metrics/table", "written '1e+06'"),
    "metrics: higher throughput, well written": (
        cells(2, seeds_per_s="1000000.0"), "metrics/sums", "seeds_per_s is 1000000.0, but it comes to",
    ),
    "metrics: fewer bytes": (cells(2, measured_mib_cum="0.001"), "metrics/sums", "measured_mib_cum is 0.001"),
    "metrics: a negative time": (cells(1, eval_s="-3.0"), "metrics/sums", "eval_s is -3.0"),
    "metrics: replicas disagree": (
        cells(1, replicas_agree="false"), "metrics/agreement", "epoch 2: replicas_agree is false",
    ),
    "metrics: no word of replicas": (cells(1, replicas_agree=""), "metrics/agreement", "is empty"),
    "metrics: another run's name": (cells(0, run_id="other"), "metrics/identity", "run_id is other, but mine"),
    "metrics: another seed": (cells(0, seed="7"), "metrics/identity", "seed is 7, but 1 in the plan"),
    "metrics: another number of hosts": (cells(0, num_hosts="2"), "metrics/identity", "num_hosts is 2, but 1"),
    "metrics: synthetic data": (
        cells(0, synthetic="true"), "data/synthetic", "real data was promised, but metrics.csv says synthetic",
    ),
    "metrics: a word for a number": (cells(1, steps_done="many"), "metrics/table", "steps_done"),
    "metrics: a phase that nobody else tells of": (
        cells(1, gather_s="0.125"), "files/checksums", "metrics.csv changed after rank 0 was done",
    ),
    # evaluations.csv
    "evaluations: another value": (another_value, "metrics/evaluations", "but"),
    "evaluations: a row is gone": (remove_evaluation, "metrics/evaluations", "in the events of rank 0 only"),
    "evaluations: a row twice": (repeat_evaluation, "metrics/evaluations", "1 rows repeat"),
    "evaluations: torn": (torn("evaluations.csv", -3), "metrics/evaluations", "middle of a line"),
    "evaluations.csv is missing": (gone("evaluations.csv"), "files/checksums", "evaluations.csv"),
    # ranks
    "a rank is silent": (silent_rank, "distributed/ranks", "rank 1 did not finish"),
    "a rank is silent: seal": (silent_rank, "files/checksums", "rank 1 left no checksums"),
    "events: torn": (torn("events/rank_1.jsonl", -30), "distributed/ranks", "middle of a line"),
    "events: no text": (no_text, "distributed/ranks", "not an event"),
    "events: not what an event is": (
        event(1, "sync", parameter_hash=[3]), "distributed/ranks", "parameter_hash: Input should be",
    ),
    "events: a hash differs": (
        event(1, "sync", parameter_hash="0" * 16), "distributed/replicas", "differ after the sync at step",
    ),
    "events: replicas disagree": (
        event(1, "sync", 2, replicas_agree=False), "distributed/replicas", "replicas did not agree",
    ),
    "events: no sync": (remove_syncs, "distributed/replicas", "rank 1 has no sync at step 2"),
    "events: a sync is gone": (remove_one_sync, "metrics/sums", "but rank 1 has 1"),
    "events: another loss": (event(1, "epoch", 0, loss=9.0), "metrics/events", "9.0 in the events of rank 1"),
    "events: other seeds": (event(0, "epoch", 0, num_seeds=3), "metrics/events", "3 in the events of rank 0"),
    "events: another world size": (
        event(1, "start", world_size=1), "distributed/world size", "rank 1 was one of 1, but 2",
    ),
    "events: another backend": (
        event(0, "start", backend="nccl"), "distributed/backend", "talked by nccl, but gloo",
    ),
    "events: two hosts instead of one": (one_host_more, "distributed/hosts", "ran on 2 hosts"),
    "events: the clock goes back": (clock_back, "distributed/clock", "its time is 3"),
    "events: rank 0's instead of rank 1's": (
        copied("events/rank_0.jsonl", "events/rank_1.jsonl"), "distributed/ranks", "events of rank 0",
    ),
    # data
    "provenance: another dataset": (
        provenance(dataset_checksum="f" * 32), "data/provenance", "with checksum ffff",
    ),
    "provenance: synthetic data": (
        provenance(synthetic=True), "data/synthetic", "provenance.json says synthetic",
    ),
    "provenance: torn": (torn("provenance.json", 99), "data/provenance", "damaged"),
    # checkpoints
    "checkpoint: a bit of the weights": (
        lambda r: flip(r.checkpoint() / "model.safetensors", -5), "checkpoints/whole", "does not match its checksum",
    ),
    "checkpoint: a rank's file is gone": (
        lambda r: (r.checkpoint() / "rank_1.safetensors").unlink(), "checkpoints/whole", "is absent",
    ),
    "checkpoint: the best is gone": (best_is_gone, "checkpoints/end", "the best checkpoint, that of step"),
    "checkpoint: longer than its header": (longer_than_its_header, "checkpoints/whole", "but its header says"),
    "checkpoint: torn file": (torn_checkpoint, "checkpoints/whole", "match its checksum"),
    "checkpoint: no manifest": (
        lambda r: (r.checkpoint() / "manifest.json").unlink(), "checkpoints/whole", "manifest.json is missing",
    ),
    "checkpoint: manifest edited": (
        lambda r: r.json(r.checkpoint() / "manifest.json", content__keep="no"), "checkpoints/whole", "is damaged",
    ),
    "checkpoint: manifest emptied": (
        lambda r: (r.checkpoint() / "manifest.json").write_text("{}"), "checkpoints/whole", "is damaged",
    ),
    "checkpoint: manifest of no rank": (
        manifest(positions=()), "checkpoints/whole", "names no rank",
    ),
    "checkpoint: a rank is behind": (a_rank_behind, "checkpoints/end", "at different steps"),
    "checkpoint: manifest names other weights": (
        manifest(parameter_hash="0" * 16), "checkpoints/weights", "but rank 0 had",
    ),
    "checkpoint: of more ranks": (manifest(world_size=4), "checkpoints/whole", "by 4 ranks"),
    "checkpoint: of another plan": (manifest(plan_hash="0"), "files/plan", "by another plan"),
    "checkpoint: the last is gone": (lambda r: shutil.rmtree(r.checkpoint()), "checkpoints/end", "plan ends at step"),
    "checkpoint: an earlier one under its name": (
        an_earlier_checkpoint, "checkpoints/whole", "its manifest is that of step",
    ),
    # what no rank answers for
    "monitor: a row is gone": (lambda r: cut(a_monitor(r), -20), "files/attempt", ".csv was changed after"),
    "monitor: another figure": (lambda r: flip(a_monitor(r), -5), "files/attempt", ".csv was changed after"),
    "monitor: a file is gone": (lambda r: a_monitor(r).unlink(), "files/attempt", ".csv was removed after"),
    "an epilog that nobody wrote": (
        lambda r: r.folder.epilog_path.write_text("{}"), "files/attempt", "epilog.json was added after",
    ),
    "the checksums themselves": (torn("checksums.json", -9), "files/attempt", "checksums.json is damaged"),
    # attempts
    "attempts: none": (lambda r: r.folder.attempts_path.write_text(""), "job/attempts", "has no start"),
    "attempts: torn": (lambda r: r.folder.attempts_path.write_text("{\n"), "job/attempts", "damaged"),
    "attempts: one later": (
        a_later_attempt, "distributed/ranks", "before the last attempt began",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_named(run, name):
    damage, check, words = DAMAGES[name]
    damage(run)
    found = run.failures()
    assert words in found.get(check, ""), found
    assert CLI.invoke(commands(["verify"]), ["verify", str(run.path)]).exit_code == exits.ANSWER_IS_NO


def test_nothing_is_found_where_nothing_is_damaged(run):
    assert [check for check in run.checks() if check.result != "ok"] == []
    result = CLI.invoke(commands(["verify"]), ["verify", str(run.path)])
    assert result.exit_code == 0, result.output
    assert "true to its plan" in result.output


# These would be found by the seal alone; without it the ranks' files, the plan and the checkpoints still contradict.
@pytest.mark.parametrize(
    "name",
    [name for name, (_, check, _) in DAMAGES.items() if check != "files/checksums" and name.split(":")[0] in (
        "plan", "outcome", "metrics", "evaluations", "events", "provenance")],
)  # fmt: skip
def test_damage_is_found_when_the_seal_was_renewed(run, name):
    damage, check, words = DAMAGES[name]
    damage(run)
    try:
        run.seal_again()
    except (ValueError, OSError):
        pytest.skip("too damaged to be sealed")
    found = run.failures()
    assert words in found.get(check, ""), found
    assert name == "metrics: constant loss" or "files/checksums" not in found or "finish" in found["files/checksums"]


@pytest.mark.parametrize("ranks", [(0, 1), (1,)])
def test_events_of_another_run(run, other, ranks):
    events_of_another_run(run, other, ranks)
    found = run.failures()
    assert f"not the plan that rank {ranks[0]} read" in found["files/plan"]
    assert f"changed after rank {ranks[-1]}" in found["files/checksums"]
    assert f"in the events of rank {ranks[0]}" in found["metrics/events"]
    assert "holds parameters" in found["checkpoints/weights"]


@pytest.mark.parametrize("file", ["metrics.csv", "outcome.json", "plan.json"])
def test_a_file_of_another_run(run, other, file):
    shutil.copy(other.path / file, run.path / file)
    found = run.failures()
    assert file in found["files/checksums"]
    assert len(found) > 1, "not only the seal tells"


def test_a_run_that_lost_its_plan(run):
    run.folder.plan_path.unlink()
    result = CLI.invoke(commands(["verify"]), ["verify", str(run.path)])
    assert result.exit_code == exits.ANSWER_IS_NO
    assert "plan.json is missing" in result.output


def test_what_is_no_run_is_a_wrong_request(tmp_path):
    assert CLI.invoke(commands(["verify"]), ["verify", str(tmp_path)]).exit_code == exits.BAD_REQUEST


def test_synthetic_data_where_real_was_promised(run, trained, tmp_path):
    """The dataset itself says so; plan, provenance and metrics do not."""
    del trained
    plan = run.folder.read_plan()
    data = tmp_path / "data"
    shutil.copytree(plan.dataset.path, data)
    metadata = json.loads((data / "metadata.json").read_text())
    from graphmill.graph.header import seal, write_metadata
    from graphmill.tasks.node_classification.data.store import StoreMetadata

    write_metadata(data, seal(StoreMetadata.model_validate({**metadata, "synthetic": True})))
    run.json(run.folder.plan_path, task__dataset__path=str(data))
    assert "has checksum" in run.failures()["data/dataset"]


def test_a_dataset_that_is_elsewhere_is_said(run, tmp_path):
    run.json(run.folder.plan_path, task__dataset__path=str(tmp_path / "gone"))
    results = {f"{check.group}/{check.name}": check for check in run.checks()}
    assert results["data/dataset"].result == "warn"
    assert "not here to be compared" in results["data/dataset"].detail


def test_what_a_killed_writer_left_is_a_warning(run):
    (run.path / ".metrics.csv.node1@4711.tmp").write_text("epoch")
    (run.folder.checkpoints_dir / ".step_0000000004.making").mkdir()
    results = {f"{check.group}/{check.name}": check for check in run.checks()}
    assert results["files/leftovers"].result == "warn"
    assert ".metrics.csv.node1@4711.tmp" in results["files/leftovers"].detail
    assert "step_0000000004" in results["files/leftovers"].detail
    assert run.failures() == {}


def test_what_is_appended_to_may_grow(run):
    """A monitor looks once more when its ranks have ended; a job's log goes on after the attempt."""
    with a_monitor(run).open("a") as file:
        file.write("1,2,3\n")
    assert run.failures() == {}


def test_accounts_that_are_written_again_are_recorded_again(run):
    for _ in range(2):
        write_epilog(run.folder, None)
        assert run.failures() == {}
    run.json(run.folder.epilog_path, attempt=7)
    assert "epilog.json was changed" in run.failures()["files/attempt"]


def test_an_attempt_that_was_killed_has_no_checksums(run):
    checksums_path(run.folder).unlink()
    assert "files/attempt" not in {f"{check.group}/{check.name}" for check in run.checks()}


def test_json_tells_the_same(run):
    run.edit(1, loss="nan")
    result = CLI.invoke(commands(["verify"]), ["verify", str(run.path), "--json"])
    answer = json.loads(result.stdout)
    assert result.exit_code == exits.ANSWER_IS_NO
    assert answer["ok"] is False
    failed = [check for check in answer["runs"][0]["checks"] if check["result"] == "fail"]
    assert {"group", "name", "result", "detail"} == set(failed[0])
    assert "losses" in {check["name"] for check in failed}
