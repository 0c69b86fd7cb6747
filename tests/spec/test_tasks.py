"""Each task has an experiment of its own: what makes no sense for it is refused; its plan says what its ranks need."""

import pytest
from pydantic import ValidationError

from graphmill.base.errors import UserError
from graphmill.spec.differences import flat, plan_differences
from graphmill.spec.kinds import TASKS, default_kind
from graphmill.spec.load import inline_experiment, load_experiment
from graphmill.spec.modelled import modelled
from graphmill.spec.node_models import GraphSageSpec
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.spec.recipes import list_recipes
from graphmill.tasks.node_classification.page import GraphInfo
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficInfo
from graphmill.tasks.traffic.page.models import DcrnnSpec

MACHINE = MachineInfo(num_cores=2, num_gpus=0)
METR_LA = TrafficInfo(
    name="metr-la", path="/m", checksum="0", synthetic=False, num_train=23_974, num_sensors=207, num_edges=1515,
    num_steps=34_272, interval_s=300, unit="mph", num_val=3425, num_test=6850,
)  # fmt: skip
GRAPH = GraphInfo(
    name="toy", path="/t", checksum="0", synthetic=False, num_train=60, num_nodes=100, num_edges=400, num_features=8,
    num_classes=3, has_sparse_features=False,
)  # fmt: skip

OF_NODES = "task=node_classification or task=node_regression or task=link_prediction"


def traffic(value=None, **train) -> Plan:
    experiment = inline_experiment({"task": "traffic", "train": {"epochs": 2, **train}, **(value or {})}, "mine")
    return resolve(experiment, machine=MACHINE, dataset=METR_LA, run_id="r")


def test_the_task_decides_what_a_section_left_out_means():
    assert inline_experiment({}, "mine").model == GraphSageSpec()
    experiment = inline_experiment({"task": "traffic", "model": {"rnn_units": 8}}, "mine")
    assert isinstance(experiment, TrafficExperiment)
    assert experiment.model == DcrnnSpec(rnn_units=8)
    optimizer = experiment.train.optimizer
    assert (experiment.train.batch_size, optimizer.max_grad_norm, optimizer.eps) == (64, 5.0, 1e-3)


def test_recipes_of_node_classification_name_no_task():
    for recipe in list_recipes():
        if recipe.kind == "experiment":
            assert load_experiment(recipe.name).task.kind in TASKS


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        ({"task": "trafic"}, "task.kind 'trafic' is not a built-in task; did you mean 'traffic'?", None),
        ({"task": ["traffic"]}, 'task is ["traffic"], but it is one of', None),
        ({"task": {"kind": "traffic", "knd": 1}}, "task.knd is not a known key; did you mean 'kind'?", None),
        ({"task": {"kind": 3}}, "task.kind is 3, but it is text", None),
        (
            {"task": "traffic", "train": {"num_neighbors": [3]}},
            f"train.num_neighbors belongs to {OF_NODES}, but task is traffic",
            f"remove train.num_neighbors, or set {OF_NODES}",
        ),
        ({"task": "traffic", "dataset": {"undirected": True}}, "dataset.undirected belongs to task=node_class", None),
        ({"task": "traffic", "model": {"hidden_channels": 8}}, "model.hidden_channels belongs to task=node_cl", None),
        ({"dataset": {"horizon": 3}}, "dataset.horizon belongs to task=traffic, but task is node_classific", None),
        ({"model": {"kind": "dcrnn"}}, "model.kind=dcrnn belongs to task=traffic, but task is node_classific", None),
        (
            {"train": {"optimizer": {"schedule": {"milestones": [3]}}}},
            "train.optimizer.schedule.milestones belongs to train.optimizer.schedule.kind=multistep",
            None,
        ),
        (
            {"train": {"optimizer": {"schedule": {"kind": "multistep"}}}},
            "train.optimizer.schedule.milestones is missing",
            None,
        ),
        (
            {"train": {"optimizer": {"schedule": {"kind": "multistep", "milestones": [3, 3]}}}},
            "train.optimizer.schedule.milestones [3, 3] must hold epochs > 0 that ascend",
            None,
        ),
        ({"train": {"optimizer": {"kind": "sgd", "eps": 1}}}, "train.optimizer.eps belongs to train.optimizer.k", None),
        ({"train": {"optimizer": {"kind": "sgd", "nesterov": True}}}, "train.optimizer.nesterov is true", None),
    ],
)
def test_what_makes_no_sense_for_the_task_is_refused(value, message, fix):
    with pytest.raises(UserError) as refused:
        inline_experiment(value, "mine")
    assert refused.value.message.startswith(f"mine: {message}")
    assert fix is None or refused.value.fix == fix


