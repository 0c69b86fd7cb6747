"""What a host needs of a graph in parts, by where its ranks are among all ranks."""

from graphmill.partition.placement import placement_of
from graphmill.record.staged import LABELS, Share
from graphmill.spec.partition import InParts
from graphmill.spec.plan import Plan
from graphmill.spec.roles import first_host_that_samples
from graphmill.spec.world import World


def share_of_host(asked: InParts, host: int, *, hosts: int, ranks: int) -> Share:
    """Share of host `host` of `hosts`, which start `ranks` ranks in all.

    >>> share_of_host(InParts(4, "per_host", "partitioned"), 1, hosts=2, ranks=4)
    Share(parts=(2, 3), whole_topology=False)
    >>> share_of_host(InParts(2, "per_host", "replicated"), 1, hosts=4, ranks=4)
    Share(parts=(0,), whole_topology=True)
    >>> [share_of_host(InParts(4, "per_rank", "replicated"), h, hosts=3, ranks=3).parts for h in range(3)]
    [(0,), (1,), (2, 3)]
    """
    each = ranks // hosts
    placement = placement_of(asked.placement, asked.num_parts, ranks=ranks, hosts=hosts)
    parts = {part for rank in range(host * each, (host + 1) * each) for part in placement.parts_of(rank)}
    return Share(tuple(sorted(parts)), asked.topology == "replicated")


def share_of_plan(plan: Plan, host: int, world: World | None = None) -> Share | None:
    """What the processes of a host read; None: all of the data. `world`: of the attempt; None: as planned.

    With roles the samplers hold the graph, and a host that only trains needs its labels alone.
    """
    world, asked = world or plan.world, plan.task.in_parts
    roles = world.roles
    if roles is None:
        return None if asked is None else share_of_host(asked, host, hosts=world.hosts, ranks=world.ranks)
    first = first_host_that_samples(roles, world.hosts)
    if host < first:
        return LABELS
    if asked is None:
        return None
    return share_of_host(asked, host - first, hosts=world.hosts - first, ranks=roles.samplers)
