"""What a plan implies by formula: parameters, syncs, bytes, memory of hosts and GPUs. Never measured (invariant 6)."""

from pydantic import Field

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.device_memory import GIB, LaidOut, StepMemory, lay_out, room_of
from graphmill.spec.experiment import DeferredAllreduceSpec, DilocoSpec, LocalSgdSpec
from graphmill.spec.kinds.kind import Sizes, StepShape
from graphmill.spec.optimizer import num_moments
from graphmill.spec.plan import Plan
from graphmill.spec.roles import RoleRank, RolesSpec

_MIB = 1 << 20
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_PROCESS_MIB = 350.0  # interpreter, torch and its threads, before any data


class MemoryParts(Spec):
    """What the memory of a rank is made of, and what all ranks of a host share; at most. Null where it is not known."""

    data_mib: float | None = Field(description="prepared data, mapped once for all ranks of a host: page cache")
    shared_mib: float = Field(
        description="of data_mib, rows of other hosts' parts that ranks hold together: memory, and no page cache"
    )
    index_mib: float = Field(description="what each rank keeps about all of the data; with roles each sampler")
    batches_mib: float = Field(description="the batches of a rank that are under way")
    model_mib: float | None = Field(description="parameters, gradients, moments, and what the scheme keeps")
    activations_mib: float = Field(description="what a step's backward pass needs, or an evaluation if that is more")
    not_counted: str = Field(description='what these figures leave out, and why; "": nothing that is known of')


class Modelled(Spec):
    """Figures by formula. Null if the model is user-defined: its size is known only once it is built."""

    rounds_per_epoch: int = Field(description="synchronisations of a full epoch (the first), warm-up left aside")
    num_syncs: int = Field(description="synchronisations of the whole run")
    seeds_seen: int = Field(description="training seeds (nodes, windows) seen over the whole run, by all ranks")
    num_parameters: int | None
    mib_per_sync_fp32: float | None = Field(
        description="parameters in fp32: modelled_mib_per_sync_fp32 of merged metrics"
    )
    mib_total_fp32: float | None = Field(description="modelled_mib_cum_fp32 of merged metrics at the end of the run")
    payload_mib_per_sync: float | None = Field(description="in the payload's own number format")
    payload_mib_total: float | None
    nodes_per_batch: int | None = Field(
        description="at most, if no two sampled neighbours were the same node; null where nothing is sampled"
    )
    memory_per_rank_mib: float | None = Field(
        description="at most; the data are mapped once for all ranks and not in it"
    )
    memory_per_sampler_mib: float | None = Field(description="the same of a process that samples; null: there is none")
    memory: MemoryParts


def sizes_of(plan: Plan) -> Sizes:
    """How large its model and a step of it are."""
    holders, learner = _holders(plan), plan.world.role_rank(0)
    step = StepShape(
        plan.batch_size,
        plan.device,
        plan.precision,
        plan.budget,
        ranks=holders.num_ranks,
        hosts=holders.num_hosts,
        batches_together=1 if plan.roles is None else len(plan.roles.trainers_of(0)),
        learners=learner.num_ranks,
        learner_hosts=learner.num_hosts,
    )
    sizes: Sizes = plan.kind.sizes(plan.task, step)
    return sizes


def modelled(plan: Plan) -> Modelled:
    """All figures of `plan`."""
    sizes = sizes_of(plan)
    # Which parameters a pattern freezes is known only once the model is built.
    parameters = None if plan.optimizer.frozen else sizes.num_parameters
    memory = _memory(plan, sizes, parameters)
    num_syncs = _num_syncs(plan)
    per_sync = None if parameters is None else parameters * 4 / _MIB
    payload = None if parameters is None else parameters * _BYTES[plan.sync.payload] / _MIB
    return Modelled(
        rounds_per_epoch=plan.calendar.rounds_in(plan.calendar.length(0)),
        num_syncs=num_syncs,
        seeds_seen=_seeds_seen(plan),
        num_parameters=parameters,
        mib_per_sync_fp32=per_sync,
        mib_total_fp32=None if per_sync is None else per_sync * num_syncs,
        payload_mib_per_sync=payload,
        payload_mib_total=None if payload is None else payload * num_syncs,
        nodes_per_batch=sizes.nodes_per_batch,
        memory_per_rank_mib=_of_a_rank(memory, samples=plan.roles is None),
        memory_per_sampler_mib=None if plan.roles is None else _of_a_sampler(memory, plan.roles, parameters),
        memory=memory,
    )


