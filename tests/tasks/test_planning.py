"""From an experiment to a plan: which dataset is meant, and what is said where it is not there."""

import subprocess
import sys

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder
from graphmill.spec.kinds import all_kinds, default_kind
from graphmill.spec.kinds.kind import FromCatalogue
from graphmill.spec.load import inline_experiment
from graphmill.spec.modelled import modelled
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import GraphDatasetSpec, NodeClassificationExperiment, SampledTrainSpec
from graphmill.tasks.planning import plan_experiment, prepare_embedded
from graphmill.tasks.stores import find_store

SBM = {"num_nodes": 100, "num_edges": 400, "features": 4}


def experiment(name):
    train = SampledTrainSpec(epochs=2, batch_size=10, ranks=2, device="cpu")
    return NodeClassificationExperiment(dataset=GraphDatasetSpec(name=name), train=train)


def test_a_plan_has_the_facts_of_the_store(tmp_path):
    store = prepare("synthetic/sbm", root=tmp_path, options=SBM)
    plan = plan_experiment(experiment("synthetic/sbm"), dataset_root=tmp_path, run_id="r")
    assert plan.dataset == store.info(GraphDatasetSpec())
    assert plan.calendar.steps_in(0) == 3  # 60 training nodes in 2 × 10
    assert plan.run_id == "r"
    assert plan == plan_experiment(experiment("synthetic/sbm"), dataset_root=tmp_path, run_id="r")


@pytest.mark.parametrize(
    ("given", "epochs", "patience"),
    [
        ({}, 200, 50),
        ({"early_stopping": {"patience": 3}}, 200, 3),
        ({"early_stopping": {"patience": 0}}, 200, 0),
        ({"evaluate_every_epochs": 0}, 200, 0),
        ({"epochs": 7}, 7, 0),
        ({"max_steps": 8}, 2, 0),
    ],
)
def test_where_nothing_says_how_long_it_is_until_nothing_improves(tmp_path, given, epochs, patience):
    prepare("synthetic/sbm", root=tmp_path, options=SBM)
    train = SampledTrainSpec.model_validate({"batch_size": 10, "ranks": 2, "device": "cpu", **given})
    asked = experiment("synthetic/sbm").model_copy(update={"train": train})
    plan = plan_experiment(asked, dataset_root=tmp_path, run_id="r")
    assert (plan.calendar.num_epochs, plan.early_stopping.patience) == (epochs, patience)


@pytest.mark.parametrize(("num_train", "patience"), [(999, 50), (1_000, 20)])
def test_small_data_wait_longer_for_a_better_score(tmp_path, num_train, patience):
    prepare("synthetic/sbm", root=tmp_path, options={**SBM, "num_nodes": 2_000})
    asked = experiment("synthetic/sbm").model_copy(
        update={"train": SampledTrainSpec(), "dataset": GraphDatasetSpec(name="synthetic/sbm", train_limit=num_train)}
    )
    plan = plan_experiment(asked, dataset_root=tmp_path, run_id="r")
    assert plan.early_stopping.patience == patience


@pytest.mark.parametrize("how", ["name", "absolute", "relative", "dotted"])
def test_a_dataset_by_name_or_by_path(tmp_path, monkeypatch, how):
    store = prepare("synthetic/sbm", root=tmp_path / "root", options=SBM, save_as="mine")
    monkeypatch.chdir(tmp_path)
    name = {"name": "mine", "absolute": str(store.path), "relative": "root/mine", "dotted": "./root/mine"}[how]
    found = find_store(default_kind(), name, tmp_path / "root")
    assert found is not None
    assert found.metadata == store.metadata


def test_the_embedded_dataset_is_prepared_for_what_trains_and_that_is_said(tmp_path, caplog):
    prepare_embedded(experiment("debian-packages"), tmp_path)
    assert "debian-packages is not prepared yet" in caplog.messages[0]
    LabelledGraphStore.open(tmp_path / "debian-packages").verify()
    caplog.clear()
    prepare_embedded(experiment("debian-packages"), tmp_path)
    plan = plan_experiment(experiment("debian-packages"), dataset_root=tmp_path, run_id="r")
    assert plan.dataset.synthetic is False
    assert caplog.messages == []


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_a_plan_without_the_data_is_made_from_published_sizes_and_cannot_be_trained(tmp_path, kind, caplog):
    for known in kind.data.known:
        if not known.sizes:
            continue
        caplog.clear()
        asked = inline_experiment({"task": kind.name, "dataset": {"name": known.name}, "train": {"epochs": 1}}, "mine")
        plan = plan_experiment(asked, dataset_root=tmp_path / "data", run_id="r")
        assert plan.dataset.checksum == FromCatalogue()
        assert "sizes from the catalogue; not prepared here" in caplog.messages[0]
        assert modelled(plan).memory_per_rank_mib > 0
        assert plan.calendar.steps_in(0) > 0
        with pytest.raises(UserError, match=f"{known.name} is not prepared") as refused:
            RunFolder.create(plan, tmp_path / "logs")
        assert f"graphmill prepare {known.name} --dataset-root {tmp_path}/data" in refused.value.fix
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "name"), [("node_classification", "ogbn-products"), ("link_prediction", "ogbl-citation2")]
)
def test_parts_that_are_not_there_are_planned_from_published_sizes(tmp_path, caplog, task, name):
    raw = {"task": task, "dataset": {"name": f"parts/{name}/2-metis"}, "train": {"epochs": 1}}
    asked = inline_experiment(raw, "mine")
    plan = plan_experiment(asked, dataset_root=tmp_path / "data", run_id="r")
    assert (plan.dataset.checksum, plan.task.in_parts.num_parts) == (FromCatalogue(), 2)
    assert "sizes from the catalogue; not prepared here" in caplog.messages[0]
    assert modelled(plan).memory.data_mib > 0
    with pytest.raises(UserError, match="2 parts") as refused:
        RunFolder.create(plan, tmp_path / "logs")
    here = f"--dataset-root {tmp_path}/data"
    assert f"graphmill prepare {name} {here}" in refused.value.fix
    assert f"graphmill partition {name} --num-parts 2 --method metis {here}" in refused.value.fix
    assert list(tmp_path.iterdir()) == []


