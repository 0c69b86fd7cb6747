"""The loop, checkpoints, evaluation: what a rank does.

The package is also the function `graphmill.train`: a module that can be called, so that no import of what is in it, in
whatever order, hides the function, nor the function what is in it.
"""

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmill.api.run import Run


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> "Run":  # noqa: ANN401  # those of the function
        from graphmill.api.training import train

        return train(*arguments, **named)

    @property
    def __signature__(self) -> Signature:
        """What completion and `inspect.signature` show."""
        from graphmill.api.training import train

        return signature(train)


sys.modules[__name__].__class__ = _Callable
