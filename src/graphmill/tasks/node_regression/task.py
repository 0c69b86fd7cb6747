"""Node regression as the loop sees it: batches, a loss, measures."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.access.exact import in_order_of_nodes
from graphmill.access.graph import GraphAccess
from graphmill.access.opening import open_access
from graphmill.access.spec import AccessSpec
from graphmill.base.errors import UserError
from graphmill.graph.batch import MiniBatch, on_device
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, SeedIds
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.standardise import Standardise
from graphmill.nn.weights import Weights
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.exact_pass import evaluated_on_other
from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.node_models import reads_node_types
from graphmill.spec.plan import Plan
from graphmill.spec.sign import columns_read, propagation_of
from graphmill.spec.transform import refuse_other_form
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.node_encoders import DTYPE_OF, check_model
from graphmill.tasks.node_regression.data.store import ValuesStore
from graphmill.tasks.node_regression.nn.errors import measures, tally, value_losses
from graphmill.tasks.node_regression.nn.model import InUnits, NodeRegressor, model_inputs, scale_of
from graphmill.tasks.node_regression.page import NodeRegressionPlan, ValuesDatasetSpec, whole_pass
from graphmill.tasks.portable_nodes import portable
from graphmill.tasks.stores import open_planned
from graphmill.tasks.task import Measures, Predictions


class _SeedNumbers:
    """`Labels` of batches: the number of each seed, by which its values are looked up."""

    def __getitem__(self, ids: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the ids [n] themselves."""
        return ids


