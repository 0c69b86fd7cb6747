"""The GPU kernels of attention as they are compiled: `python -m kernel_checks ptxas attention_variants.py:every`."""

import itertools
from collections.abc import Iterator

from graphmill.nn.attention import triton_backward, triton_forward, triton_parts, triton_sums
from graphmill.nn.attention.triton_sizes import edge_tiles, joined, node_tiles, span_of
from kernel_checks.cubins import Variant

_NUMBERS = {
    **dict.fromkeys(("num_edges", "num_loops", "num_nodes", "num_windows", "length"), "i32"),
    **dict.fromkeys(("key_low", "key_high", "threshold"), "i32"),
    **dict.fromkeys(("slope", "scale"), "fp32"),
    **dict.fromkeys(("indptr", "out_indptr"), "*i64"),
    **dict.fromkeys(("sources", "edge_ids", "targets", "slots", "ends"), "*i32"),
    **dict.fromkeys(("exact", "lse", "pairs", "weight_sums", "att_sums", "sums", "peaks", "totals"), "*fp32"),
    **dict.fromkeys(("part_sums", "part_peaks", "part_totals", "part_scores"), "*fp32"),
}
_OF_GAT, _OF_GATV2 = {"att", "att_sums", "ends"}, {"source", "grad_source"}
_OF_FEATURES = {"edge_attr", "loop_attr", "edge_weight", "weight_sums"}
_PARAMETERS = {"edge_attr", "loop_attr", "edge_weight", "att", "grad_edge_attr", "grad_loop_attr"}

BY_NODE = (
    triton_forward.attention_forward, triton_forward.attention_weights,
    triton_backward.attention_backward_targets, triton_backward.attention_backward_sources,
)  # fmt: skip
BY_EDGE = (triton_sums.attention_backward_weights, triton_sums.attention_backward_features)
JOINS = (triton_parts.join_softmax, triton_parts.join_sums)
KERNELS = (*BY_NODE, *BY_EDGE, *JOINS)

ORDINARY = ((8, 16, 11), (3, 15, 5), (4, 64, 11), (1, 48, 0))  # heads, channels of a head, features of an edge
WIDE = ((2, 300, 64), (1, 1024, 16), (1, 4096, 200), (100, 1, 3))
BARE = ((8, 16, 0), (2, 300, 0), (1, 4096, 0), (20, 1, 0))


