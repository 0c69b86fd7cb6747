"""Intrusion detection as the loop sees it: batches of windows, a loss, measures of alarms."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import EvaluationSeeds, GraphBatch, SeedIds
from graphmill.graph.features import DenseFeatures
from graphmill.graph.keys import drawn
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.kinds.intrusion import (
    KIND,
    NUM_CLASSES,
    CaptureDatasetSpec,
    CaptureInfo,
    IntrusionPlan,
)
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.classification import ClassifierLoss, check_judgement
from graphmill.tasks.graph_feed import GraphFeed
from graphmill.tasks.intrusion.detector import detector
from graphmill.tasks.intrusion.judge import judged
from graphmill.tasks.intrusion.model import Detecting, build_model, score_of
from graphmill.tasks.intrusion.portable import WindowClassifier
from graphmill.tasks.intrusion.splits import SPLITS
from graphmill.tasks.intrusion.store import CaptureStore
from graphmill.tasks.intrusion.threshold import alarms_of, choose_threshold
from graphmill.tasks.same_data import refuse_other_data
from graphmill.tasks.standardise import statistics
from graphmill.tasks.task import Detector, Measures, Pause, Predictions, Split, never_pause


@dataclass(slots=True)
class Intrusion:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    own: IntrusionPlan
    group: Group
    store: CaptureStore = field(init=False)
    model: Detecting = field(init=False)
    feed: GraphFeed = field(init=False)
    codes: NDArray[np.int8] = field(init=False)  # [num_graphs]: split of each
    labels: NDArray[np.int64] = field(init=False)  # [num_graphs], mapped: ranks of a host share it
    loss: ClassifierLoss = field(init=False)

    def __post_init__(self) -> None:
        plan, own = self.plan, self.own
        self.store = _same_store(own.dataset)
        asked = CaptureDatasetSpec(
            name=own.dataset.name, train_on=own.train_on, **own.division.model_dump(exclude_unset=False)
        )
        self.codes, self.labels = self.store.split_codes(own.division), self.store.labels
        ids = self.store.train_ids(asked)
        nodes, edges = _scales(self.store, ids)
        model = build_model(plan, own, rank=self.group.rank, nodes=nodes, edges=edges)
        self.model = model.to(self.group.device)
        ids = drawn(ids, own.dataset.num_train, plan.seed)
        self.feed = GraphFeed.of(plan, self.group, self.store.graphs, self.labels, ids)
        self.loss = ClassifierLoss.of(
            plan, own.loss, self.group, num_classes=NUM_CLASSES, labels=torch.from_numpy(self.labels[ids])
        )

    @property
    def schedule(self) -> SeedSchedule | BudgetSchedule:
        """Which windows each rank learns from at each step."""
        return self.feed.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[GraphBatch]:
        """The batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        return self.feed.batches(epoch, first_step)

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """Sums of the class weights of every rank's windows; their number if each counts 1."""
        return self.loss.weights(self.schedule, self.labels, epoch, step)

    def largest_batches(self) -> tuple[tuple[int, int], ...]:
        """Of the first epochs, of this rank: the batch with the most nodes, and the one with the most edges."""
        return self.feed.largest_batches()

    def loss_sum(self, batch: GraphBatch) -> Tensor:
        """The plan's loss summed over the windows of a batch."""
        return self.loss.sum(batch.seeds, self.model(batch).float(), batch.labels)

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split, the same on every rank; all ranks must call it.

        On the validation windows the threshold is chosen, if the plan gives none; other splits are judged by it.
        """
        ids = np.flatnonzero(self.codes == SPLITS.index(split))
        shares = np.array_split(ids, self.group.world_size)
        mine, counts = shares[self.group.rank], [len(share) for share in shares]
        logits = self._outputs(mine, pause, most=counts[0])
        labels = torch.from_numpy(self.labels[mine])
        cross_entropy = nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
        device = self.group.device
        seeds = EvaluationSeeds(SeedIds(mine))
        loss = self.loss.of_split(seeds, logits.to(device), labels.to(device), cross_entropy)
        total = self.group.sum_numbers(torch.stack([loss.double().cpu()]))
        values = self._judged(ids, split, self.group.gather_rows(logits, counts))
        return Measures(loss=float(total[0]) / len(ids), values=values, num_seeds=len(ids))

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Score, alarm and label of every window of the splits; of None: of all windows."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        wanted = [SPLITS.index(split) for split in splits or SPLITS]
        ids = np.arange(len(self.codes)) if splits is None else np.flatnonzero(np.isin(self.codes, wanted))
        scores = score_of(self._outputs(ids)).numpy()
        names, captures = np.array([*SPLITS, "none"]), self.store.metadata.captures
        times = np.asarray(self.store.times)[ids]
        values: dict[str, np.ndarray] = {
            "split": names[self.codes[ids]],  # UNUSED is the last
            "capture": np.array([each.name for each in captures])[self.store.capture[ids]],
            "begin_s": times[:, 0],
            "end_s": times[:, 1],
            "label": np.asarray(self.labels)[ids],
            "prediction": alarms_of(scores, float(self.model.threshold)).astype(np.int64),
            "score": scores,
        }
        if embeddings:
            values["embedding"] = self._embeddings(ids)
        return Predictions({"window": ids}, values)

    @staticmethod
    def check_model(plan: Plan, own: IntrusionPlan) -> None:
        """`UserError` if a user-defined loss does not fit the plan; without data, in a moment."""
        check_judgement(plan, own.loss, NUM_CLASSES)

    @staticmethod
    def on_other_data(own: IntrusionPlan, store: CaptureStore) -> IntrusionPlan:
        """The plan section over other prepared captures, divided by time as these were."""
        found, known = store.metadata, own.dataset
        if (found.window, found.stride) != (known.window, known.stride):
            raise UserError(
                f"{found.name} has windows of {found.window} frames, every {found.stride}, and the model was trained on"
                f" windows of {known.window}, every {known.stride}",
                fix=f"prepare it with -o window={known.window} -o stride={known.stride}",
            )
        division = own.division.model_copy(
            update=dict.fromkeys(("train_captures", "val_captures", "test_captures"), ())
        )
        asked = CaptureDatasetSpec(name=found.name, **division.model_dump())
        return own.model_copy(update={"dataset": store.info(asked), "division": division})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Called as model(x, edge_index, batch, edge_attr, ids), without prepared data."""
        return WindowClassifier(_trained(plan, weights).inner)

    @staticmethod
    def detector(plan: Plan, weights: Weights) -> Detector:
        """For streams of frames, a window at a time."""
        own = plan.task
        assert isinstance(own, IntrusionPlan)
        return detector(_trained(plan, weights).eval(), window=own.dataset.window, stride=own.dataset.stride)

    def _judged(self, ids: NDArray[np.int64], split: Split, logits: Tensor) -> dict[str, float]:
        """By rank 0, of the logits of all windows of a split [n, 2]; told to the others. Sets the threshold."""
        values = torch.zeros(len(KIND.measures) + 1, dtype=torch.float64)
        if self.group.rank == 0:
            scores, threshold = score_of(logits.cpu()).numpy(), float(self.model.threshold)
            if split == "val" and self.own.threshold is None:
                threshold = choose_threshold(scores, np.asarray(self.labels)[ids] == 1).value
            found = judged(self.store, ids, scores, threshold)
            values = torch.tensor([*(found[measure.name] for measure in KIND.measures), threshold], dtype=torch.float64)
        values = self.group.sum_numbers(values)
        with torch.no_grad():
            self.model.threshold.fill_(float(values[-1]))
        return {measure.name: float(value) for measure, value in zip(KIND.measures, values[:-1], strict=True)}

    @torch.no_grad()
    def _outputs(self, ids: NDArray[np.int64], pause: Pause = never_pause, *, most: int = 0) -> Tensor:
        """Logits of windows [n, 2], in float32; leaves the model in training mode."""
        self.model.eval()
        logits = [self.model(batch).float().cpu() for batch in self.feed.in_order(ids, pause, most=most)]
        self.model.train()
        return torch.cat([torch.empty(0, NUM_CLASSES), *logits])

    @torch.no_grad()
    def _embeddings(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self.model.eval()
        found = [self.model.inner.embed(batch).cpu() for batch in self.feed.in_order(ids, never_pause)]
        self.model.train()
        return torch.cat(found).numpy()


def _trained(plan: Plan, weights: Weights) -> Detecting:
    own = plan.task
    assert isinstance(own, IntrusionPlan)
    model = build_model(plan, own, rank=0)
    weights.load_all_into(model, name=f"the model of {plan.run_id}")
    return model


def _scales(store: CaptureStore, ids: NDArray[np.int64]) -> tuple[Standardise, Standardise]:
    """Of the features of nodes and of edges, by the training windows `ids` alone."""
    graphs = store.graphs
    is_train = np.zeros(graphs.num_graphs, bool)
    is_train[ids] = True
    made = []
    for table, offsets, first in ((graphs.x, graphs.node_offsets, 2), (graphs.edge_attr, graphs.edge_offsets, 0)):
        rows = np.flatnonzero(np.repeat(is_train, np.diff(offsets)))
        mean, sd = statistics(DenseFeatures(table, "float32"), rows)
        made.append(Standardise(torch.from_numpy(mean[first:]), torch.from_numpy(sd[first:])))
    return made[0], made[1]


def _same_store(planned: CaptureInfo) -> CaptureStore:
    """The store that was planned with: a run must not continue with other captures under the same path."""
    store = CaptureStore.open(Path(planned.path))
    refuse_other_data(planned, store.metadata.checksum)
    return store
