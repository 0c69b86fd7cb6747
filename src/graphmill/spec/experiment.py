"""The experiment file: what the user asks for. A field may say "auto"; the plan never does.

Each task has an experiment of its own, with the sections and keys that make sense for it: see `tasks/<task>/page`. This
module holds what the experiments of all tasks share.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.batch import BatchSpec, Sizing
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.job.options import SlurmSpec, StagingSpec
from graphmill.spec.optimizer import AdamSpec, OptimizerSpec
from graphmill.spec.profiler import ProfilerSpec
from graphmill.spec.roles import RolesSpec
from graphmill.spec.synonyms import ALSO_CALLED
from graphmill.spec.weights import InitFromSpec

MEET_WITHIN_S: Final = 120.0  # programs start late from a shared file system that is busy

Fraction = Annotated[float, Field(ge=0, lt=1)]
BatchSize = PositiveInt | Literal["auto"]
Payload = Literal["fp32", "fp16", "bf16"]


class DatasetSpec(Spec):
    """Which prepared data to train on."""

    name: str = Field(description="name of a prepared dataset, or a path to its folder")
    train_limit: PositiveInt | None = Field(
        None, description="train on this many of the training seeds, a random subset by train.seed; null: all of them"
    )


class CustomModelSpec(Spec):
    """Any PyTorch or PyG model by dotted path; how it is called, and what it gives, is the task's to say."""

    kind: Literal["custom"]
    target: str = Field(description="dotted path, for example torch_geometric.nn.models.GCN")
    options: dict[str, Any] = Field({}, description="keyword arguments; in_channels and out_channels are filled in")
    fused: bool = Field(
        False,
        description="PyG's SAGEConv, GCNConv, GINConv, RGCNConv, GATConv and GATv2Conv in the model are computed by "
        "graphmill's operators, on CPUs in fp32: the same state_dict, results to rounding",
    )


class CustomLossSpec(Spec):
    """Any loss by dotted path: a function, or a class of callables; what it is called with is the task's to say."""

    kind: Literal["custom"]
    target: str = Field(description="dotted path, for example mypackage.losses.focal")
    options: dict[str, Any] = Field({}, description="keyword arguments, of a function at each call, of a class once")


class MeasureSpec(Spec):
    """A measure of the user's own, by dotted path; what it is called with is the task's to say."""

    target: str = Field(description="dotted path, for example mypackage.measures.mcc")
    options: dict[str, Any] = Field({}, description="keyword arguments, of a function at each call, of a class once")
    higher_is_better: bool = Field(description="whether a larger value is the better one")
    unit: str = Field("", description="of its values")


class DeferredAllreduceSpec(Spec):
    """Accumulate gradients for k steps, then all-reduce and update. k = 1 is plain data parallelism."""

    scheme: Literal["deferred_allreduce"] = "deferred_allreduce"
    every: PositiveInt = Field(1, description="k: steps of each rank between two synchronisations")
    payload: Payload = Field("fp32", description="number format handed to the collective")


class LocalSgdSpec(Spec):
    """k local updates per rank, then average the parameters (Stich 2019; Lin et al. 2020 for the warm-up)."""

    scheme: Literal["local_sgd"]
    every: PositiveInt = Field(1, description="k: local updates of each rank between two averagings")
    payload: Payload = Field("fp32", description="number format handed to the collective")
    average_optimizer_state: bool = Field(False, description="average Adam's moments along with the parameters")
    warmup_steps: int = Field(
        0, ge=0, description="steps of each rank with an all-reduce every step, before rounds start"
    )


class DilocoSpec(Spec):
    """k local updates per rank, then an outer Nesterov step on the averaged change (Douillard et al. 2023)."""

    scheme: Literal["diloco"]
    every: PositiveInt = Field(16, description="k: local updates of each rank between two outer steps")
    payload: Payload = Field("fp32", description="number format handed to the collective")
    outer_lr: float = Field(0.7, gt=0, description="learning rate of the outer step")
    outer_momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of the outer step")


SyncSpec = Annotated[DeferredAllreduceSpec | LocalSgdSpec | DilocoSpec, Field(discriminator="scheme")]


class CheckpointSpec(Spec):
    """When to save. The best and the latest checkpoint are always kept."""

    every_epochs: int = Field(1, ge=0, description="0: no periodic checkpoint at the end of epochs")
    every_steps: int = Field(0, ge=0, description="also after the first sync past every N steps of a rank; 0: never")
    keep_every_epochs: int = Field(
        0, ge=0, description="keep each n-th epoch's checkpoint for good; 0: only best and latest"
    )


Threads = PositiveInt | Literal["auto", "trial"]


