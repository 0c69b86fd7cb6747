"""The seam between training and a learning problem: what the loop asks of a task, and nothing else.

A task is one rank's share of a problem that a plan describes. It makes batches, computes their loss, and evaluates a
split; the loop steps, synchronises, saves and records without knowing what is learnt.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol, TypeVar, runtime_checkable

from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.access.draws import SettledDraws
from graphmill.graph.splits import Split
from graphmill.nn.weights import Weights
from graphmill.spec.columns import Cell
from graphmill.spec.gpu_graph import DrawnBy
from graphmill.spec.plan import Plan
from graphmill.sync.pause import Pause
from graphmill.tasks.attended import Attention


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a split: exact over the split, the same on every rank, no padding counted."""

    loss: float  # mean
    values: dict[str, float]  # by the names of the kind's measures; the first of them must be there
    num_seeds: int  # nodes or windows that were evaluated

    def facts(self) -> dict[str, float | int]:
        """Facts by name, as in events and outcome.json."""
        return {**self.values, "loss": self.loss, "num_seeds": self.num_seeds}


class Batch(Protocol):
    """What one step of one rank computes on."""

    @property
    def num_seeds(self) -> int:
        """Nodes, or windows, of this batch; 0 if the rank has no share of the step."""


class Schedule(Protocol):
    """How many seeds each rank has at each step; `sample.schedule.SeedSchedule` is one."""

    @property
    def num_seeds(self) -> int:
        """Seeds of a whole epoch, over all ranks: the same in every epoch, since none is left out."""

    def counts(self, epoch: int, step: int) -> tuple[int, ...]:
        """Seeds of every rank at a step of an epoch."""


B = TypeVar("B", bound=Batch)


class Task(Protocol[B]):
    """One rank's share of the problem that a plan describes."""

    @property
    def model(self) -> nn.Module:
        """Model with its initial weights, equal on every rank, on the rank's device. The loop owns its parameters."""

    @property
    def schedule(self) -> Schedule:
        """How many seeds each rank has at each step."""

    def batches(self, epoch: int, first_step: int) -> Generator[B]:
        """This rank's batches from a step of an epoch to the epoch's end, one per step, even if it has no seeds.

        An epoch ends where the plan's calendar says. What it costs is measured by the group's spans, `sample`, `gather`
        and `collate`; they may overlap the step.

        Each is a function of (seed, epoch, step, rank, number of ranks) alone, whatever was drawn before (invariant 1).
        """

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """What `loss_sum` is to be divided by at a step, of every rank: the same on all ranks, without communication.

        The update's gradient is the sum over ranks divided by the sum of these. Seeds if every seed counts alike;
        observed targets if some are missing; sums of class weights.
        """

    def loss_sum(self, batch: B) -> Tensor:
        """The loss summed over the terms of a batch, to be differentiated; never called for a batch without seeds."""

    def evaluate(self, split: Split, pause: Pause) -> Measures:
        """Measures of a split, the same on every rank; all ranks must call it. Leaves the model in training mode.

        All ranks call `pause` equally often, every few seconds or more often: it is where they agree to stop.
        """


@runtime_checkable
class EvaluatesSets(Protocol):
    """A task with evaluation sets of its own: measured whenever the validation split is, and recorded by name."""

    @property
    def evaluation_sets(self) -> tuple[str, ...]:
        """Names of the sets; none is that of a split."""

    def evaluate_set(self, name: str, pause: Pause) -> Measures:
        """Measures of one of the sets; everything else as `Task.evaluate`."""


@runtime_checkable
class KnowsLargestBatches(Protocol):
    """A task whose batches differ much, and that can say which of the first epochs' are the largest."""

    def largest_batches(self) -> Sequence[tuple[int, int]]:
        """Epoch and step of some: at least one. What fits into memory is tried on these."""


@runtime_checkable
class CountsEpochs(Protocol):
    """A task that knows more of an epoch than the loop does; its kind names the columns (`own_columns`)."""

    def epoch_facts(self) -> Mapping[str, Cell]:
        """Facts by column of the epoch whose batches were made last. All ranks call it together after its last step."""


@runtime_checkable
class CountsEvaluations(Protocol):
    """A task that knows more of an evaluation than its measures; its kind names the columns (`own_columns`)."""

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """Facts by column of the evaluation after the epoch of the last `epoch_facts`. All ranks call it together."""


class ServesBatches(Protocol):
    """What a sampler asks of a task: batches and logits for the trainers that it serves (`Sampling.serve`)."""

    @property
    def is_shared(self) -> bool:
        """Whether making a batch takes all samplers."""

    def windows(self, epoch: int, first_step: int) -> Iterator[tuple[range, Iterator[Any]]]:
        """The steps that are left of an epoch, those whose batches are made together, and these batches.

        Of each step, of each trainer in turn; the memory of one is reused for a later one.
        """

    def begin(self) -> None:
        """Begin to count for `spent`."""

    def spent(self) -> Tensor:
        """What making batches took since `begin`, and what it fetched."""

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the features."""

    def logits(self, nodes: Tensor, weights: Sequence[Tensor], pause: Pause) -> Tensor:
        """Logits of all `nodes` with these weights; all samplers must call it. `pause` may raise."""

    def evaluation_bytes(self) -> int:
        """What samplers received from one another for the `logits` made last, all together. All must call it."""


@runtime_checkable
class SettlesDraws(Protocol):
    """A task that finds out at its start who draws its batches: the device that holds its graph, or the CPU for it."""

    def settle_draws(self, before: DrawnBy | None) -> SettledDraws | None:
        """Settle who draws: called once, before the first step of an attempt. Batches are the same. None: no question.

        Args:
            before: who drew in the attempt before; None: this is the first.
        """


@runtime_checkable
class UsesSources(Protocol):
    """A task that uses weights of other runs while it trains, such as a teacher's; its kind names them (`sources`)."""

    def use_sources(self, sources: Mapping[str, Weights]) -> None:
        """Take the sources: called once, before the first step of an attempt. Each has its `Weights.origin`."""


