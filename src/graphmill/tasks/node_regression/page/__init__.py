"""Node regression: which numbers does each node of a graph have?"""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, PositiveFloat

from graphmill.config.frozen import Spec
from graphmill.spec.attention import refuse_fused
from graphmill.spec.columns import Measure
from graphmill.spec.exact_pass import (
    EvaluateOn,
    WholePass,
    evaluated_on,
    evaluation_text,
    whole_pass_of,
)
from graphmill.spec.experiment import CustomLossSpec, DatasetSpec, Experiment, TaskSpec
from graphmill.spec.fanouts import resolve_fanouts
from graphmill.spec.kinds.kind import Baselines, Data, Kind, Sizes, StepShape, TaskPlan
from graphmill.spec.neighbour_training import NeighbourTrainSpec
from graphmill.spec.node_models import (
    GraphSageSpec,
    NodeModelSpec,
    draws_anew,
    reads_types,
    refuse_other_depth,
    refuse_untyped,
)
from graphmill.spec.node_sizes import held_by_rank, nodes_per_hop, parameters, sampled_bytes, sampled_model
from graphmill.spec.sign import SignSpec, hops_read, refuse_label_propagation, refuse_sampling
from graphmill.spec.transform import FeatureTransform, transform_of
from graphmill.spec.typed_graph import TypedInfo, plain_features
from graphmill.tasks.node_regression.page.data import COUNTS, DATASETS, LINEAR, MEAN, NAME, ValuesPrepareOptions

_SPARSE_ROWS: Final = "rows of sparse features: a plan does not know how many values they have"


class NodeRegressionTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["node_regression"] = "node_regression"


class ValuesDatasetSpec(DatasetSpec):
    """Which prepared graph to learn from."""

    name: str = Field("synthetic/values", description="name of a prepared dataset, or a path to its folder")
    undirected: bool = Field(True, description="message passing along both directions of every edge")
    features: FeatureTransform | Literal["auto"] = Field(
        "auto",
        description="what is done to features when they are read; auto: standardised where they are dense, no counts, "
        "and their columns of unlike scale, else as_stored; to sparse ones: binary sets values to 1, row_normalised "
        "makes each row sum to 1; to dense ones: standardised subtracts from each column its mean over the training "
        "nodes and divides by their standard deviation",
    )


class ValueLossSpec(Spec):
    """The loss that is trained on: of errors in standard deviations of the training nodes' values."""

    kind: Literal["mse", "l1", "huber"] = Field("mse", description="mse: squared; l1: absolute; huber: both, by delta")
    delta: PositiveFloat = Field(1.0, description="huber: errors up to here count squared, larger ones absolutely")


NodeLossSpec = Annotated[ValueLossSpec | CustomLossSpec, Field(discriminator="kind")]


class NodeRegressionTrainSpec(NeighbourTrainSpec):
    """How to train on sampled neighbourhoods."""

    loss: NodeLossSpec = ValueLossSpec()


class NodeRegressionExperiment(Experiment):
    """Which numbers does each node of a graph have?"""

    task: NodeRegressionTaskSpec = NodeRegressionTaskSpec()
    dataset: ValuesDatasetSpec = ValuesDatasetSpec()
    model: NodeModelSpec = GraphSageSpec()
    train: NodeRegressionTrainSpec = NodeRegressionTrainSpec()


