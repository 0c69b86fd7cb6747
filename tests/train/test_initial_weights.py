"""Weights that a run begins with, and a model that has the same tensors and computes otherwise with them."""

import pytest
from safetensors.torch import save_file
from torch import nn

from graphmill.base.errors import UserError
from graphmill.nn.weights import Loaded, Weights
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Origin, WeightsFile
from graphmill.spec.differences import computed_with_weights
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.spec.weights import InitialWeights
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment
from graphmill.train.assemble import _initial_weights

DEEP = {"kind": "graphsage", "num_layers": 3}
OF_PYG = {"kind": "custom", "target": "torch_geometric.nn.models.GCN", "options": {"act": "relu", "dropout": 0.5}}
RESIDUAL = "model.residual is false there and true here"


def plan_of(model: dict, features: str = "as_stored", **train: object) -> Plan:
    facts = GraphInfo(
        name="toy", path="/nowhere/toy", checksum="0" * 16, synthetic=False, num_nodes=100, num_edges=400,
        num_features=8, num_classes=3, num_train=60, has_sparse_features=True,
    )  # fmt: skip
    raw = {
        "dataset": {"features": features},
        "model": model,
        "train": {"epochs": 2, "num_neighbors": [2, 2, 2], "device": "cpu", **train},
    }
    experiment = NodeClassificationExperiment.model_validate(raw)
    return resolve(experiment, machine=MachineInfo(num_cores=2, num_gpus=0), dataset=facts, run_id="run")


@pytest.fixture
def begun(tmp_path):
    """Begins a run of a plan with weights of a run of another one; both have the tensors of one linear layer."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()

    def begin(trained: Plan | None, plan: Plan, *, include=(), exclude=()) -> Loaded | None:
        path, tensors = folder.initial_weights_path, nn.Linear(2, 2).state_dict()
        if trained is None:
            save_file(tensors, path)
        else:
            model = computed_with_weights(trained)
            origin = Origin(
                run_id="source", task="t", dataset="d", step=7, epoch=1, plan_hash="", measures={}, model=model
            )
            Weights.of(tensors, origin).write(path)
        asked = InitialWeights(
            source="there", path=str(path), checksum=WeightsFile.read(path).checked(), include=include, exclude=exclude
        )
        return _initial_weights(folder, plan.model_copy(update={"init_from": asked}), nn.Linear(2, 2))

    return begin


@pytest.mark.parametrize(
    ("there", "here", "told"),
    [
        (DEEP, {**DEEP, "residual": True}, RESIDUAL),
        (OF_PYG, {**OF_PYG, "target": "torch_geometric.nn.models.GIN"}, r"model\.target is .*GCN.* there and .*GIN"),
        (OF_PYG, {**OF_PYG, "options": {"act": "elu"}}, r"model\.options is .*relu.* there and .*elu"),
    ],
)
def test_other_options_with_the_same_tensors_are_refused(begun, there, here, told):
    with pytest.raises(UserError, match=told) as refused:
        begun(plan_of(there), plan_of(here))
    assert "run source, step 7" in refused.value.message
    assert 'init_from.include=["*"]' in refused.value.fix


def test_features_that_are_read_otherwise_are_refused(begun):
    with pytest.raises(UserError, match='features is "as_stored" there and "row_normalised" here'):
        begun(plan_of(DEEP), plan_of(DEEP, "row_normalised"))


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (DEEP, {**DEEP, "dropout": 0.9, "input_dropout": 0.1}),
        (OF_PYG, {**OF_PYG, "fused": True, "options": {"act": "relu", "dropout": 0.1}}),
    ],
)
def test_what_only_training_reads_may_be_another(begun, there, here):
    other = plan_of(here, optimizer={"kind": "sgd", "lr": 0.5}, batch_size=3, edge_dropout=0.1)
    assert begun(plan_of(there), other).otherwise == ()


def test_who_names_tensors_is_told_what_is_computed_otherwise(begun):
    there, here = plan_of(DEEP), plan_of({**DEEP, "residual": True})
    for chosen in ({"include": ("*",)}, {"exclude": ("bias",)}):
        assert begun(there, here, **chosen).otherwise == (RESIDUAL,)


def test_weights_of_another_program_are_taken(begun):
    assert begun(None, plan_of(DEEP)).otherwise == ()


def test_of_links_the_head_counts_too():
    assert LinkPredictionPlan.of_weights == ("model", "features", "head")
