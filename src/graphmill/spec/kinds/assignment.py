"""Assignment: which potentials of rows and columns let an exact solver of linear assignment problems begin near its end?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.assignment_data import COUNTS, DATASETS, AssignmentPrepareOptions
from graphmill.spec.calendar import Batches, BucketedBatches, EqualBatches
from graphmill.spec.columns import Baseline, Measure
from graphmill.spec.experiment import BatchSize, CustomModelSpec, DatasetSpec, Experiment, Fraction, TaskSpec, TrainSpec
from graphmill.spec.kinds.kind import DatasetInfo, FromCatalogue, Kind, KnownDataset, Sizes, StepShape, TaskPlan
from graphmill.spec.synonyms import HIDDEN_WIDTH


class AssignmentTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["assignment"] = "assignment"


class ReplaySpec(Spec):
    """Instances of sizes that were learnt before, among those of an epoch, so that they are not forgotten."""

    sizes: tuple[PositiveInt, ...] = Field((), description="rows of the instances that are learnt again; (): none")
    share: Fraction = Field(
        0.0, description="of the instances of an epoch; equally many of each size, others in every epoch"
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if bool(self.sizes) != bool(self.share):
            raise ValueError(f"sizes is {list(self.sizes)} and share is {self.share}: give both, or neither")
        return self


class AssignmentDatasetSpec(DatasetSpec):
    """Which prepared instances to learn from."""

    name: str = Field("synthetic/assignment", description="name of a prepared dataset, or a path to its folder")
    sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="only instances with so many rows (the smaller side), in all splits; null: of all sizes"
    )
    families: tuple[str, ...] | None = Field(
        None, description="only instances of these families, in all splits; null: of all"
    )
    replay: ReplaySpec = ReplaySpec()

    @model_validator(mode="after")
    def _replays_others(self) -> Self:
        again = sorted(set(self.replay.sizes) & set(self.sizes or self.replay.sizes))
        if again:
            raise ValueError(f"replay.sizes has {again}, which the run learns from anyway")
        return self


class OneGnnSpec(Spec):
    """Residual blocks on the columns, between sweeps over the costs that tell each column who wants it.

    Costs of a forward pass: 1 + soft_sweeps + rounds sweeps, and the blocks.
    """

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["one_gnn"] = "one_gnn"
    hidden_channels: PositiveInt = Field(32, description="width of every layer")
    num_layers: PositiveInt = Field(1, description="residual blocks of each round")
    rounds: PositiveInt = Field(
        2, description="how often the potentials are corrected; the second and later ones refine what was predicted"
    )
    topk: int = Field(4, ge=2, le=8, description="smallest costs of each row and column that a round looks at")
    soft_sweeps: NonNegativeInt = Field(
        4, description="passes of softened minima, from hot to cold, that make what is corrected; 0: column minima do"
    )
    dropout: Fraction = Field(0.0, description="inside every residual block")


class DualGnnSpec(Spec):
    """Messages between all rows and all columns, from a network on every pair of them, a tile of pairs at a time."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["dual_gnn"]
    hidden_channels: PositiveInt = Field(64, description="width of rows, columns and pairs; a multiple of heads")
    num_layers: PositiveInt = Field(3, description="layers, each with messages in both directions")
    heads: PositiveInt = Field(4, description="of the attention over all pairs")
    topk: int = Field(4, ge=2, le=8, description="smallest costs of each row and column among their features")
    dropout: Fraction = Field(0.1, description="of what a row or column takes from its messages")
    tile_pairs: PositiveInt = Field(
        65_536,
        description="pairs of a batch that are computed together; their activations are not kept but computed again",
    )

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden_channels % self.heads:
            raise ValueError(f"hidden_channels is {self.hidden_channels}, no multiple of the {self.heads} heads")
        return self


AssignmentModelSpec = Annotated[OneGnnSpec | DualGnnSpec | CustomModelSpec, Field(discriminator="kind")]


class DualLossSpec(Spec):
    """The dual objective that is missing to the optimum, over what the row minima miss: 1 learns nothing, 0 is optimal."""

    kind: Literal["dual"] = "dual"
    supervised: NonNegativeFloat = Field(
        0.0, description="weight of the mean distance to optimal potentials of the columns, in the instance's scale"
    )


class AssignmentTrainSpec(TrainSpec):
    """How to train on assignment problems."""

    loss: DualLossSpec = DualLossSpec()
    batch_size: BatchSize = Field(8, description="instances per rank and step, all of one shape; auto: see train.batch")


