"""Traffic: what will the sensors of a road network read?"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, Final, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.columns import BUSY, DATA_UNIT, Baseline, Layout, Measure
from graphmill.spec.experiment import (
    BatchSize,
    CustomModelSpec,
    DatasetSpec,
    Experiment,
    TaskSpec,
    TrainSpec,
)
from graphmill.spec.kinds.kind import (
    Baselines,
    Data,
    DatasetInfo,
    FromCatalogue,
    Kind,
    KnownDataset,
    PredictsSeries,
    Sizes,
    StepShape,
    TaskPlan,
)
from graphmill.tasks.traffic.page.models import (
    DcrnnAdamSpec,
    DcrnnOptimizerSpec,
    DcrnnSpec,
    ForecasterSpec,
    ForecastLossSpec,
    MaeSpec,
    StidSpec,
)

GraphUse = Literal["as_stored", "identity"]
Season = Literal["none", "last", "day", "week"]
"""What a model learns the difference to: nothing, the last reading, or the mean at that time of the day or week."""
MissingReadings = Literal["zeros", "nan", "never"] | float
"""Which readings of a file are missing: zeros and NaNs, NaNs alone, or none, so that a NaN is an error; or a number
and NaNs: the code that the file has for them.
"""


class TrafficTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["traffic"] = "traffic"


class TrafficDatasetSpec(DatasetSpec):
    """Which prepared sensor readings to forecast, and how they are cut into windows."""

    name: str = Field("metr-la", description="name of a prepared dataset, or a path to its folder")
    history: PositiveInt = Field(12, description="time steps that a forecast looks back on")
    horizon: PositiveInt = Field(12, description="time steps that are forecast")
    graph: GraphUse = Field("as_stored", description="identity: no sensor sees another, the no-graph ablation")
    season: Season | Literal["auto"] = Field(
        "auto",
        description="day, week: what is learnt is the difference to the mean training reading at that time of the day"
        " or week, so that a model begins as that forecast; its inputs have that difference, too; last: to the last"
        " reading of each sensor, also in its inputs, for readings whose level wanders; none: the readings themselves;"
        " auto: by the errors of these means and of the last reading on validation, which `plan` names",
    )


class TrafficTrainSpec(TrainSpec):
    """How to train a forecaster; its defaults are DCRNN's."""

    loss: ForecastLossSpec = MaeSpec()
    batch_size: BatchSize = Field(64, description="windows per rank and step; auto: see train.batch")
    optimizer: DcrnnOptimizerSpec = DcrnnAdamSpec()
    prefetch: int = Field(
        0, ge=0, description="batches made ahead by a background thread; 0: none, for a window is cheaply copied"
    )


class TrafficExperiment(Experiment):
    """What will the sensors of a road network read?"""

    task: TrafficTaskSpec = TrafficTaskSpec()
    dataset: TrafficDatasetSpec = TrafficDatasetSpec()
    model: ForecasterSpec = DcrnnSpec()
    train: TrafficTrainSpec = TrafficTrainSpec()


class TrafficInfo(DatasetInfo):
    """What the planner must know about prepared sensor readings, for one history and horizon."""

    num_sensors: int
    num_edges: int
    num_steps: int = Field(description="rows of the readings, all splits together")
    interval_s: int = Field(description="seconds between two rows")
    unit: str = Field(description="of a reading, such as mph")
    num_val: int = Field(description="windows")
    num_test: int = Field(description="windows")
    sensors: str = Field("", description="digest of the sensors' ids in their order; empty: not known")
    best_season: Season = Field("none", description="whose means forecast validation best; none: that is not known")
    season_error: float = Field(1.0, description="mean absolute error of those means, over that of the last reading")
    season_error_far: float = Field(0.0, description="the same, over the reading half a day before; 0: not known")


class TrafficPlan(TaskPlan):
    """What only the ranks of a traffic forecast need."""

    of_weights: ClassVar[tuple[str, ...]] = ("model", "season")

    kind: Literal["traffic"] = "traffic"
    dataset: TrafficInfo
    history: int
    horizon: int
    graph: GraphUse
    season: Season = "none"  # so in plans of before it could be chosen
    model: ForecasterSpec
    loss: ForecastLossSpec = MaeSpec()


