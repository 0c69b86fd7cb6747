"""Intrusion detection on CAN buses: is there an attack in a window of frames?"""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.attention import AttentionSpec, refuse_fused
from graphmill.spec.batch import GraphBatchSpec, GraphSizes
from graphmill.spec.classification import ClassifierLossSpec, CrossEntropySpec, refuse_other_classes
from graphmill.spec.columns import Baseline, Measure
from graphmill.spec.experiment import BatchSize, DatasetSpec, Experiment, Fraction, TaskSpec, TrainSpec
from graphmill.spec.kinds.kind import DatasetInfo, Kind, KnownDataset, PredictsClasses, Sizes, StepShape, TaskPlan

NUM_FEATURES: Final = 10
NUM_EDGE_FEATURES: Final = 11
NUM_CLASSES: Final = 2


class IntrusionTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["intrusion"] = "intrusion"
    threshold: float | None = Field(
        None,
        description="score from which on a window is an alarm; null: that with the highest F1 on the validation "
        "windows, chosen at every evaluation and kept with the weights",
    )


class DivisionSpec(Spec):
    """Which windows are for training, validation and test: by time, or by capture, and never by chance.

    Windows beside each other are nearly the same: a score over neighbours of what was trained on would say nothing.
    """

    train_share: float = Field(0.7, gt=0, lt=1, description="of every capture that is divided by time: its first part")
    val_share: float = Field(0.1, ge=0, lt=1, description="of every capture that is divided by time: what follows")
    blocks: PositiveInt = Field(
        1,
        description="stretches of equal length that a capture is cut into, each of which is divided by time; more than "
        "1 where an attack is in one part of a capture only: one window is then left out where the split changes",
    )
    train_captures: tuple[str, ...] = Field(
        (), description="patterns of names of captures, such as train_*/DoS*; empty: all that the other two leave"
    )
    val_captures: tuple[str, ...] = Field((), description="patterns; empty: a part of the training captures, by time")
    test_captures: tuple[str, ...] = Field((), description="patterns; empty: the last part of every capture, by time")

    @model_validator(mode="after")
    def _shares_of_a_whole(self) -> Self:
        if self.train_share + self.val_share > 1:
            raise ValueError(f"train_share {self.train_share} and val_share {self.val_share} are more than 1 together")
        return self


class CaptureDatasetSpec(DivisionSpec, DatasetSpec):
    """Which prepared captures to learn from."""

    name: str = Field("synthetic/can", description="name of prepared captures, or a path to their folder")
    train_on: Literal["all", "benign"] = Field("all", description="benign: training windows without any attack only")


_SCALES: Final[Mapping[str, Mapping[str, Any]]] = {
    "large": {"hidden_channels": 48, "heads": 8, "num_layers": 3, "id_channels": 16, "id_rows": 1024, "fc_layers": 3},
    "small": {"hidden_channels": 24, "heads": 4, "num_layers": 2, "id_channels": 8, "id_rows": 256, "fc_layers": 2},
}


