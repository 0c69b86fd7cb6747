"""How much memory each step of partitioning needs, by formula, before it starts.

Counted are arrays of ours, pages of the store that are mapped (the system takes those back where memory is short), and
what a partitioner's own process takes, which was measured and not derived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.topology import index_dtype
from graphmill.partition.problem import Balance, Method
from graphmill.partition.write import CHUNK_BYTES

# Peaks of the processes of KaMinPar 3.7.3 and pymetis 2025.2.2 on R-MAT graphs of 20 and 100 million entries
# (benchmarks/partitioning.py): bytes for each entry, which is one direction of an edge, and for each node with edges.
_PACKAGE_BYTES: Final = {"kaminpar": (30, 60), "metis": (130, 250)}
_PROGRAM_BYTES: Final = 60 * 2**20  # an interpreter with numpy
_CHUNKS_AT_ONCE: Final = 4  # arrays of a chunk that the writer holds: as read, order, positions, as written
_BLOCK_BYTES: Final = 100 * 2**20  # of blocks of entries that are looked at together


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the work, and what it needs while it lasts."""

    name: str
    own_bytes: int  # of this process, mapped pages included
    other_bytes: int = 0  # of a partitioner's process


@dataclass(frozen=True, slots=True)
class Estimate:
    """What partitioning needs. Modelled, not measured."""

    steps: tuple[Step, ...]

    @property
    def own_bytes(self) -> int:
        """At the peak, of this process."""
        return max(step.own_bytes for step in self.steps)

    @property
    def total_bytes(self) -> int:
        """At the peak, with a partitioner's process."""
        return max(step.own_bytes + step.other_bytes for step in self.steps)

    def rows(self) -> Sequence[tuple[str, int, int]]:
        """For a table: step, bytes of this process, of the partitioner's."""
        return [(step.name, step.own_bytes, step.other_bytes) for step in self.steps]


def estimate(
    known: GraphMetadata, method: Method, balance: Balance, num_parts: int, *, base_bytes: int, ranked: bool
) -> Estimate:
    """Of a store that is split. `base_bytes`: what this process has in memory already."""
    n, entries = known.num_nodes, known.num_undirected_edges
    ids = index_dtype(n).itemsize
    topology = 8 * n + ids * entries + (0 if known.is_symmetric else 8 * n)  # mapped
    num_amounts = 3 if balance == "all" else 1
    # parts, edges, one weight, amounts, training nodes as a mask and as ids, and a temporary of a word
    common = base_bytes + topology + n * (4 + 8 + 8 + 4 * num_amounts + 1 + 8 + 8)
    with_edges = n - known.num_isolated_nodes
    return Estimate(
        (
            _assign(method, common, n, with_edges, entries, num_parts),
            Step("balance", common + 40 * n),  # candidates by what they cost, queued again where that has changed
            Step("measure", common + 5 * 8 * n + _BLOCK_BYTES),
            *([Step("rank", common + 8 * n * (num_parts + 6))] if ranked else ()),
            Step("write", base_bytes + topology + 4 * n + 24 * n + _CHUNKS_AT_ONCE * CHUNK_BYTES),
        )
    )


def _assign(method: Method, common: int, n: int, with_edges: int, entries: int, num_parts: int) -> Step:
    match method:
        case "kaminpar" | "metis":
            per_entry, per_node = _PACKAGE_BYTES[method]
            other = _PROGRAM_BYTES + per_entry * entries + per_node * with_edges
            return Step(method, common + 40 * n + _BLOCK_BYTES, other)
        case "ldg":
            return Step("ldg", common)
        case "random":
            return Step("random", common + 8 * n)
        case "hotness":
            return Step("hotness", common + n * (12 * num_parts + 32))
