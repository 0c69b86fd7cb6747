"""A pipeline over sizes of assignment problems: what is not there is listed, refused, or left out."""

import json
from pathlib import Path

import pytest
from assignment_problems import prepared

EXPERIMENT = """\
name: sizes
task: {kind: assignment}
dataset: {name: mine}
model: {kind: one_gnn, hidden_channels: 8, rounds: 1, soft_sweeps: 2}
train: {epochs: 1, batch_size: 16, threads: 1, device: cpu}
"""
PIPELINE = """\
name: sizes
experiment: sizes-experiment.yaml
evaluate_on: all
stages:
  - {name: small, set: {dataset.sizes: [6]}}
  - {name: absent, set: {dataset.sizes: [9]}, init_from: {stage: small}}
  - {name: large, set: {dataset.sizes: [17], dataset.replay: {sizes: [6], share: 0.2}}, init_from: {stage: absent}}
"""


@pytest.fixture
def buckets(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    prepared(tmp_path / "data", sizes=(6, 17), families=("uniform", "tracking"), instances=20, frames=5, workers=1)
    (tmp_path / "sizes-experiment.yaml").write_text(EXPERIMENT)
    path = tmp_path / "sizes.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def no_slurm(tmp_path, monkeypatch) -> None:
    """Dry runs ask nothing of a cluster that may be reached from here."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def test_a_stage_without_data_is_listed_and_refused(graphmill, buckets):
    listed = graphmill("pipeline", "list", buckets, "--json")
    assert listed.code == 0
    assert {each["stage"]: each["has_data"] for each in json.loads(listed.out)["stages"]} == {
        "small": True,
        "absent": False,
        "large": True,
    }
    shown = graphmill("pipeline", "list", buckets)
    assert "new, no data, waits for small" in " ".join(shown.out.split())
    assert "-o sizes=[9]" in shown.err
    refused = graphmill("pipeline", "run", buckets, "--dry-run")
    assert refused.code == 2
    assert "stage absent" in refused.err
    assert "its sizes are 6, 17" in refused.err


def test_a_stage_without_data_is_left_out_where_asked(graphmill, buckets):
    shown = graphmill("pipeline", "plan", buckets, "--dry-run", "--skip-missing-data", "--json")
    assert shown.code == 0, shown.err
    stages = json.loads(shown.out)["stages"]
    assert [(each["stage"], each["waits_for"]) for each in stages] == [("small", []), ("large", ["small"])]
    assert "stage absent is left out" in shown.err


def test_memory_is_shown_by_formula(graphmill, buckets):
    shown = graphmill("pipeline", "plan", buckets, "--memory", "--skip-missing-data", "--json")
    assert shown.code == 0, shown.err
    found = {each["stage"]: each for each in json.loads(shown.out)["stages"]}
    assert found.keys() == {"small", "large"}
    assert found["large"]["batch_size"] == 16
    assert found["large"]["modelled"]["memory_per_rank_mib"] > 350


def test_the_table_of_the_predecessor_is_planned_without_data(graphmill, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path))
    shown = graphmill("pipeline", "plan", "assignment-progressive", "--memory", "--json")
    assert shown.code == 0, shown.err
    stages = json.loads(shown.out)["stages"]
    names = ["small_512", "small_1024", "mid_1536", "mid_2048", "mid_3072", "large_4096"]
    assert [each["stage"] for each in stages] == names
    assert [each["batch_size"] for each in stages] == [8, 8, 8, 4, 2, 1]
    assert all(each["modelled"]["memory_per_rank_mib"] < 24 * 1024 for each in stages)
    listed = graphmill("pipeline", "list", "assignment-progressive", "--json")
    assert not any(each["has_data"] for each in json.loads(listed.out)["stages"])
    assert listed.err.count("sizes from the catalogue; not prepared here") == 1, "all stages are of one dataset"


@pytest.mark.slow
def test_a_stage_that_was_asked_for_is_trained_whatever_others_lack(graphmill, buckets):
    ran = graphmill("pipeline", "run", buckets, "--stages", "small")
    assert ran.code == 0, ran.err
    assert "small is not evaluated on the data of absent" in ran.err
    rows = (buckets.parent / "logs" / "sizes" / "evaluations.csv").read_text().splitlines()[1:]
    assert {row.split(",")[3] for row in rows} == {"small", "large"}


@pytest.mark.usefixtures("no_slurm")
def test_verbs_agree_on_what_a_stage_needs(graphmill, buckets):
    """Of the stages that are asked for the data must be there, and of no others."""
    verbs = (("plan", "--dry-run"), ("run", "--dry-run"), ("submit", "--dry-run", "--trial", "0"))
    for verb, *words in verbs:
        said = graphmill("pipeline", verb, buckets, *words, "--stages", "small", "--json")
        assert said.code == 0, (verb, said.err)
        if verb != "submit":
            has_data = {each["stage"]: each["has_data"] for each in json.loads(said.out)["stages"]}
            assert has_data == {"small": True, "absent": False, "large": True}, verb
        refused = graphmill("pipeline", verb, buckets, *words, "--stages", "small", "absent")
        assert refused.code == 2, verb
        assert "stage absent" in refused.err, verb
        assert "its sizes are 6, 17" in refused.err, verb
        skipped = graphmill("pipeline", verb, buckets, *words, "--skip-missing-data")
        assert skipped.code == 0, (verb, skipped.err)
    jobs = json.loads(
        graphmill("pipeline", "submit", buckets, "--dry-run", "--trial", "0", "--stages", "small", "--json").out
    )["jobs"]
    assert [job["stages"] for job in jobs] == [["small"]]


@pytest.mark.usefixtures("no_slurm")
def test_a_stage_without_data_must_be_right_otherwise_where_weights_are_evaluated_on_it(graphmill, buckets):
    """It costs no hours to find that out."""
    wrong = PIPELINE.replace("dataset.sizes: [9]", "dataset.sizes: [9], train.epochs: 0")
    verbs = (("plan", "--dry-run"), ("run",), ("submit", "--dry-run", "--trial", "0"))
    for verb, *words in verbs:
        buckets.write_text(wrong)
        refused = graphmill("pipeline", verb, buckets, *words, "--stages", "small")
        assert refused.code == 2, verb
        assert "train.epochs" in refused.err, verb
        buckets.write_text(wrong.replace("evaluate_on: all", "evaluate_on: own"))
        said = graphmill("pipeline", verb, buckets, *(words or ["--dry-run"]), "--stages", "small")
        assert said.code == 0, (verb, said.err)


def test_nothing_is_submitted_without_its_data(graphmill, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path))
    words = ("pipeline", "submit", "assignment-progressive", "--trial", "0", "--stages", "small_512")
    refused = graphmill(*words)
    assert refused.code == 2
    assert "stage small_512" in refused.err
    assert "graphmill prepare assignment/progressive" in refused.err
    assert not (tmp_path / "logs").exists()


@pytest.mark.slow
def test_stages_run_and_are_evaluated_on_all_sizes(graphmill, buckets, capfd):
    ran = graphmill("pipeline", "run", buckets, "--skip-missing-data")
    assert ran.code == 0, ran.err
    rows = (buckets.parent / "logs" / "sizes" / "evaluations.csv").read_text().splitlines()[1:]
    gaps = {tuple(row.split(",")[index] for index in (0, 3)) for row in rows if "dual_gap" in row}
    assert gaps == {(stage, other) for stage in ("small", "large") for other in ("small", "large")}
    wider = ("-O", "model.hidden_channels=12", "-O", "init_from.run=logs/sizes/small")
    clash = graphmill("train", "sizes-experiment.yaml", "--run-id", "wider", *wider)
    assert clash.code == 2
    said = capfd.readouterr().err  # of a rank
    assert "[8] F32" in said
    assert "[12] F32" in said