class AssignmentExperiment(Experiment):
    """Which potentials let an exact solver of assignment problems begin near its end?"""

    task: AssignmentTaskSpec = AssignmentTaskSpec()
    dataset: AssignmentDatasetSpec = AssignmentDatasetSpec()
    model: AssignmentModelSpec = OneGnnSpec()
    train: AssignmentTrainSpec = AssignmentTrainSpec()


class Bucket(Spec):
    """Instances of one shape, once those that are padded to it are counted in."""

    rows: int
    columns: int
    num_train: int = Field(description="instances, also below")
    num_val: int = 0
    num_test: int = 0

    @property
    def num_pairs(self) -> int:
        """Of one instance."""
        return self.rows * self.columns


class AssignmentInfo(DatasetInfo):
    """What the planner must know about prepared instances, for one choice of sizes and families."""

    buckets: tuple[Bucket, ...] = Field(description="of the instances that are learnt from, by shape")
    replayed: tuple[Bucket, ...] = Field((), description="of those that are learnt again")
    data_bytes: int = Field(description="of all prepared data")


class AssignmentPlan(TaskPlan):
    """What only the ranks of the assignment task need."""

    kind: Literal["assignment"] = "assignment"
    dataset: AssignmentInfo
    sizes: tuple[int, ...] | None
    families: tuple[str, ...] | None
    replay: ReplaySpec = ReplaySpec()
    model: AssignmentModelSpec
    loss: DualLossSpec = DualLossSpec()
    counts: tuple[int, ...] = Field(
        description="instances of an epoch, of each of the dataset's buckets, then of each that is replayed"
    )

    def batches(self, batch_size: int, ranks: int) -> Batches:
        """All of one shape in each."""
        if len(self.counts) == 1:
            return EqualBatches(self.counts[0], batch_size, ranks)
        return BucketedBatches(self.counts, batch_size, ranks)


PADDED_TO: Final = 16
"""Instances whose sides agree once they are rounded up to a multiple of this are of one shape."""


def padded(side: int) -> int:
    """The side of a shape."""
    return -(-side // PADDED_TO) * PADDED_TO


def buckets_of(shapes: Iterable[tuple[int, int, str]]) -> tuple[Bucket, ...]:
    """Shapes of instances, (rows, columns, split) each, counted; ascending by shape."""
    counted: dict[tuple[int, int], dict[str, int]] = {}
    for rows, columns, split in shapes:
        counts = counted.setdefault((padded(rows), padded(columns)), {"train": 0, "val": 0, "test": 0})
        counts[split] += 1
    return tuple(
        Bucket(rows=rows, columns=columns, num_train=found["train"], num_val=found["val"], num_test=found["test"])
        for (rows, columns), found in sorted(counted.items())
    )


def resolve(experiment: AssignmentExperiment, dataset: AssignmentInfo) -> AssignmentPlan:
    """Its part of a plan."""
    asked = experiment.dataset
    learnt = _apportioned(dataset.num_train, [bucket.num_train for bucket in dataset.buckets])
    return AssignmentPlan(
        dataset=dataset,
        sizes=asked.sizes,
        families=asked.families,
        replay=asked.replay,
        model=experiment.model,
        loss=experiment.train.loss,
        counts=(*learnt, *_replayed(asked.replay, dataset)),
    )


def _apportioned(total: int, counts: Sequence[int]) -> list[int]:
    """So many in proportion to the counts, none above its own: by the largest remainders, earlier ones first."""
    quotas = [count * total / max(1, sum(counts)) for count in counts]
    found = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(counts)), key=lambda number: found[number] - quotas[number])
    for number in by_remainder[: total - sum(found)]:
        found[number] += 1
    return found


def _replayed(asked: ReplaySpec, dataset: AssignmentInfo) -> list[int]:
    """Instances of an epoch that are learnt again, by bucket: equally many of each size. `UserError`: too few."""
    if not asked.sizes:
        return []
    wanted = round(dataset.num_train * asked.share / (1 - asked.share))
    by_size: dict[int, list[int]] = {}
    for number, bucket in enumerate(dataset.replayed):
        by_size.setdefault(bucket.rows, []).append(number)
    counts = [0] * len(dataset.replayed)
    shares = _apportioned(wanted, [1] * len(by_size))
    for (rows, numbers), share in zip(by_size.items(), shares, strict=True):
        there = [dataset.replayed[number].num_train for number in numbers]
        if share > sum(there):
            raise UserError(
                f"dataset.replay.share={asked.share} of an epoch with {dataset.num_train} other instances are {share}"
                f" with {rows} rows, and {dataset.name} has {sum(there)} to train on",
                fix="lower dataset.replay.share, or prepare more instances of that size",
            )
        for number, count in zip(numbers, _apportioned(share, there), strict=True):
            counts[number] = count
    return counts


