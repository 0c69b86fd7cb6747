"""The plan: an experiment with every choice made. Pure: no clock, no file, no environment (house rule 1)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.runtime.gpus import capability_of
from graphmill.spec.attention import refuse_gpus
from graphmill.spec.batch import BatchBudget, GraphBatchSpec, MemoryBudget
from graphmill.spec.calendar import Batches, BudgetBatches, Calendar, EpochLengths, planned_end
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.experiment import (
    MEET_WITHIN_S,
    CheckpointSpec,
    CustomModelSpec,
    Experiment,
    MeasureSpec,
    SyncSpec,
    Threads,
    TrainSpec,
    without_trial,
)
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.extras import Sampling, Sources
from graphmill.spec.kinds.kind import AnyKind, DatasetInfo, TaskPlan
from graphmill.spec.measures import judged_kind, refuse_unfit_measures
from graphmill.spec.optimizer import OptimizerSpec, planned_optimizer
from graphmill.spec.profiler import ProfilePlan, planned_profile
from graphmill.spec.roles import RolesSpec, refuse_other_ranks, refuse_unfit_roles
from graphmill.spec.weights import Ancestor, InitialWeights
from graphmill.spec.world import World, refuse_unfit_ranks

NumBatches = Callable[[int, int, int], int]
"""(max nodes, max edges, ranks) → batches of an epoch over all ranks, a multiple of them."""
_KEY_OF: Final = {"model": "model.target", "loss": "train.loss.target"}


class MachineInfo(Spec):
    """What the planner must know about each of the hosts that the run is for; they are alike."""

    num_cores: int
    num_gpus: int
    memory_mib: float | None = None  # None: unknown before the job has its hosts
    gpu_names: tuple[str, ...] = ()  # as the driver calls them; none: unknown before the job has its hosts


def _of_its_kind(value: object, handler: ValidatorFunctionWrapHandler) -> TaskPlan:
    """The section as the class of its own kind, which `kind` names."""
    if isinstance(value, TaskPlan):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        plan: TaskPlan = handler(value)  # reports what is missing
        return plan
    task_plan: TaskPlan = find_kind(value["kind"]).plan.model_validate(value)
    return task_plan


AnyTaskPlan = Annotated[SerializeAsAny[TaskPlan], WrapValidator(_of_its_kind)]


def _with_decay(optimizer: OptimizerSpec) -> OptimizerSpec:
    """What an experiment leaves to the task, a plan says."""
    if optimizer.weight_decay is None:
        raise ValueError("weight_decay is null, and a plan says how much: write a number, 0 for none")
    return optimizer


class Plan(Spec):
    """Every choice made; what the ranks read. `plan.json` is this."""

    name: str
    run_id: str
    task: AnyTaskPlan
    hosts: int = Field(description="machines; each starts the same number of ranks")
    ranks: int = Field(description="processes over all hosts; with roles those that train")
    roles: RolesSpec | None = Field(None, description="absent: every rank samples its own batches")
    epoch_lengths: EpochLengths = Field(
        description="(so many epochs, steps of each rank in each of them), in order; [[4, 29]]: four epochs of 29 steps"
    )
    last_step: int = Field(description="steps of each rank in the whole run; they may cut the last epoch short")
    batch_size: int = Field(description="seeds of a rank at each step; with a budget the mean, rounded")
    optimizer: Annotated[OptimizerSpec, AfterValidator(_with_decay)]
    seed: int
    precision: Literal["fp32", "bf16"]
    tf32: bool = Field(False, description="whether a GPU rounds the factors of fp32 products")
    device: Literal["cpu", "cuda"]
    backend: Literal["gloo", "nccl"]
    threads: int
    prefetch: int
    sync: SyncSpec
    checkpoint: CheckpointSpec
    evaluate_every_epochs: int
    baselines: bool = Field(True, description="whether costly baselines are scored when the run is over")
    early_stopping: EarlyStoppingSpec = EarlyStoppingSpec()
    measures: dict[str, MeasureSpec] = Field({}, description="of the user's own, by name")
    best_by: str | None = Field(None, description="absent: the task's first measure")
    hang_timeout_s: float
    meet_timeout_s: float = MEET_WITHIN_S
    init_from: InitialWeights | None = Field(None, description="absent: the weights that it begins with are random")
    extends: Ancestor | None = Field(None, description="absent: it begins with step 0")

    sources: dict[str, InitialWeights] = Field({}, description="weights that the task uses while it trains, by name")
    budget: BatchBudget | None = Field(None, description="absent: batches are `batch_size` seeds")
    profile: ProfilePlan | None = Field(None, description="absent: no step is profiled")
    memory_budget: MemoryBudget | None = Field(None, exclude=True)
    """How the size of its batches was found; a record beside the plan, and no part of it. None: it was given."""

    @property
    def calendar(self) -> Calendar:
        """Which step is which; ValueError if the plan's numbers do not fit each other."""
        return Calendar(self.epoch_lengths, self.sync.every, self.last_step)

    @property
    def batches(self) -> Batches:
        """How the seeds of an epoch are cut into steps."""
        if self.budget is not None:
            return BudgetBatches(self.dataset.num_train, self.budget.num_batches, self.ranks)
        return self.task.batches(self.batch_size, self.ranks)

    def ending_at(self, last_step: int) -> "Plan":
        """Copy of the plan with an earlier end."""
        cut = self.calendar.cut(last_step)
        return self.model_copy(update={"epoch_lengths": cut.epoch_lengths, "last_step": cut.last_step})

    @property
    def dataset(self) -> DatasetInfo:
        """What is known of the data, whatever the task; `task.dataset` knows more."""
        return self.task.dataset

    def reading_from(self, path: str) -> "Plan":
        """Copy of the plan that reads a copy of its data in `path`."""
        dataset = self.task.dataset.model_copy(update={"path": path})
        return self.model_copy(update={"task": self.task.model_copy(update={"dataset": dataset})})

    @property
    def kind(self) -> AnyKind:
        """Which learning problem, judged as this run is."""
        return judged_kind(self.task.kind, [self])

    @property
    def own_code(self) -> tuple[tuple[str, str], ...]:
        """What the user has defined and ranks import: the experiment's key and the dotted path, for each."""
        sections = {name: getattr(self.task, name, None) for name in ("model", "loss")}
        found = {_KEY_OF[name]: getattr(section, "target", None) for name, section in sections.items()}
        found |= {f"train.measures.{name}.target": spec.target for name, spec in self.measures.items()}
        return tuple((key, target) for key, target in found.items() if target is not None)

    @property
    def begins_with(self) -> str:
        """What it begins with, in words; "": random weights."""
        if self.extends is not None:
            return f"{self.extends.run_id}, extended after epoch {self.extends.epochs}"
        return "" if self.init_from is None else f"weights of {self.init_from.source}"

    @property
    def ranks_per_host(self) -> int:
        """Ranks that every host with ranks starts."""
        return self.world.ranks_per_host

    @property
    def world(self) -> World:
        """The processes that it was made for; an attempt may have others (`record.run_folder.RunFolder.world`)."""
        samplers = 0 if self.roles is None else self.roles.samplers
        return World(hosts=self.hosts, ranks=self.ranks, threads=self.threads, samplers=samplers)


