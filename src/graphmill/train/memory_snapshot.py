"""Record what CUDA memory is allocated, by whom and when, into a file that https://pytorch.org/memory_viz shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

from graphmill.base.arguments import path_of
from graphmill.base.errors import UserError
from graphmill.base.files import replacing

_MOST_EVENTS: Final = 200_000
"""Allocations and releases that are kept, the last ones: a bound of the file's size."""


@contextmanager
def memory_snapshot(path: str | Path) -> Iterator[None]:
    """Record the CUDA allocations of this block into `path`, a pickle for torch's viewer; graphmill never reads it.

    Written when the block ends, also by an error: it may be the one that ran out of memory.

    Args:
        path: the file, written whole or not at all.

    Returns:
        A context: `with graphmill.memory_snapshot("step.pickle"): …`

    Raises:
        UserError: torch finds no CUDA device here.

    >>> with graphmill.memory_snapshot("step.pickle"):  # doctest: +SKIP
    ...     loss = model(batch).sum()
    ...     loss.backward()
    """
    if not torch.cuda.is_available():
        raise UserError(
            "memory_snapshot records CUDA allocations, and torch finds no CUDA device here",
            fix="run it on a machine with a GPU; train.profiler.memory=true has the peak of tensors on a CPU",
        )
    target = path_of("path", path)
    torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS)
    try:
        yield
    finally:
        with replacing(target) as temporary:
            torch.cuda.memory._dump_snapshot(str(temporary))  # type: ignore[no-untyped-call]  # unannotated
        torch.cuda.memory._record_memory_history(enabled=None)