TRAIN_SHARE, VAL_SHARE = 0.7, 0.15  # of instances that are generated


def from_catalogue(experiment: AssignmentExperiment, known: KnownDataset, path: str) -> AssignmentInfo | None:
    """Of data that are not prepared, whose training instances are published by size: keys `train_512` and so on."""
    counts = {int(key.removeprefix("train_")): count for key, count in known.sizes.items() if key.startswith("train_")}
    if not counts:
        return None
    asked = experiment.dataset
    refuse_absent_sizes(known.name, asked, counts)
    chosen = [size for size in sorted(counts) if asked.sizes is None or size in asked.sizes]
    buckets = tuple(_published(size, counts[size]) for size in chosen)
    return AssignmentInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=True,
        num_train=sum(bucket.num_train for bucket in buckets),
        buckets=buckets,
        replayed=tuple(_published(size, counts[size]) for size in asked.replay.sizes),
        data_bytes=round(sum(count / TRAIN_SHARE * (size * size * 8 + size * 20) for size, count in counts.items())),
    )


def _published(size: int, num_train: int) -> Bucket:
    others = round(num_train / TRAIN_SHARE * VAL_SHARE)
    return Bucket(rows=padded(size), columns=padded(size), num_train=num_train, num_val=others, num_test=others)


def refuse_absent_sizes(name: str, asked: AssignmentDatasetSpec, present: Iterable[int]) -> None:
    """Raise a `UserError` if sizes are asked for of which there is no instance to train on."""
    there = sorted(set(present))
    missing = sorted({*(asked.sizes or ()), *asked.replay.sizes} - set(there))
    if missing:
        listed = ", ".join(map(str, there)) or "none at all"
        raise UserError(
            f"{name} has no instance to train on with {' or '.join(map(str, missing))} rows; it has {listed}",
            fix=f"graphmill prepare {name} --task assignment --force -o sizes=[{', '.join(map(str, missing))}],"
            " or leave the stage or the size out",
        )


def sizes(plan: AssignmentPlan, step: StepShape) -> Sizes:
    """Parameters; bytes of a batch of the largest instances, and of what its step or an evaluation needs."""
    known = plan.dataset
    largest = max((*known.buckets, *known.replayed), key=lambda bucket: bucket.num_pairs)
    count = max(plan.counts)
    batch = min(step.batch_size, count)
    columns, pairs = batch * largest.columns, batch * largest.num_pairs
    batch_bytes = 4 * pairs + batch * (largest.rows + largest.columns) * 16
    index_bytes = 64 * sum(plan.counts)
    evaluated = instances_at_once(largest.num_pairs)
    evaluation = 4 * evaluated * largest.num_pairs
    data = {"data_bytes": known.data_bytes, "index_bytes": index_bytes}
    if isinstance(plan.model, CustomModelSpec):
        return Sizes(None, batch_bytes, **data)
    if isinstance(plan.model, OneGnnSpec):
        trained = columns * 4 * _values_of_a_column(plan.model) + _sweep_bytes(step, pairs)
        evaluation += _sweep_bytes(step, evaluated * largest.num_pairs)
        return Sizes(_one_gnn_parameters(plan.model), batch_bytes, max(trained, evaluation), **data)
    sides = batch * (largest.rows + largest.columns)
    trained = _dual_gnn_bytes(plan.model, sides, batch * largest.columns) + _sweep_bytes(step, pairs)
    return Sizes(_dual_gnn_parameters(plan.model), batch_bytes, max(trained, evaluation), **data)


_EVALUATED_PAIRS: Final = 2**22


