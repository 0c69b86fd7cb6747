"""What a plan implies by formula: parameters, synchronisations, bytes, memory. Never measured (invariant 6)."""

import itertools
from collections.abc import Sequence
from typing import assert_never

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.spec.experiment import DcrnnSpec, DeferredAllreduceSpec, DilocoSpec, GraphSageSpec, LocalSgdSpec
from graphmill.spec.plan import NodeClassificationPlan, Plan, TrafficPlan

_MIB = 1 << 20
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_FORECAST_INPUTS = 4  # channels of a sensor: its reading, whether there is one, time of day, day of week
_PROCESS_MIB = 350.0  # interpreter, torch and its threads, before any data


class Modelled(Spec):
    """Figures by formula. Null where the model is a stranger's, whose size is known only once it is built."""

    rounds_per_epoch: int = Field(description="synchronisations of a full epoch (the first), warm-up left aside")
    num_syncs: int = Field(description="synchronisations of the whole run")
    seeds_seen: int = Field(description="training nodes, or windows, seen over the whole run, by all ranks")
    num_parameters: int | None
    mib_per_sync_fp32: float | None = Field(description="seed 000's commMB_per_step_fp32: parameters in fp32")
    mib_total_fp32: float | None = Field(description="seed 000's commMB_cum_fp32 at the end of the run")
    payload_mib_per_sync: float | None = Field(description="in the payload's own number format")
    payload_mib_total: float | None
    nodes_per_batch: int | None = Field(
        description="at most, if no two sampled neighbours were the same node; null where nothing is sampled"
    )
    memory_per_rank_mib: float | None = Field(
        description="at most; the data are mapped once for all ranks and not in it"
    )


def modelled(plan: Plan) -> Modelled:
    """All figures of `plan`."""
    parameters = _num_parameters(plan)
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
        nodes_per_batch=_nodes_per_batch(plan),
        memory_per_rank_mib=None if parameters is None else _memory_mib(plan, parameters),
    )


def _num_parameters(plan: Plan) -> int | None:
    match plan.task:
        case NodeClassificationPlan() as task:
            return _graphsage_parameters(task)
        case TrafficPlan() as task:
            return _dcrnn_parameters(task)
        case _:
            assert_never(plan.task)


def _graphsage_parameters(task: NodeClassificationPlan) -> int | None:
    """Per layer a weight for the node, one for the mean of its neighbours, and a bias."""
    if not isinstance(task.model, GraphSageSpec):
        return None
    hidden = [task.model.hidden_channels] * (task.model.num_layers - 1)
    widths = [task.dataset.num_features, *hidden, task.dataset.num_classes]
    return sum(2 * inner * outer + outer for inner, outer in itertools.pairwise(widths))


def _dcrnn_parameters(task: TrafficPlan) -> int | None:
    """Per recurrent layer two gates and a candidate over all diffusion steps of [input, state]; then a projection."""
    if not isinstance(task.model, DcrnnSpec):
        return None
    units, depth = task.model.rnn_units, task.model.num_layers
    inputs = [_FORECAST_INPUTS, *[units] * (depth - 1), 1, *[units] * (depth - 1)]  # of the encoder, of the decoder
    cells = sum((inner + units) * _num_matrices(task.model) * 3 * units + 3 * units for inner in inputs)
    return cells + units + 1


def _num_matrices(model: DcrnnSpec) -> int:
    """A sensor itself, and K steps along either direction of the graph."""
    return 1 + 2 * model.max_diffusion_step


def _num_syncs(plan: Plan) -> int:
    """Rounds end after `every` steps and at the end of an epoch; warm-up steps synchronise one by one."""
    calendar = plan.calendar
    warmup = min(plan.sync.warmup_steps, calendar.last_step) if isinstance(plan.sync, LocalSgdSpec) else 0
    return warmup + calendar.rounds_ended(calendar.last_step) - calendar.rounds_ended(warmup)


def _seeds_seen(plan: Plan) -> int:
    """All of every epoch, but for the last, which may be cut short."""
    last = plan.calendar.num_epochs - 1
    return last * plan.batches.num_seeds + plan.batches.seeds_in(plan.calendar.steps_in(last))


def _nodes_per_batch(plan: Plan) -> int | None:
    return sum(_nodes_per_hop(plan, plan.task)) if isinstance(plan.task, NodeClassificationPlan) else None


def _nodes_per_hop(plan: Plan, task: NodeClassificationPlan) -> list[int]:
    """At most: [seeds, hop 1, …]. All neighbours (-1) may be the whole graph."""
    hops = [min(plan.batch_size, task.dataset.num_train)]
    for fanout in task.num_neighbors:
        reached = task.dataset.num_nodes if fanout == -1 else hops[-1] * fanout
        hops.append(max(0, min(reached, task.dataset.num_nodes - sum(hops))))
    return hops


def _memory_mib(plan: Plan, parameters: int) -> float:
    """Process, parameters with gradients and Adam's two moments and what the scheme keeps, batches, activations."""
    copies = 4 + {DeferredAllreduceSpec: 0, LocalSgdSpec: 2, DilocoSpec: 3}[type(plan.sync)]
    match plan.task:
        case NodeClassificationPlan() as task:
            batch, activations = _sampled_bytes(task, _nodes_per_hop(plan, task))
        case TrafficPlan() as task:
            is_native = plan.device == "cpu" and plan.precision == "fp32"
            batch, activations = _forecast_bytes(task, plan.batch_size, is_native=is_native)
        case _:
            assert_never(plan.task)
    return _PROCESS_MIB + (parameters * 4 * copies + batch * (plan.prefetch + 1) + activations) / _MIB


def _sampled_bytes(task: NodeClassificationPlan, hops: Sequence[int]) -> tuple[int, int]:
    """Bytes of one mini-batch, and of what its backward pass needs."""
    edges = sum(inner * fanout for inner, fanout in zip(hops[:-1], task.num_neighbors, strict=True) if fanout > 0)
    rows = sum(hops[:-1])
    inputs = 0 if task.dataset.has_sparse_features else rows * 2 * task.dataset.num_features * 4
    hidden = task.model.hidden_channels if isinstance(task.model, GraphSageSpec) else 0
    activations = 3 * 4 * sum(sum(hops[:-depth]) * 2 * hidden for depth in range(1, len(hops)))
    return sum(hops) * 8 + rows * 8 + edges * 4 + inputs, activations


def _forecast_bytes(task: TrafficPlan, batch_size: int, *, is_native: bool) -> tuple[int, int]:
    """Bytes of one batch of windows, and of what its backward pass needs.

    The native cell keeps its input, its state, two gates and the candidate, and diffuses again on the way back; torch
    keeps the diffused inputs of every gate as well.
    """
    rows = min(batch_size, task.dataset.num_train) * task.dataset.num_sensors
    batch = rows * (task.history * _FORECAST_INPUTS + 2 * task.horizon) * 4
    if not isinstance(task.model, DcrnnSpec):
        return batch, 0
    units, steps = task.model.rnn_units, task.history + task.horizon
    diffused = 0 if is_native else 2 * 2 * units * _num_matrices(task.model)
    return batch, rows * steps * task.model.num_layers * (diffused + 6 * units) * 4
