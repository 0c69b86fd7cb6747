"""Node classification as the loop sees it: batches, a loss, measures."""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.access.device import DeviceGraph
from graphmill.access.draws import SettledDraws
from graphmill.access.exact import in_order_of_nodes
from graphmill.access.graph import GraphAccess
from graphmill.access.local import LocalAccess
from graphmill.access.opening import open_access
from graphmill.access.served import BatchServer
from graphmill.access.whole import WholeGraph
from graphmill.base.errors import UserError
from graphmill.graph.batch import MiniBatch
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.graphsage import GraphSage
from graphmill.nn.node_attention import NodeAttention
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.partition.parts import LabelsOfSplits
from graphmill.sample.collect import Labels
from graphmill.sample.schedule import SeedSchedule
from graphmill.sample.service.served import SamplerClient
from graphmill.spec.columns import Cell
from graphmill.spec.exact_pass import evaluated_on_other
from graphmill.spec.gpu_graph import DrawnBy
from graphmill.spec.node_models import reads_node_types
from graphmill.spec.partition import PartitionSpec
from graphmill.spec.plan import Plan
from graphmill.spec.roles import RoleRank
from graphmill.spec.sign import SignSpec, columns_read, propagation_of, refuse_parts
from graphmill.spec.transform import refuse_other_form
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.attended import Attention, heads_of
from graphmill.tasks.classification import ClassifierLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.label_propagation import KnownLabels, label_shares_of_others
from graphmill.tasks.multilabel import LabelsLoss
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.attended import LayerwiseAttention
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import (
    GraphDatasetSpec,
    GraphInfo,
    NodeClassificationPlan,
)
from graphmill.tasks.node_classification.page.sizes import whole_pass
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_graph, open_labels
from graphmill.tasks.node_classification.targets import refuse_unknown_targets, targets_in
from graphmill.tasks.node_encoders import (
    DTYPE_OF,
    EdgeIndexModel,
    NodeEncoder,
    NodeModelInputs,
    build_model,
    check_model,
)
from graphmill.tasks.portable_nodes import portable
from graphmill.tasks.stores import refuse_other_data
from graphmill.tasks.task import Measures, Predictions

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class NodeClassification:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: NodeClassificationPlan
    group: Group
    served: InitVar[SamplerClient | None] = (
        None  # by a process that samples, which holds the graph; None: this one does
    )
    model: NodeEncoder = field(init=False)
    access: GraphAccess = field(init=False)
    labels: Labels = field(init=False)  # by node id, of the nodes of splits at least
    loss: ClassifierLoss | LabelsLoss = field(init=False)
    custom_measures: CustomMeasures = field(init=False)

    def __post_init__(self, served: SamplerClient | None) -> None:
        plan, task_plan, path = self.plan, self.task_plan, Path(self.task_plan.dataset.path)
        store = open_graph(path) if served is None else open_labels(path)
        refuse_other_data(task_plan.dataset, store.metadata.checksum)
        self.labels = store.labels
        refuse_unknown_targets(path, self.labels, store.nodes_in, targets_in(task_plan.dataset))
        beside = label_columns(plan, task_plan, store)
        self.access = open_access(access_spec(plan, task_plan), store, self.group, served, extra_columns=beside)
        scale = self.access.standardise()
        self.model = build_model(
            plan, task_plan.model, model_inputs(task_plan), rank=self.group.rank, standardise=scale
        ).to(self.group.device)
        labels = self._labels_of(drawn(store.nodes_in("train"), task_plan.dataset.num_train, plan.seed))
        self.loss = targets_in(task_plan.dataset).loss(plan, task_plan, self.group, labels)
        self.custom_measures = CustomMeasures.of(plan)
        reads_averages = self.model.input_form == "self_and_mean" and scale is None
        dtype = DTYPE_OF[plan.precision] if reads_averages else torch.float32
        self.access.begin(self.labels, form=self.model.input_form, dtype=dtype)

    @property
    def schedule(self) -> SeedSchedule:
        """Which training nodes each rank has at each step."""
        return self.access.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """The mini-batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        return self.access.batches(epoch, first_step)

    def settle_draws(self, before: DrawnBy | None) -> SettledDraws | None:
        """Who draws of a graph that lies for a GPU."""
        return self.access.settle_draws(before) if isinstance(self.access, LocalAccess) else None

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What was fetched from other ranks; nothing of a graph that is stored whole."""
        return self.access.epoch_facts()

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """What ranks received from one another to evaluate; nothing of a graph that is stored whole."""
        return self.access.evaluation_facts()

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """Sums of the class weights of every rank's seeds; their number if each counts 1."""
        return self.loss.weights(self.schedule, self.labels, epoch, step)

    def loss_sum(self, batch: MiniBatch) -> Tensor:
        """The plan's loss summed over the seeds of a batch; cross-entropy by the weights of classes or labels, nats."""
        return self.loss.sum(batch.seeds, self.model(batch).float(), batch.labels)

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split by exact inference, the same on every rank; all ranks must call it."""
        self.model.eval()
        nodes, logits = self.exact_logits(self.access.nodes_in(split), pause)
        labels, targets = self._labels_of(nodes), targets_in(self.task_plan.dataset)
        total = targets.tally(logits, labels)
        seeds, device = EvaluationSeeds(SeedIds(nodes)), self.group.device
        total[0] = self.loss.of_split(seeds, logits.to(device), labels.to(device), total[0])
        self.model.train()
        found = targets.measures(self.group.sum_numbers(total))
        return replace(found, values=found.values | self._custom_measures_of(split, nodes, logits))

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """What is predicted, and the label (masked: unlabelled) of every node of the splits; by ascending node id."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        whole = self._whole_graph("predictions are")
        nodes = np.arange(whole.store.metadata.num_nodes) if splits is None else self._nodes_of(splits)
        self.model.eval()
        _, logits = self.exact_logits(nodes, never_pause)
        values: dict[str, np.ndarray] = {
            "split": self._split_names(whole.store.metadata.num_nodes)[nodes],
            "label": np.ma.masked_equal(self.labels[nodes], -1),
            **targets_in(self.task_plan.dataset).predictions(logits),
        }
        if embeddings:
            values["embedding"] = self._embeddings(whole, nodes)
        self.model.train()
        return Predictions({"node": nodes}, values)

    def attention(self, splits: Sequence[Split] | None) -> Attention:
        """Attention of the edges to the nodes of the splits, in the direction of messages, by ascending target."""
        heads, kind = heads_of(self.model, self.task_plan.model.kind), self.task_plan.model.kind
        if not isinstance(self.model, EdgeIndexModel) or not isinstance(self.model.inner, NodeAttention):
            raise UserError(
                f"model.kind {kind} is a model of which no layer is known, and attention is computed layer by layer",
                fix="take it in Python: graphmill.load(RUN), and return_attention_weights of its layers",
            )
        whole = self._whole_graph("attention is")
        nodes = np.arange(whole.store.metadata.num_nodes) if splits is None else self._nodes_of(splits)
        layers = LayerwiseAttention(self.model, whole.topology, whole.features, whole.edge_features)
        return Attention(("source", "target"), heads, layers.parts(nodes, self.group.device))

    @staticmethod
    def check_model(plan: Plan, task_plan: NodeClassificationPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; without data, in a moment."""
        check_model(plan, task_plan.model, model_inputs(task_plan), task_plan.num_neighbors)
        targets_in(task_plan.dataset).check_judgement(plan, task_plan)

    @staticmethod
    def on_other_data(
        task_plan: NodeClassificationPlan, store: LabelledGraphStore | PartedLabelledGraph
    ) -> NodeClassificationPlan:
        """The plan section over another prepared graph with the same features and classes."""
        found, known = store.info(GraphDatasetSpec(name=store.metadata.name)), task_plan.dataset
        for what, here, there in (
            ("features", found.num_features, known.num_features),
            ("classes", found.num_classes, known.num_classes),
        ):
            if here != there:
                raise UserError(
                    f"{found.name} has {here} {what}, and the model was trained on {known.name} with {there}",
                    fix="give data that were prepared with the same features and classes",
                )
        if found.target_kind != known.target_kind:
            has = {"class": "one class per node", "labels": "several labels per node"}
            raise UserError(
                f"{found.name} has {has[found.target_kind]}, and the model was trained on {known.name} with"
                f" {has[known.target_kind]}",
                fix=f"give data that were prepared with target={known.target_kind}",
            )
        refuse_other_form(task_plan.features, found)
        refuse_parts(task_plan.model, found.name, found.num_parts)
        if task_plan.edge_features is not None and found.edge_features != known.edge_features:
            raise UserError(
                f"{found.name} has the edge features {', '.join(found.edge_features) or 'none'}, and the model was"
                f" trained on {known.name} with {', '.join(known.edge_features)}",
                fix="give data that were prepared with the same edge features",
            )
        if task_plan.reads_types:
            _refuse_other_types(found, known, of_nodes=reads_node_types(task_plan.model))
        partition = None if found.num_parts is None else task_plan.partition or PartitionSpec()
        other = task_plan.model_copy(update={"dataset": found, "partition": partition})
        in_parts = partition is not None
        way = evaluated_on_other(task_plan.evaluate_on, whole_pass(task_plan), whole_pass(other), in_parts=in_parts)
        other = other.model_copy(update={"evaluate_on": way})
        if way != task_plan.evaluate_on:
            _log.info(f"{found.name}: evaluated {other.evaluation}")
        return other

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model, called as model(x, edge_index), with the edge features or types that it reads."""
        task_plan = plan.task
        assert isinstance(task_plan, NodeClassificationPlan)
        columns = columns_read(task_plan.model, task_plan.dataset.num_features, task_plan.dataset.num_classes)
        scale = Standardise.unknown(columns) if task_plan.features == "standardised" else None
        model = build_model(plan, task_plan.model, model_inputs(task_plan), rank=0, standardise=scale)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        return portable(model, task_plan.features, propagation_of(task_plan.model))

    def _custom_measures_of(self, split: Split, nodes: NDArray[np.int64], logits: Tensor) -> dict[str, float]:
        """Custom measures, by rank 0 of all ranks' logits in order; `logits` [n, …] are of this rank's `nodes` [n]."""
        if not self.custom_measures:
            return {}
        everyone = in_order_of_nodes(self.group, nodes, logits)
        values = torch.zeros(len(self.plan.measures), dtype=torch.float64)
        if self.group.rank == 0:
            values = self.custom_measures.of_split(
                everyone.float(), self._labels_of(self.access.nodes_in(split)).long()
            )
        return self.custom_measures.by_name(self.group.sum_numbers(values), split, tells=self.group.rank == 0)

    def _labels_of(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.labels[ids])  # a copy: torch cannot hold what is mapped read-only

    def _nodes_of(self, splits: Sequence[Split]) -> np.ndarray:
        return np.sort(np.concatenate([self.access.nodes_in(split) for split in splits]))

    def _whole_graph(self, what: str) -> WholeGraph:
        source = self.access.source if isinstance(self.access, LocalAccess) else None
        if isinstance(source, DeviceGraph):
            return source.whole_graph
        if not isinstance(source, WholeGraph):
            raise UserError(
                f"{what} made of a graph that is stored whole, and {self.task_plan.dataset.path} is partitioned",
                fix="name the graph that was partitioned: --dataset NAME",
            )
        return source

    def _split_names(self, num_nodes: int) -> np.ndarray:
        names = np.full(num_nodes, "none", dtype="U5")
        for split in SPLITS:
            names[self.access.nodes_in(split)] = split
        return names

    def _embeddings(self, whole_graph: WholeGraph, nodes: np.ndarray) -> np.ndarray:
        model = self.model
        if not isinstance(model, GraphSage) or (len(model.layers) == 1 and model.readout is None):
            raise UserError(
                "only the built-in graphsage, with two layers or more or a head on all, has embeddings that are known"
                " to be such",
                fix="leave --embeddings out; of another model take them in Python: graphmill.load(RUN)",
            )
        return whole_graph.layerwise(model, never_pause).embeddings(nodes).numpy()

    def exact_logits(self, nodes: np.ndarray, pause: Pause) -> tuple[np.ndarray, Tensor]:
        """This rank's share of `nodes` and their logits, without sampling. All ranks must call it."""
        if isinstance(self.labels, LabelsOfSplits):
            self.labels.evict()
        # A hop more where layers are unknown: GCN and its like also read degrees of the nodes that the last one reads.
        hops = self.task_plan.hops + (not self.task_plan.resamples)
        return self.access.exact(self.model, nodes, pause, hops=hops, num_columns=self.task_plan.dataset.num_classes)


def label_columns(
    plan: Plan, task_plan: NodeClassificationPlan, store: LabelledGraphStore | PartedLabelledGraph
) -> NDArray[np.float32] | None:
    """Labels of the run's training nodes, propagated to all [num_nodes, num_classes]; None: the model reads none."""
    if not isinstance(task_plan.model, SignSpec) or not task_plan.model.label_propagation:
        return None
    assert isinstance(store, LabelledGraphStore), "the plan was refused for parts"
    nodes = drawn(store.nodes_in("train"), task_plan.dataset.num_train, plan.seed)
    known = KnownLabels(nodes, store.labels[nodes], task_plan.dataset.num_classes)
    return label_shares_of_others(store.topology(undirected=task_plan.undirected), known, plan.seed)


def model_inputs(task_plan: NodeClassificationPlan) -> NodeModelInputs:
    """What the plan's model reads, and that it gives a logit of each class, or label."""
    return NodeModelInputs(
        in_channels=task_plan.dataset.num_features,
        out_channels=task_plan.dataset.num_classes,
        is_sparse=task_plan.dataset.has_sparse_features,
        types=task_plan.dataset,
        edge_columns=len(task_plan.edge_columns),
        edge_argument=task_plan.edge_features,
    )


def _refuse_other_types(dataset: GraphInfo, known: GraphInfo, *, of_nodes: bool) -> None:
    """Raise a `UserError` if a model of typed edges that was trained on `known` does not fit another graph."""
    if dataset.edge_types != known.edge_types:
        raise UserError(
            f"{dataset.name} has the edge types {', '.join(dataset.edge_types) or 'none'}, and the model was trained on"
            f" {known.name} with {', '.join(known.edge_types)}",
            fix="give data that were prepared with the same types of edges, in the same order",
        )
    if of_nodes and dataset.node_types != known.node_types:
        raise UserError(
            f"{dataset.name} has the node types {', '.join(dataset.node_types)}, and the model was trained on"
            f" {known.name} with {', '.join(known.node_types)}",
            fix="give data that were prepared with the same types of nodes, in the same order",
        )
    if dataset.has_sparse_features != known.has_sparse_features:
        forms = ["sparse" if each.has_sparse_features else "dense" for each in (dataset, known)]
        raise UserError(
            f"{dataset.name} has {forms[0]} features, and the model was trained on {known.name} with {forms[1]} ones",
            fix=f"give data that were prepared with {forms[1]} features",
        )


def serve(plan: Plan, group: Group, trainers: Sequence[int], first: RoleRank) -> BatchServer:
    """A sampler's share of the problem; `first`: the rank of the first of all trainers."""
    task_plan = plan.task
    assert isinstance(task_plan, NodeClassificationPlan)
    task = NodeClassification(plan, task_plan, group)
    assert isinstance(task.access, LocalAccess)
    return BatchServer(task, task.access, trainers, first)
