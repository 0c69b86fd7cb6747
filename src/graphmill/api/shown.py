"""What a notebook shows while a run lasts: a bar below the cell. In a terminal the ranks show bars of their own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UnreadableError, UserError

if TYPE_CHECKING:
    from graphmill.cluster.status import RunView
    from graphmill.record.run_folder import RunFolder

_LOOK_S: Final = 0.5


def bar() -> "Callable[[RunView], None] | None":
    """What shows the state of a run below the cell, in place of what it showed before; None: in no notebook."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if not hasattr(get() if get is not None else None, "kernel"):
        return None
    from IPython.display import HTML, display

    shown = display(HTML(""), display_id=True)
    return lambda view: shown.update(HTML(_html(view)))


@contextmanager
def followed(folder: "RunFolder") -> Iterator[None]:
    """Show in a notebook, while the block lasts, how far the run in `folder` is, from what its ranks write there."""
    from graphmill.cluster.status import Watcher

    show = bar()
    if show is None:
        yield
        return
    over, watcher = threading.Event(), Watcher([folder], root=folder.path.parent)

    def look() -> None:
        if folder.plan_path.exists():
            with suppress(UserError, UnreadableError, OSError):  # a look that fails is no reason to end a run
                show(watcher.look()[0])

    def follow() -> None:
        while not over.wait(_LOOK_S):
            look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()


def _html(view: "RunView") -> str:
    from graphmill.cluster.follow import plain_line

    done = view.progress.epoch if view.progress is not None else 0
    return f'<progress value="{done}" max="{view.epochs or 1}"></progress> <code>{escape(plain_line(view))}</code>'
