"""Link prediction as the loop sees it: batches, a loss, measures."""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.access.exact import in_order_of_nodes
from graphmill.access.graph import GraphAccess
from graphmill.access.opening import open_access
from graphmill.access.seeds import assign_of, owners_of
from graphmill.access.spec import AccessSpec
from graphmill.base.errors import UserError
from graphmill.graph.keys import drawn
from graphmill.graph.splits import Split
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.columns import Cell
from graphmill.spec.exact_pass import evaluated_on_other
from graphmill.spec.node_models import reads_node_types
from graphmill.spec.partition import PartitionSpec
from graphmill.spec.plan import Plan
from graphmill.spec.transform import refuse_other_form
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.link_prediction.data.batches import LinkBatch, LinkSeeds, NegativeSampler
from graphmill.tasks.link_prediction.data.store import LinkStore
from graphmill.tasks.link_prediction.judging import LinkJudge
from graphmill.tasks.link_prediction.nn.heads import link_losses
from graphmill.tasks.link_prediction.nn.model import LinkModel, NodeTable, model_inputs
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.link_prediction.page.models import EmbeddingSpec
from graphmill.tasks.link_prediction.page.sizes import whole_pass
from graphmill.tasks.link_prediction.parts import PartedLinkStore, open_links
from graphmill.tasks.link_prediction.predict import best_of, known_splits, of_pairs, of_splits
from graphmill.tasks.node_encoders import DTYPE_OF, check_model
from graphmill.tasks.stores import refuse_other_data
from graphmill.tasks.task import Measures, Predictions

_log = logging.getLogger(__name__)


