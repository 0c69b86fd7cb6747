"""What a rank records of its run: events, rows of metrics.csv and evaluations.csv, lines and bars on the terminal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from graphmill.access.draws import SettledDraws
from graphmill.base.retries import remove_file
from graphmill.record.evaluations import BASELINE_OF, append_evaluation, cut_back
from graphmill.record.events import CLOCKS, DamagedCheckpoint, Drawn, Epoch, Evaluation, EventWriter, events_in
from graphmill.record.metrics import append_metrics, read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import Cell
from graphmill.spec.gpu_draws import DrawnBy
from graphmill.spec.kinds.kind import AnyKind
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.task import Measures
from graphmill.train.progress import Progress


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
        self.progress.say(draws.in_words())

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
