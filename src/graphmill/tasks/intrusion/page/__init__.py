"""Intrusion detection on CAN buses: is there an attack in a window of frames?"""

from collections.abc import Iterable
from typing import Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.attention import refuse_fused
from graphmill.spec.batch import GraphBatchSpec, GraphSizes
from graphmill.spec.classification import CrossEntropySpec, refuse_other_classes
from graphmill.spec.columns import Baseline, Measure
from graphmill.spec.experiment import BatchSize, DatasetSpec, Experiment, TaskSpec, TrainSpec
from graphmill.spec.kinds.extras import Sources
from graphmill.spec.kinds.kind import (
    Baselines,
    Data,
    DatasetInfo,
    Kind,
    KnownDataset,
    PredictsClasses,
    Sizes,
    StepShape,
    TaskPlan,
)
from graphmill.tasks.intrusion.page.models import (
    NUM_CLASSES,
    NUM_EDGE_FEATURES,
    NUM_FEATURES,
    CanGatSpec,
    CanVgaeSpec,
    CurriculumSpec,
    DistillSpec,
    FusionSpec,
    IntrusionModelSpec,
)

TrainOn = Literal["all", "benign", "validation"]
CaptureWeights = Literal["none", "balanced"]


class IntrusionTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["intrusion"] = "intrusion"
    threshold: float | None = Field(
        None,
        description="score from which on a window is an alarm; null: that with the highest F1 on the validation "
        "windows, chosen at every evaluation and kept with the weights",
    )
    false_alarms_per_hour: PositiveFloat | None = Field(
        None,
        description="the threshold is that with so many false alarms in an hour of the benign validation windows, "
        "instead of that with the highest F1",
    )

    @model_validator(mode="after")
    def _one_threshold(self) -> Self:
        if self.threshold is not None and self.false_alarms_per_hour is not None:
            raise ValueError("threshold and false_alarms_per_hour both set the threshold: give one of them")
        return self


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
    train_on: TrainOn = Field(
        "all", description="benign: training windows without any attack only; validation: those of the validation split"
    )


class IntrusionTrainSpec(TrainSpec):
    """How to train on windows."""

    loss: CrossEntropySpec = CrossEntropySpec()
    capture_weights: CaptureWeights = Field(
        "none", description="balanced: training captures count alike, however many windows they have; none: windows do"
    )
    distill: DistillSpec | None = Field(None, description="null: learn from the labels alone")
    curriculum: CurriculumSpec | None = Field(None, description="null: every training window counts in every epoch")
    batch_size: BatchSize = Field(64, description="windows per rank and step; auto: see train.batch")
    batch: GraphBatchSpec = GraphBatchSpec()


class IntrusionExperiment(Experiment):
    """Is there an attack in a window of frames?"""

    task: IntrusionTaskSpec = IntrusionTaskSpec()
    dataset: CaptureDatasetSpec = CaptureDatasetSpec()
    model: IntrusionModelSpec = CanGatSpec()
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
    train_on: TrainOn
    threshold: float | None
    false_alarms_per_hour: PositiveFloat | None = None
    model: IntrusionModelSpec
    loss: CrossEntropySpec = CrossEntropySpec()
    capture_weights: CaptureWeights = "none"
    distill: DistillSpec | None = None
    curriculum: CurriculumSpec | None = None


def resolve(experiment: IntrusionExperiment, dataset: CaptureInfo) -> IntrusionPlan:
    """The task's section of a plan."""
    spec, train = experiment.dataset, experiment.train
    refuse_other_classes(train.loss, NUM_CLASSES, dataset.name)
    refuse_fused(experiment.model, train)
    _refuse_clashes(experiment)
    one_kind = (dataset.num_val,) if experiment.task.false_alarms_per_hour else (0, dataset.num_val)
    if experiment.task.threshold is None and dataset.num_val_attacked in one_kind:
        raise UserError(
            f"of {dataset.num_val:,} validation windows of {dataset.name} {dataset.num_val_attacked:,} are attacked,"
            " and no threshold can be chosen on windows of one kind",
            fix="-O dataset.blocks=20 divides each of 20 stretches of a capture by time; or name dataset.val_captures,"
            " or give task.threshold; or task.false_alarms_per_hour, which reads benign ones alone",
        )
    return IntrusionPlan(
        dataset=dataset,
        division=DivisionSpec(**{name: getattr(spec, name) for name in DivisionSpec.model_fields}),
        train_on=spec.train_on,
        threshold=experiment.task.threshold,
        false_alarms_per_hour=experiment.task.false_alarms_per_hour,
        model=experiment.model,
        loss=train.loss,
        capture_weights=train.capture_weights,
        distill=train.distill,
        curriculum=train.curriculum,
    )


_USED_BY: Final = {
    **{"teacher": "set train.distill", "scorer": "set train.curriculum"},
    **dict.fromkeys(("gat", "vgae"), "set model.kind=fusion"),
}
_LEARNS_FROM: Final = {"vgae": "benign", "fusion": "validation"}


