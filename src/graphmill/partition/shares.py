"""What a host needs of a graph in parts, by where its ranks are among all ranks."""

from typing import Literal

from graphmill.partition.placement import Placement
from graphmill.record.staged import Share


def share_of_host(
    num_parts: int,
    *,
    hosts: int,
    ranks: int,
    host: int,
    placement: Literal["per_host", "per_rank"],
    topology: Literal["replicated", "partitioned"],
) -> Share:
    """Of host `host` of `hosts`, which start `ranks` ranks in all. `UserError` if parts do not divide among them.

    >>> share_of_host(4, hosts=2, ranks=4, host=1, placement="per_host", topology="partitioned").parts
    (2, 3)
    >>> share_of_host(2, hosts=4, ranks=4, host=1, placement="per_host", topology="partitioned").parts
    (0,)
    """
    each = ranks // hosts
    if placement == "per_host":
        parts = set(Placement(num_parts, hosts, each).parts_on(host))
    else:
        alone = Placement(num_parts, ranks, 1)
        parts = {part for rank in range(host * each, (host + 1) * each) for part in alone.parts_on(rank)}
    return Share(tuple(sorted(parts)), topology == "replicated")
