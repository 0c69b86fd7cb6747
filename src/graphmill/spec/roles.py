"""Processes that hold the data and sample, and processes that train: who of a run's processes is which. Pure.

Each role counts its own ranks from 0. Hosts start equally many processes, so either every host has as many of each
role, and batches are handed over in its shared memory, or whole hosts train and whole hosts sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec

Role = Literal["trainer", "sampler"]


class RolesSpec(Spec):
    """A sampling service: without it every rank samples its own batches."""

    also_called: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("servers", "num_servers", "num_samplers", "sampling_workers"), "roles.samplers"),
        **dict.fromkeys(("clients", "num_clients", "num_trainers", "workers", "ranks"), "roles.trainers"),
    }

    samplers: PositiveInt = Field(description="processes that hold the data, sample, and evaluate")
    trainers: PositiveInt = Field(description="processes that compute the updates: the ranks of the run")

    @property
    def num_processes(self) -> int:
        """Processes of both roles."""
        return self.samplers + self.trainers

    def sampler_of(self, trainer: int) -> int:
        """The sampler that serves a trainer: contiguous shares, so that they are on one host where every host has both.

        >>> [RolesSpec(samplers=2, trainers=4).sampler_of(trainer) for trainer in range(4)]
        [0, 0, 1, 1]
        """
        return trainer * self.samplers // self.trainers

    def trainers_of(self, sampler: int) -> range:
        """The trainers that a sampler serves."""
        each = self.trainers // self.samplers
        return range(sampler * each, (sampler + 1) * each)


@dataclass(frozen=True, slots=True)
class RoleRank:
    """One process, as its role counts: a rank among `num_ranks`, of which its host has `ranks_here`."""

    role: Role
    rank: int
    local_rank: int
    num_ranks: int
    ranks_here: int

    @property
    def num_hosts(self) -> int:
        """Number of hosts that have processes of this role."""
        return self.num_ranks // self.ranks_here

    @property
    def name(self) -> str:
        """Name of the process for a message: trainers are the ranks of a run."""
        return f"{'rank' if self.role == 'trainer' else 'sampler'} {self.rank}"

    @property
    def stem(self) -> str:
        """Stem of its files in the run folder, and of its rows in the monitor's."""
        return self.name.replace(" ", "_")


def refuse_other_ranks(roles: RolesSpec, ranks: int | Literal["auto"]) -> None:
    """Raise a `UserError` if `train.ranks` says another number than the trainers, which are the ranks."""
    if ranks not in ("auto", roles.trainers):
        raise UserError(
            f"train.ranks is {ranks}, but roles.trainers is {roles.trainers}, and the trainers are the ranks",
            fix=f"set roles.trainers={ranks}, or leave train.ranks out",
        )


def refuse_unfit_roles(roles: RolesSpec, hosts: int) -> None:
    """Raise a `UserError` if trainers cannot be shared out among samplers, or both among hosts."""
    samplers, trainers = roles.samplers, roles.trainers
    if trainers % samplers:
        raise UserError(
            f"roles: {trainers} trainers cannot be shared out equally among {samplers} samplers",
            fix=f"set roles.trainers={-(-trainers // samplers) * samplers}, or roles.samplers to a divisor of it",
        )
    if fits(samplers, trainers, hosts):
        return
    raise UserError(
        f"roles: {trainers} trainers and {samplers} samplers do not fit {hosts} hosts: each role must divide among"
        " them, or fill whole hosts with as many processes on each",
        fix=f"set roles.samplers={hosts} and roles.trainers={-(-trainers // hosts) * hosts}",
    )


def fits(samplers: int, trainers: int, hosts: int) -> bool:
    """Whether trainers can be shared out among samplers, and both among hosts."""
    roles = RolesSpec(samplers=samplers, trainers=trainers)
    return trainers % samplers == 0 and (_is_mixed(roles, hosts) or _is_apart(roles, hosts))


def hosts_that_train(roles: RolesSpec, hosts: int) -> int:
    """Number of hosts that train, which are the first ones; the others only sample. Roles must fit."""
    refuse_unfit_roles(roles, hosts)
    return role_rank_of(0, roles, hosts).num_hosts


def first_host_that_samples(roles: RolesSpec, hosts: int) -> int:
    """Number of the first host that samples; all hosts after it sample too. Roles must fit."""
    return 0 if _is_mixed(roles, hosts) else hosts_that_train(roles, hosts)


def role_rank_of(process: int, roles: RolesSpec, hosts: int) -> RoleRank:
    """What process number `process` is; processes are numbered host by host. Roles must fit (`refuse_unfit_roles`).

    >>> [role_rank_of(process, RolesSpec(samplers=2, trainers=4), hosts=2).role for process in range(6)]
    ['trainer', 'trainer', 'sampler', 'trainer', 'trainer', 'sampler']
    >>> [role_rank_of(process, RolesSpec(samplers=1, trainers=2), hosts=3).role for process in range(3)]
    ['trainer', 'trainer', 'sampler']
    """
    per_host = roles.num_processes // hosts
    host, place = divmod(process, per_host)
    if _is_mixed(roles, hosts):
        trainers_here, samplers_here = roles.trainers // hosts, roles.samplers // hosts
        if place < trainers_here:
            return RoleRank("trainer", host * trainers_here + place, place, roles.trainers, trainers_here)
        place -= trainers_here
        return RoleRank("sampler", host * samplers_here + place, place, roles.samplers, samplers_here)
    if process < roles.trainers:
        return RoleRank("trainer", process, place, roles.trainers, per_host)
    return RoleRank("sampler", process - roles.trainers, place, roles.samplers, per_host)


def process_of(role: Role, rank: int, roles: RolesSpec, hosts: int) -> int:
    """The number of the process that is a rank of a role: the inverse of `role_rank_of`."""
    per_host = roles.num_processes // hosts
    if not _is_mixed(roles, hosts):
        return rank if role == "trainer" else roles.trainers + rank
    trainers_here = roles.trainers // hosts
    here = trainers_here if role == "trainer" else roles.samplers // hosts
    host, place = divmod(rank, here)
    return host * per_host + place + (0 if role == "trainer" else trainers_here)


def _is_mixed(roles: RolesSpec, hosts: int) -> bool:
    return roles.trainers % hosts == 0 and roles.samplers % hosts == 0


def _is_apart(roles: RolesSpec, hosts: int) -> bool:
    if roles.num_processes % hosts:
        return False
    per_host = roles.num_processes // hosts
    return roles.trainers % per_host == 0 and roles.samplers % per_host == 0
