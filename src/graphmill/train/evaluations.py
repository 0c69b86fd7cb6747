"""What a rank evaluates while it trains: which weights are the best so far, and whether to stop early."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from graphmill.base.errors import UserError
from graphmill.graph.splits import SPLITS, Split
from graphmill.record.judged import INITIAL
from graphmill.record.manifest import Best
from graphmill.record.weights import Origin
from graphmill.spec.differences import computed_with_weights
from graphmill.spec.early_stopping import Patience
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import EvaluationStopped
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.task import AnyTask, EvaluatesSets, Measures
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.run_log import RunLog
from graphmill.train.time_left import TimeLeft


@dataclass(frozen=True, slots=True)
class LatestEvaluation:
    """The latest evaluation of the validation split, for the origin of the weights that are saved at that step."""

    steps_done: int = -1  # none yet
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Evaluations:
    """One rank's evaluations. All ranks have the same measures."""

    plan: Plan
    group: Group
    task: AnyTask
    stats: EpochStats
    run_log: RunLog
    time_left: TimeLeft
    alive: Callable[[], None]  # called in each pause; feeds the watchdog
    best: Best | None = None
    latest: LatestEvaluation = LatestEvaluation()
    patience: Patience = field(default_factory=Patience)

    def before_the_first_step(self, baselines: Iterable[BaselineScore], *, has_initial_weights: bool) -> None:
        """Score the baselines, and evaluate weights from another run; neither can become the best (`can_be_best`)."""
        for score in baselines:
            self.alive()
            self.run_log.baseline(score)
        if has_initial_weights:
            measures = self._evaluate("val")
            self.latest = LatestEvaluation(0, measures.values)
            self.run_log.evaluated(INITIAL, "val", measures)

    def after_epoch(self, num_epochs: int, steps_done: int) -> tuple[Measures, Best, bool]:
        """Evaluate after an epoch. Returns the validation split's measures, the best, and whether it is these."""
        measures = self._evaluate("val")
        improved, best = self._compared(measures, num_epochs, steps_done)
        self.best = best
        self.latest = LatestEvaluation(steps_done, measures.values)
        self.run_log.evaluated(num_epochs, "val", measures)
        self._evaluate_own_sets(num_epochs)
        return measures, best, improved

    def agree_to_stop_early(self, measures: Measures) -> bool:
        """Whether the run is to end with this evaluation. The ranks have the same measures, and vote all the same."""
        spec, measure = self.plan.early_stopping, self.plan.kind.measures[0]
        if not spec.patience:
            return False
        self.patience = self.patience.after(measures.values[measure.name], measure, spec)
        return any(vote[0] for vote in self.group.gather_numbers([int(self.patience.is_over(spec))]))

    def test(self, best: Best) -> Measures:
        """Evaluate the test split with the weights of the best checkpoint, which the model has been given."""
        measures = self._evaluate("test")
        self.run_log.evaluated(best.epoch, "test", measures)
        return measures

    def origin(self, epoch: int, steps_done: int, plan_hash: str) -> Origin:
        """The origin of the weights at a step. A function of plan and step: no clock, no attempt."""
        return Origin(
            run_id=self.plan.run_id,
            task=self.plan.task.kind,
            dataset=self.plan.dataset.name,
            step=steps_done,
            epoch=epoch,
            plan_hash=plan_hash,
            measures=dict(self.latest.values) if self.latest.steps_done == steps_done else {},
            model=computed_with_weights(self.plan),
        )

    def _evaluate(self, split: Split) -> Measures:
        with self.stats.excluded():
            return self.task.evaluate(split, self._pause)

    def _evaluate_own_sets(self, num_epochs: int) -> None:
        """Evaluate the task's own evaluation sets, which do not affect what is best."""
        task: object = self.task
        if not isinstance(task, EvaluatesSets):
            return
        for name in task.evaluation_sets:
            if name in SPLITS:
                raise ValueError(f"an evaluation set is called {name!r}, as a split is")
            with self.stats.excluded():
                measures = task.evaluate_set(name, self._pause)
            self.run_log.evaluated(num_epochs, name, measures)

    def _pause(self) -> None:
        """Abort an evaluation that is under way if a rank wants to stop."""
        self.alive()
        if any(vote[0] for vote in self.group.gather_numbers([int(self.time_left.is_up())])):
            raise EvaluationStopped

    def _compared(self, measures: Measures, num_epochs: int, steps_done: int) -> tuple[bool, Best]:
        """Whether `measures` are better than the best so far, and the best with them. Of equals the lower loss is."""
        known = self.plan.kind.measures
        if known[0].name not in measures.values:
            raise UserError(
                f"{known[0].name}, by which the best checkpoint is chosen, has no finite value on the validation split",
                fix="let it be a number in all cases, or set train.best_by to another measure",
            )
        values = dict(self.best.values) if self.best else {}
        better = {
            measure.name
            for measure in known
            if measure.name in measures.values
            and (measure.name not in values or measure.is_better(measures.values[measure.name], values[measure.name]))
        }
        values |= {name: measures.values[name] for name in better}
        name = known[0].name
        if self.best is None or name in better or self.best.loses_tie(name, measures.values[name], measures.loss):
            of_epoch = {each.name: measures.values[each.name] for each in known if each.name in measures.values}
            return True, Best(step=steps_done, epoch=num_epochs, values=values, loss=measures.loss, measures=of_epoch)
        return False, self.best.model_copy(update={"values": values})
