"""Compile the GPU kernels of attention without a GPU; `python compile_triton.py [all]`, not in the interpreter.

A line of JSON for each variant: its name, the GPU it is for, how many atomic instructions its PTX has, and the target
that the PTX names.
"""

import itertools
import json
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from graphmill.nn.attention import triton_backward, triton_forward
from graphmill.nn.attention.triton_launch import Tiles, features_of, node_tiles, share_tiles

_NUMBERS = {
    **dict.fromkeys(("num_edges", "num_loops", "key_low", "key_high", "threshold"), "i32"),
    **dict.fromkeys(("slope", "scale"), "fp32"),
    **dict.fromkeys(("indptr", "out_indptr", "shares"), "*i64"),
    **dict.fromkeys(("sources", "edge_ids", "targets", "slots"), "*i32"),
    **dict.fromkeys(("exact", "lse", "pairs", "weight_partials", "att_partials"), "*fp32"),
}
_OF_GAT, _OF_GATV2 = {"att", "att_partials"}, {"source", "grad_source"}
_OF_FEATURES = {"edge_attr", "loop_attr", "edge_weight", "grad_edge_attr", "grad_loop_attr", "weight_partials"}
_PARAMETERS = {"edge_attr", "loop_attr", "edge_weight", "att", "grad_edge_attr", "grad_loop_attr"}


def variants(*, every: bool) -> list[dict]:
    """Both forms in float32 for 9.0, and as autocast mixes formats for 8.0; or every format and size for both."""
    kinds, sizes = ("gat", "gatv2"), [(8, 16, 11), (3, 15, 5), (1, 48, 0), (2, 300, 64)]
    if not every:
        return [
            {"kind": kind, "dtype": dtype, "parameters": "fp32", "sizes": sizes[0], "drops": True, "capability": of}
            for kind, (dtype, of) in itertools.product(kinds, (("fp32", 90), ("bf16", 80)))
        ]
    of_each = [(kind, dtype, dtype, size) for kind, dtype, size in itertools.product(
        kinds, ("fp32", "fp16", "bf16"), sizes[:3])]  # fmt: skip
    mixed = [(kind, "bf16", "fp32", sizes[0]) for kind in kinds]
    names = ("kind", "dtype", "parameters", "sizes", "capability", "drops")
    return [
        dict(zip(names, (*of, capability, of[-1] == sizes[0]), strict=True))
        for of in [*of_each, *mixed, ("gatv2", "fp32", "fp32", sizes[3])]
        for capability in (90, 80)
    ]


def compiled(kernel, variant: dict, tiles: Tiles) -> str:
    """Its PTX."""
    heads, channels, edge_dim = variant["sizes"]
    constants = {
        "HEADS": heads, "CHANNELS": channels, "EDGE_DIM": edge_dim, "DROPS": variant["drops"],
        "FEATURES": features_of(edge_dim), "GROUP": tiles.group, "PADDED": tiles.padded, "BLOCK": tiles.block,
    }  # fmt: skip
    absent = {*(_OF_GAT if variant["kind"] == "gat" else _OF_GATV2), *(() if edge_dim else _OF_FEATURES)}
    if variant["dtype"] == "fp32" and kernel is triton_forward.attention_forward:
        absent.add("exact")
    constants |= dict.fromkeys(absent, None)
    signature = {}
    for name in kernel.arg_names:
        format_ = variant["parameters"] if name in _PARAMETERS else variant["dtype"]
        signature[name] = "constexpr" if name in constants else _NUMBERS.get(name, f"*{format_}")
    aligned = {(at,): [["tt.divisibility", 16]] for at, of in enumerate(signature.values()) if of.startswith("*")}
    constants = {name: value for name, value in constants.items() if name in signature}
    source = ASTSource(kernel, signature, constants, aligned)
    return triton.compile(
        source, target=GPUTarget("cuda", variant["capability"], 32), options={"num_warps": tiles.num_warps}
    ).asm["ptx"]  # fmt: skip


def main() -> None:
    for variant in variants(every="all" in sys.argv):
        heads, channels, edge_dim = variant["sizes"]
        by_node = node_tiles(heads, channels)
        by_share = share_tiles(heads, channels, edge_dim, has_att=variant["kind"] == "gatv2")
        for kernel, tiles in (
            (triton_forward.attention_forward, by_node),
            (triton_forward.attention_weights, by_node),
            (triton_backward.attention_backward_targets, by_share),
            (triton_backward.attention_backward_sources, by_node),
        ):
            ptx = compiled(kernel, variant, tiles)
            found = {
                **variant,
                "kernel": kernel.__name__,
                "target": re.search(r"^\.target (\w+)", ptx, re.MULTILINE)[1],
                "atomics": re.findall(r"^\s*(?:@%p\d+ )?((?:atom|red)\..*)$", ptx, re.MULTILINE),
                "entries": ptx.count(".entry"),
            }
            sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
