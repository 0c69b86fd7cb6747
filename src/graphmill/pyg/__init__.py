"""PyG's seam: its samplers, loaders and layers on native code, under the same names. It needs PyG, not pyg-lib.

A script changes its imports: `from graphmill.pyg import NeighborLoader` for `from torch_geometric.loader import …`.
"""

from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from graphmill.runtime.process import import_pyg

_LAZY: Final = {
    "BidirectionalNeighborSampler": "sampler",
    "GATConv": "attention_layers",
    "GATv2Conv": "attention_layers",
    "GCNConv": "layers",
    "GINConv": "layers",
    "HardNegatives": "negative_kinds",
    "HGTLoader": "loaders",
    "HGTSampler": "hgt",
    "HistoricalNegatives": "negative_kinds",
    "LinkNeighborLoader": "loaders",
    "NeighborLoader": "loaders",
    "NeighborSampler": "sampler",
    "RGCNConv": "layers",
    "SAGEConv": "layers",
    "ShaDowKHopSampler": "shadow",
    "by_degree": "negative_kinds",
    "fuse_layers": "fusing",
}
__all__ = list(_LAZY)  # a list


def __getattr__(name: str) -> Any:  # noqa: ANN401  # module attribute hook: the type is the attribute's own
    if name not in _LAZY:
        raise AttributeError(f"module 'graphmill.pyg' has no attribute {name!r}")
    with suppress(Exception):  # what is wrong with it, the module's own import says
        import_pyg()
    return getattr(import_module(f"graphmill.pyg.{_LAZY[name]}"), name)
