"""What a rank tells of its run while it goes on: events, rows of metrics.csv, lines and bars for a person."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from graphmill.record.events import EventWriter
from graphmill.record.metrics import Cell, read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.metrics import Measures
from graphmill.train.progress import Progress


@dataclass(slots=True)
class Journal:
    """One rank's; only rank 0 writes metrics.csv and talks to the person."""

    folder: RunFolder
    rank: int
    events: EventWriter
    progress: Progress
    rows: list[Mapping[str, Cell]] = field(default_factory=list)  # of the epochs so far; rank 0 only

    def reopen(self, num_epochs: int) -> None:
        """Go on after the first `num_epochs` epochs; rows of later ones are those of steps that will be done again."""
        if self.rank == 0 and num_epochs:
            known = read_metrics(self.folder.metrics_path)
            self.rows = [dict(row) for row in known if int(row["epoch"]) <= num_epochs]

    def evaluated(self, epoch: int, split: Literal["val", "test"], measures: Measures) -> None:
        """A split was evaluated with the weights at the end of `epoch`."""
        self.events.write("evaluate", epoch=epoch, split=split, **asdict(measures))

    def epoch_ended(self, row: Mapping[str, Cell]) -> None:
        """An epoch is over, with this row."""
        if self.rank == 0:
            self.rows.append(row)
            write_metrics(self.folder.metrics_path, self.rows)
        self.events.write(
            "epoch",
            epoch=row["epoch"],
            steps_done=row["local_steps"],
            loss=row["loss"],
            num_seeds=row["seed_nodes_epoch_global"],
        )
        self.progress.epoch(row)

    def damaged(self, checkpoint: str, problem: str) -> None:
        """A checkpoint cannot be used; the one before it is. Said, not silent."""
        self.events.write("checkpoint", damaged=checkpoint, problem=problem)
        self.progress.say(f"{checkpoint} is damaged and passed over: {problem}")
