"""Intrusion detection as the loop sees it: batches of windows, a loss, measures of alarms."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import GraphBatch, on_device
from graphmill.graph.features import DenseFeatures
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import Seeds
from graphmill.graph.splits import Split
from graphmill.graph.statistics import statistics
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.plan import Plan, refuse_missing_sources
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.attended import Attended, Attention, graph_of_edges, heads_of, of_batches
from graphmill.tasks.classification import ClassifierLoss
from graphmill.tasks.graph_feed import GraphFeed
from graphmill.tasks.intrusion.data.splits import SPLITS
from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.detector import detector
from graphmill.tasks.intrusion.fusion import Stacking
from graphmill.tasks.intrusion.nn.fusion import CanFusion
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.ids import ids_of
from graphmill.tasks.intrusion.nn.learn import Curriculum, Teacher
from graphmill.tasks.intrusion.nn.model import Detecting, Inner, Known, WindowScores, build_model, inner_model
from graphmill.tasks.intrusion.nn.reference import Reference
from graphmill.tasks.intrusion.nn.vgae import CanVgae, Reconstruction
from graphmill.tasks.intrusion.page import KIND, CaptureDatasetSpec, IntrusionPlan
from graphmill.tasks.intrusion.page.models import NUM_CLASSES, CurriculumSpec, IntrusionModelSpec
from graphmill.tasks.intrusion.reference import BenignTraffic
from graphmill.tasks.intrusion.threshold import alarms_of, chosen_threshold, measured
from graphmill.tasks.stores import open_planned
from graphmill.tasks.task import Detector, Measures, Predictions

_FITTED_ON: Final = 4096  # windows, about: enough for two numbers
_PENALTY: Final = 0.01  # of the weight: where deviations tell all, little is left for layers to learn by heart


@dataclass(slots=True)
class Intrusion:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: IntrusionPlan
    group: Group
    store: CaptureStore = field(init=False)
    model: Detecting = field(init=False)
    feed: GraphFeed = field(init=False)
    codes: NDArray[np.int8] = field(init=False)  # [num_graphs]: split of each
    train_ids: NDArray[np.int64] = field(init=False)  # ascending
    labels: NDArray[np.int64] = field(init=False)  # [num_graphs], mapped: ranks of a host share it
    loss: ClassifierLoss = field(init=False)
    balance: NDArray[np.float64] | None = field(init=False, default=None)  # [num_graphs]; None: all windows count 1
    teacher: Teacher | None = field(init=False, default=None)
    curriculum: Curriculum | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        plan, task_plan = self.plan, self.task_plan
        self.store = open_planned(CaptureStore, task_plan.dataset)
        spec = CaptureDatasetSpec(
            name=task_plan.dataset.name, train_on=task_plan.train_on, **task_plan.division.model_dump()
        )
        self.codes, self.labels = self.store.split_codes(task_plan.division), self.store.labels
        ids = self.store.train_ids(spec)
        model = build_model(plan, task_plan, rank=self.group.rank, known=_known(self.store, ids))
        self.model = model.to(self.group.device)
        ids = self.train_ids = drawn(ids, task_plan.dataset.num_train, plan.seed)
        if task_plan.capture_weights == "balanced":
            self.balance = _balanced(self.store.capture, ids)
        self.feed = GraphFeed.of(plan, self.group, self.store.graphs, self.labels, ids)
        self.loss = ClassifierLoss.of(
            plan, task_plan.loss, self.group, num_classes=NUM_CLASSES, labels=torch.from_numpy(self.labels[ids])
        )
        if isinstance(model.inner, CanGat):
            self._fit_term(model.inner)

    @property
    def schedule(self) -> SeedSchedule | BudgetSchedule:
        """Which windows each rank learns from at each step."""
        return self.feed.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[GraphBatch]:
        """The batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        self._refuse_missing(self.plan.sources)
        per_hour = self.task_plan.false_alarms_per_hour
        if per_hour is not None:  # on all ranks; rank 0 alone chooses it later
            val = np.flatnonzero(self.codes == SPLITS.index("val"))
            chosen_threshold(self.store, val, np.zeros(len(val)), per_hour)
        return self.feed.batches(epoch, first_step)

    def use_sources(self, sources: Mapping[str, Weights]) -> None:
        """`tasks.task.UsesSources`: a teacher, what scores the difficulty of windows, or the members of a fusion."""
        self._refuse_missing(sources)
        if self.task_plan.distill is not None:
            teacher = self._trained(self.task_plan.distill.teacher, sources["teacher"])
            assert isinstance(teacher, CanGat | CanVgae)
            self.teacher = Teacher(self.task_plan.distill, teacher)
        if self.task_plan.curriculum is not None:
            self.curriculum = self._curriculum(self.task_plan.curriculum, sources)
        if isinstance(self.model.inner, CanFusion):
            for name, member in (("gat", self.model.inner.gat), ("vgae", self.model.inner.vgae)):
                _inner_of(sources[name]).load_all_into(member, name=f"model.{name}")
            self._fit(self.model.inner)

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """Sums of the weights of every rank's windows, or their number; of those that count in the epoch."""
        window_weights = self._window_weights(epoch)
        if window_weights is None:
            return self.loss.weights(self.schedule, self.labels, epoch, step)
        classes = np.ones(NUM_CLASSES) if self.loss.class_weights is None else self.loss.class_weights.cpu().numpy()
        return tuple(
            float((classes[self.labels[ids]] * window_weights[ids]).sum(dtype=np.float64))
            for ids in self.schedule.shares(epoch, step)
        )

    def largest_batches(self) -> tuple[tuple[int, int], ...]:
        """Epoch and step of this rank's batches with the most nodes, and with the most edges, in the first epochs."""
        return self.feed.largest_batches()

    def loss_sum(self, batch: GraphBatch) -> Tensor:
        """Loss of a batch, summed over its windows: cross-entropy by class weights, or what an autoencoder misses."""
        losses, seeds = self._losses(batch), batch.seeds
        weights = self._window_weights(seeds.epoch) if isinstance(seeds, Seeds) else None
        if weights is not None:
            losses = losses * on_device(torch.from_numpy(weights[seeds.ids]).to(losses.dtype), losses.device)
        return losses.sum()

    def _losses(self, batch: GraphBatch) -> Tensor:
        """Loss of every window [num_graphs], float32; by the weight of its class."""
        made = self.model(batch)
        if isinstance(self.model.inner, CanVgae):
            assert isinstance(made, Reconstruction)
            losses = self.model.inner.losses(batch, made)
            if self.teacher is not None:
                losses = self.teacher.of_reconstruction(batch, made, losses, self.model)
            return losses.float()
        assert isinstance(made, Tensor)
        logits, spec, weight = made.float(), self.task_plan.loss, self.loss.class_weights
        smoothing = spec.label_smoothing
        losses = F.cross_entropy(logits, batch.labels, weight=weight, label_smoothing=smoothing, reduction="none")
        return losses if self.teacher is None else self.teacher.of_logits(batch, logits, losses)

    def _window_weights(self, epoch: int) -> NDArray[np.float64] | None:
        """What each window counts in an epoch beside its class [num_graphs]; None: all count 1."""
        if self.curriculum is None:
            return self.balance
        counts = self.curriculum.counts(epoch).astype(np.float64)
        return counts if self.balance is None else counts * self.balance

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split, the same on every rank; all ranks must call it.

        On the validation windows the threshold is chosen, if the plan gives none; other splits are judged by it.
        """
        ids = np.flatnonzero(self.codes == SPLITS.index(split))
        shares = np.array_split(ids, self.group.world_size)
        mine, counts = shares[self.group.rank], [len(share) for share in shares]
        found = self._judged(mine, pause, most=counts[0])
        total = self.group.sum_numbers(found[:, :1].sum(dim=0))
        values = self._measured(ids, split, self.group.gather_rows(found, counts))
        return Measures(loss=float(total[0]) / len(ids), values=values, num_seeds=len(ids))

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Score, alarm and label of every window of the splits; of None: of all windows."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        ids = self._windows_of(splits)
        scores = self._judged(ids)[:, 1].numpy()
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

    def attention(self, splits: Sequence[Split] | None) -> Attention:
        """Attention of the edges of the windows of the splits; ends are ids on the bus."""
        if isinstance(self.model.inner, CanFusion):
            raise UserError(
                "a fusion has no attention of its own", fix="leave --attention out, or name the run of a member"
            )
        heads = heads_of(self.model, self.task_plan.model.kind)
        return Attention(("window", "source", "target"), heads, self._attended(self._windows_of(splits)))

    @staticmethod
    def on_other_data(task_plan: IntrusionPlan, store: CaptureStore) -> IntrusionPlan:
        """The plan section over other prepared captures, divided by time as these were."""
        found, known = store.metadata, task_plan.dataset
        if (found.window, found.stride) != (known.window, known.stride):
            raise UserError(
                f"{found.name} has windows of {found.window} frames, every {found.stride}, and the model was trained on"
                f" windows of {known.window}, every {known.stride}",
                fix=f"prepare it with -o window={known.window} -o stride={known.stride}",
            )
        division = task_plan.division.model_copy(
            update=dict.fromkeys(("train_captures", "val_captures", "test_captures"), ())
        )
        spec = CaptureDatasetSpec(name=found.name, **division.model_dump())
        return task_plan.model_copy(update={"dataset": store.info(spec), "division": division})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model that scores windows, called as model(x, edge_index, batch, edge_attr, ids). Needs no store."""
        return WindowScores(_trained(plan, weights))

    @staticmethod
    def detector(plan: Plan, weights: Weights) -> Detector:
        """Detector for streams of frames, a window at a time."""
        task_plan = plan.task
        assert isinstance(task_plan, IntrusionPlan)
        return detector(
            _trained(plan, weights).eval(), window=task_plan.dataset.window, stride=task_plan.dataset.stride
        )

    def _refuse_missing(self, sources: Iterable[str]) -> None:
        refuse_missing_sources(KIND, self.task_plan, sources)

    def _measured(self, ids: NDArray[np.int64], split: Split, judged: Tensor) -> dict[str, float]:
        """Measure all windows of a split [n, 2] on rank 0, and send the result to the others. Sets the threshold."""
        values = torch.zeros(len(KIND.measures) + 1, dtype=torch.float64)
        if self.group.rank == 0:
            scores, threshold = judged[:, 1].cpu().numpy(), float(self.model.threshold)
            if split == "val" and self.task_plan.threshold is None:
                threshold = chosen_threshold(self.store, ids, scores, self.task_plan.false_alarms_per_hour)
            found = measured(self.store, ids, scores, threshold)
            values = torch.tensor([*(found[measure.name] for measure in KIND.measures), threshold], dtype=torch.float64)
        values = self.group.sum_numbers(values)
        with torch.no_grad():
            self.model.threshold.fill_(float(values[-1]))
        return {measure.name: float(value) for measure, value in zip(KIND.measures, values[:-1], strict=True)}

    def _judged(self, ids: NDArray[np.int64], pause: Pause = never_pause, *, most: int = 0) -> Tensor:
        """Loss and score of windows [n, 2], float64; leaves the model in training mode."""
        self.model.eval()
        found = [self.model.judged(batch).cpu() for batch in self.feed.in_order(ids, pause, most=most)]
        self.model.train()
        return torch.cat([torch.empty(0, 2, dtype=torch.float64), *found])

    def _windows_of(self, splits: Sequence[Split] | None) -> NDArray[np.int64]:
        wanted = [SPLITS.index(split) for split in splits or SPLITS]
        return np.arange(len(self.codes)) if splits is None else np.flatnonzero(np.isin(self.codes, wanted))

    def _attended(self, ids: NDArray[np.int64]) -> Iterator[Attended]:
        for batch, layer, edges, alpha in of_batches(self.model, self.feed.in_order(ids, never_pause)):
            place, _ = graph_of_edges(batch, edges)
            source, target = ids_of(batch.x).cpu()[edges].numpy()
            yield Attended(layer, (batch.seeds.ids[place], source, target), alpha.numpy())

    def _trained(self, spec: IntrusionModelSpec, weights: Weights) -> Inner:
        """Make another model with weights of a run, on the rank's device; it is not trained any further."""
        model = inner_model(spec, Known.nothing())
        _inner_of(weights).load_all_into(model, name=f"a {spec.kind} model of scale {getattr(spec, 'scale', '')}")
        return model.to(self.group.device).eval().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def _curriculum(self, spec: CurriculumSpec, sources: Mapping[str, Weights]) -> Curriculum:
        ids = self.train_ids
        benign = ids[np.asarray(self.labels)[ids] == 0]
        difficulty = np.zeros(len(benign))
        if spec.score == "scorer":
            scorer = self._trained(spec.scorer, sources["scorer"])
            assert isinstance(scorer, CanVgae)
            scores = [scorer.scores(batch).cpu() for batch in self.feed.in_order(benign, never_pause)]
            difficulty = torch.cat([torch.empty(0, dtype=torch.float64), *scores]).numpy()
        return Curriculum(
            spec=spec,
            attacked=ids[np.asarray(self.labels)[ids] == 1],
            benign=benign,
            difficulty=difficulty,
            num_graphs=len(self.codes),
            num_epochs=self.plan.calendar.num_epochs,
            seed=self.plan.seed,
        )

    @torch.no_grad()
    def _fit(self, fusion: CanFusion) -> None:
        """Begin where logistic regression on the windows that are trained on ends."""
        ids = self.train_ids
        rows = [fusion.of_members(batch).cpu() for batch in self.feed.in_order(ids, never_pause)]
        scores = torch.cat(rows).numpy()
        found = Stacking.fit({"gat": scores[:, 0], "vgae": scores[:, 1]}, np.asarray(self.labels)[ids] == 1)
        for own, value in (
            (fusion.scale.mean, found.mean),
            (fusion.scale.sd, found.std),
            (fusion.head.weight, found.weight),
            (fusion.head.bias, found.bias),
        ):
            own.copy_(torch.as_tensor(value).reshape(own.shape))

    @torch.no_grad()
    def _fit_term(self, gat: CanGat) -> None:
        """Begin the reference's term as logistic regression on deviations: layers learn what these do not tell."""
        ids = self.train_ids[:: 1 + len(self.train_ids) // _FITTED_ON]
        is_attack = np.asarray(self.labels)[ids] == 1
        if is_attack.all() or not is_attack.any():
            return
        deviations = [gat.reference.of_windows(batch).cpu() for batch in self.feed.in_order(ids, never_pause)]
        found = Stacking.fit({"deviation": torch.cat(deviations).numpy()}, is_attack, penalty=_PENALTY)
        weight = found.weight[0] / found.std[0]
        gat.by_reference.weight.fill_(float(weight))
        gat.by_reference.bias.fill_(float(found.bias - weight * found.mean[0]))

    @torch.no_grad()
    def _embeddings(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self.model.eval()
        inner = self.model.inner
        if isinstance(inner, CanFusion):
            raise UserError(
                "a fusion has no embeddings of its own", fix="leave --embeddings out, or name the run of a member"
            )
        found = [inner.embed(batch).cpu() for batch in self.feed.in_order(ids, never_pause)]
        self.model.train()
        return torch.cat(found).numpy()


def _trained(plan: Plan, weights: Weights) -> Detecting:
    task_plan = plan.task
    assert isinstance(task_plan, IntrusionPlan)
    model = build_model(plan, task_plan, rank=0)
    weights.load_all_into(model, name=f"the model of {plan.run_id}")
    return model


def _inner_of(weights: Weights) -> Weights:
    """Weights of the model itself, without its threshold."""
    prefix = "inner."
    own = {name.removeprefix(prefix): each for name, each in weights.tensors.items() if name.startswith(prefix)}
    return replace(weights, tensors=own)


def _balanced(capture: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of the windows `ids` by which each capture counts alike, and all together as many as there are."""
    counts = np.bincount(capture[ids])
    weights = np.zeros(len(capture))
    weights[ids] = len(ids) / (np.count_nonzero(counts) * counts[capture[ids]])
    return weights


def _known(store: CaptureStore, ids: NDArray[np.int64]) -> Known:
    """What is known of the training windows `ids`, and of no other."""
    graphs = store.graphs
    is_train = np.zeros(graphs.num_graphs, bool)
    is_train[ids] = True
    made = []
    for table, offsets, first in ((graphs.x, graphs.node_offsets, 2), (graphs.edge_attr, graphs.edge_offsets, 0)):
        rows = np.flatnonzero(np.repeat(is_train, np.diff(offsets)))
        mean, sd = statistics(DenseFeatures(table, "float32"), rows)
        made.append(Standardise(torch.from_numpy(mean[first:]), torch.from_numpy(sd[first:])))
    is_train &= np.asarray(store.labels) == 0
    return Known(made[0], made[1], Reference(BenignTraffic.fit(store.windows(), is_train)))