def resolve(
    experiment: Experiment,
    *,
    machine: MachineInfo,
    dataset: DatasetInfo,
    run_id: str,
    hosts: int = 1,
    init_from: InitialWeights | None = None,
    sources: Mapping[str, InitialWeights] | None = None,
    num_batches: NumBatches | None = None,
) -> Plan:
    """Make every choice, or refuse with a `UserError` that says what clashes. `machine`: of each of the `hosts`.

    `num_batches`: asked where batches have a budget; None: the data cannot tell.
    """
    train = experiment.train
    dataset = _limited(dataset, experiment.dataset.train_limit)
    kind = find_kind(experiment.task.kind)
    refuse_unused_sources(kind, experiment.sources)
    refuse_unfit_for_roles(experiment, kind)
    refuse_unfit_measures(kind, train.measures, train.best_by)
    device = _device(train.device, machine)
    train = train.model_copy(update={"device": device})
    task = _task_plan(experiment.model_copy(update={"train": train}), dataset)
    if device == "cuda":
        named = [(name, capability_of(name)) for name in machine.gpu_names]
        refuse_gpus(task.model, train.precision, named)
    _refuse_fused_layers(task.model, device, train.precision)
    ranks, roles = _ranks(train.ranks, device, machine, hosts, experiment.roles), experiment.roles
    processes = ranks if roles is None else roles.num_processes
    task = task.within(experiment, _memory_of_a_process(machine, device, processes, hosts))
    batches, budget = _batches(train, task, ranks, num_batches)
    epoch_lengths, last_step = planned_end(batches, epochs=train.epochs, max_steps=train.max_steps)
    return Plan(
        name=experiment.name,
        run_id=run_id,
        task=task,
        hosts=hosts,
        ranks=ranks,
        roles=roles,
        epoch_lengths=epoch_lengths,
        last_step=last_step,
        batch_size=_seeds_of_a_batch(batches),
        optimizer=planned_optimizer(train.optimizer, last_step, task.weight_decay),
        seed=train.seed,
        precision=train.precision,
        tf32=_tf32(requested=train.tf32, device=device),
        device=device,
        backend=_backend(train.backend, device),
        threads=_threads(train.threads, machine, hosts, processes),
        prefetch=train.prefetch,
        sync=train.sync,
        checkpoint=train.checkpoint,
        evaluate_every_epochs=train.evaluate_every_epochs,
        baselines=train.baselines,
        early_stopping=train.early_stopping,
        measures=train.measures,
        best_by=train.best_by,
        hang_timeout_s=train.hang_timeout_s,
        meet_timeout_s=train.meet_timeout_s,
        init_from=init_from,
        sources=dict(sources or {}),
        budget=budget,
        profile=_profile(train, last_step, device),
    )


