"""Graphmill trains graph neural networks, from a laptop to a Slurm cluster.

Importing this package is cheap: the names below are loaded, and torch with them where they need it, on first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

_LAZY: Final = {  # public name: the module that defines it. pyproject.toml lists each for import-linter.
    "EndedError": "graphmill.api.run",
    "HGTLoader": "graphmill.pyg",
    "LinkNeighborLoader": "graphmill.pyg",
    "NeighborLoader": "graphmill.pyg",
    "Run": "graphmill.api.run",
    "SeededSolver": "graphmill.tasks.assignment.seeded",
    "ShaDowKHopSampler": "graphmill.pyg",
    "UserError": "graphmill.base.errors",
    "compare": "graphmill.api.using",
    "evaluate": "graphmill.api.using",
    "load": "graphmill.train.load",
    "memory_snapshot": "graphmill.train.memory_snapshot",
    "open_partitioned": "graphmill.sample.distributed.opened",
    "plan": "graphmill.api.planning",
    "predict": "graphmill.api.using",
    "submit": "graphmill.api.submitting",
}
_LAZY_MODULES: Final = (
    "assignment",
    "pyg",
    "train",
)  # train is called as well: docs/decisions/19-a-package-that-is-called.md
__all__ = [
    "EndedError",
    "HGTLoader",
    "LinkNeighborLoader",
    "NeighborLoader",
    "Run",
    "SeededSolver",
    "ShaDowKHopSampler",
    "UserError",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "memory_snapshot",
    "open_partitioned",
    "plan",
    "predict",
    "submit",
    "train",
]

if TYPE_CHECKING:
    from graphmill.api.planning import plan
    from graphmill.api.run import EndedError, Run
    from graphmill.api.submitting import submit
    from graphmill.api.training import train
    from graphmill.api.using import compare, evaluate, predict
    from graphmill.base.errors import UserError
    from graphmill.pyg.loaders import HGTLoader, LinkNeighborLoader, NeighborLoader
    from graphmill.pyg.shadow import ShaDowKHopSampler
    from graphmill.sample.distributed.opened import open_partitioned
    from graphmill.tasks.assignment.seeded import SeededSolver
    from graphmill.train.load import load
    from graphmill.train.memory_snapshot import memory_snapshot


def __getattr__(name: str) -> Any:  # noqa: ANN401  # module attribute hook: the type is the attribute's own
    if name in _LAZY_MODULES:
        return import_module(f"graphmill.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'graphmill' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})
