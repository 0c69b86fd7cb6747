"""Progress of a run: bars on a terminal, one line per epoch in a log."""

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from graphmill.spec.columns import Cell
from graphmill.spec.plan import Plan


class Progress:
    """Progress of a run, shown by rank 0 only; other ranks hold one that prints nothing."""

    def __init__(self, plan: Plan, *, shown: bool, world_size: int | None = None) -> None:
        self._plan, self._calendar, self._shown = plan, plan.calendar, shown
        self._world_size = plan.ranks if world_size is None else world_size
        self._seeds_are = plan.kind.seeds_are
        # FORCE_COLOR, which notebooks set, makes no terminal: bars would be control characters there
        self._console = Console(file=sys.stdout, highlight=False, force_terminal=sys.stdout.isatty())
        self._bars: Bars | None = None
        if shown and self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
            )
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._overall = self._bars.add_task("run", total=plan.last_step, rate="")
            self._epoch = self._bars.add_task("epoch", total=self._calendar.steps_in(0), rate="")
            self._bars.start()
        self._seeds, self._since = 0, time.perf_counter()

    def resume(self, steps_done: int) -> None:
        """Begin after the `steps_done` steps of earlier attempts."""
        if self._bars is not None:
            self._bars.update(self._overall, completed=steps_done)

    def step(self, epoch: int, step: int, num_seeds: int) -> None:
        """Show that a step is over; `step` counts within the epoch, from 1."""
        if self._bars is None:
            return
        self._seeds += num_seeds * self._world_size
        rate = f"{self._seeds / (time.perf_counter() - self._since):,.0f} {self._seeds_are}/s"
        self._bars.update(self._overall, advance=1, rate=rate)
        self._bars.update(
            self._epoch,
            description=f"epoch {epoch + 1}/{self._calendar.num_epochs}",
            completed=step,
            total=self._calendar.steps_in(epoch),
            rate="",
        )

    def epoch(self, facts: Mapping[str, Cell]) -> None:
        """Show the metrics of an epoch that is over."""
        if not self._shown:
            return

        def number(name: str) -> float:
            return float(str(facts[name]))

        text = f"epoch {facts['epoch']}/{self._calendar.num_epochs}  loss {number('loss'):.4f}"
        primary = self._plan.kind.primary
        value, best = f"val_{primary.name}", f"best_val_{primary.name}"
        if facts.get(value) is not None:
            text += f"  val {primary.words} {number(value):.4f}  best {number(best):.4f}"
        text += f"  {number('seeds_per_s'):,.0f} {self._seeds_are}/s  {number('train_s'):.1f} s"
        if self._world_size > 1:
            text += f"  {facts['num_syncs']} syncs  {number('measured_mib_epoch'):.1f} MiB"
        self.say(text)

    def say(self, text: str) -> None:
        """Print one line."""
        if self._shown:
            # a terminal would break a long line in mid-word; in a file it stays one line
            self._console.print(text, markup=False, soft_wrap=not self._console.is_terminal)

    def close(self) -> None:
        """Clear the bars."""
        if self._bars is not None:
            self._bars.stop()
