"""How many processes carry out a plan: those that it was made for, or others, when its run is resumed. Pure.

A global batch is `batch_size` × the ranks of the plan, whoever computes it: another number of ranks cuts the same
global batches otherwise. So calendar, seeds and updates stay as planned, and sums differ in their order alone.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.roles import RoleRank, RolesSpec, fits, refuse_unfit_roles, role_rank_of

if TYPE_CHECKING:
    from graphmill.spec.plan import MachineInfo, Plan

RANK_MIB_AT_LEAST = 150  # not shared with others: an interpreter that has imported torch (157 seen: 2.13, CPU build)


class World(Spec):
    """The processes of an attempt."""

    hosts: int = Field(ge=1, description="machines; each starts the same number of processes")
    ranks: int = Field(ge=1, description="processes over all hosts; with roles those that train")
    threads: int = Field(ge=1, description="of each process")
    samplers: int = Field(0, ge=0, description="processes that sample for the ranks; 0: each rank samples for itself")

    @model_validator(mode="after")
    def _is_alike_on_all_hosts(self) -> Self:
        """Refuse numbers of a damaged record; requests for such ranks are refused earlier (`refuse_unfit_ranks`)."""
        fitting = fits(self.samplers, self.ranks, self.hosts) if self.samplers else not self.ranks % self.hosts
        if not fitting:
            raise ValueError(f"{self.hosts} hosts cannot start {self.ranks} ranks and {self.samplers} samplers alike")
        return self

    @property
    def roles(self) -> RolesSpec | None:
        """Who samples, and who trains; None: every rank does both."""
        return RolesSpec(samplers=self.samplers, trainers=self.ranks) if self.samplers else None

    @property
    def processes(self) -> int:
        """Processes of both roles."""
        return self.ranks + self.samplers

    @property
    def processes_per_host(self) -> int:
        """Processes that every host starts."""
        return self.processes // self.hosts

    @property
    def ranks_per_host(self) -> int:
        """Ranks of each host that has ranks: whole hosts may sample only."""
        return self.role_rank(0).ranks_here

    @property
    def hosts_with_ranks(self) -> int:
        """Number of hosts that train."""
        return self.ranks // self.ranks_per_host

    def role_rank(self, process: int) -> RoleRank:
        """What process number `process` is; they are numbered host by host."""
        roles = self.roles
        if roles is not None:
            return role_rank_of(process, roles, self.hosts)
        each = self.ranks // self.hosts
        return RoleRank("trainer", process, process % each, self.ranks, each)


@dataclass(frozen=True, slots=True)
class RankSpan:
    """Steps of a run that the same number of ranks did; it ends where the next begins."""

    first_step: int  # of each rank, steps done before it
    ranks: int


def world_of(plan: "Plan", *, ranks: int, hosts: int, machine: "MachineInfo | None" = None) -> World:
    """Processes that carry out `plan` with this number of ranks, and as many threads on a host as planned.

    Raises a `UserError` where they cannot carry it out. `machine`: of each of the hosts; None: not known yet.
    As many processes sample as are planned.
    """
    samplers = plan.world.samplers
    _refuse_unserved(plan, ranks, hosts)
    refuse_unfit_ranks(ranks, device=plan.device, hosts=hosts, machine=machine, samplers=samplers)
    if ranks == plan.ranks:
        return World(hosts=hosts, ranks=ranks, threads=plan.threads, samplers=samplers)
    if plan.task.tied_to_ranks:
        raise UserError(
            f"{plan.run_id} is of {plan.ranks} ranks, and {ranks} cannot resume it: {plan.task.tied_to_ranks}",
            fix=f"resume with {plan.ranks} ranks",
        )
    _refuse_other_budget(plan, ranks)
    at_once = plan.batch_size * plan.ranks
    if ranks > at_once:
        raise UserError(
            f"{ranks} ranks are more than the {at_once} seeds of a global batch ({plan.batch_size} for each of the"
            f" {plan.ranks} ranks that {plan.run_id} was planned for): some would never have one",
            fix=f"resume with {at_once // hosts * hosts or hosts} ranks or fewer",
        )
    others = World(hosts=hosts, ranks=ranks, threads=1, samplers=samplers)
    threads = max(1, plan.threads * plan.world.processes_per_host // others.processes_per_host)
    return others.model_copy(update={"threads": threads})


def _refuse_unserved(plan: "Plan", ranks: int, hosts: int) -> None:
    """The samplers of a run stay: others cannot be asked for when it is resumed."""
    samplers = plan.world.samplers
    if not samplers or ranks < 1:
        return
    try:
        refuse_unfit_roles(RolesSpec(samplers=samplers, trainers=ranks), hosts)
    except UserError as error:
        at_once = plan.batch_size * plan.ranks
        fitting = [number for number in range(samplers, at_once + 1, samplers) if fits(samplers, number, hosts)]
        near = sorted(fitting, key=lambda number: abs(number - ranks))[:2]
        fix = f"give --ranks {' or --ranks '.join(map(str, sorted(near)))}" if near else "give another number of hosts"
        raise UserError(f"{plan.run_id} has {samplers} samplers: {error.message}", fix=fix) from None


def refuse_unfit_ranks(
    ranks: int, *, device: str, hosts: int, machine: "MachineInfo | None", samplers: int = 0
) -> None:
    """Raise a `UserError` if such hosts cannot start these ranks, and the `samplers` that serve them."""
    if ranks < 1:
        raise UserError(f"{ranks} ranks cannot train: a run has one at least", fix="give --ranks 1, or more")
    if samplers:
        refuse_unfit_roles(RolesSpec(samplers=samplers, trainers=ranks), hosts)
    elif ranks % hosts:
        raise UserError(
            f"{ranks} ranks do not divide among {hosts} hosts, and every host starts the same number",
            fix=f"set train.ranks={math.ceil(ranks / hosts) * hosts}",
        )
    if machine is None:
        return
    asked, key = World(hosts=hosts, ranks=ranks, threads=1, samplers=samplers), _key_of_ranks(samplers)
    if device == "cuda" and asked.ranks_per_host > machine.num_gpus:
        there = f"this machine has {machine.num_gpus}" if hosts == 1 else f"{hosts} hosts have {machine.num_gpus} each"
        raise UserError(
            f"{ranks} {'trainers' if samplers else 'ranks'} want a GPU each, but {there}",
            fix=f"set {key}={machine.num_gpus * asked.hosts_with_ranks}, or train.device=cpu",
        )
    needed = asked.processes_per_host * RANK_MIB_AT_LEAST
    if machine.memory_mib is not None and needed > machine.memory_mib:
        what = f"{asked.processes_per_host} {'trainers and samplers' if samplers else 'ranks'}"
        raise UserError(
            f"{what} on one machine need {needed / 1024:.0f} GiB before they hold any data, but it has"
            f" {machine.memory_mib / 1024:.0f} GiB",
            fix=f"set {key} to the number of cores, {machine.num_cores * hosts}, or fewer",
        )


def _key_of_ranks(samplers: int) -> str:
    """The key of an experiment that says how many ranks."""
    return "roles.trainers" if samplers else "train.ranks"


def _refuse_other_budget(plan: "Plan", ranks: int) -> None:
    """A budget is what a rank's memory may hold, and fewer ranks would have to hold more."""
    budget = plan.budget
    if budget is not None and ranks < plan.ranks:
        raise UserError(
            f"{plan.run_id} has batches by budget (max_nodes {budget.max_nodes}, max_edges {budget.max_edges} for each"
            f" of {plan.ranks} ranks): {ranks} ranks would hold more than that to take the same steps",
            fix=f"resume with {plan.ranks} ranks or more",
        )


