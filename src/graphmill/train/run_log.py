"""What a rank records of its run: events, rows of metrics.csv and evaluations.csv, lines and bars on the terminal."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from graphmill.access.draws import SettledDraws
from graphmill.base.retries import remove_file
from graphmill.record.evaluations import BASELINE_OF, append_evaluation, cut_back
from graphmill.record.events import CLOCKS, DamagedCheckpoint, Drawn, Epoch, Evaluation, EventWriter, events_in
from graphmill.record.metrics import append_metrics, read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import Cell
from graphmill.spec.gpu_graph import DrawnBy
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.plan import Plan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.task import Measures


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


@dataclass(slots=True)
class RunLog:
    """Log of one rank; only rank 0 writes metrics.csv and prints to the terminal."""

    folder: RunFolder
    rank: int
    events: EventWriter
    progress: Progress
    kind: AnyKind

    def reopen(self, num_epochs: int, steps_done: int) -> None:
        """Continue after the first `num_epochs` epochs: rows of later ones are of steps that will be done again."""
        if self.rank > 0:
            return
        cut_back(self.folder, num_epochs, from_the_start=steps_done == 0)
        if not num_epochs:
            remove_file(self.folder.metrics_path)
        else:
            known = read_metrics(self.folder.metrics_path, is_growing=True)
            kept = [row for row in known if int(row["epoch"]) <= num_epochs]
            write_metrics(self.folder.metrics_path, kept, self.kind.columns)

    def drawn_before(self) -> DrawnBy | None:
        """Device that drew this rank's batches in the attempt before; None: nobody was asked."""
        known = events_in(self.folder.events_path(self.rank), Drawn)
        return known[-1].by if known else None

    def drawn(self, draws: SettledDraws) -> None:
        """Batches of this rank are drawn in this way from here on."""
        self.events.write(Drawn.model_validate(asdict(draws)))
        self.progress.say(draws.describe())

    def evaluated(self, epoch: int, name: str, measures: Measures) -> None:
        """The evaluation set called `name` was evaluated with the weights at the end of `epoch`."""
        if self.rank == 0:
            append_evaluation(self.folder.evaluations_path, epoch, name, measures.facts())
        self.events.write(Evaluation(epoch=epoch, set=name, measures=measures.facts()))

    def baseline(self, score: BaselineScore) -> None:
        """Record a baseline that was scored; every rank finds the same."""
        name, values = BASELINE_OF.format(split=score.split, baseline=score.baseline), score.values or {}
        if self.rank == 0:
            append_evaluation(self.folder.evaluations_path, 0, name, values)
        self.events.write(Evaluation(epoch=0, set=name, measures=values))

    def epoch_ended(self, facts: Mapping[str, Cell]) -> None:
        """Record that an epoch is over, with these facts of it."""
        if self.rank == 0:
            append_metrics(self.folder.metrics_path, facts, self.kind.columns)
        self.events.write(
            Epoch.model_validate(
                {
                    "epoch": facts["epoch"],
                    "steps_done": facts["steps_done"],
                    "loss": facts["loss"],
                    "num_seeds": facts["num_seeds"],
                    "train_s": facts["train_s"],
                    "clocks": {name: facts[name] for name in CLOCKS if name in facts},
                }
            )
        )
        self.progress.epoch(facts)

    def damaged(self, checkpoint: str, problem: str) -> None:
        """Record and print that a checkpoint cannot be used; the one before it is."""
        self.events.write(DamagedCheckpoint(checkpoint=checkpoint, problem=problem))
        self.progress.say(f"{checkpoint} is damaged and passed over: {problem}")