def _refuse_clashes(experiment: IntrusionExperiment) -> None:
    """Raise a `UserError` where the model, what it is trained on, and the weights that it needs do not go together."""
    kind, train, spec = experiment.model.kind, experiment.train, experiment.dataset
    wanted = _LEARNS_FROM.get(kind, "all")
    if spec.train_on != wanted:
        why = {"vgae": "learns what is normal", "fusion": "is fitted on what nothing else was trained on"}
        raise UserError(
            f"dataset.train_on is {spec.train_on}, and model.kind={kind} {why.get(kind, 'learns to tell attacks')}",
            fix=f"set dataset.train_on={wanted}",
        )
    is_classifier = isinstance(experiment.model, CanGatSpec)
    for key, value in (
        ("curriculum", train.curriculum),
        ("loss", None if train.loss == CrossEntropySpec() else train.loss),
    ):
        if value is not None and not is_classifier:
            raise UserError(f"train.{key} is for classifiers, and model.kind is {kind}", fix=f"leave train.{key} out")
    if train.distill is not None and isinstance(train.distill.teacher, CanGatSpec) != is_classifier:
        raise UserError(
            f"train.distill.teacher.kind is {train.distill.teacher.kind}, and model.kind is {kind}",
            fix="distil a classifier from a classifier, and an autoencoder from an autoencoder",
        )
    needed = {
        "teacher": train.distill is not None,
        "scorer": train.curriculum is not None and train.curriculum.score == "scorer",
        "gat": kind == "fusion",
        "vgae": kind == "fusion",
    }
    for name, is_needed in needed.items():
        if not is_needed and name in experiment.sources:
            raise UserError(
                f"sources.{name} is given, and nothing uses it: model.kind is {kind}",
                fix={"teacher": "set train.distill", "scorer": "set train.curriculum"}.get(
                    name, "set model.kind=fusion"
                ),
            )


def missing_sources(plan: IntrusionPlan, given: Iterable[str]) -> list[str]:
    """Names of `sources` that the plan needs and that are not given."""
    needed = ["teacher"] if plan.distill is not None else []
    needed += ["scorer"] if plan.curriculum is not None and plan.curriculum.score == "scorer" else []
    needed += ["gat", "vgae"] if isinstance(plan.model, FusionSpec) else []
    return [name for name in needed if name not in set(given)]


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
        model.num_parameters + _projection_parameters(plan),
        batch_bytes=graphs * 16 + nodes * (16 + row) + edges * (8 + edge),
        activation_bytes=model.activation_bytes(nodes, edges + nodes),
        data_bytes=known.num_graphs * 60 + known.num_nodes * (8 + row) + known.num_edges * (8 + edge),
    )


def latent_widths(plan: IntrusionPlan) -> tuple[int, int] | None:
    """Widths of an autoencoder's latent vectors and of its teacher's; None: it has no teacher."""
    teacher, model = plan.distill and plan.distill.teacher, plan.model
    if not isinstance(teacher, CanVgaeSpec) or not isinstance(model, CanVgaeSpec):
        return None
    return model.latent_channels, teacher.latent_channels


def _projection_parameters(plan: IntrusionPlan) -> int:
    """Parameters of the linear map between latent vectors of different widths; 0 if they are equally wide."""
    widths = latent_widths(plan)
    return 0 if widths is None or widths[0] == widths[1] else (widths[0] + 1) * widths[1]


class CapturePrepareOptions(Spec):
    """Options of `graphmill prepare` for captures."""

    window: int = Field(100, ge=2, description="frames of a window")
    stride: PositiveInt = Field(100, description="frames from the beginning of a window to that of the next")
    layout: str = Field("auto", description="of the captures' lines; auto: told from their first lines")
    unlabelled: Literal["refuse", "benign"] = Field(
        "refuse", description="what is made of captures that do not say which frames are attacks"
    )
    bad_lines: float = Field(
        0.01,
        ge=0,
        le=0.5,
        description="share of a capture's lines that may have one sort of problem; given, they may be labelled attacks",
    )
    seconds: PositiveInt | None = Field(None, description="synthetic/can: of each capture; null: 60")
    seed: NonNegativeInt | None = Field(None, description="synthetic/can: of the generator; null: 0")


RATES: Final = Baseline(
    "rates",
    "id counts and inter-arrival times",
    "deviation of an id's count, or of its mean gap in seconds, from benign training windows; the largest over all ids",
)
PAIRS: Final = Baseline(
    "pairs",
    "logistic regression on pairs of ids",
    "how often one id follows another in a window; learnt from the training windows and their labels",
    scored="end",
)
BOOSTING: Final = Baseline(
    "boosting",
    "gradient boosting",
    "100 trees of scikit-learn on count, inter-arrival time and mean payload of each id; learnt as the pairs are",
    scored="end",
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
            about="alarms of windows without attack, by the time that these windows cover",
        ),
        _recorded("threshold", "score from which on a window is an alarm"),
    ),
    loss_unit="nats",
    experiment=IntrusionExperiment,
    info=CaptureInfo,
    plan=IntrusionPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.intrusion.data.store:CaptureStore",
        prepare="graphmill.tasks.intrusion.data.prepare:prepare_requested",
        options=CapturePrepareOptions,
        counts={"num_graphs": "windows", "num_nodes": "nodes", "num_captures": "captures"},
        known=(KnownDataset("synthetic/can", {}, "generated", "nothing: seconds and seed are options"),),
        recognise="graphmill.tasks.intrusion.data.prepare:holds_captures",
    ),
    task="graphmill.tasks.intrusion.task:Intrusion",
    predictions=PredictsClasses("label", "prediction", names="class_names"),
    baselines=Baselines((RATES, PAIRS, BOOSTING), "graphmill.tasks.intrusion.baselines:score", reads=("division",)),
    extras=(Sources(("teacher", "scorer", "gat", "vgae"), missing_sources),),
)