def effect_of(plan: "Plan") -> str:
    """What another number of ranks than planned does to the losses, in words."""
    if plan.sync.scheme == "deferred_allreduce":
        return "the same steps, equal to rounding but for what a model itself draws or normalises by rank"
    return "the same seeds at each step, but each rank updates alone between syncs, so losses are others"


def spans_of(starts: Iterable[tuple[int, int]]) -> tuple[RankSpan, ...]:
    """Which number of ranks did which steps, of (steps done, ranks) at every start of a run, in turn.

    A start forgets what was done after its step: that is done again.

    >>> spans_of([(0, 4), (10, 2), (10, 3), (20, 3), (15, 4)])
    (RankSpan(first_step=0, ranks=4), RankSpan(first_step=10, ranks=3), RankSpan(first_step=15, ranks=4))
    """
    found: list[RankSpan] = []
    for first_step, ranks in starts:
        found = [known for known in found if known.first_step < first_step]
        if not found or found[-1].ranks != ranks:
            found.append(RankSpan(first_step, ranks))
    return tuple(found)


def ranks_at(spans: Iterable[RankSpan], steps_done: int) -> int:
    """How many ranks did the step that made it `steps_done`, 1 or more; 0: none is known to have done it."""
    return next((known.ranks for known in reversed(list(spans)) if known.first_step < steps_done), 0)


def spans_text(spans: Iterable[RankSpan]) -> str:
    """Describe spans of ranks, such as `ranks: 4 to step 10, then 2`."""
    known = list(spans)
    ends = [*(later.first_step for later in known[1:]), None]
    parts = [f"{each.ranks}{'' if end is None else f' to step {end}'}" for each, end in zip(known, ends, strict=True)]
    return f"ranks: {', then '.join(parts)}"