def resolve(experiment: TrafficExperiment, dataset: TrafficInfo) -> TrafficPlan:
    """The task's section of a plan. `UserError` if the model needs a graph, and there is none."""
    spec = experiment.dataset
    if dataset.num_edges == 0 and spec.graph == "as_stored" and not isinstance(experiment.model, StidSpec):
        raise UserError(
            f"model.kind={experiment.model.kind} reads a graph, and {dataset.name} was prepared without one",
            fix="set model.kind=stid, which needs none, or dataset.graph=identity, so that no sensor sees another; or"
            f" prepare it with its graph: graphmill prepare {dataset.name} --from READINGS --adjacency GRAPH --force",
        )
    return TrafficPlan(
        dataset=dataset,
        history=spec.history,
        horizon=spec.horizon,
        graph=spec.graph,
        season=_season(experiment, dataset),
        model=experiment.model,
        loss=experiment.train.loss,
    )


def _gains_below(model: ForecasterSpec) -> float:
    """Error of a season's means, over that of the last reading, below which a model is to learn the difference to them.

    DCRNN gains 7 % by the difference on ten sensors of METR-LA (1.1) and 1 % on travel times (1.13). STID learns such
    means itself, of each sensor, time of day and weekday: on METR-LA it loses 2 %; where the means are most of a
    forecast (0.2) both gain more than half.
    """
    match model:
        case DcrnnSpec():
            return 1.2
        case StidSpec():
            return 0.5
        case _:
            return 0.0  # what a model by dotted path is shown is its author's to say


_WANDERS_ABOVE: Final = 2.0
"""Error of means over that of the reading half a day before, above which levels leave those that were trained on. The
last reading would not tell: a few steps ahead it is near on any smooth series.
"""


def _season(experiment: TrafficExperiment, dataset: TrafficInfo) -> Season:
    """The season of a plan. `UserError` if too little is known of the one that is asked for."""
    requested = experiment.dataset.season
    if requested == "auto":
        if dataset.season_error_far > _WANDERS_ABOVE and not isinstance(experiment.model, CustomModelSpec):
            return "last"
        return dataset.best_season if dataset.season_error < _gains_below(experiment.model) else "none"
    num_steps = int(dataset.num_steps * TRAIN_SHARE)
    if requested in SEASON_S and not has_two(requested, num_steps, dataset.interval_s):
        raise UserError(
            f"dataset.season={requested}, and {num_steps:,} training steps of {dataset.interval_s} s are less than two"
            f" {requested}s, so that there are no means to learn from",
            fix="set dataset.season=none or last, or give readings of more time",
        )
    return requested


TRAIN_SHARE, TEST_SHARE = 0.7, 0.2  # of the windows in order of time: train, val, test


def split_counts(num_windows: int) -> tuple[int, int, int]:
    """How many of the windows, in order of time, are for training, validation and test."""
    num_train, num_test = round(num_windows * TRAIN_SHARE), round(num_windows * TEST_SHARE)
    return num_train, num_windows - num_train - num_test, num_test


def from_catalogue(experiment: TrafficExperiment, known: KnownDataset, path: str) -> TrafficInfo | None:
    """What is published of readings that are not prepared, as if they had no gap in time."""
    if not known.sizes:
        return None
    spec = experiment.dataset
    num_train, num_val, num_test = split_counts(max(0, known.sizes["num_steps"] - spec.history - spec.horizon + 1))
    return TrafficInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=False,
        interval_s=_CATALOGUE_INTERVAL_S,
        unit=UNITS[known.name],
        num_train=num_train,
        num_val=num_val,
        num_test=num_test,
        **known.sizes,
    )


