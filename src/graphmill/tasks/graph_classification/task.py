"""Graph classification as the loop sees it: batches, a loss, measures."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import GraphBatch
from graphmill.graph.features import DenseFeatures
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.statistics import statistics
from graphmill.nn.graph_attention import GraphAttention
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.attended import Attended, Attention, graph_of_edges, heads_of, of_batches
from graphmill.tasks.classification import ClassifierLoss, check_judgement, measures, tally
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.graph_classification.data.store import GraphSetStore, ids_in
from graphmill.tasks.graph_classification.nn.gin import Gin
from graphmill.tasks.graph_classification.nn.model import (
    GraphClassifier,
    GraphModel,
    OnStandardisedGraphs,
    build_model,
    check_model,
    standardised,
)
from graphmill.tasks.graph_classification.page import KIND, GraphClassificationPlan, GraphSetDatasetSpec
from graphmill.tasks.graph_feed import GraphFeed
from graphmill.tasks.stores import open_planned
from graphmill.tasks.task import Measures, Predictions


@dataclass(slots=True)
class GraphClassification:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: GraphClassificationPlan
    group: Group
    model: GraphModel = field(init=False)
    feed: GraphFeed = field(init=False)
    codes: NDArray[np.int8] = field(init=False)  # [num_graphs]: split of each
    labels: NDArray[np.int64] = field(init=False)  # [num_graphs], mapped: ranks of a host share it
    loss: ClassifierLoss = field(init=False)
    custom_measures: CustomMeasures = field(init=False)

    def __post_init__(self) -> None:
        plan, task_plan = self.plan, self.task_plan
        store = open_planned(GraphSetStore, task_plan.dataset)
        self.codes, self.labels = store.split_codes(dataset_spec(task_plan)), store.labels
        scale = _scale(task_plan, store, self.codes)
        self.model = build_model(plan, task_plan, rank=self.group.rank, standardise=scale).to(self.group.device)
        ids = drawn(ids_in(self.codes, "train"), task_plan.dataset.num_train, plan.seed)
        self.feed = GraphFeed.of(plan, self.group, store.graphs, self.labels, ids)
        num_classes, labels = task_plan.dataset.num_classes, self._labels_of(ids)
        self.loss = ClassifierLoss.of(plan, task_plan.loss, self.group, num_classes=num_classes, labels=labels)
        self.custom_measures = CustomMeasures.of(plan)

    @property
    def schedule(self) -> SeedSchedule | BudgetSchedule:
        """Which graphs each rank learns from at each step."""
        return self.feed.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[GraphBatch]:
        """The batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        return self.feed.batches(epoch, first_step)

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """Sums of the class weights of every rank's graphs; their number if each counts 1."""
        return self.loss.weights(self.schedule, self.labels, epoch, step)

    def largest_batches(self) -> tuple[tuple[int, int], ...]:
        """Epoch and step of this rank's batches with the most nodes, and with the most edges, in the first epochs."""
        return self.feed.largest_batches()

    def loss_sum(self, batch: GraphBatch) -> Tensor:
        """The plan's loss summed over the graphs of a batch; cross-entropy by the weights of their classes, nats."""
        return self.loss.sum(batch.seeds, self.model(batch).float(), batch.labels)

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split, the same on every rank; all ranks must call it."""
        ids = ids_in(self.codes, split)
        shares = np.array_split(ids, self.group.world_size)
        mine = shares[self.group.rank]
        logits = self._outputs(mine, pause, most=len(shares[0]))
        labels = self._labels_of(mine)
        total = tally(logits, labels)
        seeds, device = EvaluationSeeds(SeedIds(mine)), self.group.device
        total[0] = self.loss.of_split(seeds, logits.to(device), labels.to(device), total[0])
        found = measures(self.group.sum_numbers(total), self.task_plan.dataset.num_classes)
        values = by_name(found.values) | self._custom_measures_of(ids, split, logits, [len(share) for share in shares])
        return replace(found, values=values)

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Logits, predicted class and label of every graph of the splits; by ascending number of the graph."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        ids = self._graphs_of(splits)
        logits = self._outputs(ids)
        names = np.full(len(self.codes), "none", dtype="U5")
        for split in SPLITS:
            names[ids_in(self.codes, split)] = split
        values: dict[str, np.ndarray] = {
            "split": names[ids],
            "label": np.asarray(self.labels)[ids],
            "prediction": logits.argmax(dim=1).numpy(),
            "logit": logits.numpy(),
        }
        if embeddings:
            values["embedding"] = self._embeddings(ids)
        return Predictions({"graph": ids}, values)

    def attention(self, splits: Sequence[Split] | None) -> Attention:
        """Attention of the edges of the graphs of the splits; nodes are counted within their graph."""
        heads = heads_of(self.model, self.task_plan.model.kind)
        return Attention(("graph", "source", "target"), heads, self._attended(self._graphs_of(splits)))

    @staticmethod
    def check_model(plan: Plan, task_plan: GraphClassificationPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; without data, in a moment."""
        check_model(plan, task_plan)
        check_judgement(plan, task_plan.loss, task_plan.dataset.num_classes)

    @staticmethod
    def on_other_data(task_plan: GraphClassificationPlan, store: GraphSetStore) -> GraphClassificationPlan:
        """The plan section over other prepared graphs with the same features and classes, in their own splits."""
        found, known = store.info(GraphSetDatasetSpec(name=store.metadata.name)), task_plan.dataset
        for what, here, there in (
            ("features", found.num_features, known.num_features),
            ("edge features", found.num_edge_features, known.num_edge_features),
            ("classes", found.num_classes, known.num_classes),
        ):
            if here != there:
                raise UserError(
                    f"{found.name} has {here} {what}, and the model was trained on {known.name} with {there}",
                    fix="give graphs that were prepared with the same features and classes",
                )
        return task_plan.model_copy(update={"dataset": found, "fold": None})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model, called as model(x, edge_index, batch), without prepared data."""
        task_plan = plan.task
        assert isinstance(task_plan, GraphClassificationPlan)
        scale = Standardise.unknown(task_plan.dataset.num_features) if task_plan.features == "standardised" else None
        model = build_model(plan, task_plan, rank=0, standardise=scale)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        if isinstance(model.inner, Gin | GraphAttention):
            return GraphClassifier(model.inner, scale)
        return model.inner if scale is None else OnStandardisedGraphs(scale, model.inner)

    def _graphs_of(self, splits: Sequence[Split] | None) -> NDArray[np.int64]:
        wanted = SPLITS if splits is None else splits
        return np.sort(np.concatenate([ids_in(self.codes, split) for split in wanted]))

    def _attended(self, ids: NDArray[np.int64]) -> Iterator[Attended]:
        for batch, layer, edges, alpha in of_batches(self.model, self.feed.in_order(ids, never_pause)):
            place, first = graph_of_edges(batch, edges)
            source, target = edges.numpy() - first
            yield Attended(layer, (batch.seeds.ids[place], source, target), alpha.numpy())

    @torch.no_grad()
    def _outputs(self, ids: NDArray[np.int64], pause: Pause = never_pause, *, most: int = 0) -> Tensor:
        """Logits of graphs [n, num_classes], in float32; leaves the model in training mode."""
        self.model.eval()
        logits = [self.model(batch).float().cpu() for batch in self.feed.in_order(ids, pause, most=most)]
        self.model.train()
        return torch.cat([torch.empty(0, self.task_plan.dataset.num_classes), *logits])

    @torch.no_grad()
    def _embeddings(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        inner = self.model.inner
        if not isinstance(inner, Gin | GraphAttention):
            raise UserError(
                "only built-in models have embeddings that are known to be such",
                fix="leave --embeddings out; of a model by dotted path take them in Python: graphmill.load(RUN)",
            )
        self.model.eval()
        batches = self.feed.in_order(ids, never_pause)
        found = [inner.embed(standardised(batch, self.model.standardise)).cpu() for batch in batches]
        self.model.train()
        return torch.cat(found).numpy()

    def _custom_measures_of(
        self, ids: NDArray[np.int64], split: Split, logits: Tensor, counts: list[int]
    ) -> dict[str, float]:
        """Custom measures, by rank 0 of all ranks' logits in the order of the split; `logits`: of this rank's share."""
        if not self.custom_measures:
            return {}
        everyone = self.group.gather_rows(logits, counts)
        values = torch.zeros(len(self.plan.measures), dtype=torch.float64)
        if self.group.rank == 0:
            values = self.custom_measures.of_split(everyone.float(), self._labels_of(ids))
        return self.custom_measures.by_name(self.group.sum_numbers(values), split, tells=self.group.rank == 0)

    def _labels_of(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.labels[ids])  # of a copy: torch cannot hold what is mapped read-only


def by_name(values: Mapping[str, float]) -> dict[str, float]:
    """Measures of a classification, as this task calls them."""
    known = {"accuracy": values["micro_f1"], **values}
    return {measure.name: known[measure.name] for measure in KIND.measures}


def dataset_spec(task_plan: GraphClassificationPlan) -> GraphSetDatasetSpec:
    """The dataset section that a plan was made of, as far as it divides the graphs."""
    return GraphSetDatasetSpec(
        name=task_plan.dataset.name, fold=task_plan.fold, folds=task_plan.folds, fold_seed=task_plan.fold_seed
    )


def _scale(task_plan: GraphClassificationPlan, store: GraphSetStore, codes: NDArray[np.int8]) -> Standardise | None:
    """Scale by the nodes of the training graphs alone; None unless the plan asks for it."""
    if task_plan.features != "standardised":
        return None
    graphs = store.graphs
    is_train = np.repeat(codes == 0, np.diff(graphs.node_offsets))
    mean, sd = statistics(DenseFeatures(graphs.x, "float32"), np.flatnonzero(is_train))
    return Standardise(torch.from_numpy(mean), torch.from_numpy(sd))
