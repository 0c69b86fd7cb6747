"""What a task is to everything but its own folder: one `Kind`, made on its page, `tasks/<task>/page`, without torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

from pydantic import Field

from graphmill.base.errors import AbsentDataError
from graphmill.config.frozen import Spec
from graphmill.spec.batch import BatchBudget
from graphmill.spec.calendar import Batches, EqualBatches
from graphmill.spec.columns import Baseline, Column, Layout, Measure, columns_for
from graphmill.spec.device_memory import ResidentGraph
from graphmill.spec.experiment import CustomModelSpec, Experiment
from graphmill.spec.partition import InParts


class FromCatalogue(Spec):
    """A value in place of a checksum: nothing is prepared, and the sizes are those of the published data."""

    sizes_from: Literal["catalogue"] = "catalogue"


class DatasetInfo(Spec):
    """What the planner must know about any data. A task's own class says more."""

    name: str
    path: str = Field(description="folder of the prepared data; where it would be, if nothing is prepared")
    checksum: str | FromCatalogue
    synthetic: bool
    num_train: int = Field(
        description="seeds of a whole epoch: training nodes, or windows; fewer than there are where train_limit says so"
    )

    @property
    def is_prepared(self) -> bool:
        """Whether the data are there, so that the plan can be trained."""
        return not isinstance(self.checksum, FromCatalogue)

    @property
    def prepared_checksum(self) -> str:
        """The checksum; a `UserError` if nothing is prepared: only a plan can do without."""
        if isinstance(self.checksum, FromCatalogue):
            root = self.path.removesuffix(f"/{self.name}")
            raise AbsentDataError(
                f"{self.name} is not prepared under {root}: this plan has its sizes from the catalogue, and cannot be"
                " trained",
                fix=f"graphmill prepare {self.name} --dataset-root {root} (add --from PATH if it is not a download)",
            )
        return self.checksum


class TaskPlan(Spec):
    """What only the ranks of a task need: a task's own class says more. `kind` is the kind's name."""

    of_weights: ClassVar[tuple[str, ...]] = ("model",)  # sections that say what is computed with the weights

    kind: str
    dataset: DatasetInfo
    model: Spec | None = None  # a task's own class says which

    @property
    def unused(self) -> str:
        """What the data hold and the model does not read, in words; "": nothing that is known of."""
        return ""

    @property
    def in_parts(self) -> InParts | None:
        """How its data are divided among hosts; None: every rank reads all of them."""
        return None

    @property
    def computes_with_torch(self) -> bool:
        """Whether a step is small operators of torch's, one after the other: a model by dotted path, mostly."""
        return isinstance(self.model, CustomModelSpec)

    @property
    def weight_decay(self) -> float:
        """What the optimizer takes where the experiment does not say."""
        return 0.0

    @property
    def tied_to_ranks(self) -> str:
        """Why another number of ranks than planned cannot resume, in words; "": it can."""
        return ""

    @property
    def presampled_in(self) -> str | None:
        """The folder of sampled epochs that it reads; None: it reads none."""
        return None

    def reading_presampled(self, folder: str) -> Self:
        """Copy of the section that reads sampled epochs from `folder`."""
        raise NotImplementedError(f"{self.kind} reads no presampled epochs, but {folder}")

    @property
    def evaluation(self) -> str:
        """How exact inference is made, where there is a choice, in words; "": there is none."""
        return ""

    def within(self, experiment: Experiment, memory_bytes: int | None) -> Self:
        """Section with the choices that depend on the memory that each process may use; None: it is not known."""
        del experiment, memory_bytes
        return self

    def batches(self, batch_size: int, ranks: int) -> Batches:
        """How the seeds of an epoch are cut into steps, where batches have no budget."""
        return EqualBatches(self.dataset.num_train, batch_size, ranks)


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a task must know of a plan to say how large a step is."""

    batch_size: int  # of a rank
    device: Literal["cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    budget: BatchBudget | None = None  # None: batches are `batch_size` seeds
    ranks: int = 1
    hosts: int = 1
    batches_together: int = 1  # of a step, that one process makes: of the trainers that it serves
    learners: int = 1  # ranks that have a share of a global batch: with roles the trainers, and `ranks` are samplers
    learner_hosts: int = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a model and a step are, by formula. Bytes are upper bounds."""

    num_parameters: int | None  # None: of a user-defined model, which would have to be built
    batch_bytes: int = 0  # of one batch of a rank
    activation_bytes: int = 0  # what its backward pass needs
    nodes_per_batch: int | None = None  # None: nothing is sampled
    data_bytes: int | None = None  # of the prepared data, mapped once for all ranks of a host; None: not modelled
    shared_bytes: int = 0  # of `data_bytes`, what is memory and no file: the system cannot drop it
    index_bytes: int = 0  # what each rank keeps in memory about all of the data
    not_counted: str = ""  # what bytes leave out, in words, and why; "": nothing that is known of
    resident: ResidentGraph | None = None  # that a GPU could hold and draw of; None: the task has none


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """Data that have a name of their own: a line of `graphmill datasets`."""

    name: str
    sizes: Mapping[str, int]  # published counts, by the names that prepared data have; empty: as asked
    origin: Literal["embedded", "download", "generated", "given"]  # given: only with --from
    layout: str  # what --from PATH must hold


