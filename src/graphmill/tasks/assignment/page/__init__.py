"""Assignment: which potentials of rows and columns let an exact solver begin near its end?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.calendar import Batches, BucketedBatches, EqualBatches
from graphmill.spec.columns import Baseline, Measure
from graphmill.spec.experiment import BatchSize, CustomModelSpec, Experiment, Fraction, TaskSpec, TrainSpec
from graphmill.spec.kinds.extras import Bench
from graphmill.spec.kinds.kind import Baselines, Data, FromCatalogue, Kind, KnownDataset, Sizes, StepShape, TaskPlan
from graphmill.spec.synonyms import HIDDEN_WIDTH
from graphmill.tasks.assignment.page.bench import AssignmentBenchOptions
from graphmill.tasks.assignment.page.data import (
    COUNTS,
    DATASETS,
    KIND_NAME,
    SHARES,
    AssignmentDatasetSpec,
    AssignmentInfo,
    AssignmentPrepareOptions,
    ReplaySpec,
    SizeBucket,
    learnt_from,
    refuse_absent_sizes,
)


class AssignmentTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["assignment"] = "assignment"


class OneGnnSpec(Spec):
    """Residual blocks on the columns, between sweeps over the costs that tell each column who wants it.

    Costs of a forward pass: 1 + soft_sweeps + rounds sweeps, and the blocks.
    """

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["one_gnn"] = "one_gnn"
    hidden_channels: PositiveInt = Field(32, description="width of every layer")
    num_layers: PositiveInt = Field(1, description="residual blocks of each round")
    rounds: PositiveInt = Field(
        3, description="how often the potentials are corrected; the second and later ones refine what was predicted"
    )
    topk: int = Field(4, ge=2, le=8, description="smallest costs of each row and column that a round looks at")
    soft_sweeps: NonNegativeInt = Field(
        8, description="passes of softened minima, from hot to cold, that make what is corrected; 0: column minima do"
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
    tile_pairs: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="pairs of a batch that are computed together; their activations are not kept but computed again; "
        "auto: as many as make tensors of 33 MiB, hidden_channels numbers for each",
    )

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden_channels % self.heads:
            raise ValueError(f"hidden_channels is {self.hidden_channels}, no multiple of the {self.heads} heads")
        return self


AssignmentModelSpec = Annotated[OneGnnSpec | DualGnnSpec | CustomModelSpec, Field(discriminator="kind")]


class DualLossSpec(Spec):
    """What the dual objective misses of the optimum, over what row minima miss: 1 is no better, 0 is optimal."""

    kind: Literal["dual"] = Field("dual", description="of potentials that are feasible whatever they are")
    supervised: NonNegativeFloat = Field(
        0.0, description="weight of the mean distance to optimal potentials of the columns, in the instance's scale"
    )


class AssignmentTrainSpec(TrainSpec):
    """How to train on assignment problems."""

    loss: DualLossSpec = DualLossSpec()
    batch_size: BatchSize = Field(8, description="instances per rank and step, all of one size; auto: see train.batch")
    prefetch: int = Field(1, ge=0, description="batches made ahead by a background thread; 0: none")


class AssignmentExperiment(Experiment):
    """Which potentials let an exact solver of assignment problems begin near its end?"""

    task: AssignmentTaskSpec = AssignmentTaskSpec()
    dataset: AssignmentDatasetSpec = AssignmentDatasetSpec()
    model: AssignmentModelSpec = OneGnnSpec()
    train: AssignmentTrainSpec = AssignmentTrainSpec()


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
        description="instances of an epoch of each size: of dataset.buckets, in their order"
    )

    def batches(self, batch_size: int, ranks: int) -> Batches:
        """Batches of instances that are all of one size."""
        if len(self.counts) == 1:
            return EqualBatches(self.counts[0], batch_size, ranks)
        return BucketedBatches(self.counts, batch_size, ranks)


def resolve(experiment: AssignmentExperiment, dataset: AssignmentInfo) -> AssignmentPlan:
    """The task's section of a plan."""
    spec = experiment.dataset
    return AssignmentPlan(
        dataset=dataset,
        sizes=spec.sizes,
        families=spec.families,
        replay=spec.replay,
        model=_tiled(experiment),
        loss=experiment.train.loss,
        counts=_counts(spec.replay, dataset),
    )


_TILE_BYTES: Final = 33 << 20
"""Of the largest tensors of a tile. On a CPU, ranks keep what is freed in pieces of up to 32 MiB, and pieces of many
sizes waste most of it; larger ones are handed back at once, so that memory is what the formula says."""


