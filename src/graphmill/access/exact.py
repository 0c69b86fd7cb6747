"""Inference without sampling for models of which no layer is known: on the whole graph, or on whole neighbourhoods."""

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from graphmill.access.graph import Collects, GraphSource, Ids
from graphmill.graph.batch import MiniBatch
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause

_SEEDS: Final = 512  # whose whole neighbourhoods are in memory together


@torch.no_grad()
def on_neighbourhoods(
    model: Callable[[MiniBatch], Tensor],
    source: GraphSource,
    collector: Collects,
    nodes: Ids,
    pause: Pause,
    group: Group,
    *,
    hops: int,
    num_columns: int,
) -> tuple[Ids, Tensor]:
    """This rank's share of `nodes` [m], and their rows [m, num_columns]. All ranks must call it."""
    shares = np.array_split(nodes, group.world_size)
    mine, rows = shares[group.rank], [torch.empty(0, num_columns)]
    sampler = source.sampler((-1,) * hops, resample=False)
    for begin in range(0, len(shares[0]), _SEEDS):  # the first share is never the smaller
        pause()
        seeds = EvaluationSeeds(SeedIds(mine[begin : begin + _SEEDS]))
        sampled = sampler.sample(seeds)  # also of no seeds: other ranks may need this one to make theirs
        (fetched,) = source.tables.fetch([sampled])
        if len(seeds.ids):
            batch = collector.collect(sampled, fetched)
            rows.append(model(batch.to(group.device)).float().cpu())
    return mine, torch.cat(rows)


@torch.no_grad()
def on_whole_graph(
    model: Callable[[MiniBatch], Tensor],
    source: GraphSource,
    collector: Collects,
    nodes: Ids,
    pause: Pause,
    group: Group,
    *,
    hops: int,
    num_nodes: int,
) -> tuple[Ids, Tensor]:
    """This rank's share of `nodes` [m] and their rows, by one call on all `num_nodes` nodes and their edges.

    Every rank makes the whole call: sharing it out would take an exchange after each layer, and no layer is known.
    """
    pause()
    mine = np.array_split(nodes, group.world_size)[group.rank]
    everyone = EvaluationSeeds(SeedIds(np.arange(num_nodes)))
    sampled = source.sampler((-1,) * hops, resample=False).sample(everyone)  # the first hop has all edges
    (fetched,) = source.tables.fetch([sampled])
    rows = model(collector.collect(sampled, fetched).to(group.device))
    return mine, rows[torch.from_numpy(mine).to(rows.device)].float().cpu()


def in_order_of_nodes(group: Group, nodes: Ids, rows: Tensor) -> Tensor:
    """Rows [n, num_columns] of all ranks' nodes [n] by ascending node, on every rank; each node is of one rank."""
    counts = [numbers[0] for numbers in group.gather_numbers([len(nodes)])]
    everyone = group.gather_rows(rows, counts)
    ids = group.gather_rows(torch.from_numpy(np.ascontiguousarray(nodes)).reshape(-1, 1), counts)
    return everyone[torch.argsort(ids[:, 0])]
