"""Do the hosts agree? Compared before anything starts: code, torch, cores and GPUs, and how one reaches the other."""

from collections.abc import Sequence

import graphmill
from graphmill.base.errors import UserError
from graphmill.cluster.launch.ssh.hosts import HostList
from graphmill.cluster.launch.ssh.session import Session
from graphmill.cluster.launch.ssh.wire import HostInfo
from graphmill.runtime.code import code_checksum
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.spec.roles import RolesSpec, hosts_that_train
from graphmill.spec.world import World, world_of


def refuse_all(errors: Sequence[UserError]) -> None:
    """Raise one `UserError` with all of them; return if there is none."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    lines = "".join(f"\n  {error.message}\n    → {error.fix}" for error in errors)
    raise UserError(f"{len(errors)} hosts cannot train:{lines}", fix="fix them all, or leave those hosts out")


def refuse_other_code(sessions: Sequence[Session]) -> None:
    """Raise a `UserError` if a host runs other code than this one: ranks that differ compute nonsense, or hang."""
    here = code_checksum()
    others = [session for session in sessions if _info(session).code != here]
    if others:
        told = "\n  ".join(f"{session.host.name}: {_code(_info(session))}" for session in others)
        raise UserError(
            "not all hosts run the code that this one does"
            f" (graphmill {graphmill.__version__}, files {here}):\n  {told}",
            fix="bring the same version to all of them, such as by `git pull` in each checkout, or name another python",
        )
    for what in ("torch", "python"):
        versions = {str(getattr(_info(session), what)) for session in sessions}
        if len(versions) > 1:
            told = ", ".join(f"{session.host.name}: {getattr(_info(session), what)}" for session in sessions)
            raise UserError(
                f"the hosts have different versions of {what}: {told}", fix="make them the same, or name another python"
            )


def machine_of_each(sessions: Sequence[Session], roles: RolesSpec | None = None) -> MachineInfo:
    """The least cores of any host, and the least GPUs of any that trains: one that only samples needs none."""
    facts = [_info(session) for session in sessions]
    train = facts if roles is None else facts[: hosts_that_train(roles, len(facts))]
    return MachineInfo(num_cores=min(fact.num_cores for fact in facts), num_gpus=min(fact.num_gpus for fact in train))


def unequal(sessions: Sequence[Session]) -> str | None:
    """A remark if hosts have more than the least of them."""
    facts = [_info(session) for session in sessions]
    least = machine_of_each(sessions)
    if all((fact.num_cores, fact.num_gpus) == (least.num_cores, least.num_gpus) for fact in facts):
        return None
    told = ", ".join(
        f"{session.host.name}: {fact.num_cores} cores, {fact.num_gpus} GPUs"
        for session, fact in zip(sessions, facts, strict=True)
    )
    return f"the hosts differ ({told}), and each is planned for as the least of them"


def meeting_address(hosts: HostList, sessions: Sequence[Session]) -> str:
    """The IP address under which the other hosts reach rank 0's host, as the last of them resolves it."""
    resolved = _info(sessions[-1]).resolved
    name = meeting_name(hosts, sessions)
    if resolved is None:
        raise UserError(
            f"{sessions[-1].host.name} cannot resolve {name}, where the ranks would rendezvous",
            fix=f"set master_addr in {hosts.source} to an address of {sessions[0].host.name} that the other hosts know",
        )
    if len(sessions) > 1 and resolved in ("127.0.0.1", "::1", "127.0.1.1"):
        raise UserError(
            f"{name} is {resolved} on {sessions[-1].host.name}, which leads to that host itself",
            fix=f"set master_addr in {hosts.source} to an address of {sessions[0].host.name} that the other hosts know",
        )
    return resolved


def meeting_name(hosts: HostList, sessions: Sequence[Session]) -> str:
    """Name of rank 0's host before it is resolved; localhost for a run on one host, which no other has to reach."""
    if len(sessions) == 1:
        return "localhost"
    return hosts.master_addr or sessions[0].address


def world_on(hosts: HostList, plan: Plan, last: World, machine: MachineInfo) -> World:
    """The processes on these hosts: as many as they are to start; where they do not say it, as many as there were last.

    Raises a `UserError` if the plan cannot be run by them.
    """
    if hosts.num_ranks is None and not last.samplers and last.ranks % len(hosts.hosts):
        raise UserError(
            f"{plan.run_id} has {last.ranks} ranks, which do not divide among the {len(hosts.hosts)} hosts in"
            f" {hosts.source}",
            fix="list another number of hosts, or say there how many `ranks` each is to start",
        )
    ranks = last.ranks if hosts.num_ranks is None else hosts.num_ranks
    return world_of(plan, ranks=ranks, hosts=len(hosts.hosts), machine=machine)


def _info(session: Session) -> HostInfo:
    assert session.facts is not None, "it was looked at"
    return session.facts


def _code(facts: HostInfo) -> str:
    state = "" if facts.dirty is None else ", changed" if facts.dirty else ", clean"
    commit = f", commit {facts.commit[:12]}{state}" if facts.commit else ""
    return f"graphmill {facts.version}, files {facts.code}{commit} ({facts.executable} on {facts.hostname})"