class NoLabels:
    """`Labels` of seeds that have none."""

    def __getitem__(self, ids: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return a zero for each id."""
        return np.zeros(len(ids), dtype=np.int64)


@dataclass(slots=True)
class LinkPrediction:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: LinkPredictionPlan
    group: Group
    model: LinkModel = field(init=False)
    access: GraphAccess | None = field(init=False)  # None: no neighbours are read
    seeds: LinkSeeds = field(init=False)
    judge: LinkJudge = field(init=False)

    def __post_init__(self) -> None:
        plan, task_plan, group = self.plan, self.task_plan, self.group
        store, spec = open_links(Path(task_plan.dataset.path)), access_spec(plan, task_plan)
        refuse_other_data(task_plan.dataset, store.metadata.checksum)
        self.seeds = link_seeds(spec, task_plan, store, group)
        is_table = isinstance(task_plan.model, EmbeddingSpec)
        self.access = None if is_table else open_access(spec, store, group, seeds=self.seeds)
        scale = None if self.access is None else self.access.standardise()
        self.model = LinkModel(plan, task_plan, rank=group.rank, standardise=scale).to(group.device)
        if self.access is not None:
            reads_averages = self.model.input_form == "self_and_mean" and scale is None
            dtype = DTYPE_OF[plan.precision] if reads_averages else torch.float32
            self.access.begin(NoLabels(), form=self.model.input_form, dtype=dtype)
        self.judge = LinkJudge(plan, task_plan, group, store)

    @property
    def schedule(self) -> SeedSchedule:
        """Which training links each rank has at each step."""
        return self.seeds.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[LinkBatch]:
        """The mini-batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        self.seeds.begin()
        device, rank = self.group.device, self.group.rank
        if self.access is None:
            for step in range(first_step, self.plan.calendar.steps_in(epoch)):
                seeds = self.schedule.seeds(epoch, step, rank)
                with self.group.spans("sample"):
                    pairs = self.seeds.pairs_of(seeds)
                yield LinkBatch(seeds, pairs.to(device), None)
            return
        steps = range(first_step, self.plan.calendar.steps_in(epoch))
        with closing(self.access.batches(epoch, first_step)) as made:
            for step, batch in zip(steps, made, strict=True):
                pairs = self.seeds.pairs_at(epoch, step).to(device)
                yield LinkBatch(self.schedule.seeds(epoch, step, rank), pairs, batch)

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What was fetched from other ranks; nothing of a graph that is stored whole."""
        return {} if self.access is None else self.access.epoch_facts()

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """What ranks received from one another to evaluate; nothing of a graph that is stored whole."""
        return {} if self.access is None else self.access.evaluation_facts()

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """Links of every rank: each counts alike."""
        return tuple(float(count) for count in self.schedule.counts(epoch, step))

    def loss_sum(self, batch: LinkBatch) -> Tensor:
        """The plan's loss summed over the links of a batch, each with the mean over its negatives."""
        positive, negative = self.model(batch)
        return link_losses(self.task_plan.loss, positive.float(), negative.float()).sum()

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Exact, filtered ranks of a split's links, the same on every rank; all ranks must call it."""
        self.model.eval()
        rows = self.rows(pause)
        with torch.no_grad():
            found = self.judge.measures(split, rows, self.model.head, pause)
        self.model.train()
        return found

    @torch.no_grad()
    def rows(self, pause: Pause) -> Tensor:
        """The row of every node [num_nodes, embedding_channels] by exact inference, on the CPU of every rank."""
        encoder = self.model.encoder
        if isinstance(encoder, NodeTable):
            return encoder.weight.detach().float().cpu()
        assert self.access is not None
        nodes = np.arange(self.task_plan.dataset.num_nodes)
        # A hop more where layers are unknown: GCN and its like also read degrees of the nodes that the last one reads.
        hops = len(self.task_plan.num_neighbors) + (not self.task_plan.resamples)
        mine, rows = self.access.exact(encoder, nodes, pause, hops=hops, num_columns=self.task_plan.embedding_channels)
        return in_order_of_nodes(self.group, mine, rows)

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Score and rank of every link of the splits; with `embeddings` in their place the row of every node."""
        rows = self._rows_alone()
        if embeddings:
            store = self.judge.store
            names = store.names_of(range(store.metadata.num_nodes)) if store.metadata.has_names else None
            named = {} if names is None else {"name": np.array(names, dtype=object)}
            return Predictions({"node": np.arange(len(rows))}, {**named, "embedding": rows.numpy()})
        with torch.no_grad():
            return of_splits(self.judge, known_splits(splits), rows, self.judge.on_cpu(self.model.head))

    @torch.no_grad()
    def scores(self, pairs: Mapping[str, Sequence[Any]]) -> Predictions:
        """A score of each pair; columns source, target and, where links have relations, relation: ids, or names."""
        return of_pairs(self.judge.store, pairs, self._rows_alone(), self.judge.on_cpu(self.model.head))

    @torch.no_grad()
    def best_pairs(self, sources: Mapping[str, Sequence[Any]] | None, count: int) -> Predictions:
        """The `count` best targets of each source that no known link joins to it, the best first."""
        return best_of(self.judge, sources, count, self._rows_alone(), self.judge.on_cpu(self.model.head))

    def _rows_alone(self) -> Tensor:
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        self.model.eval()
        return self.rows(never_pause)

    @staticmethod
    def check_model(plan: Plan, task_plan: LinkPredictionPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; without data, in a moment."""
        if not isinstance(task_plan.model, EmbeddingSpec):
            check_model(plan, task_plan.model, model_inputs(task_plan), task_plan.num_neighbors)

    @staticmethod
    def on_other_data(task_plan: LinkPredictionPlan, store: LinkStore | PartedLinkStore) -> LinkPredictionPlan:
        """The plan section over other prepared links with the same features and relations."""
        from graphmill.tasks.link_prediction.page import LinkDatasetSpec

        found, known = store.info(LinkDatasetSpec(name=store.metadata.name)), task_plan.dataset
        same_nodes = isinstance(task_plan.model, EmbeddingSpec)
        for what, here, there in (
            ("features", found.num_features, known.num_features),
            ("relations", found.num_relations, known.num_relations),
            *([("nodes", found.num_nodes, known.num_nodes)] if same_nodes else []),
        ):
            if here != there:
                raise UserError(
                    f"{found.name} has {here} {what}, and the model was trained on {known.name} with {there}",
                    fix="give data that were prepared with the same features, relations and, of a table of embeddings,"
                    " nodes",
                )
        refuse_other_form(task_plan.features, found)
        partition = None if found.num_parts is None else task_plan.partition or PartitionSpec()
        other = task_plan.model_copy(update={"dataset": found, "partition": partition})
        if same_nodes:
            return other
        in_parts = partition is not None
        way = evaluated_on_other(task_plan.evaluate_on, whole_pass(task_plan), whole_pass(other), in_parts=in_parts)
        other = other.model_copy(update={"evaluate_on": way})
        if way != task_plan.evaluate_on:
            _log.info(f"{found.name}: evaluated {other.evaluation}")
        return other

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """The model with its weights: `encoder` and `head` are modules of their own."""
        task_plan = plan.task
        assert isinstance(task_plan, LinkPredictionPlan)
        scale = Standardise.unknown(task_plan.dataset.num_features) if task_plan.features == "standardised" else None
        model = LinkModel(plan, task_plan, rank=0, standardise=scale)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        return model.eval()


def link_seeds(
    spec: AccessSpec, task_plan: LinkPredictionPlan, store: LinkStore | PartedLinkStore, group: Group
) -> LinkSeeds:
    """Which training links each rank has at each step; of a graph in parts perhaps those whose sources it owns."""
    links, known, rng_seed = store.links("train"), task_plan.dataset, spec.plan.seed
    owners = owners_of(spec, store.path, ranks=group.world_size, hosts=group.num_hosts)
    assign = assign_of(spec, owners, group.world_size, nodes=links.sources)
    ids = drawn(np.arange(len(links)), known.num_train, rng_seed)
    negatives = NegativeSampler.of(
        task_plan.negatives,
        rng_seed,
        links,
        store.known_edges(),
        known.num_nodes,
        have_direction=known.links_have_direction,
    )
    schedule = SeedSchedule.equal(ids, spec.plan.batches, rng_seed, assign)
    return LinkSeeds(schedule, links, negatives, known.num_nodes, task_plan.resamples)


def access_spec(plan: Plan, task_plan: LinkPredictionPlan) -> AccessSpec:
    """What the plan's model reads of its message graph."""
    return AccessSpec(
        plan=plan,
        num_train=task_plan.dataset.num_nodes,
        num_features=task_plan.dataset.num_features,
        fanouts=task_plan.num_neighbors,
        relation_fanouts=task_plan.relation_fanouts or (),
        resample=task_plan.resamples,
        undirected=task_plan.undirected,
        features=task_plan.features,
        edge_columns=task_plan.edge_columns,
        node_types=reads_node_types(task_plan.model),
        has_weighted_means=False,
        partition=task_plan.partition,
        evaluates_whole=task_plan.evaluate_on == "whole_graph",
        edge_dropout=task_plan.edge_dropout,
        presampled=None,
    )