def variant(kernel, kind: str, formats: tuple[str, str], sizes: tuple[int, int, int], capability: int, drops: bool):
    """A kernel at a size, as `triton_launch` starts it, in the formats of nodes and of parameters."""
    heads, given, edge_dim = sizes
    channels = -(-given // 8) * 8  # as `Call.even` has them
    width = heads * (channels if kind == "gatv2" else 1)
    absent = {*(_OF_GAT if kind == "gat" else _OF_GATV2), *(() if edge_dim else _OF_FEATURES)}
    absent |= {"exact"} if formats[0] == "fp32" and kernel is not triton_backward.attention_backward_targets else set()
    constants = {"HEADS": heads, "CHANNELS": channels, "EDGE_DIM": edge_dim, "DROPS": drops, "SPAN": span_of(10**6)}
    useful = 1.0
    if kernel in BY_NODE:
        has_features = edge_dim > 0 and (kind == "gatv2" or kernel in BY_NODE[:2])
        value_bytes = 4 if formats[0] == "fp32" else 2
        tiles = node_tiles(heads, channels, value_bytes, has_features=has_features, capability=capability)
        useful = heads * given / (tiles.num_groups(heads) * tiles.group * tiles.padded)
        options = tiles.options()
    elif kernel in BY_EDGE:
        tiles = edge_tiles(width, edge_dim, has_att=kind == "gatv2")
        used, held = (width, edge_dim), (tiles.columns, tiles.features)
        rooms = [-(-some // of) * of for some, of in zip(used, held, strict=True)]
        useful = used[0] / rooms[0] if kind == "gatv2" else sum(used) / sum(rooms)
        options = tiles.options()
    else:
        constants["WIDTH"] = heads * channels
        options = joined(channels if kernel is triton_parts.join_softmax else heads * channels)[1]
    constants |= {name: value for name, value in options.items() if name.isupper()} | dict.fromkeys(absent, None)
    signature = {
        name: _NUMBERS.get(name, f"*{formats[name in _PARAMETERS]}")
        for name in kernel.arg_names
        if name not in constants
    }
    name = f"{kind} {heads}x{given}x{edge_dim} {'+'.join(dict.fromkeys(formats))} {kernel.__name__}"
    launched = {name: value for name, value in options.items() if not name.isupper()}
    return Variant(name, kernel, signature, constants, capability, launched, useful=useful)


def is_started(kernel, kind: str, edge_dim: int) -> bool:
    """Whether a call of this form starts the kernel at all."""
    if kernel is triton_sums.attention_backward_features:
        return edge_dim > 0
    return kernel is not triton_sums.attention_backward_weights or edge_dim > 0 or kind == "gatv2"


def made(kinds, formats, sizes, capabilities, *, drops: bool, kernels=KERNELS) -> Iterator[Variant]:
    """All of these together."""
    for kind, of, size, capability, kernel in itertools.product(kinds, formats, sizes, capabilities, kernels):
        if is_started(kernel, kind, size[2]):
            yield variant(kernel, kind, of, size, capability, drops)


def every() -> list[Variant]:
    """Both forms at ordinary sizes, the widest and those without features, in each format, for each architecture."""
    forms, plain, joins = ("gat", "gatv2"), (("fp32", "fp32"), ("bf16", "bf16")), len(JOINS)
    return [
        *made(forms, plain, ORDINARY, (90,), drops=True, kernels=KERNELS[:-joins]),
        *made(forms, plain[:1], (*WIDE, *BARE), (90,), drops=True, kernels=KERNELS[:-joins]),
        *made(forms, plain[1:], (*WIDE[:3], *BARE[1:]), (90,), drops=False, kernels=KERNELS[:-joins]),
        *made(forms, plain[:1], (*ORDINARY, *WIDE[:3:2]), (80, 100), drops=True, kernels=KERNELS[:-joins]),
        *made(forms, (("fp16", "fp16"), ("bf16", "fp32")), ORDINARY[:2], (90,), drops=False, kernels=KERNELS[:-joins]),
        *made(("gat",), plain, (ORDINARY[0], *WIDE), (80, 90, 100), drops=False, kernels=JOINS),
    ]


def ordinary() -> list[Variant]:
    """Ordinary sizes for 9.0: what must keep an H100's memory busy."""
    formats = (("fp32", "fp32"), ("bf16", "bf16"))
    return [*made(("gat", "gatv2"), formats, ORDINARY, (90,), drops=True)]


def reviewed() -> list[Variant]:
    """The review's sizes and formats, of all kernels."""
    sizes = ((8, 16, 11), (3, 15, 5), (1, 48, 0), (2, 300, 64), (4, 64, 11))
    forms, kernels = ("gat", "gatv2"), (*BY_NODE[:1], *BY_NODE[2:], *BY_EDGE[:1])
    return [
        *made(forms, (("fp32", "fp32"), ("bf16", "bf16")), sizes, (90,), drops=False, kernels=kernels),
        *made(forms, (("fp32", "fp32"),), sizes, (80,), drops=False, kernels=kernels),
    ]


def some() -> list[Variant]:
    """What CI looks at each time."""
    return [
        *made(("gat",), (("fp32", "fp32"),), ORDINARY[:1], (90,), drops=True),
        *made(("gatv2",), (("bf16", "fp32"),), ORDINARY[:1], (80,), drops=True, kernels=BY_NODE[2:]),
        *made(("gatv2",), (("bf16", "bf16"),), ORDINARY[1:2], (100,), drops=True, kernels=BY_NODE[:1]),
    ]