def _num_syncs(plan: Plan) -> int:
    """Rounds end after `every` steps and at the end of an epoch; warm-up steps synchronise one by one."""
    calendar = plan.calendar
    warmup = min(plan.sync.warmup_steps, calendar.last_step) if isinstance(plan.sync, LocalSgdSpec) else 0
    return warmup + calendar.rounds_ended(calendar.last_step) - calendar.rounds_ended(warmup)


def _seeds_seen(plan: Plan) -> int:
    """Seeds seen: all of every epoch, except the last, which may be cut short."""
    last = plan.calendar.num_epochs - 1
    batches, steps = plan.batches, plan.calendar.steps_in(last)
    of_last = batches.seeds_in(steps)
    if of_last is None:  # of batches of unequal numbers of seeds
        of_last = round(batches.num_seeds * steps / plan.calendar.length(last))
    return last * batches.num_seeds + of_last


def copies_of_model(plan: Plan) -> int:
    """Vectors as long as its parameters: these, gradients, moments, and what the scheme keeps."""
    of_scheme = {DeferredAllreduceSpec: 0, LocalSgdSpec: 2, DilocoSpec: 3}[type(plan.sync)]
    return 2 + num_moments(plan.optimizer) + of_scheme


def _memory(plan: Plan, sizes: Sizes, parameters: int | None) -> MemoryParts:
    copies = copies_of_model(plan)
    return MemoryParts(
        data_mib=None if sizes.data_bytes is None else sizes.data_bytes / _MIB,
        shared_mib=sizes.shared_bytes / _MIB,
        index_mib=sizes.index_bytes / _MIB,
        batches_mib=sizes.batch_bytes * (plan.prefetch + 1) / _MIB,
        model_mib=None if parameters is None else parameters * 4 * copies / _MIB,
        activations_mib=sizes.activation_bytes / _MIB,
        not_counted=sizes.not_counted,
    )


def _holders(plan: Plan) -> RoleRank:
    """RoleRank of a process that holds the graph: a sampler where there are some, else a rank."""
    world = plan.world
    return world.role_rank(world.processes - 1)


def _of_a_rank(parts: MemoryParts, *, samples: bool) -> float | None:
    """The process and all parts but the data; where others sample, these keep what is to be known of all data."""
    if parts.model_mib is None:
        return None
    index = parts.index_mib if samples else 0.0
    return _PROCESS_MIB + index + parts.batches_mib + parts.model_mib + parts.activations_mib


def _of_a_sampler(parts: MemoryParts, roles: RolesSpec, parameters: int | None) -> float | None:
    """Batches of all ranks that it serves, and the weights and activations of evaluations."""
    if parameters is None:
        return None
    batches = len(roles.trainers_of(0)) * parts.batches_mib
    return _PROCESS_MIB + parts.index_mib + batches + parameters * 4 / _MIB + parts.activations_mib


def laid_out(plan: Plan, gpu_gib: float | None = None) -> LaidOut | None:
    """Where the graph of `plan` lies, by what it gives the graph, or on a GPU of `gpu_gib`; None: neither is said.

    Raises `UserError` where that cannot be: it does not fit, or no GPU can draw of such a graph.
    """
    given: float | None = getattr(plan.task, "gpu_graph_gib", None)
    if gpu_gib is None and given is None:
        return None
    sizes = sizes_of(plan)
    if sizes.resident is None:
        raise UserError(
            f"--gpu-memory is given, but {plan.task.kind} has no graph that a GPU could draw of",
            fix="leave --gpu-memory out",
        )
    steps = plan.calendar.length(0)
    if gpu_gib is None:
        assert given is not None  # one of the two is
        return lay_out(sizes.resident, int(given * GIB), steps=steps, batch_bytes=sizes.batch_bytes)
    if sizes.num_parameters is None:
        raise UserError(
            "the model is user-defined, and only once it is built its parameters are known: what it leaves of a GPU is"
            " not",
            fix="leave --gpu-memory out, and set train.gpu_graph_gib to what the graph may have",
        )
    model = 4 * sizes.num_parameters * copies_of_model(plan)
    room = room_of(int(gpu_gib * GIB), StepMemory(model, sizes.batch_bytes, sizes.activation_bytes, plan.prefetch))
    asked = room if given is None else int(given * GIB)
    if asked > room:
        raise UserError(
            f"train.gpu_graph_gib is {given:g}, and a GPU of {gpu_gib:g} GiB has {room / GIB:.2f} GiB left for it"
            " beside a step, by formula",
            fix=f"set train.gpu_graph_gib={int(room / GIB * 100) / 100:g} or less",
        )
    return lay_out(sizes.resident, asked, steps=steps, batch_bytes=sizes.batch_bytes)
