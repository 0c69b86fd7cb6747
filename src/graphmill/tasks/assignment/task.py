"""Assignment as the loop sees it: batches of one size, a loss, measures."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.weights import Weights
from graphmill.sample.feed import feed
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import BucketSchedule, SeedSchedule
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.assignment.data.batches import AssignmentBatch, CostBuffers, InstanceCollector, PreparedInstance
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.nn.loss import Predicted, distance, missing_share, objective
from graphmill.tasks.assignment.nn.metrics import JudgedPotentials, judged, row_potentials
from graphmill.tasks.assignment.nn.model import CostsToPotentials, PotentialModel, build_model, check_model
from graphmill.tasks.assignment.page import AssignmentPlan, instances_at_once, largest_batch
from graphmill.tasks.assignment.page.data import AssignmentDatasetSpec
from graphmill.tasks.stores import open_planned
from graphmill.tasks.task import Measures, Predictions

Ids = NDArray[np.int64]


@dataclass(slots=True)
class Assignment:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: AssignmentPlan
    group: Group
    store: AssignmentStore = field(init=False)
    model: PotentialModel = field(init=False)
    schedule: SeedSchedule | BucketSchedule = field(init=False)
    collector: InstanceCollector = field(init=False)
    evaluated: InstanceCollector = field(init=False)  # what is evaluated has memory of its own, for one batch

    def __post_init__(self) -> None:
        plan, task_plan = self.plan, self.task_plan
        self.store = open_planned(AssignmentStore, task_plan.dataset)
        self.model = build_model(plan, task_plan, rank=self.group.rank).to(self.group.device)
        self.schedule = _schedule(plan, task_plan, self.store).among(self.group.world_size)
        with_oracle, pinned = task_plan.loss.supervised > 0, self.group.device.type == "cuda"
        buffers = CostBuffers(largest_batch(task_plan, plan.batch_size), pinned)
        # No gradient goes through it, so that it is made beside the step, where the costs are.
        first_of = self.model.inner.first_of if self.group.device.type == "cpu" else None
        self.collector = InstanceCollector(self.store, with_oracle, buffers, first_of)
        self.evaluated = InstanceCollector(self.store, with_oracle, CostBuffers(0, pinned))

    def batches(self, epoch: int, first_step: int) -> Generator[AssignmentBatch]:
        """The batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        with closing(prefetch(lambda: self._make(epoch, first_step), self.plan.prefetch)) as batches:
            yield from feed(batches, self.group.device, self.group.spans)

    def weights(self, epoch: int, step: int) -> tuple[int, ...]:
        """Instances of every rank."""
        return self.schedule.counts(epoch, step)

    def largest_batches(self) -> tuple[tuple[int, int], ...]:
        """Epoch and step of the first batch with the most pairs in the first epoch."""
        steps = range(self.plan.calendar.steps_in(0))
        return ((0, max(steps, key=lambda step: self._num_pairs(self.schedule.seeds(0, step, 0).ids))),)

    def _num_pairs(self, ids: Ids) -> int:
        """Pairs of a batch of these instances, with those that fill it up."""
        sides = np.sort(np.array([self.store.shape(int(i)) for i in ids]).reshape(-1, 2), axis=1)
        return len(ids) * int(np.prod(sides.max(axis=0, initial=0)))

    def loss_sum(self, batch: AssignmentBatch) -> Tensor:
        """The plan's loss summed over the instances of a batch: the mean over the rounds of a model."""
        predicted = self.model(batch)
        shares = [self._missing(predicted, batch, number) for number in range(len(predicted.rounds))]
        loss = torch.stack(shares).mean(dim=0).sum()
        if self.task_plan.loss.supervised:
            far = distance(predicted.last.v, batch.oracle_v, batch.instances, predicted.scale)
            loss = loss + self.task_plan.loss.supervised * far.sum()
        return loss

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split, each instance counted once; the same on every rank, and all ranks must call it."""
        rows, counts = list[tuple[float, ...]](), np.zeros(self.group.world_size, dtype=np.int64)
        for ids, at_once in self._buckets(split):
            shares = np.array_split(ids, self.group.world_size)
            counts += [len(share) for share in shares]
            mine = shares[self.group.rank]
            for begin in range(0, len(shares[0]), at_once):  # the first share is never the smaller
                pause()
                part = mine[begin : begin + at_once]
                rows += [(loss, each.gap, each.u_mae, each.is_feasible) for each, loss in self._judged(part)]
        table = torch.tensor(rows, dtype=torch.float64).view(-1, 4)
        loss, gap, u_mae, feasible = self.group.gather_rows(table, counts.tolist()).unbind(1)
        values = {"dual_gap": float(np.median(gap)), "u_mae": float(u_mae.mean()), "feasible": float(feasible.mean())}
        return Measures(loss=float(loss.mean()), values=values, num_seeds=int(counts.sum()))

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Feasible potentials of all rows (u) and columns (v) of the splits' instances, beside the optimal ones."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        if embeddings:
            raise UserError("this task has no embeddings", fix="leave --embeddings out")
        parts: list[dict[str, NDArray[Any]]] = []
        for split in SPLITS if splits is None else splits:
            for ids, at_once in self._buckets(split):
                for begin in range(0, len(ids), at_once):
                    part = ids[begin : begin + at_once]
                    found = zip(part, self._judged(part), strict=True)
                    parts += [_potential_columns(self.store, int(i), split, each) for i, (each, _) in found]
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Predictions({"potential": np.arange(len(values["instance"]))}, values)

    @staticmethod
    def check_model(plan: Plan, task_plan: AssignmentPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; without data, in a moment."""
        check_model(plan, task_plan)

    @staticmethod
    def on_other_data(task_plan: AssignmentPlan, store: AssignmentStore) -> AssignmentPlan:
        """The plan section over other prepared instances, of all their sizes and families."""
        found = store.info(AssignmentDatasetSpec(name=store.metadata.name))
        counts = tuple(bucket.num_train for bucket in found.buckets)
        return task_plan.model_copy(update={"dataset": found, "sizes": None, "families": None, "counts": counts})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model, called as model(costs), without prepared data."""
        task_plan = plan.task
        assert isinstance(task_plan, AssignmentPlan)
        model = build_model(plan, task_plan, rank=0)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        return CostsToPotentials(model.inner)

    def _missing(self, predicted: Predicted, batch: AssignmentBatch, number: int) -> Tensor:
        """What the potentials of a round miss, [B]."""
        found = objective(predicted.rounds[number], batch.instances)
        unit = batch.instances.num_rows * predicted.scale.squeeze(1)
        return missing_share(found, batch.optimum, predicted.reduced_v.sum(dim=1), unit)

    def _buckets(self, split: Split) -> Iterator[tuple[Ids, int]]:
        """Ids of the instances of a split, by size, and how many are computed together."""
        for bucket in self.task_plan.dataset.buckets:
            if bucket.size not in self.task_plan.replay.sizes:
                ids = self.store.instances(split, (bucket.size,), self.task_plan.families)
                yield ids, instances_at_once(bucket.max_rows, bucket.max_cols)

    @torch.no_grad()
    def _judged(self, ids: Ids) -> Iterator[tuple[JudgedPotentials, float]]:
        """What is predicted for instances of one size, and its loss."""
        if not len(ids):
            return
        self.model.eval()
        batch = self.evaluated.collect(EvaluationSeeds(SeedIds(ids))).to(self.group.device)
        predicted = self.model(batch)
        losses = self._missing(predicted, batch, -1).tolist()
        self.model.train()
        found = predicted.best_v(batch.instances).double().cpu().numpy()
        for place, i in enumerate(ids):
            problem = PreparedInstance.of(self.store, int(i))
            v = found[place, : problem.costs.shape[1]]
            u = row_potentials(problem.costs, v)
            yield judged(problem.costs, u, v, problem.optimum, problem.u), losses[place]
            self.store.evict(int(i))

    def _make(self, epoch: int, first_step: int) -> Iterator[AssignmentBatch]:
        for step in range(first_step, self.plan.calendar.steps_in(epoch)):
            with self.group.spans("gather"):
                batch = self.collector.collect(self.schedule.seeds(epoch, step, self.group.rank))
            yield batch


def _schedule(plan: Plan, task_plan: AssignmentPlan, store: AssignmentStore) -> SeedSchedule | BucketSchedule:
    """Which instances each rank learns from at each step."""
    buckets = []
    for bucket, count in zip(task_plan.dataset.buckets, task_plan.counts, strict=True):
        ids = store.instances("train", (bucket.size,), task_plan.families)
        buckets.append(ids if bucket.size in task_plan.replay.sizes else drawn(ids, count, plan.seed))
    if len(buckets) == 1:
        return SeedSchedule.equal(buckets[0], plan.batches, plan.seed)
    return BucketSchedule.of(buckets, plan.batches, plan.seed)


def _potential_columns(
    store: AssignmentStore, instance: int, split: Split, potentials: JudgedPotentials
) -> dict[str, NDArray[Any]]:
    """Potentials of an instance as columns of a table: those of its rows, then those of its columns."""
    is_transposed = PreparedInstance.of(store, instance).is_transposed
    u, v = (potentials.v, potentials.u) if is_transposed else (potentials.u, potentials.v)
    count = len(u) + len(v)
    return {
        "instance": np.full(count, instance),
        "split": np.full(count, split, dtype="U5"),
        "family": np.full(count, store.family(instance), dtype="U32"),
        "side": np.repeat(np.array(["row", "column"]), [len(u), len(v)]),
        "place": np.concatenate([np.arange(len(u)), np.arange(len(v))]),
        "predicted": np.concatenate([u, v]),
        "optimal": np.concatenate([store.u(instance), store.v(instance)]),
    }