class CanGatSpec(AttentionSpec):
    """Attention over the ids of a window, jumping knowledge by concatenation, mean over nodes, a linear stack.

    Jumping knowledge: Xu et al. 2018, arXiv 1806.03536. Ids are embedded by hashing (Svenstrup et al. 2017, arXiv
    1709.03933): one that was never seen is told from others, and costs no row of its own.
    """

    kind: Literal["gat", "gatv2"] = Field("gat", description="how edges are scored")
    scale: Literal["large", "small"] = Field("large", description="sizes of all that is not given")
    num_layers: PositiveInt = Field(3, description="of attention; small: 2")
    hidden_channels: PositiveInt = Field(48, description="width of every head; small: 24")
    heads: PositiveInt = Field(8, description="of every layer, one beside the other; small: 4")
    id_channels: PositiveInt = Field(16, description="of an id's embedding; small: 8")
    id_rows: PositiveInt = Field(1024, description="of the table that ids are hashed into, a power of 2; small: 256")
    id_dropout: Fraction = Field(0.1, description="probability of hiding an id while training, as if it were unknown")
    fc_layers: PositiveInt = Field(3, description="linear layers after the mean over nodes; small: 2")
    dropout: Fraction = Field(0.2, description="probability of dropping a channel, after every layer")
    edge_features: bool = Field(True, description="whether the 11 features of edges are read")

    @model_validator(mode="before")
    @classmethod
    def _of_scale(cls, given: Any) -> Any:  # noqa: ANN401  # whatever was written
        if isinstance(given, Mapping) and given.get("scale", "large") in _SCALES:
            return {**_SCALES[given.get("scale", "large")], **given}
        return given

    @model_validator(mode="after")
    def _a_power_of_two(self) -> Self:
        if self.id_rows & (self.id_rows - 1):
            raise ValueError(f"id_rows is {self.id_rows}, and must be a power of 2")
        return self

    @property
    def edge_dim(self) -> int:
        """Features of edges that are read."""
        return NUM_EDGE_FEATURES if self.edge_features else 0

    @property
    def num_parameters(self) -> int:
        """Those that are trained: the table of ids, layers of attention, the linear stack."""
        widths = [self.id_channels + NUM_FEATURES, *[self.width] * (self.num_layers - 1)]
        layers = sum(self.parameters_of_layer(width, self.hidden_channels, self.edge_dim) for width in widths)
        stack = [self.num_layers * self.width, *[self.hidden_channels] * (self.fc_layers - 1), NUM_CLASSES]
        linear = sum((inner + 1) * outer for inner, outer in itertools.pairwise(stack))
        return self.id_rows * self.id_channels + layers + linear


class IntrusionTrainSpec(TrainSpec):
    """How to train on windows."""

    loss: ClassifierLossSpec = CrossEntropySpec()
    batch_size: BatchSize = Field(64, description="windows per rank and step; auto: see train.batch")
    batch: GraphBatchSpec = GraphBatchSpec()


class IntrusionExperiment(Experiment):
    """Is there an attack in a window of frames?"""

    task: IntrusionTaskSpec = IntrusionTaskSpec()
    dataset: CaptureDatasetSpec = CaptureDatasetSpec()
    model: Annotated[CanGatSpec, Field()] = CanGatSpec()
    train: IntrusionTrainSpec = IntrusionTrainSpec()


class CaptureInfo(GraphSizes, DatasetInfo):
    """What the planner must know about prepared captures, for one division into splits."""

    window: int = Field(description="frames of a window")
    stride: int = Field(description="frames from the beginning of a window to that of the next")
    num_captures: int
    num_val: int
    num_val_attacked: int = Field(description="validation windows with an attack")


class IntrusionPlan(TaskPlan):
    """What only the ranks of an intrusion detection need."""

    kind: Literal["intrusion"] = "intrusion"
    dataset: CaptureInfo
    division: DivisionSpec
    train_on: Literal["all", "benign"]
    threshold: float | None
    model: CanGatSpec
    loss: ClassifierLossSpec = CrossEntropySpec()


def resolve(experiment: IntrusionExperiment, dataset: CaptureInfo) -> IntrusionPlan:
    """Its part of a plan."""
    refuse_other_classes(experiment.train.loss, NUM_CLASSES, dataset.name)
    refuse_fused(experiment.model, experiment.train)
    asked = experiment.dataset
    if asked.train_on == "benign":
        raise UserError(
            f"dataset.train_on is benign, and model.kind={experiment.model.kind} learns to tell attacks from the rest",
            fix="set dataset.train_on=all",
        )
    if experiment.task.threshold is None and dataset.num_val_attacked in (0, dataset.num_val):
        raise UserError(
            f"of {dataset.num_val:,} validation windows of {dataset.name} {dataset.num_val_attacked:,} are attacked,"
            " and no threshold can be chosen on windows of one kind",
            fix="set dataset.val_captures or dataset.val_share otherwise, or give task.threshold",
        )
    return IntrusionPlan(
        dataset=dataset,
        division=DivisionSpec(**{name: getattr(asked, name) for name in DivisionSpec.model_fields}),
        train_on=asked.train_on,
        threshold=experiment.task.threshold,
        model=experiment.model,
        loss=experiment.train.loss,
    )