def _tiled(experiment: AssignmentExperiment) -> AssignmentModelSpec:
    """The model with every choice made."""
    model = experiment.model
    if isinstance(model, DualGnnSpec) and model.tile_pairs == "auto":
        return model.model_copy(update={"tile_pairs": -(-_TILE_BYTES // (4 * model.hidden_channels))})
    return model


def _counts(replay: ReplaySpec, dataset: AssignmentInfo) -> tuple[int, ...]:
    """Instances of an epoch of each bucket; `UserError` if there are too few to learn again."""
    learnt = [0 if bucket.size in replay.sizes else bucket.num_train for bucket in dataset.buckets]
    counts = _apportioned(dataset.num_train, learnt)
    shares = _apportioned(round(dataset.num_train * replay.share / (1 - replay.share)), [1] * len(replay.sizes))
    for size, share in zip(replay.sizes, shares, strict=True):
        place = next(number for number, bucket in enumerate(dataset.buckets) if bucket.size == size)
        there = dataset.buckets[place].num_train
        if share > there:
            raise UserError(
                f"dataset.replay.share={replay.share:g} beside {dataset.num_train} other instances is {share} of size"
                f" {size}, and {dataset.name} has {there} to train on",
                fix="lower dataset.replay.share, or prepare more instances of that size",
            )
        counts[place] = share
    return tuple(counts)


def _apportioned(total: int, counts: Sequence[int]) -> list[int]:
    """Divide a total in proportion to the counts: by the largest remainders, earlier ones first."""
    quotas = [count * total / max(1, sum(counts)) for count in counts]
    found = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(counts)), key=lambda number: found[number] - quotas[number])
    for number in by_remainder[: total - sum(found)]:
        found[number] += 1
    return found


_TRAIN_KEY: Final = "train_"  # of published counts: instances to train on, by size


def from_catalogue(experiment: AssignmentExperiment, known: KnownDataset, path: str) -> AssignmentInfo | None:
    """What is published of data that are not prepared, if it is by size."""
    trained = {key.removeprefix(_TRAIN_KEY): n for key, n in known.sizes.items() if key.startswith(_TRAIN_KEY)}
    if not trained:
        return None
    spec, counts = experiment.dataset, {int(size): count for size, count in trained.items()}
    refuse_absent_sizes(known.name, spec, counts)
    chosen = sorted(counts if spec.sizes_to_read is None else spec.sizes_to_read)
    buckets = tuple(_published(size, counts[size]) for size in chosen)
    return AssignmentInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=True,
        num_train=learnt_from(spec, buckets),
        num_instances=sum(bucket.num_train + bucket.num_val + bucket.num_test for bucket in buckets),
        num_val=sum(bucket.num_val for bucket in buckets),
        num_test=sum(bucket.num_test for bucket in buckets),
        num_costs=sum(round(count / SHARES[0]) * size * size for size, count in counts.items()),
        dtype="float64",
        buckets=buckets,
    )


def _published(size: int, num_train: int) -> SizeBucket:
    num_val, num_test = (round(num_train / SHARES[0] * share) for share in SHARES[1:])
    return SizeBucket(size=size, max_rows=size, max_cols=size, num_train=num_train, num_val=num_val, num_test=num_test)


def sizes(plan: AssignmentPlan, step: StepShape) -> Sizes:
    """Parameters; bytes of a batch of the largest instances, and of what its step or an evaluation needs."""
    known, model = plan.dataset, plan.model
    largest = max(known.buckets, key=lambda bucket: bucket.max_rows * bucket.max_cols)
    rows, columns = largest.max_rows, largest.max_cols
    batch = min(step.batch_size, max(plan.counts))
    batch_bytes = batch * (4 * rows * columns + 16 * (rows + columns))
    sizes_of = partial(
        Sizes,
        data_bytes=known.num_costs * (8 if known.dtype == "float64" else 4),
        index_bytes=_INDEX_BYTES * known.num_instances,
    )
    if isinstance(model, CustomModelSpec):
        return sizes_of(None, batch_bytes)
    at_once, stored = instances_at_once(rows, columns), 8 * rows * columns  # of one instance, while it is read
    if isinstance(model, OneGnnSpec):
        trained = 2 * 4 * batch * columns * _values_of_a_column(model) + _sweep_bytes(step, batch * rows * columns)
        evaluation = at_once * 4 * rows * columns + _sweep_bytes(step, at_once * rows * columns)
        # Both: what is evaluated has memory of its own, and what steps freed lies in smaller pieces.
        needed = _LOADED + stored + batch_bytes + trained + evaluation
        return sizes_of(_one_gnn_parameters(model), batch_bytes, needed)
    trained = _dual_gnn_bytes(model, step, batch, rows, columns)
    evaluation = at_once * 4 * rows * columns + _dual_gnn_bytes(model, step, at_once, rows, columns)
    return sizes_of(_dual_gnn_parameters(model), batch_bytes, _LOADED + stored + batch_bytes + max(trained, evaluation))


_LOADED: Final = 76 << 20  # libraries that this task alone imports, and what torch sets up for the first backward pass
_INDEX_BYTES: Final = 64  # of an instance: its shape, offsets, optimum, place in the order of an epoch
_EVALUATED_PAIRS: Final = 2**22