def test_parts_of_prepared_data_that_are_missing_say_what_to_type(tmp_path):
    prepare("synthetic/sbm", root=tmp_path, options=SBM)
    with pytest.raises(UserError, match="synthetic/sbm has no such parts") as error:
        plan_experiment(experiment("parts/synthetic/sbm/3-kaminpar"), dataset_root=tmp_path, run_id="r")
    assert error.value.fix == f"graphmill partition synthetic/sbm --num-parts 3 --dataset-root {tmp_path}"
    with pytest.raises(UserError, match="no dataset 'mine'") as error:
        plan_experiment(experiment("parts/mine/3-kaminpar"), dataset_root=tmp_path, run_id="r")
    assert "graphmill prepare mine" in error.value.fix
    assert "graphmill partition mine --num-parts 3" in error.value.fix


def test_parts_whose_name_is_mistyped_say_which_there_are(tmp_path):
    prepare("synthetic/sbm", root=tmp_path, options=SBM)
    there = tmp_path / "parts/synthetic/sbm/3-kaminpar"
    there.mkdir(parents=True)
    (there / "metadata.json").write_text("{}")
    for typed in ("/3-kaminpa", ""):
        with pytest.raises(UserError, match="there are 3-kaminpar") as error:
            plan_experiment(experiment(f"parts/synthetic/sbm{typed}"), dataset_root=tmp_path, run_id="r")
        fix = "set dataset.name=parts/synthetic/sbm/3-kaminpar, or make them: graphmill partition synthetic/sbm"
        assert error.value.fix.startswith(fix)
    with pytest.raises(UserError, match="mine has no such parts"):
        plan_experiment(experiment("parts/mine"), dataset_root=tmp_path, run_id="r")


def test_published_sizes_are_those_of_the_prepared_data(tmp_path):
    prepare_embedded(experiment("debian-packages"), tmp_path)
    here, published = (
        plan_experiment(experiment("debian-packages"), dataset_root=root, run_id="r").dataset
        for root in (tmp_path, tmp_path / "none")
    )
    ours = {"path", "checksum"}
    assert here.model_dump(exclude=ours) == published.model_dump(exclude=ours)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("synthetic/sbm", "graphmill prepare synthetic/sbm --dataset-root"),
        ("mine", "graphmill prepare mine --from PATH"),
        ("./nothing", "graphmill prepare NAME"),
        ("../x", "graphmill prepare NAME"),
        ("a b", "letters, digits"),
    ],
)
def test_an_unprepared_dataset_says_what_to_type(tmp_path, monkeypatch, name, fix):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        plan_experiment(experiment(name), dataset_root=tmp_path, run_id="r")
    assert fix in error.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_dataset_suggests_the_prepared_one(tmp_path):
    prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as="village")
    with pytest.raises(UserError, match="did you mean 'village'"):
        plan_experiment(experiment("vilage"), dataset_root=tmp_path, run_id="r")


def test_a_split_that_evaluation_needs(tmp_path):
    arrays = {
        "edge_index": np.array([[0], [1]]),
        "x": np.ones((3, 1)),
        "y": np.array([0, 1, 0]),
        "train_mask": np.array([True, True, True]),
    }
    np.savez(tmp_path / "g.npz", **arrays)
    prepare("g", root=tmp_path / "root", from_path=tmp_path / "g.npz")
    with pytest.raises(UserError, match="g has no val nodes") as error:
        plan_experiment(experiment("g"), dataset_root=tmp_path / "root", run_id="r")
    assert "--random-split" in error.value.fix


def test_a_damaged_store_is_no_plan(tmp_path):
    store = prepare("synthetic/sbm", root=tmp_path, options=SBM)
    (store.path / "y.npy").unlink()
    with pytest.raises(UserError, match=r"y\.npy: the file is missing"):
        plan_experiment(experiment("synthetic/sbm"), dataset_root=tmp_path, run_id="r")


def test_planning_needs_no_torch(source_environ):
    code = "import sys, graphmill.tasks.planning; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=source_environ, check=True)