AnyTask = Task[Any]
"""A task as the loop holds it: whatever its batches are."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model predicts for the items of some splits, and the true values where they are known.

    `axes`: name and ids of each dimension, in order: (node,), or (window_start, horizon, sensor). `values`: arrays
    whose leading dimensions are the leading axes; one dimension more is a vector per item. Masked entries are
    unknown.
    """

    axes: dict[str, NDArray[Any]]
    values: dict[str, NDArray[Any]]


@runtime_checkable
class Predicts(Protocol):
    """A task that can write down its predictions: `graphmill predict`."""

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Predictions for the items of `splits`, None: for all there are, by the same inference as `evaluate`.

        In one process. `embeddings`: with what the last layer, or the head, reads; `UserError` if the model has none.
        """


@runtime_checkable
class ScoresPairs(Protocol):
    """A task that scores pairs of items, joined or not: `graphmill predict --pairs` and `--top`."""

    def scores(self, pairs: Mapping[str, Sequence[Any]]) -> Predictions:
        """A score of each pair. `pairs`: columns source, target and, where links have relations, relation.

        Each an id, or the name that the data have for it. In one process; `UserError` if one is not known.
        """

    def best_pairs(self, sources: Mapping[str, Sequence[Any]] | None, count: int) -> Predictions:
        """The `count` best targets of each source that no known link joins to it, the best first.

        `sources`: columns source and, where links have relations, relation; None: all nodes, of links that
        have none. In one process.
        """


@runtime_checkable
class Attends(Protocol):
    """A task whose models may attend to neighbours: `graphmill predict --attention`."""

    def attention(self, splits: Sequence[Split] | None) -> Attention:
        """What every layer gives the edges to the items of `splits`, None: of all there are, without any dropout.

        In one process; `UserError` if the model has no attention.
        """


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector says of one window of a stream."""

    number: int  # from 0
    begin_s: float
    end_s: float
    score: float
    is_alarm: bool
    is_attack: bool | None  # as the stream itself says; None: it does not
    attributions: Mapping[str, Sequence[tuple[str, float]]]  # by sort, the heaviest first, as shares of all of the sort


class Detector(Protocol):
    """Judges a stream a window at a time: `graphmill detect`. Used for one stream."""

    @property
    def threshold(self) -> float | None:
        """The score from which on a window is an alarm; None: none was chosen with the weights."""

    def verdicts(self, arriving: IO[bytes], source: str, *, layout: str, threshold: float) -> Iterator[Verdict]:
        """Verdict of each window, as soon as its end has arrived; `UserError` for what is not such a stream.

        `source` names the stream in messages. What is wrong with single lines is logged once for each sort.
        """

    def notes(self) -> Iterator[str]:
        """What there is to say of the stream so far, when it has ended or is not read any further."""


class Detects(Protocol):
    """What a class of tasks may offer for the use of finished runs on streams."""

    @staticmethod
    def detector(plan: Plan, weights: Weights) -> Detector:
        """Detector with the plan's model and these weights, without prepared data."""


@dataclass(frozen=True, slots=True)
class Benched:
    """What a benchmark of a run found: a mapping for each thing measured, and a table of them for people."""

    rows: Sequence[Mapping[str, Any]]  # the same keys in all
    summary: Sequence[Mapping[str, Any]]


class Benches(Protocol):
    """What a kind may name as `Bench.measure`: `graphmill bench KIND RUN`."""

    def __call__(self, model: nn.Module, store: Any, options: Any, progress: Callable[[str], None]) -> Benched:  # noqa: ANN401
        """Measure `model`, as `graphmill.load` gives it, on prepared data; `options` is `Bench.options`."""


class UsedLater(Protocol):
    """What a class of tasks may offer for the use of finished runs. Without it `UserError` says what is missing."""

    @staticmethod
    def on_other_data(task_plan: Any, store: Any) -> Any:  # noqa: ANN401  # the task's own plan section, and its own store
        """The section over other prepared data; `UserError` if the model does not fit them."""

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """The plan's model with `weights` as plain PyTorch: what `graphmill.load` gives."""


@runtime_checkable
class ChecksModel(Protocol):
    """A class of tasks that can say before a run whether a user-defined model fits: see `tasks.check_model`."""

    @staticmethod
    def check_model(plan: Plan, task_plan: Any) -> None:  # noqa: ANN401  # the task's own plan section
        """`UserError` if it does not."""