ORIGIN: Final = "graphmill"
"""Key of the metadata of a Parquet file of predictions: JSON that says whose they are."""


@dataclass(frozen=True, slots=True)
class PredictsClasses:
    """What `graphmill predict` writes of a task that tells classes apart, by column."""

    truth: str
    predicted: str
    names: str  # key in the header of prepared data: a name for each class, or none at all
    several: str = ""  # key there that says "labels" where an item has several at once; "": none does


@dataclass(frozen=True, slots=True)
class PredictsSeries:
    """What it writes of a task that forecasts series, by column; times are in seconds since 1970."""

    truth: str
    predicted: str
    series: str  # which one, such as the sensor
    time: str  # of the value that is forecast
    steps_ahead: str
    unit: str  # key in the header of prepared data: of the values


E = TypeVar("E", bound=Experiment)
I = TypeVar("I", bound=DatasetInfo)  # noqa: E741  # a type, not a number
P = TypeVar("P", bound=TaskPlan)
X = TypeVar("X")


def _unknown(experiment: Experiment, known: KnownDataset, path: str) -> None:
    """A catalogue that knows names only: nothing can be planned before it is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a task learns from. `store`, `prepare`, `recognise`, `raw` and the values of `layouts_out` are dotted."""

    store: str  # class of prepared data: tasks.stores.Store
    prepare: str  # function that prepares data, of a tasks.stores.Preparation
    options: type[Spec]  # what `graphmill prepare -o key=value` takes
    counts: Mapping[str, str] = field(default_factory=dict)
    """Sizes of prepared data for the table of `graphmill datasets`: key of its metadata → heading."""
    known: tuple[KnownDataset, ...] = ()
    from_catalogue: Callable[[Any, KnownDataset, str], DatasetInfo | None] = _unknown
    """Experiment, data that are not prepared, the path that they had → what is known of them."""
    merges: bool = False  # whether `prepare` makes one dataset of several --from, prepared data among them
    recognise: str = ""  # function: path → tasks.recognise.Look, or None: raw data there are not its own; "": none are
    raw: str = ""  # function that opens raw data at a path: tasks.stores.RawData; "": they cannot be inspected
    layouts_out: Mapping[str, str] = field(default_factory=dict)  # layouts of other programs: what writes a store so


@dataclass(frozen=True, slots=True)
class Baselines:
    """What stands beside the scores of a task's models."""

    methods: tuple[Baseline, ...] = ()
    score: str = ""  # dotted name of a function that scores them: tasks.baselines.ScoresBaselines
    reads: tuple[str, ...] | None = None  # what of a plan they hang on, besides the data; None: all of it
    under: Mapping[str, Any] = field(default_factory=dict)  # sections of an experiment over whatever data


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[E, I, P]):
    """A learning problem, as everything that is not its own page or folder sees it.

    `task` and the other dotted names, `package.module:NAME`, are imported only when they are needed: the control plane
    reads this page and no torch.
    """

    name: str  # what `task.kind` says; of a task outside this package the dotted path of its KIND
    seeds_are: str  # what an epoch is counted in, such as "windows"
    measures: tuple[Measure, ...]  # the best checkpoint is chosen by the first
    loss_unit: str = ""
    experiment: type[E]
    info: type[I]
    plan: type[P]
    resolve: Callable[[E, I], P]  # its part of a plan; raises UserError on what clashes
    sizes: Callable[[P, StepShape], Sizes]
    data: Data
    task: str  # dotted name of the class of a rank's share: tasks.task.Task
    predictions: PredictsClasses | PredictsSeries | None = None  # what figures are drawn of; None: no figures
    baselines: Baselines = Baselines()
    layouts: tuple[Layout, ...] = ()  # headers of programs that the task comes from
    repetitions: Mapping[str, str] = field(default_factory=dict)  # keys in which repetitions differ, as rng seeds do
    takes_measures: bool = False  # whether its ranks compute those of train.measures
    own_columns: Mapping[str, Column] = field(default_factory=dict)  # of metrics.csv, after those of every task
    extras: tuple[object, ...] = ()  # what few tasks have, each found by its type: see spec.kinds.extras
    columns: Mapping[str, Column] = field(init=False)  # of metrics.csv, in order

    def __post_init__(self) -> None:
        columns = columns_for(self.measures, self.seeds_are, self.loss_unit) | dict(self.own_columns)
        object.__setattr__(self, "columns", columns)

    def extra(self, of: type[X]) -> X | None:
        """What the page says of that type; None: the task has nothing such."""
        return next((each for each in self.extras if isinstance(each, of)), None)

    @property
    def repeated_over(self) -> str:
        """What runs of one configuration differ in, in words."""
        return " and ".join(["rng seeds", *self.repetitions.values()])

    @property
    def primary(self) -> Measure:
        """What the best checkpoint is chosen by."""
        return self.measures[0]

    @property
    def best_column(self) -> str:
        """The column of the primary measure's best value so far."""
        return f"best_val_{self.primary.name}"


AnyKind = Kind[Any, Any, Any]