@dataclass(slots=True)
class NodeRegression:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    task_plan: NodeRegressionPlan
    group: Group
    model: NodeRegressor = field(init=False)
    access: GraphAccess = field(init=False)
    store: ValuesStore = field(init=False)
    values: NDArray[np.float32] = field(init=False)  # [num_nodes, num_targets], mapped: ranks of a host share it
    custom_loss: CustomLoss | None = field(init=False)
    custom_measures: CustomMeasures = field(init=False)

    def __post_init__(self) -> None:
        plan, task_plan, group = self.plan, self.task_plan, self.group
        self.store = open_planned(ValuesStore, task_plan.dataset)
        self.values = self.store.values
        self.access = open_access(access_spec(plan, task_plan), self.store, group)
        train = drawn(self.store.nodes_in("train"), task_plan.dataset.num_train, plan.seed)
        scale = self.access.standardise()
        self.model = NodeRegressor(
            plan, task_plan, rank=group.rank, standardise=scale, targets=scale_of(self.values, train)
        ).to(group.device)
        self.custom_loss = custom_loss(plan, task_plan, group)
        self.custom_measures = CustomMeasures.of(plan)
        encoder = self.model.encoder
        reads_averages = encoder.input_form == "self_and_mean" and scale is None
        dtype = DTYPE_OF[plan.precision] if reads_averages else torch.float32
        self.access.begin(_SeedNumbers(), form=encoder.input_form, dtype=dtype)

    @property
    def schedule(self) -> SeedSchedule:
        """Which training nodes each rank has at each step."""
        return self.access.schedule

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """The mini-batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        return self.access.batches(epoch, first_step)

    def weights(self, epoch: int, step: int) -> tuple[float, ...]:
        """How many values of every rank's seeds are known: each counts alike."""
        shares = self.schedule.shares(epoch, step)
        return tuple(float(np.count_nonzero(~np.isnan(self.values[ids]))) for ids in shares)

    def loss_sum(self, batch: MiniBatch) -> Tensor:
        """The plan's loss summed over the values of a batch that are known, in standard deviations."""
        truths = on_device(self._values_of(batch.seeds.ids), self.group.device)
        return self._error_sum(batch.seeds, self.model(batch), truths)

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split by exact inference, the same on every rank; all ranks must call it."""
        everyone = self.store.nodes_in(split)
        self.model.eval()
        nodes, rows = self.exact_rows(everyone, pause)
        truths, found = self._values_of(nodes), self.model.in_units(rows)
        loss = self._loss_of_split(nodes, rows, truths)
        total = tally(found, truths, self.model.targets.mean.cpu())
        self.model.train()
        sums = self.group.sum_numbers(torch.cat([loss.reshape(1), total.flatten()]))
        values = measures(sums[1:]) | self._custom_measures_of(split, everyone, nodes, found)
        return Measures(float(sums[0] / sums[1 : 1 + truths.shape[1]].sum()), values, len(everyone))

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Predicted and true values (masked: not known) of every node of the splits; by ascending node id."""
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        if embeddings:
            raise UserError(
                "a model of node regression has no embeddings that are written down",
                fix="leave --embeddings out; take them in Python: graphmill.load(RUN)",
            )
        names = np.full(self.task_plan.dataset.num_nodes, "none", dtype="U5")
        for split in SPLITS:
            names[self.store.nodes_in(split)] = split
        wanted = np.isin(names, splits) if splits is not None else np.ones(len(names), dtype=np.bool_)
        nodes = np.flatnonzero(wanted)
        self.model.eval()
        _, rows = self.exact_rows(nodes, never_pause)
        found, truths = self.model.in_units(rows).detach().numpy(), self.values[nodes]
        self.model.train()
        if truths.shape[1] == 1:
            found, truths = found[:, 0], truths[:, 0]
        masked = np.ma.masked_array(truths, np.isnan(truths), fill_value=np.nan)
        return Predictions({"node": nodes}, {"split": names[nodes], "value": masked, "prediction": found})

    @staticmethod
    def check_model(plan: Plan, task_plan: NodeRegressionPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; without data, in a moment."""
        check_model(plan, task_plan.model, model_inputs(task_plan), task_plan.num_neighbors)
        device = torch.device(plan.device)
        made_up = torch.randn(2, 8, task_plan.dataset.num_targets, device=device)
        loss = custom_loss(plan, task_plan, Group(0, 1, device))
        if loss is not None:
            loss.try_out(made_up[0], made_up[1])
        CustomMeasures.of(plan).of_split(made_up[0].cpu(), made_up[1].cpu())

    @staticmethod
    def on_other_data(task_plan: NodeRegressionPlan, store: ValuesStore) -> NodeRegressionPlan:
        """The plan section over another prepared graph with the same features and values."""
        found, known = store.info(ValuesDatasetSpec(name=store.metadata.name)), task_plan.dataset
        for what, here, there in (
            ("features", found.num_features, known.num_features),
            ("values of each node", found.num_targets, known.num_targets),
            ("types of edges", len(found.edge_types), len(known.edge_types)),
        ):
            if here != there:
                raise UserError(
                    f"{found.name} has {here} {what}, and the model was trained on {known.name} with {there}",
                    fix="give data that were prepared with the same features, values and types",
                )
        refuse_other_form(task_plan.features, found)
        other = task_plan.model_copy(update={"dataset": found})
        way = evaluated_on_other(task_plan.evaluate_on, whole_pass(task_plan), whole_pass(other), in_parts=False)
        return other.model_copy(update={"evaluate_on": way})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model in the data's units, without a store: called as model(x, edge_index), R-GCN with edge_type."""
        task_plan = plan.task
        assert isinstance(task_plan, NodeRegressionPlan)
        columns = columns_read(task_plan.model, task_plan.dataset.num_features, task_plan.dataset.num_targets)
        scale = Standardise.unknown(columns) if task_plan.features == "standardised" else None
        targets = Standardise.unknown(task_plan.dataset.num_targets)
        model = NodeRegressor(plan, task_plan, rank=0, standardise=scale, targets=targets)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        return InUnits(portable(model.encoder, task_plan.features, propagation_of(task_plan.model)), model.targets)

    def exact_rows(self, nodes: NDArray[np.int64], pause: Pause) -> tuple[NDArray[np.int64], Tensor]:
        """This rank's share of `nodes`, and what is predicted of them, standardised; all ranks must call it."""
        # A hop more where layers are unknown: GCN and its like also read degrees of the nodes that the last one reads.
        hops = self.task_plan.hops + (not self.task_plan.resamples)
        columns = self.task_plan.dataset.num_targets
        return self.access.exact(self.model.encoder, nodes, pause, hops=hops, num_columns=columns)

    def _error_sum(self, seeds: AnySeeds, rows: Tensor, truths: Tensor) -> Tensor:
        """Summed loss of standardised predictions [n, num_targets]; `truths` have that shape, in the data's units."""
        if isinstance(self.task_plan.loss, CustomLossSpec):
            assert self.custom_loss is not None
            found, is_known = self.model.in_units(rows), ~truths.isnan()
            # A value that is not known is what is predicted, so that its loss is a number, and so is its gradient.
            return self.custom_loss.sum(seeds, found, torch.where(is_known, truths, found.detach()), counts=is_known)
        return value_losses(self.task_plan.loss, rows, self.model.targets(truths)).sum()

    @torch.no_grad()
    def _loss_of_split(self, nodes: NDArray[np.int64], rows: Tensor, truths: Tensor) -> Tensor:
        if not len(nodes):
            return torch.zeros((), dtype=torch.float64)
        device = self.group.device
        seeds = EvaluationSeeds(SeedIds(nodes))
        return self._error_sum(seeds, rows.float().to(device), truths.to(device)).double().cpu()

    def _custom_measures_of(
        self, split: Split, everyone: NDArray[np.int64], nodes: NDArray[np.int64], outputs: Tensor
    ) -> dict[str, float]:
        """Custom measures, by rank 0 of all ranks' predictions in order; `outputs` are of this rank's `nodes`."""
        if not self.custom_measures:
            return {}
        predictions = in_order_of_nodes(self.group, nodes, outputs.detach().contiguous())
        numbers = torch.zeros(len(self.plan.measures), dtype=torch.float64)
        if self.group.rank == 0:
            numbers = self.custom_measures.of_split(predictions.float(), self._values_of(everyone))
        return self.custom_measures.by_name(self.group.sum_numbers(numbers), split, tells=self.group.rank == 0)

    def _values_of(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.values[ids])  # a copy: torch cannot hold what is mapped read-only


def custom_loss(plan: Plan, task_plan: NodeRegressionPlan, group: Group) -> CustomLoss | None:
    """The user-defined loss, of predictions and values [n, num_targets] in the data's units; None: a built-in one."""
    if not isinstance(task_plan.loss, CustomLossSpec):
        return None
    return CustomLoss.of(task_plan.loss, seed=plan.seed, rank=group.rank, device=group.device)


def access_spec(plan: Plan, task_plan: NodeRegressionPlan) -> AccessSpec:
    """What the plan's model reads of its graph."""
    return AccessSpec(
        plan=plan,
        num_train=task_plan.dataset.num_train,
        num_features=task_plan.dataset.num_features,
        # Plans of before fan-outs were left out have some.
        fanouts=() if propagation_of(task_plan.model) else task_plan.num_neighbors,
        relation_fanouts=task_plan.relation_fanouts or (),
        resample=task_plan.resamples,
        undirected=task_plan.undirected,
        features=task_plan.features,
        edge_columns=task_plan.edge_columns,
        node_types=reads_node_types(task_plan.model),
        has_weighted_means=False,
        partition=None,
        evaluates_whole=task_plan.evaluate_on == "whole_graph",
        edge_dropout=task_plan.edge_dropout,
        presampled=None,
        propagation=propagation_of(task_plan.model),
    )
