"""How much memory each step of partitioning needs, by formula, before it starts.

Counted are arrays of ours, pages of the store that are mapped (the system takes those back where memory is short), and
what a partitioner's own process takes, which was measured and not derived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphmill.graph.topology import index_dtype
from graphmill.partition.write import CHUNK_BYTES
from graphmill.spec.partition import Method

# Peaks of the processes of KaMinPar 3.7.3 and pymetis 2025.2.2 on R-MAT graphs (benchmarks/partitioning.py): bytes for
# each entry, which is one direction of an edge, and for each node with edges.
_PACKAGE_BYTES: Final = {"kaminpar": (16, 60), "metis": (130, 250)}
_PROGRAM_BYTES: Final = 60 * 2**20  # an interpreter with numpy
_CHUNKS_AT_ONCE: Final = 3  # arrays of a chunk that the writer holds: as read, order or positions, as written
_FILE_BLOCK: Final = 2**20  # entries on their way into a partitioner's file together
_FILE_BLOCK_ENTRY_BYTES: Final = 35
_CUT_BLOCK: Final = 2**22  # and those whose cut is counted together
_CUT_BLOCK_ENTRY_BYTES: Final = 17
_INCLUSION_BYTES: Final = 17  # of a node: its probability of being in a batch, a logarithm, a mark
_INCLUSION_BLOCK: Final = 2**18  # nodes whose logarithms are computed together
_INCLUSION_BLOCK_BYTES: Final = 40
_RANKED_BYTES: Final = 30  # of a node, while a part's nodes are sorted
_LISTED_BYTES: Final = 100  # of a link, while edges are looked up among all: its ends, its keys, and their order
_POLICIES: Final = 4  # that nodes of other parts are ranked by


@dataclass(frozen=True, slots=True)
class WorkStep:
    """A step of the work, and what it needs while it lasts."""

    name: str
    own_bytes: int  # of this process, mapped pages included
    other_bytes: int = 0  # of a partitioner's process


@dataclass(frozen=True, slots=True)
class Estimate:
    """What partitioning needs. Modelled, not measured."""

    steps: tuple[WorkStep, ...]

    @property
    def own_bytes(self) -> int:
        """Bytes of this process at the peak."""
        return max(step.own_bytes for step in self.steps)

    @property
    def total_bytes(self) -> int:
        """Bytes at the peak, with a partitioner's process."""
        return max(step.own_bytes + step.other_bytes for step in self.steps)

    def rows(self) -> Sequence[tuple[str, int, int]]:
        """Rows for a table: step, bytes of this process, bytes of the partitioner's."""
        return [(step.name, step.own_bytes, step.other_bytes) for step in self.steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSizes:
    """What the estimate depends on."""

    num_nodes: int
    num_isolated: int
    num_train: int
    num_entries: int  # of the union of both directions
    is_symmetric: bool
    num_parts: int
    num_amounts: int  # that are balanced
    largest_bytes: int  # of an array of the store
    num_links: int = 0  # that models learn from, where those are no nodes
    base_bytes: int  # that this process has in memory already

    @property
    def mapped(self) -> int:
        """Pages of the store that are read in no order: the topology in both directions, and rows as given."""
        n = self.num_nodes
        return 8 * n + index_dtype(n).itemsize * self.num_entries + (0 if self.is_symmetric else 8 * n)

    @property
    def problem(self) -> int:
        """Bytes with a partitioner's input: edges, a weight, amounts and seeds of each node, ids of training nodes."""
        return self.base_bytes + self.mapped + self.num_nodes * (8 + 8 + 4 * self.num_amounts + 4) + 8 * self.num_train

    @property
    def measured(self) -> int:
        """Bytes with a quality report's input: edges, the part and the seeds of each node, ids of training nodes."""
        return self.base_bytes + self.mapped + 16 * self.num_nodes + 8 * self.num_train


def estimate(sizes: PartitionSizes, method: Method, *, ranked: bool) -> Estimate:
    """Estimate each step, in order. Candidates of balance are counted as if all nodes were in overfull parts."""
    n = sizes.num_nodes
    inclusion, others = _inclusion(n), index_dtype(n).itemsize * n * (sizes.num_parts - 1)
    rank = 8 * n * sizes.num_parts + max(inclusion, _RANKED_BYTES * n) + _POLICIES * others
    balance = sizes.problem + 4 * n + max(16 * sizes.num_isolated, 32 * n)
    write = (
        sizes.base_bytes
        + _LISTED_BYTES * sizes.num_links
        + 36 * n
        + _CHUNKS_AT_ONCE * min(CHUNK_BYTES, sizes.largest_bytes)
    )
    cut_block = _cut_block(sizes)
    return Estimate(
        (
            _assign(sizes, method),
            *([WorkStep("balance", balance)] if method in ("kaminpar", "metis", "ldg") else ()),
            WorkStep("measure", sizes.measured + max(inclusion, cut_block)),
            *([WorkStep("rank", sizes.measured + rank)] if ranked else ()),
            WorkStep("write", write),
        )
    )


def _inclusion(num_nodes: int) -> int:
    return _INCLUSION_BYTES * num_nodes + _INCLUSION_BLOCK_BYTES * min(_INCLUSION_BLOCK, num_nodes)


def _cut_block(sizes: PartitionSizes) -> int:
    return min(_CUT_BLOCK, sizes.num_entries) * _CUT_BLOCK_ENTRY_BYTES


def _assign(sizes: PartitionSizes, method: Method) -> WorkStep:
    n, with_edges = sizes.num_nodes, sizes.num_nodes - sizes.num_isolated
    match method:
        case "kaminpar" | "metis":
            per_entry, per_node = _PACKAGE_BYTES[method]
            other = _PROGRAM_BYTES + per_entry * sizes.num_entries + per_node * with_edges
            block = min(_FILE_BLOCK, sizes.num_entries) * _FILE_BLOCK_ENTRY_BYTES
            file = max(12 * n + 40 * with_edges, 4 * n + 8 * with_edges + block)
            return WorkStep(method, sizes.problem + file, other)
        case "ldg":
            return WorkStep("ldg", sizes.problem + max(20 * n, 12 * n + _cut_block(sizes)))  # weights, two assignments
        case "random":
            return WorkStep("random", sizes.problem + 12 * n)
        case "hotness":
            scores = 4 * sizes.num_parts * n
            return WorkStep("hotness", sizes.problem + scores + max(_inclusion(n), 2 * scores + 4 * n))