INPUT_CHANNELS: Final = 4  # of a sensor: its scaled reading, 1 where there is one, time of day, day of the week
DAY_S: Final = 86_400
WEEK_DAYS: Final = 7
FIRST_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday; Monday counts 0
SEASON_S: Final[Mapping[Season, int]] = {"day": DAY_S, "week": WEEK_DAYS * DAY_S}
_EVALUATED_AT_ONCE, _ROWS_AT_ONCE = 256, 2**18  # windows, and windows × sensors, in memory together


def has_two(season: Season, num_steps: int, interval_s: int) -> bool:
    """Whether so many steps are two seasons or more, so that there is something to average."""
    return num_steps * interval_s >= 2 * SEASON_S[season]


def is_seasonal(season: Season) -> bool:
    """Whether it is a day or a week, whose mean readings a model is shown."""
    return season in SEASON_S


def slots_of(season: Season, interval_s: int) -> int:
    """Steps of `interval_s` seconds in a season, a last one that is cut short included."""
    return -(-SEASON_S[season] // interval_s)


def input_channels(season: Season) -> int:
    """Channels that a model is shown of a sensor; with a season the difference to its mean, too."""
    return INPUT_CHANNELS + is_seasonal(season)


def num_inputs(history: int, horizon: int, *, has_season: bool) -> int:
    """Numbers that STID reads of a sensor: all channels of the history; with a season the means of the horizon, too."""
    return history * (INPUT_CHANNELS + has_season) + horizon * has_season


def windows_at_once(num_sensors: int) -> int:
    """Windows that an evaluation forecasts together: fewer of many sensors, so that its memory has a bound."""
    return max(1, min(_EVALUATED_AT_ONCE, _ROWS_AT_ONCE // num_sensors))


def sizes(plan: TrafficPlan, step: StepShape) -> Sizes:
    """Parameters of a built-in model; bytes of the series, of a batch of windows, and of a step or an evaluation."""
    known, length = plan.dataset, plan.history + plan.horizon
    channels = input_channels(plan.season)
    rows = min(step.batch_size, known.num_train) * known.num_sensors
    copies = 1 if plan.season == "none" else 2  # of the windows: as they are, and what is taken from them
    batch = rows * (copies * length + plan.history * channels + plan.horizon) * 4
    means = slots_of(plan.season, known.interval_s) * known.num_sensors * 4 if is_seasonal(plan.season) else 0
    sizes_of = partial(
        Sizes,
        data_bytes=known.num_steps * known.num_sensors * 4 + known.num_edges * 12,
        index_bytes=known.num_steps * _INDEX_BYTES + means,
    )
    if isinstance(plan.model, CustomModelSpec):
        return sizes_of(None, batch)
    trained, evaluated = _values_of_a_row(plan, step)
    at_once = min(windows_at_once(known.num_sensors), max(known.num_val, known.num_test)) * known.num_sensors
    # Forecasts and their errors, some of them in float64, beside the batch itself.
    evaluation = at_once * ((1 + copies) * length + plan.history * channels + 8 * plan.horizon + evaluated) * 4
    return sizes_of(_parameters(plan), batch, max(rows * trained * 4, evaluation - batch))


_INDEX_BYTES: Final = 8 + 8 + 8 + 4 * 8  # of a step: its clock, known targets, place in the split; orders of an epoch


def _values_of_a_row(plan: TrafficPlan, step: StepShape) -> tuple[int, int]:
    """Numbers that the model holds for a sensor of a window: for the backward pass, and in an evaluation.

    DCRNN's native cell keeps its input, its state, two gates and the candidate, and diffuses again on the way back;
    torch keeps the diffused inputs of every gate as well. STID's residual layers keep their input and what they
    activate.
    """
    if isinstance(plan.model, StidSpec):
        width = 4 * plan.model.embed_dim
        return width * (4 + 3 * plan.model.num_layers), 4 * width
    assert isinstance(plan.model, DcrnnSpec)
    units, steps = plan.model.rnn_units, plan.history + plan.horizon
    is_native = step.device == "cpu" and step.precision == "fp32"
    diffused = 0 if is_native else 2 * 2 * units * _num_matrices(plan.model)
    per_step = plan.model.num_layers * (diffused + 6 * units)
    return steps * per_step, per_step + 2 * units * _num_matrices(plan.model)


def _parameters(plan: TrafficPlan) -> int:
    model = plan.model
    if isinstance(model, DcrnnSpec):
        return _dcrnn_parameters(model, has_season=is_seasonal(plan.season))
    assert isinstance(model, StidSpec)
    width, depth = 4 * model.embed_dim, model.num_layers
    inputs = num_inputs(plan.history, plan.horizon, has_season=is_seasonal(plan.season))
    identities = plan.dataset.num_sensors + slots_of("day", plan.dataset.interval_s) + WEEK_DAYS
    embedded = (identities + inputs + 1) * model.embed_dim
    return embedded + depth * 2 * (width + 1) * width + (width + 1) * plan.horizon


def _dcrnn_parameters(model: DcrnnSpec, *, has_season: bool) -> int:
    """Parameters: per layer two gates and a candidate over all diffusion steps of [input, state]; a projection."""
    units, depth = model.rnn_units, model.num_layers
    inner = [units] * (depth - 1)
    inputs = [INPUT_CHANNELS + has_season, *inner, 1 + has_season, *inner]  # of the encoder, of the decoder
    cells = sum((inner + units) * _num_matrices(model) * 3 * units + 3 * units for inner in inputs)
    return cells + units + 1


def _num_matrices(model: DcrnnSpec) -> int:
    """A sensor itself, and K steps along either direction of the graph."""
    return 1 + 2 * model.max_diffusion_step


_AHEAD: Final = {"15min": "15 min", "30min": "30 min", "60min": "60 min", "step1": "one step"}
_ERRORS: Final = {
    "mae": ("MAE", DATA_UNIT),
    "rmse": ("RMSE", DATA_UNIT),
    "mape": ("MAPE", "%"),
}


_UNIT_OF: Final = "in the readings' own unit (mph for METR-LA and PEMS-BAY)"

_NOT_ZERO: Final = "of readings that are not 0; empty where all are"


def _measures() -> Iterator[Measure]:
    for name, (words, unit) in _ERRORS.items():
        about = f"masked, whole horizon, {_NOT_ZERO if unit == '%' else _UNIT_OF}"
        yield Measure(name, words, higher_is_better=False, unit=unit, about=about)
    for name, (words, unit) in _ERRORS.items():
        for label, ahead in _AHEAD.items():
            about = f"masked, of the forecasts {ahead} ahead; empty where none is made"
            yield Measure(f"{name}_{label}", f"{words} at {ahead}", higher_is_better=False, unit=unit, about=about)


MULTI_NODE_DCRNN: Final = Layout(
    name="multi-node-dcrnn",
    columns={
        "epoch": "epoch",
        "train_loss": "loss",
        **{name: name for name in ("val_loss", "val_mae", "val_rmse")},
        "epoch_time_sec": "train_s",
        "throughput_samples_per_sec": "seeds_per_s",
        "data_load_time_sec": "wait_s",
        "compute_time_sec": "compute_s",
        **{name: name for name in BUSY},
    },
)
"""The header of the multi-node DCRNN scripts: docs/coming-from.md."""


class TrafficPrepareOptions(Spec):
    """Options of `graphmill prepare` for readings. The keys from num_sensors on are of the generator only."""

    adjacency: str | None = Field(None, description="path of the graph, where --from is a file of readings; null: none")
    unit: str = Field(
        "", description="what the readings, and so all errors, are in; empty: not said, but for data that are known"
    )
    missing: MissingReadings = Field(
        "zeros",
        description="which readings are missing. zeros: 0 and NaN; nan: NaN, and a 0 is a reading; never: none; a"
        " number, such as -1: that and NaN",
    )
    num_sensors: int | None = Field(None, description="of the network; null: the generator's default, here and below")
    num_steps: int | None = Field(None, description="rows of readings")
    interval_s: PositiveInt | None = Field(
        None, description="seconds between two rows; with --from times are moved to the nearest step of such a grid"
    )
    start: str | None = Field(
        None, description="time of the first row of a table without times, 2012-05-01 or 2012-05-01T00:05"
    )
    missing_share: float | None = Field(None, description="share of readings that are missing")
    seed: int | None = Field(None, description="of the generator")


LAYOUT: Final = (
    "a folder with one file of readings (metr-la.h5, pems-bay.h5, .npz, wide .csv, or BasicTS's desc.json and data.dat)"
    " and, if there is one, one of the graph (adj_mx.pkl, distances_*.csv with graph_sensor_ids.txt, .npz or .npy); or"
    " one such file of readings"
)
_LARGEST: Final = {"num_steps": 525_888}  # five years, 2017 to 2021 (Liu et al. 2023, arXiv 2306.08259)
_FLOW: Final = "vehicles per 5 min"
UNITS: Final = {
    **{"metr-la": "mph", "pems-bay": "mph"},
    **dict.fromkeys(("largest-ca", "largest-gla", "largest-gba", "largest-sd"), _FLOW),
}
"""What the readings of known data are in."""
_CATALOGUE_INTERVAL_S: Final = 300
COUNTS: Final = {"num_sensors": "sensors", "num_edges": "edges", "num_steps": "steps"}
DATASETS: Final = (
    KnownDataset("metr-la", {"num_sensors": 207, "num_edges": 1_515, "num_steps": 34_272}, "given", LAYOUT),
    KnownDataset("pems-bay", {"num_sensors": 325, "num_edges": 2_369, "num_steps": 52_116}, "given", LAYOUT),
    KnownDataset("largest-ca", {"num_sensors": 8_600, "num_edges": 201_363, **_LARGEST}, "given", LAYOUT),
    KnownDataset("largest-gla", {"num_sensors": 3_834, "num_edges": 98_703, **_LARGEST}, "given", LAYOUT),
    KnownDataset("largest-gba", {"num_sensors": 2_352, "num_edges": 61_246, **_LARGEST}, "given", LAYOUT),
    KnownDataset("largest-sd", {"num_sensors": 716, "num_edges": 17_319, **_LARGEST}, "given", LAYOUT),
    KnownDataset("synthetic/traffic", {}, "generated", "nothing: num_sensors, num_steps, … are options"),
)

LAST_VALUE: Final = Baseline("last_value", "last value", "each sensor's last reading, for the whole horizon")
DAY_BEFORE: Final = Baseline("day_before", "a day before", "the reading at the same time of the day before")
WEEK_BEFORE: Final = Baseline("week_before", "a week before", "the reading at the same time of the week before")
HISTORICAL_AVERAGE: Final = Baseline(
    "historical_average",
    "historical average",
    "mean reading of the training steps at that time of the week, or of the day where there is none",
    scored="end",
)
LINEAR_AUTOREGRESSION: Final = Baseline(
    "linear_autoregression",
    "linear autoregression",
    "each sensor from its own history, by least squares over the training windows, fitted for every step ahead",
    scored="end",
)

KIND: Final = Kind(
    name="traffic",
    seeds_are="windows",
    measures=tuple(_measures()),
    loss_unit=DATA_UNIT,
    takes_measures=True,
    experiment=TrafficExperiment,
    info=TrafficInfo,
    plan=TrafficPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.traffic.data.store:TrafficStore",
        prepare="graphmill.tasks.traffic.data.prepare:prepare_requested",
        options=TrafficPrepareOptions,
        counts=COUNTS,
        known=DATASETS,
        from_catalogue=from_catalogue,
        recognise="graphmill.tasks.traffic.data.read:holds_readings",
    ),
    task="graphmill.tasks.traffic.task:Traffic",
    predictions=PredictsSeries("reading", "forecast", series="sensor", time="time", steps_ahead="horizon", unit="unit"),
    layouts=(MULTI_NODE_DCRNN,),
    baselines=Baselines(
        (LAST_VALUE, DAY_BEFORE, WEEK_BEFORE, HISTORICAL_AVERAGE, LINEAR_AUTOREGRESSION),
        "graphmill.tasks.traffic.baselines:score",
        under={"model": {"kind": "stid"}},  # which needs no graph of the sensors
    ),
)