def _refuse_fused_layers(model: Spec | None, device: str, precision: str) -> None:
    if not isinstance(model, CustomModelSpec) or not model.fused or (device == "cpu" and precision == "fp32"):
        return
    key, value, other = ("precision", precision, "fp32") if device == "cpu" else ("device", device, "cpu")
    raise UserError(
        f"model.fused is true: its layers compute on CPUs in fp32, and train.{key} is {value}",
        fix=f"set train.{key}={other}, or model.fused=false",
    )


def _profile(train: TrainSpec, last_step: int, device: str) -> ProfilePlan | None:
    if not train.profile:
        unused = [key for key in ("profile_steps", "profiler") if not _is_default(train, key)]
        if unused:
            raise UserError(
                f"train.{unused[0]} is set, and train.profile is false: no step would be profiled",
                fix=f"set train.profile=true, or leave train.{unused[0]} out",
            )
        return None
    return planned_profile(train.profiler, steps=train.profile_steps, last_step=last_step, device=device)


def _is_default(train: TrainSpec, key: str) -> bool:
    return bool(getattr(train, key) == type(train).model_fields[key].get_default())


def _batches(
    train: TrainSpec, task: TaskPlan, ranks: int, num_batches: NumBatches | None
) -> tuple[Batches, BatchBudget | None]:
    """How an epoch is cut, and the budget of a batch, if it has one."""
    batch = train.batch
    if not isinstance(batch, GraphBatchSpec) or batch.mode != "budget":
        if train.batch_size == "auto" or train.sizing is not None:
            raise UserError(
                "the size of a batch is to be found, and nothing here can look for it",
                fix="`graphmill batch-size` finds it; or set train.batch_size",
            )
        return task.batches(train.batch_size, ranks), None
    dataset = task.dataset
    if num_batches is None:
        raise UserError(
            f"train.batch.mode is budget, and only the prepared graphs tell how many batches {dataset.name} makes",
            fix=f"prepare {dataset.name} first, or give train.batch_size",
        )
    assert batch.max_nodes is not None  # the section has checked both
    assert batch.max_edges is not None
    count = num_batches(batch.max_nodes, batch.max_edges, ranks)
    budget = BatchBudget(max_nodes=batch.max_nodes, max_edges=batch.max_edges, num_batches=count)
    return BudgetBatches(dataset.num_train, count, ranks), budget


def _seeds_of_a_batch(batches: Batches) -> int:
    if isinstance(batches, BudgetBatches):
        return max(1, round(batches.num_seeds / batches.num_batches))
    return batches.batch_size


def refuse_unused_sources(kind: AnyKind, sources: Iterable[str]) -> None:
    """Raise a `UserError` for weights that nothing would read."""
    uses = kind.extra(Sources)
    names = () if uses is None else uses.names
    unused = [name for name in sources if name not in names]
    if unused:
        used = f"it uses {', '.join(names)}" if names else "it uses no further weights"
        raise UserError(
            f"sources has {', '.join(unused)}, but {kind.name} does not read that: {used}",
            fix="remove it; the weights that a run begins with are init_from",
        )


def refuse_missing_sources(kind: AnyKind, task: TaskPlan, given: Iterable[str]) -> None:
    """Raise a `UserError` for weights that the task's part of a plan needs, and that are not given."""
    uses = kind.extra(Sources)
    if uses is not None and (missing := uses.missing(task, given)):
        raise UserError(
            f"the run learns from other weights, and sources.{', sources.'.join(missing)} are not given",
            fix=f"-O sources.{missing[0]}.run=RUN",
        )