def without_trial(threads: Threads) -> int | Literal["auto"]:
    """Threads of a run on other machines than this: `UserError` if trials are to find how many."""
    if threads == "trial":
        raise UserError(
            "train.threads is trial, and the steps would be tried on another machine than this",
            fix="on such a machine `graphmill plan EXPERIMENT --trial 10 -O train.threads=trial` says how many",
        )
    return threads


class TrainSpec(Spec):
    """How to train, whatever the task."""

    also_called: ClassVar[Mapping[str, str]] = ALSO_CALLED

    ranks: PositiveInt | Literal["auto"] = Field("auto", description="processes; auto: one per GPU, one on a CPU")
    epochs: PositiveInt | None = Field(
        None,
        description="stop after this many passes over the training set; null, and no max_steps: after 200, or once 20"
        " evaluations in a row (50 with fewer than 1,000 to train on) bring no better score on the validation split",
    )
    max_steps: PositiveInt | None = Field(None, description="stop after this many steps, counted over all ranks")
    batch_size: BatchSize = Field(1024, description="seeds per rank and step; auto: see train.batch")
    batch: BatchSpec = BatchSpec()
    optimizer: OptimizerSpec = AdamSpec()
    seed: int = Field(1234, ge=0, lt=2**63, description="of weights, order of seeds, sampling and dropout")
    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="number format of the factors of dense products in training, those of gradients too; "
        "parameters, sums, sparse products and evaluation are always fp32",
    )
    tf32: bool = Field(
        False,
        description="on GPUs, factors of fp32 products have 10 bits of mantissa in place of 23, in training and in "
        "evaluation: tensor cores from capability 8.0 on",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is a GPU")
    backend: Literal["auto", "gloo", "nccl"] = Field(
        "auto", description="of the collectives; auto: nccl on GPUs, gloo on CPUs"
    )
    threads: Threads = Field(
        "auto",
        description="compute threads per rank; auto: cores ÷ ranks on this host; trial: the fewest of them, halved and"
        " halved again, that a trial finds as fast",
    )
    prefetch: int = Field(2, ge=0, description="mini-batches made ahead by a background thread; 0: none")
    sync: SyncSpec = DeferredAllreduceSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    evaluate_every_epochs: int = Field(1, ge=0, description="0: only at the end")
    baselines: bool = Field(
        True, description="score simple methods on the same data when the run is over, once for all runs on them"
    )
    early_stopping: EarlyStoppingSpec = EarlyStoppingSpec()
    measures: dict[str, MeasureSpec] = Field(
        {}, description="measures of your own, by name: each with target, options, higher_is_better, unit"
    )
    best_by: str | None = Field(
        None, description="the measure that chooses the best checkpoint and stops early; null: the first of the task"
    )
    hang_timeout_s: float = Field(
        20.0, ge=5, le=3600, description="a rank that sends no heartbeat for so long is lost, and ends the attempt"
    )
    meet_timeout_s: float = Field(
        MEET_WITHIN_S, ge=5, le=7200, description="so long a rank that is ready waits for the others before training"
    )

    profile: bool = Field(False, description="time and trace the phases of some steps: see `graphmill profile`")
    profile_steps: PositiveInt = Field(5, description="steps of each rank that are traced, with train.profile=true")
    profiler: ProfilerSpec = ProfilerSpec()

    @property
    def sizing(self) -> Sizing | None:
        """How the size of a batch is to be found; None: it is given."""
        if self.batch_size == "auto" and self.batch.mode == "count":
            return "trial"
        return self.batch.sizing

    @property
    def presampled_in(self) -> str | None:
        """The folder of sampled epochs that is to be read; None: none is."""
        return None

    def sampling_anew(self) -> Self:
        """Copy that reads no sampled epochs."""
        return self

    @model_validator(mode="after")
    def _stopping_early_needs_evaluations(self) -> Self:
        if self.early_stopping.patience and not self.evaluate_every_epochs:
            raise ValueError("evaluate_every_epochs is 0, but early_stopping.patience counts evaluations")
        return self


class TaskSpec(Spec):
    """Which learning problem. A task may have keys of its own here."""

    kind: str = Field(description="a built-in task, or the dotted path of another one's page: package.module:KIND")


class Experiment(Spec):
    """One experiment, as written. Each task's own class says more of `task`, `dataset`, `model` and `train`."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="stem of the run's name")
    task: TaskSpec
    dataset: DatasetSpec
    model: Spec
    train: TrainSpec
    init_from: InitFromSpec = InitFromSpec()
    sources: dict[str, InitFromSpec] = Field(
        {}, description="weights of other runs that the task uses while it trains, by name, such as teacher"
    )
    roles: RolesSpec | None = Field(
        None,
        description="a sampling service: processes that only sample, and processes that only train; null: every rank "
        "samples its own batches",
    )
    slurm: SlurmSpec = SlurmSpec()
    staging: StagingSpec = StagingSpec()
