"""Mini-batches of whole graphs by budget: as many graphs as fit into a number of nodes and edges, never more.

A graph costs the larger of its shares of the two budgets, so graphs whose costs add up to 1 fit. Of the graphs of an
epoch, the few that are large are spread over the batches first, largest first, each to the batch that has least (LPT:
Graham, SIAM J. Appl. Math. 17, 1969). The others, in an order of their own in every epoch, fill all batches to one
level: they are laid side by side, and cut where the batches' rooms end. So

- nothing is dropped or doubled, and no batch exceeds the budget;
- every batch costs what the others do, within the cost of one small graph: no rank waits for another;
- the number of batches is the same in every epoch, and a multiple of the ranks.

Batches are flat: nothing is padded, so graphs of like size gain nothing by being together, and are not.
"""

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet

Ids = NDArray[np.int64]
Costs = NDArray[np.float64]

_LARGE: Final = 0.1  # of the budget
_LARGE_SHARE: Final = 0.25  # of what a batch holds: several small ones are in each
_ROUNDING: Final = 1e-9  # of sums of costs


@dataclass(frozen=True, slots=True)
class Budget:
    """What one batch of one rank may hold."""

    num_nodes: int
    num_edges: int

    def costs(self, num_nodes: Ids, num_edges: Ids, ids: Ids | None = None) -> Costs:
        """Shares of the budget for graphs of these sizes [n], the larger of two. `ids` [n]: for messages; None: 0, 1, …

        Raises `UserError` if a graph does not fit by itself.
        """
        costs = np.maximum(num_nodes / self.num_nodes, num_edges / self.num_edges)
        if len(costs) and costs.max() > 1:
            worst = int(costs.argmax())
            raise UserError(
                f"graph {worst if ids is None else ids[worst]} has {num_nodes[worst]:,} nodes and"
                f" {num_edges[worst]:,} edges, and a batch may hold"
                f" {self.num_nodes:,} and {self.num_edges:,} ({np.count_nonzero(costs > 1):,} graphs are too large)",
                fix="raise the budget, or leave such graphs out when the data are prepared",
            )
        return costs

    def costs_of(self, graphs: GraphSet, ids: Ids) -> Costs:
        """Costs of the graphs `ids` [n] of a set. `UserError` if one of them does not fit by itself."""
        nodes, edges = np.diff(graphs.node_offsets), np.diff(graphs.edge_offsets)
        return self.costs(nodes[ids], edges[ids], ids)


@dataclass(frozen=True, slots=True)
class BudgetPacking:
    """Where the large graphs are, and what room the batches have for the others. The same in all epochs."""

    large: Ids  # positions of the large graphs [num_large], in `costs`
    batch_of_large: Ids  # [num_large]
    small: Ids  # positions of the others, ascending
    rooms: Costs  # of each batch, for small ones [num_batches]

    @property
    def num_batches(self) -> int:
        """Number of batches over all ranks, in every epoch."""
        return len(self.rooms)


def pack(costs: Costs, ranks: int) -> BudgetPacking:
    """The fewest batches, as a multiple of `ranks`, that hold graphs of these costs [n ≥ 1] in whatever order.

    Fewest of those that this way of filling can promise: a batch is left as much room as the largest small graph costs.
    """
    num_batches = _rounded_up(int(np.ceil(costs.sum() - _ROUNDING)), ranks)
    while True:
        packing = _packed(costs, num_batches)
        if packing is not None:
            return packing
        num_batches += ranks


def _rounded_up(number: int, ranks: int) -> int:
    return max(1, -(-number // ranks)) * ranks


def _packed(costs: Costs, num_batches: int) -> BudgetPacking | None:
    """Pack graphs into batches; None: so few batches may not be enough."""
    mean = costs.sum() / num_batches
    is_large = costs > min(_LARGE, _LARGE_SHARE * mean)
    small, large = np.flatnonzero(~is_large), np.flatnonzero(is_large)
    large = large[np.argsort(-costs[large], kind="stable")]
    loads = [(0.0, batch) for batch in range(num_batches)]
    batch_of_large = np.empty(len(large), dtype=np.int64)
    for number, position in enumerate(large):
        load, batch = loads[0]
        heapq.heapreplace(loads, (load + float(costs[position]), batch))
        batch_of_large[number] = batch
    by_batch = np.empty(num_batches)
    for load, batch in loads:
        by_batch[batch] = load
    level = _level(by_batch, float(costs[small].sum()))
    slack = float(costs[small].max()) if len(small) else 0.0
    if by_batch.max() > 1 + _ROUNDING or (len(small) and level + slack > 1 + _ROUNDING):
        return None
    return BudgetPacking(large, batch_of_large, small, np.maximum(0.0, level - by_batch))


def _level(loads: Costs, more: float) -> float:
    """How high batches with these loads stand when so much more is poured over the lowest of them."""
    ascending = np.sort(loads)
    counts = np.arange(1, len(loads) + 1)
    levels = (np.cumsum(ascending) + more) / counts  # if the lowest 1, 2, … take it all
    is_level = np.append(levels[:-1] <= ascending[1:], True)  # it does not reach the next one
    return float(levels[is_level.argmax()])