def _limited(dataset: DatasetInfo, limit: int | None) -> DatasetInfo:
    """The facts with as many training seeds as the experiment asks for."""
    if limit is None:
        return dataset
    if limit > dataset.num_train:
        raise UserError(
            f"dataset.train_limit is {limit}, but {dataset.name} has {dataset.num_train} to train on",
            fix=f"set dataset.train_limit={dataset.num_train} or less, or leave it out",
        )
    return dataset.model_copy(update={"num_train": limit})


def _device(requested: Literal["auto", "cpu", "cuda"], machine: MachineInfo) -> Literal["cpu", "cuda"]:
    if requested == "cuda" and machine.num_gpus == 0:
        raise UserError(
            "train.device is cuda, but this machine has no GPU that the driver reports", fix="set train.device=cpu"
        )
    if requested == "auto":
        return "cuda" if machine.num_gpus else "cpu"
    return requested


def _tf32(*, requested: bool, device: str) -> bool:
    if requested and device == "cpu":
        raise UserError(
            "train.tf32 is true, but train.device is cpu, where products of fp32 are made in fp32",
            fix="set train.tf32=false, or train.device=cuda",
        )
    return requested


def _ranks(
    requested: int | Literal["auto"], device: str, machine: MachineInfo, hosts: int, roles: RolesSpec | None
) -> int:
    if roles is not None:
        refuse_other_ranks(roles, requested)
        refuse_unfit_roles(roles, hosts)
        refuse_unfit_ranks(roles.trainers, device=device, hosts=hosts, machine=machine, samplers=roles.samplers)
        return roles.trainers
    ranks = hosts * (machine.num_gpus if device == "cuda" else 1) if requested == "auto" else requested
    refuse_unfit_ranks(ranks, device=device, hosts=hosts, machine=machine)
    return ranks


def _threads(requested: Threads, machine: MachineInfo, hosts: int, processes: int) -> int:
    """Threads of each process: those of a host share its cores, whatever they do."""
    threads = without_trial(requested)
    return max(1, machine.num_cores * hosts // processes) if threads == "auto" else threads


def _memory_of_a_process(machine: MachineInfo, device: str, processes: int, hosts: int) -> int | None:
    """Bytes: an equal share of the host's; None: not known, as a GPU's."""
    if device == "cuda" or machine.memory_mib is None:
        return None
    return int(machine.memory_mib * (1 << 20)) * hosts // processes


def refuse_sizing_with_roles(experiment: Experiment) -> None:
    """Raise a `UserError` if the size of batches is to be found with roles: a trial has one process."""
    roles, sizing = experiment.roles, experiment.train.sizing
    if roles is not None and sizing is not None:
        raise UserError(
            f"the size of a batch is to be found (train.batch.mode {sizing}), and with roles nothing looks for it: what"
            " is tried is one process that samples and trains",
            fix="find it without roles: `graphmill batch-size`; then give train.batch_size",
        )


def refuse_unfit_for_roles(experiment: Experiment, kind: AnyKind) -> None:
    """Raise a `UserError` if roles are asked for, and the task, or what else is asked for, does not go with them."""
    if experiment.roles is None:
        return
    if kind.extra(Sampling) is None:
        raise UserError(
            f"roles: {kind.name} has no sampling service: every rank makes its own batches",
            fix=f"leave roles out, and set train.ranks={experiment.roles.trainers}",
        )
    if experiment.train.presampled_in is not None:
        raise UserError(
            "train.presampled and roles are both set, and batches that were sampled before need no samplers",
            fix="leave one of the two out",
        )
    refuse_sizing_with_roles(experiment)


def _backend(requested: Literal["auto", "gloo", "nccl"], device: str) -> Literal["gloo", "nccl"]:
    if requested == "nccl" and device == "cpu":
        raise UserError(
            "train.backend is nccl, but train.device is cpu, and nccl moves GPU memory only",
            fix="set train.backend=gloo",
        )
    if requested == "auto":
        return "nccl" if device == "cuda" else "gloo"
    return requested


def _task_plan(experiment: Experiment, dataset: DatasetInfo) -> TaskPlan:
    kind = find_kind(experiment.task.kind)
    if not isinstance(experiment, kind.experiment) or not isinstance(dataset, kind.info):
        raise TypeError(f"{type(experiment).__name__} and {type(dataset).__name__} are not of the kind {kind.name}")
    task: TaskPlan = kind.resolve(experiment, dataset)
    return task