def instances_at_once(num_pairs: int) -> int:
    """How many instances an evaluation computes together."""
    return max(1, min(256, _EVALUATED_PAIRS // num_pairs))


def _sweep_bytes(step: StepShape, pairs: int) -> int:
    """What sweeps over a batch need: native ones work a row at a time; torch's write matrices, their order included."""
    return 0 if step.device == "cpu" else 4 * pairs * 4


FIRST_FEATURES: Final = 3  # of a column beside those that the sweeps make: size, shape, how far the soft sweeps went
ROUND_FEATURES: Final = 3  # of a column in a round beside its smallest costs: demand at two temperatures, margin
CORRECTIONS: Final = 3  # numbers that make a column's correction
EDGE_FEATURES: Final = 4  # of a pair


def _one_gnn_parameters(model: OneGnnSpec) -> int:
    width = model.hidden_channels
    first = (FIRST_FEATURES + model.topk + model.soft_sweeps + 1) * width
    block = 2 * width + (width * width + width) + width * width + (width * width + width)
    of_round = (ROUND_FEATURES + model.topk + 1) * width + model.num_layers * block + 2 * width
    return first + model.rounds * (of_round + (width + 1) * CORRECTIONS)


def _values_of_a_column(model: OneGnnSpec) -> int:
    """Numbers that are kept for the backward pass, of one column."""
    width = model.hidden_channels
    block = 3 * width + (width if model.dropout else 0) + 2
    of_round = ROUND_FEATURES + model.topk + model.num_layers * block + 2 * width + 8
    return FIRST_FEATURES + model.topk + model.soft_sweeps + width + model.rounds * of_round


def _dual_gnn_parameters(model: DualGnnSpec) -> int:
    width, heads = model.hidden_channels, model.heads
    encoders = 2 * ((model.topk + 2) * width + width + 2 * width)
    pair = EDGE_FEATURES * width + width + width * width + width
    sides = 2 * (2 * width * width)  # what a row and a column bring into pairs: as source and as target
    scores = 2 * width
    update = 2 * (2 * width * width + width + 2 * width)
    head = 2 * width + width * width + width + width * CORRECTIONS + CORRECTIONS
    del heads
    return encoders + model.num_layers * (pair + sides + scores + update) + head


def _dual_gnn_bytes(model: DualGnnSpec, sides: int, columns: int) -> int:
    """What is kept of rows and columns, and a tile of pairs with its gradients."""
    width = model.hidden_channels
    tile = 4 * model.tile_pairs * (EDGE_FEATURES * 2 + 10 * width + 6 * model.heads)
    return 4 * sides * model.num_layers * 12 * width + 4 * columns * 4 * width + tile


def _measures() -> Iterator[Measure]:
    yield Measure(
        "dual_gap",
        "dual gap",
        higher_is_better=False,
        about="median over instances of (optimum − dual objective) ÷ |optimum|; of an optimum of 0 the difference by"
        " row, in the instance's scale",
    )
    yield Measure(
        "u_mae",
        "u MAE",
        higher_is_better=False,
        about="mean over instances of the mean distance to the optimal potentials of the rows, in the unit of the"
        " costs; both with mean u = mean v where an instance is square",
    )
    yield Measure(
        "feasible",
        "feasible",
        higher_is_better=True,
        about="share of instances whose predicted potentials exceed no cost by more than its rounding",
    )


ZERO: Final = Baseline("zero", "zero seed", "u = 0, and v = minima of the columns")
ROW_MINIMA: Final = Baseline("row_minima", "row minima", "u = minima of the rows, then v = minima of the columns")
COLUMN_REDUCED: Final = Baseline("column_reduced", "column-reduced", "v = minima of the columns, then u of the rows")
ORACLE: Final = Baseline("oracle", "oracle", "optimal potentials, as the data hold them")

KIND: Final = Kind(
    name="assignment",
    seeds_are="instances",
    measures=tuple(_measures()),
    experiment=AssignmentExperiment,
    info=AssignmentInfo,
    plan=AssignmentPlan,
    resolve=resolve,
    from_catalogue=from_catalogue,
    sizes=sizes,
    counts=COUNTS,
    datasets=DATASETS,
    prepare_options=AssignmentPrepareOptions,
    prepare="graphmill.tasks.assignment.prepare:prepare_asked",
    recognise="graphmill.tasks.assignment.read:holds_instances",
    store="graphmill.tasks.assignment.store:AssignmentStore",
    task="graphmill.tasks.assignment.task:Assignment",
    baselines=(ZERO, ROW_MINIMA, COLUMN_REDUCED, ORACLE),
    score_baselines="graphmill.tasks.assignment.baselines:score",
)