def largest_batch(plan: AssignmentPlan, batch_size: int) -> int:
    """Pairs of a batch of the largest instances that an epoch has."""
    buckets = zip(plan.dataset.buckets, plan.counts, strict=True)
    return max(min(batch_size, count) * bucket.max_rows * bucket.max_cols for bucket, count in buckets)


def instances_at_once(rows: int, columns: int) -> int:
    """How many instances of such a shape an evaluation computes together."""
    return max(1, min(256, _EVALUATED_PAIRS // (rows * columns)))


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
    """Numbers that are kept for the backward pass, of one column; its gradients are about as many."""
    width = model.hidden_channels
    block = 3 * width + (width if model.dropout else 0) + 2
    of_round = ROUND_FEATURES + model.topk + model.num_layers * block + 2 * width + 8
    return FIRST_FEATURES + model.topk + model.soft_sweeps + width + model.rounds * of_round


def _dual_gnn_parameters(model: DualGnnSpec) -> int:
    width = model.hidden_channels
    encoders = 2 * ((model.topk + 2) * width + width + 2 * width)
    pair = EDGE_FEATURES * width + width + width * width + width
    of_side = 2 * width * width + width + (2 * width * width + width) + 2 * width  # what it brings, score, update, norm
    unused = width * width + width + (2 * width * width + width) + 2 * width  # of the rows, in the last layer
    head = 2 * width + width * width + width + width * CORRECTIONS + CORRECTIONS
    return encoders + model.num_layers * (pair + 2 * of_side) - unused + head


def _dual_gnn_bytes(model: DualGnnSpec, step: StepShape, batch: int, rows: int, columns: int) -> int:
    """What is kept of rows and columns, a tile of pairs, and the costs over their scale."""
    width = model.hidden_channels
    assert model.tile_pairs != "auto"  # the plan has a number
    pairs = min(max(model.tile_pairs, batch * columns), batch * rows * columns)
    tile = 4 * pairs * (EDGE_FEATURES * 2 + 10 * width + 6 * model.heads)
    # On a GPU as much again for gradients (not measured); on a CPU freed pieces that lie between others (measured).
    tile = round(tile * (2.0 if step.device == "cuda" else 1.65 + 0.45 * model.num_layers))
    kept = 4 * batch * ((rows + columns) * model.num_layers * 12 + columns * 4) * width
    return kept + tile + 4 * batch * rows * columns + _sweep_bytes(step, batch * rows * columns)


def _measures() -> Iterator[Measure]:
    yield Measure(
        "dual_gap",
        "dual gap",
        higher_is_better=False,
        about="median over instances of (optimum - dual objective) ÷ its size; of an optimum of 0 the difference"
        " by row, over the mean cost that is not 0",
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
        about="share of instances whose predicted potentials exceed no cost by more than rounding explains",
    )


ZERO: Final = Baseline("zero", "zero seed", "u = 0, and v = minima of the columns")
ROW_MINIMA: Final = Baseline("row_minima", "row minima", "u = minima of the rows, then v = minima of the columns")
COLUMN_REDUCED: Final = Baseline("column_reduced", "column-reduced", "v = minima of the columns, then u of the rows")
ORACLE: Final = Baseline("oracle", "oracle", "optimal potentials, as the data hold them", is_bound=True)

PROGRESSIVE: Final = KnownDataset(
    "assignment/progressive",
    {
        **{"num_instances": 4_062, "num_sizes": 6, "num_families": 7},
        **{"train_512": 1_200, "train_1024": 900, "train_1536": 480},
        **{"train_2048": 144, "train_3072": 88, "train_4096": 30},
    },
    "given",
    "folders with train.h5, val.h5 and test.h5, as progressive training of dual models has them, one for each bucket",
)
"""The buckets of the published progressive training, from 512 to 4096."""

KIND: Final = Kind(
    name=KIND_NAME,
    seeds_are="instances",
    measures=tuple(_measures()),
    experiment=AssignmentExperiment,
    info=AssignmentInfo,
    plan=AssignmentPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.assignment.data.store:AssignmentStore",
        prepare="graphmill.tasks.assignment.data.prepare:prepare_requested",
        options=AssignmentPrepareOptions,
        counts=COUNTS,
        known=(*DATASETS, PROGRESSIVE),
        from_catalogue=from_catalogue,
        merges=True,
        recognise="graphmill.tasks.assignment.data.sources:holds_problems",
        raw="graphmill.tasks.assignment.data.files:ProblemFiles",
        layouts_out={"hdf5": "graphmill.tasks.assignment.data.files:write_hdf5"},
    ),
    task="graphmill.tasks.assignment.task:Assignment",
    baselines=Baselines((ZERO, ROW_MINIMA, COLUMN_REDUCED, ORACLE), "graphmill.tasks.assignment.baselines:score"),
    extras=(
        Bench("graphmill.tasks.assignment.bench:measure", AssignmentBenchOptions, brief={"instances": 1, "repeats": 3}),
    ),
)