class ValuesInfo(TypedInfo):
    """What the planner must know about a prepared graph."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_targets: int = Field(description="values of a node")
    has_sparse_features: bool
    scales_differ: bool = Field(False, description="dense features have columns of unlike scale, and are no counts")
    edge_features: tuple[str, ...] = ()


class NodeRegressionPlan(TaskPlan):
    """What only the ranks of a node regression need."""

    of_weights: ClassVar[tuple[str, ...]] = ("model", "features")

    kind: Literal["node_regression"] = "node_regression"
    dataset: ValuesInfo
    undirected: bool
    features: FeatureTransform
    model: NodeModelSpec
    num_neighbors: tuple[int, ...] = Field(description="(): nothing is sampled")
    relation_fanouts: tuple[tuple[int, ...], ...] | None = Field(
        None, description="of each relation in turn; absent: num_neighbors are for all together"
    )
    edge_dropout: float = Field(0.0, description="of a step; 0: all that were drawn are read")
    evaluate_on: EvaluateOn | None = Field(None, description="absent: layer by layer")
    loss: NodeLossSpec = ValueLossSpec()

    @property
    def evaluation(self) -> str:
        """How a model of unknown layers is evaluated, in words; "": layer by layer."""
        return evaluation_text(self.evaluate_on, whole_pass(self))

    def within(self, experiment: Experiment, memory_bytes: int | None) -> Self:
        """Section with an evaluation that fits the memory of a process."""
        assert isinstance(experiment.train, NodeRegressionTrainSpec)
        way = evaluated_on(experiment.train.evaluate_on, self.model, whole_pass(self), memory_bytes, in_parts=False)
        return self.model_copy(update={"evaluate_on": way})

    @property
    def edge_columns(self) -> tuple[int, ...]:
        """Which columns of the edge features the model is called with: the types of a typed graph's edges, or none."""
        return (len(self.dataset.edge_features) - 1,) if reads_types(self.model) else ()

    @property
    def hops(self) -> int:
        """How many hops from a node its model reads."""
        return hops_read(self.model, self.num_neighbors)

    @property
    def resamples(self) -> bool:
        """Whether a node draws its neighbours anew at each hop: models whose layers each compute their own rows."""
        return draws_anew(self.model)

    @property
    def unused(self) -> str:
        """What the data hold and the model does not read, in words; "": nothing."""
        known, found = self.dataset, []
        if plain := plain_features(known.edge_features, known.edge_types):
            found.append(f"edge features {', '.join(plain)} of {known.name}")
        if known.edge_types and not reads_types(self.model):
            found.append(f"types of edges and nodes of {known.name} (model.kind=rgcn, rsage and hgt)")
        return "; ".join(found)


def resolve(experiment: NodeRegressionExperiment, dataset: ValuesInfo) -> NodeRegressionPlan:
    """The task's section of a plan."""
    model, num_neighbors, undirected = experiment.model, experiment.train.num_neighbors, experiment.dataset.undirected
    refuse_sampling(model, experiment, dataset.name)
    refuse_label_propagation(model, dataset.name)
    num_neighbors = () if isinstance(model, SignSpec) else num_neighbors
    drawn = resolve_fanouts(num_neighbors, dataset, undirected=undirected, num_parts=None, presampled=None)
    refuse_other_depth(model, drawn.of_hops)
    refuse_fused(model, experiment.train)
    refuse_untyped(model, dataset, undirected=undirected, precision=experiment.train.precision)
    return NodeRegressionPlan(
        dataset=dataset,
        undirected=undirected,
        features=transform_of(experiment.dataset.features, dataset),
        model=model,
        num_neighbors=drawn.of_hops,
        relation_fanouts=drawn.by_relation or None,
        edge_dropout=experiment.train.edge_dropout,
        loss=experiment.train.loss,
    )


def sizes(plan: NodeRegressionPlan, step: StepShape) -> Sizes:
    """Parameters; nodes and bytes of a sampled neighbourhood, at most."""
    known = plan.dataset
    of = sampled_model(plan, plan.model, most_seeds=known.num_train, out_channels=known.num_targets)
    hops = nodes_per_hop(of, step.batch_size)
    batch, activations = sampled_bytes(of, hops)
    not_counted = _SPARSE_ROWS if known.has_sparse_features else ""
    if plan.evaluate_on == "whole_graph":
        activations = max(activations, whole_pass(plan).num_bytes)
    return Sizes(
        parameters(of),
        batch,
        activations,
        nodes_per_batch=sum(hops),
        index_bytes=held_by_rank(plan, plan.model, of.out_channels),
        not_counted=not_counted,
    )


def whole_pass(plan: NodeRegressionPlan) -> WholePass:
    """One call of the plan's model on its whole graph."""
    return whole_pass_of(plan, plan.model, plan.dataset.num_targets)


KIND: Final = Kind(
    name=NAME,
    seeds_are="nodes",
    measures=(
        Measure("rmse", "RMSE", higher_is_better=False, about="of all values that are known, in the data's units"),
        Measure("mae", "MAE", higher_is_better=False, about="of the same"),
        Measure(
            "r2", "R²", higher_is_better=True, about="a mean over the values of a node, as scikit-learn's r2_score"
        ),
    ),
    takes_measures=True,
    experiment=NodeRegressionExperiment,
    info=ValuesInfo,
    plan=NodeRegressionPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.node_regression.data.store:ValuesStore",
        prepare="graphmill.tasks.node_regression.data.prepare:prepare_requested",
        options=ValuesPrepareOptions,
        counts=COUNTS,
        known=DATASETS,
        recognise="graphmill.tasks.node_regression.data.read:holds_values",
    ),
    task="graphmill.tasks.node_regression.task:NodeRegression",
    baselines=Baselines((MEAN, LINEAR), "graphmill.tasks.node_regression.baselines:score", reads=("features",)),
)
