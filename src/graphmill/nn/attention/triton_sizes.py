"""How the Triton kernels of attention cut their work, from the sizes of a call alone.

`tools/kernel_checks` holds the choices against what ptxas makes of them, over all sizes: no stack, no spills, bytes
under way. Registers are capped where ptxas, left alone, spills a few to reach the next step of occupancy; where it does
not, a cap would only invite it to take as many.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any

_LEAST_SPAN = 256  # edges of one program: fewer, and an ordinary node would be split
_MOST_PARTIALS = 2**24  # numbers


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a kernel that goes by node cuts its work: BLOCK edges by GROUP heads by PADDED channels, powers of two."""

    group: int
    padded: int
    block: int
    num_warps: int
    registers: int | None = None  # of a thread, at most

    def num_groups(self, heads: int) -> int:
        """Number of groups of heads."""
        return -(-heads // self.group)

    def options(self) -> dict[str, Any]:
        """Keyword arguments of a kernel: sizes of a tile, and how it is compiled."""
        options = {"GROUP": self.group, "PADDED": self.padded, "BLOCK": self.block, "num_warps": self.num_warps}
        return options if self.registers is None else {**options, "maxnreg": self.registers}


@dataclass(frozen=True, slots=True)
class EdgeTiles:
    """How a kernel that goes by edge cuts its work: BLOCK edges by COLUMNS scores, and FEATURES of the edges."""

    columns: int
    features: int
    block: int
    num_stages: int  # tiles that are loaded ahead
    registers: int | None

    def options(self) -> dict[str, Any]:
        """Keyword arguments of a kernel: sizes of a tile, and how it is compiled."""
        options = {
            "COLUMNS": self.columns, "FEATURES": self.features, "BLOCK": self.block, "num_warps": 4,
            "num_stages": self.num_stages,
        }  # fmt: skip
        return options if self.registers is None else {**options, "maxnreg": self.registers}


@dataclass(frozen=True, slots=True)
class PartSizes:
    """How edges grouped by node are shared out: each window but the first has a program beside those of the nodes."""

    num_nodes: int
    span: int
    num_windows: int

    def numbers(self) -> tuple[int, int]:
        """Positional arguments of a kernel: the numbers of nodes and of windows."""
        return self.num_nodes, self.num_windows


def power_of_two(least: int) -> int:
    """The smallest that is not below `least`.

    >>> [power_of_two(least) for least in (1, 2, 15, 48)]
    [1, 2, 16, 64]
    """
    return 1 << (least - 1).bit_length()


def node_tiles(heads: int, channels: int, value_bytes: int, *, has_features: bool, capability: int) -> Tiles:
    """Tiles of kernels that go by node, for x of `value_bytes` a value, on a GPU of `capability` (10 * major + minor).

    2 kB of x a program, which is 8 values a thread of two warps (2-byte formats: of four); more warps hold a wide head.
    """
    padded = power_of_two(channels)
    group = min(power_of_two(heads), max(1, 128 // padded))
    width = group * padded
    block = max(1, min(16, 2048 // value_bytes // width))
    registers = 64 if not has_features else 128 if capability >= 100 else None
    return Tiles(group, padded, block, max(1, min(16, block * width // 256)), registers)


def edge_tiles(width: int, edge_dim: int, *, has_att: bool) -> EdgeTiles:
    """Tiles of kernels that go by edge: products are at least 16 by 16 by 16, as Triton requires.

    Without att little is read of an edge, so a program has more of them, and reads ahead.
    """
    columns = max(16, min(64, power_of_two(width)))
    features = max(16, min(32, power_of_two(max(1, edge_dim))))
    return EdgeTiles(columns, features, 16, 3, 128) if has_att else EdgeTiles(columns, features, 32, 8, None)


def shares_of(size: int, partials: int, block: int) -> tuple[int, int]:
    """(number of shares of `size` edges, edges of each, a multiple of `block`), each share with `partials` sums."""
    most = max(64, _MOST_PARTIALS // partials)
    count = max(1, min(size // 256, 4096, most))
    length = block * max(1, -(-size // (count * block)))
    return max(1, -(-size // length)), length


def span_of(num_edges: int) -> int:
    """Edges of one node that one program goes through, at most: as many rounds as it takes to add up the parts.

    >>> [span_of(edges) for edges in (0, 10**6, 10**8)]
    [256, 256, 4096]
    """
    return max(_LEAST_SPAN, power_of_two(max(1, isqrt(num_edges // 16))))


def part_sizes(num_nodes: int, num_edges: int) -> PartSizes:
    """Sizes of the shares of edges grouped by node, however the edges are spread."""
    span = span_of(num_edges)
    return PartSizes(num_nodes, span, max(0, num_edges - 1) // span)


def joined(width: int) -> tuple[int, dict[str, int]]:
    """Columns of a program that adds up parts, and what it takes: 128 rows at once, 16 values a thread."""
    columns = min(32, power_of_two(width))
    return columns, {"ROWS": 128, "COLUMNS": columns, "num_warps": max(1, columns // 4)}