def test_an_override_may_choose_the_task():
    experiment = inline_experiment({"dataset": {"name": "pems-bay"}}, "mine", ["task=traffic", "dataset.horizon=3"])
    assert (experiment.dataset.name, experiment.dataset.horizon) == ("pems-bay", 3)


def test_a_plan_of_each_task_reads_back():
    graph = resolve(inline_experiment({"train": {"epochs": 1}}, "g"), machine=MACHINE, dataset=GRAPH, run_id="r")
    for plan in (traffic(), graph):
        assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert (traffic().kind.name, graph.kind) == ("traffic", default_kind())
    assert traffic().dataset is not None
    assert traffic().calendar.steps_in(0) == -(-23_974 // 64)
    with pytest.raises(UserError):
        Plan.model_validate({**traffic().model_dump(), "task": {"kind": "matching"}})
    with pytest.raises(ValidationError):
        Plan.model_validate({**traffic().model_dump(), "task": {"dataset": {}}})


def test_facts_of_another_task_are_our_own_bug():
    with pytest.raises(TypeError, match="TrafficExperiment and GraphInfo are not of the kind traffic"):
        resolve(
            inline_experiment({"task": "traffic"}, "m", ["train.epochs=1"]), machine=MACHINE, dataset=GRAPH, run_id=""
        )


def test_differences_are_told_without_the_tasks_section():
    one, other = traffic(), traffic({"dataset": {"horizon": 3}}, optimizer={"lr": 0.5})
    assert plan_differences(one, other) == ["horizon is 12 there and 3 here", "optimizer.lr is 0.01 there and 0.5 here"]
    moved = one.task.model_copy(update={"dataset": one.dataset.model_copy(update={"path": "/elsewhere"})})
    assert plan_differences(one, one.model_copy(update={"task": moved})) == []
    assert flat(one)["task"] == "traffic"
    assert flat(one)["model.rnn_units"] == 64


def test_dcrnns_size_by_formula():
    """The published model of METR-LA: 372,353 parameters with 2 input channels; each further one adds 5 × 3 × 64."""
    figures = modelled(traffic())
    assert figures.num_parameters == 372_353 + 2 * 5 * 3 * 64
    assert figures.nodes_per_batch is None
    assert figures.seeds_seen == 2 * METR_LA.num_train
    assert modelled(traffic(batch_size=128)).memory_per_rank_mib > figures.memory_per_rank_mib > 350
    in_torch = modelled(traffic(precision="bf16", device="cpu"))  # it keeps what the native cell diffuses again
    assert in_torch.memory_per_rank_mib > 2 * figures.memory_per_rank_mib
    strange = traffic({"model": {"kind": "custom", "target": "a.B"}})
    assert modelled(strange).memory_per_rank_mib is modelled(strange).num_parameters is None


def test_the_memory_of_largest_is_planned_without_its_data(tmp_path):
    """8,600 sensors over five years: the series is mapped once per host; a rank holds windows, model, activations."""
    text = {"task": "traffic", "dataset": {"name": "largest-ca"}, "model": {"kind": "stid"}, "train": {"epochs": 1}}
    plan = plan_experiment(inline_experiment(text, "mine"), dataset_root=tmp_path, run_id="r", machine=MACHINE)
    memory, mib = modelled(plan).memory, 1 << 20
    series = 525_888 * 8_600 * 4
    assert series <= memory.data_mib * mib < 1.01 * series
    assert memory.batches_mib * mib >= 64 * 24 * 8_600 * 4
    assert memory.index_mib * mib >= 525_888 * 3 * 8
    parameters = (8_600 + 288 + 7 + 12 * 4 + 1) * 32 + 3 * 2 * 129 * 128 + 129 * 12
    assert modelled(plan).num_parameters == parameters
    assert memory.model_mib * mib == 4 * parameters * 4  # gradients and Adam's two moments
    assert modelled(plan).memory_per_rank_mib < memory.data_mib / 3, "no rank holds the series"
