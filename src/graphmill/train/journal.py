"""What a rank tells of its run while it goes on: events, rows of metrics.csv, lines and bars for a person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from graphmill.record.columns import Cell, cells_of
from graphmill.record.events import EventWriter
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.experiment import TaskName
from graphmill.tasks.task import Measures
from graphmill.train.progress import Progress

_CLOCKS: Final = ("wait_s", "compute_s", "sync_s", "sample_s", "gather_s", "eval_s")
"""What an event tells of every rank, and metrics.csv of rank 0 alone: without it nobody sees one rank lag behind."""


@dataclass(slots=True)
class Journal:
    """One rank's; only rank 0 writes metrics.csv and talks to the person."""

    folder: RunFolder
    rank: int
    events: EventWriter
    progress: Progress
    task: TaskName
    rows: list[Mapping[str, Cell]] = field(default_factory=list)  # of the epochs so far; rank 0 only

    def reopen(self, num_epochs: int) -> None:
        """Go on after the first `num_epochs` epochs; rows of later ones are those of steps that will be done again."""
        if self.rank == 0 and num_epochs:
            known = read_metrics(self.folder.metrics_path)
            self.rows = [dict(row) for row in known if int(row["epoch"]) <= num_epochs]

    def evaluated(self, epoch: int, split: Literal["val", "test"], measures: Measures) -> None:
        """A split was evaluated with the weights at the end of `epoch`."""
        self.events.write("evaluate", epoch=epoch, split=split, **measures.facts())

    def epoch_ended(self, facts: Mapping[str, Cell]) -> None:
        """An epoch is over, with these facts of it."""
        if self.rank == 0:
            self.rows.append(cells_of(self.task, facts))
            write_metrics(self.folder.metrics_path, self.rows, task=self.task)
        self.events.write(
            "epoch",
            epoch=facts["epoch"],
            steps_done=facts["local_steps"],
            loss=facts["loss"],
            num_seeds=facts["num_seeds_epoch"],
            train_s=facts["time"],
            **{name: facts[name] for name in _CLOCKS if name in facts},
        )
        self.progress.epoch(facts)

    def damaged(self, checkpoint: str, problem: str) -> None:
        """A checkpoint cannot be used; the one before it is. Said, not silent."""
        self.events.write("checkpoint", damaged=checkpoint, problem=problem)
        self.progress.say(f"{checkpoint} is damaged and passed over: {problem}")
