"""Graphmill trains graph neural networks, from a laptop to a Slurm cluster.

Importing this package is cheap: torch is loaded only when `NeighborLoader` is first asked for.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["NeighborLoader", "__version__"]

if TYPE_CHECKING:
    from graphmill.sample.loader import NeighborLoader


def __getattr__(name: str) -> Any:  # noqa: ANN401  # module attribute hook: the type is the attribute's own
    if name == "NeighborLoader":
        from graphmill.sample.loader import NeighborLoader

        return NeighborLoader
    raise AttributeError(f"module 'graphmill' has no attribute {name!r}")