def sizes(plan: IntrusionPlan, step: StepShape) -> Sizes:
    """Parameters; bytes of a batch of the largest windows, and of what its backward pass needs."""
    known, model = plan.dataset, plan.model
    graphs = min(step.batch_size, known.num_train)
    nodes, edges = graphs * known.max_nodes, graphs * known.max_edges
    if step.budget is not None:
        nodes, edges = step.budget.max_nodes, step.budget.max_edges
    nodes, edges = min(nodes, known.num_nodes), min(edges, known.num_edges)
    row, edge = 4 * (NUM_FEATURES + 2), 4 * NUM_EDGE_FEATURES
    return Sizes(
        model.num_parameters,
        batch_bytes=graphs * 16 + nodes * (16 + row) + edges * (8 + edge),
        activation_bytes=model.num_layers * model.activation_bytes_of_layer(nodes, edges + nodes),
        data_bytes=known.num_graphs * 60 + known.num_nodes * (8 + row) + known.num_edges * (8 + edge),
    )


class CapturePrepareOptions(Spec):
    """Options of `graphmill prepare` for captures."""

    window: int = Field(100, ge=2, description="frames of a window")
    stride: PositiveInt = Field(100, description="frames from the beginning of a window to that of the next")
    layout: str = Field("auto", description="of the captures' lines; auto: told from their first lines")
    unlabelled: Literal["refuse", "benign"] = Field(
        "refuse", description="what is made of captures that do not say which frames are attacks"
    )
    seconds: PositiveInt | None = Field(None, description="synthetic/can: of each capture; null: 60")
    seed: NonNegativeInt | None = Field(None, description="synthetic/can: of the generator; null: 0")


RATES: Final = Baseline(
    "rates",
    "id counts and inter-arrival times",
    "deviation of an id's count, or of its mean gap in seconds, from benign training windows; the largest over all ids",
)


def _recorded(name: str, about: str) -> Measure:
    return Measure(name, name, higher_is_better=True, about=about, is_shown=False)


KIND: Final = Kind(
    name="intrusion",
    seeds_are="windows",
    measures=(
        Measure("f1", "F1", higher_is_better=True, about="of alarms, against windows with an attack"),
        Measure("auc", "AUC", higher_is_better=True, about="of scores: area under the ROC curve"),
        Measure(
            "precision", "precision", higher_is_better=True, about="share of alarms that are right", is_shown=False
        ),
        Measure(
            "recall", "recall", higher_is_better=True, about="share of attacked windows with an alarm", is_shown=False
        ),
        Measure("accuracy", "accuracy", higher_is_better=True, about="share of windows judged right", is_shown=False),
        Measure(
            "latency_s",
            "latency",
            higher_is_better=False,
            unit="s",
            about="median over told attacks from their first frame to the end of the first window with an alarm",
            is_shown=False,
        ),
        Measure(
            "false_alarms_per_hour",
            "false alarms",
            higher_is_better=False,
            unit="1/h",
            about="alarms of windows without attack, by the time that the windows span",
        ),
        _recorded("threshold", "score from which on a window is an alarm"),
    ),
    loss_unit="nats",
    experiment=IntrusionExperiment,
    info=CaptureInfo,
    plan=IntrusionPlan,
    resolve=resolve,
    sizes=sizes,
    counts={"num_graphs": "windows", "num_nodes": "nodes", "num_captures": "captures"},
    datasets=(KnownDataset("synthetic/can", {}, "generated", "nothing: seconds and seed are options"),),
    prepare_options=CapturePrepareOptions,
    prepare="graphmill.tasks.intrusion.prepare:prepare_asked",
    recognise="graphmill.tasks.intrusion.prepare:holds_captures",
    store="graphmill.tasks.intrusion.store:CaptureStore",
    task="graphmill.tasks.intrusion.task:Intrusion",
    predictions=PredictsClasses("label", "prediction", names="class_names"),
    baselines=(RATES,),
    score_baselines="graphmill.tasks.intrusion.baselines:score",
)
