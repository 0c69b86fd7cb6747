"""Graph classification: which class is each graph of a set of?"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.attention import AttentionSpec, kept_bytes, refuse_fused
from graphmill.spec.batch import GraphBatchSpec, GraphSizes
from graphmill.spec.classification import ClassifierLossSpec, CrossEntropySpec, refuse_other_classes
from graphmill.spec.columns import Baseline, Measure
from graphmill.spec.experiment import BatchSize, CustomModelSpec, DatasetSpec, Experiment, Fraction, TaskSpec, TrainSpec
from graphmill.spec.kinds.kind import (
    Baselines,
    Data,
    DatasetInfo,
    FromCatalogue,
    Kind,
    KnownDataset,
    PredictsClasses,
    Sizes,
    StepShape,
    TaskPlan,
)
from graphmill.spec.synonyms import HIDDEN_WIDTH

NodeFeatures = Literal["as_stored", "standardised"]


class GraphClassificationTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["graph_classification"] = "graph_classification"


class GraphSetDatasetSpec(DatasetSpec):
    """Which prepared graphs to learn from."""

    name: str = Field("tu/enzymes", description="name of a prepared dataset, or a path to its folder")
    fold: NonNegativeInt | None = Field(
        None,
        description="which of `folds` stratified folds is the test split, counted from 0; the next one is for "
        "validation; null: the splits that were prepared",
    )
    folds: int = Field(10, ge=3, description="into how many folds the graphs are divided, if one is named")
    fold_seed: NonNegativeInt = Field(0, description="of the division into folds: the same in all runs of a study")
    features: NodeFeatures | Literal["auto"] = Field(
        "auto",
        description="standardised subtracts from each feature of the nodes its mean over the training graphs and "
        "divides by their standard deviation; auto: so where their columns are of unlike scale and no counts, else "
        "as_stored",
    )


class GinSpec(Spec):
    """Graph isomorphism network, which reads out every layer (Xu et al. 2019, arXiv 1810.00826)."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["gin"] = "gin"
    hidden_channels: PositiveInt = Field(32, description="width of every layer")
    num_layers: PositiveInt = Field(4, description="layers, each a sum over neighbours and two linear layers")
    dropout: Fraction = Field(0.5, description="probability of dropping a channel of what is classified")
    norm: Literal["layer", "batch"] = Field(
        "layer",
        description="after every linear layer; layer: over the channels of a node; batch: over the nodes of a rank's "
        "batch, as in the paper, so that what is learnt depends on the number of ranks",
    )
    train_eps: bool = Field(True, description="learn how much a node counts beside its neighbours, in every layer")
    readout: Literal["auto", "sum", "mean_and_sum"] = Field(
        "auto",
        description="what a graph is, of its nodes in each layer; sum: their sum, as in the paper; mean_and_sum: their "
        "mean, and their sum divided by the nodes of a mean graph; auto: mean_and_sum (runs from before this key: sum)",
    )


class GraphAttentionSpec(AttentionSpec):
    """Attention over neighbours, with features of edges where the data have some; a readout of every layer.

    gat: Velickovic et al. 2018, arXiv 1710.10903; gatv2: Brody et al. 2022, arXiv 2105.14491; the readout: jumping
    knowledge (Xu et al. 2018, arXiv 1806.03536).
    """

    num_layers: PositiveInt = Field(3, description="layers, each over neighbours and the node itself")
    dropout: Fraction = Field(0.2, description="probability of dropping a channel of what is classified")


GraphModelSpec = Annotated[GinSpec | GraphAttentionSpec | CustomModelSpec, Field(discriminator="kind")]


class GraphTrainSpec(TrainSpec):
    """How to train on whole graphs."""

    loss: ClassifierLossSpec = CrossEntropySpec()
    batch_size: BatchSize = Field(32, description="graphs per rank and step; auto: see train.batch")
    batch: GraphBatchSpec = GraphBatchSpec()


class GraphClassificationExperiment(Experiment):
    """Which class is each graph of a set of?"""

    task: GraphClassificationTaskSpec = GraphClassificationTaskSpec()
    dataset: GraphSetDatasetSpec = GraphSetDatasetSpec()
    model: GraphModelSpec = GinSpec()
    train: GraphTrainSpec = GraphTrainSpec()


class GraphSetInfo(GraphSizes, DatasetInfo):
    """What the planner must know about prepared graphs, for one division into splits."""

    num_features: int
    num_edge_features: int
    num_classes: int
    scales_differ: bool = Field(False, description="features are no counts, and their columns of unlike scale")

    @property
    def mean_nodes(self) -> float:
        """Nodes of a mean graph."""
        return self.num_nodes / max(1, self.num_graphs)


class GraphClassificationPlan(TaskPlan):
    """What only the ranks of a graph classification need."""

    kind: Literal["graph_classification"] = "graph_classification"
    dataset: GraphSetInfo
    fold: int | None
    folds: int
    fold_seed: int
    features: NodeFeatures
    model: GraphModelSpec
    loss: ClassifierLossSpec = CrossEntropySpec()

    @property
    def computes_with_torch(self) -> bool:
        """Whether a step is small operators of torch's: GIN's layers are, beside its sums over neighbours."""
        return isinstance(self.model, GinSpec | CustomModelSpec)

    @property
    def unused(self) -> str:
        """What the data hold and the model does not read, in words; "": nothing."""
        if not self.dataset.num_edge_features or not isinstance(self.model, GinSpec):
            return ""
        return f"the {self.dataset.num_edge_features} edge features of {self.dataset.name}"


def resolve(experiment: GraphClassificationExperiment, dataset: GraphSetInfo) -> GraphClassificationPlan:
    """The task's section of a plan."""
    refuse_other_classes(experiment.train.loss, dataset.num_classes, dataset.name)
    refuse_fused(experiment.model, experiment.train)
    spec = experiment.dataset
    by_scale: NodeFeatures = "standardised" if dataset.scales_differ else "as_stored"
    return GraphClassificationPlan(
        dataset=dataset,
        fold=spec.fold,
        folds=spec.folds,
        fold_seed=spec.fold_seed,
        features=by_scale if spec.features == "auto" else spec.features,
        model=_with_readout(experiment.model),
        loss=experiment.train.loss,
    )


def _with_readout(model: GraphModelSpec) -> GraphModelSpec:
    if isinstance(model, GinSpec) and model.readout == "auto":
        return model.model_copy(update={"readout": "mean_and_sum"})
    return model


def refuse_absent_fold(spec: GraphSetDatasetSpec) -> None:
    """Raise a `UserError` if the fold is not one of the folds."""
    if spec.fold is not None and spec.fold >= spec.folds:
        raise UserError(
            f"dataset.fold is {spec.fold}, and dataset.folds is {spec.folds}: folds are counted from 0",
            fix=f"set dataset.fold to 0 … {spec.folds - 1}, or raise dataset.folds",
        )


TRAIN_SHARE, VAL_SHARE = 0.8, 0.1  # of graphs that are prepared without a split of their own


def from_catalogue(experiment: GraphClassificationExperiment, known: KnownDataset, path: str) -> GraphSetInfo | None:
    """What is published of graphs that are not prepared."""
    if not known.sizes:
        return None
    refuse_absent_fold(experiment.dataset)
    spec, graphs = experiment.dataset, known.sizes["num_graphs"]
    share = TRAIN_SHARE if spec.fold is None else 1 - 2 / spec.folds
    return GraphSetInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=False,
        num_train=round(graphs * share),
        **known.sizes,
    )


def sizes(plan: GraphClassificationPlan, step: StepShape) -> Sizes:
    """Parameters of GIN; bytes of a batch of the largest graphs, and of what its backward pass needs."""
    known = plan.dataset
    graphs = min(step.batch_size, known.num_train)
    nodes, edges = graphs * known.max_nodes, graphs * known.max_edges
    if step.budget is not None:
        nodes, edges = step.budget.max_nodes, step.budget.max_edges
    nodes, edges = min(nodes, known.num_nodes), min(edges, known.num_edges)
    batch = graphs * 16 + nodes * (16 + 4 * known.num_features) + edges * (8 + 4 * known.num_edge_features)
    data = known.num_graphs * 25 + known.num_nodes * (8 + 4 * known.num_features)
    data += known.num_edges * (8 + 4 * known.num_edge_features)
    if isinstance(plan.model, CustomModelSpec):
        return Sizes(None, batch, data_bytes=data)
    if isinstance(plan.model, GraphAttentionSpec):
        layers = [plan.model.activation_bytes_of_layer(nodes, edges + nodes)] * plan.model.num_layers
        inputs = 4 * nodes * plan.model.num_layers * plan.model.width  # of the last layer: what is read out
        activations = kept_bytes(layers, inputs, checkpointed=plan.model.checkpoint_activations)
        return Sizes(_attention_parameters(plan.model, known), batch, activations, data_bytes=data)
    width, depth = plan.model.hidden_channels, plan.model.num_layers
    # Of a node in a layer: what is summed and the mean beside it, two products, two norms, what ReLU let through.
    activations = 4 * nodes * (2 * known.num_features + (depth - 1) * 2 * width + depth * 6 * width)
    return Sizes(_gin_parameters(plan.model, known), batch, activations, data_bytes=data)


def _attention_parameters(model: GraphAttentionSpec, known: GraphSetInfo) -> int:
    """Parameters of all layers, and of one linear layer on all of them."""
    widths = [known.num_features, *[model.width] * model.num_layers]
    of_layers = (model.parameters_of_layer(w, model.hidden_channels, known.num_edge_features) for w in widths[:-1])
    return sum(of_layers) + (sum(widths) + 1) * known.num_classes


def _gin_parameters(model: GinSpec, known: GraphSetInfo) -> int:
    """Parameters: per layer two linear ones, two norms, perhaps an epsilon; then one linear layer on all of them."""
    width, depth = model.hidden_channels, model.num_layers
    layers = sum((inner + 1) * width + (width + 1) * width for inner in [known.num_features, *[width] * (depth - 1)])
    norms = depth * 2 * 2 * width
    of_graph = (known.num_features + depth * width) * (2 if model.readout == "mean_and_sum" else 1)
    readout = (of_graph + 1) * known.num_classes
    return layers + norms + depth * model.train_eps + readout


class GraphSetPrepareOptions(Spec):
    """Options of `graphmill prepare` for a set of graphs."""

    split_seed: NonNegativeInt = Field(0, description="of a random split, 80/10/10 and stratified, where none is given")
    num_graphs: PositiveInt | None = Field(None, description="synthetic/motifs: how many; null: 600")
    seed: NonNegativeInt | None = Field(None, description="synthetic/motifs: of the generator; null: 0")


_TU: Final = "the folder NAME, or NAME.zip, of TUDataset: NAME_A.txt, NAME_graph_indicator.txt, …; or a .npz file"
COUNTS: Final = {"num_graphs": "graphs", "num_nodes": "nodes", "num_classes": "classes"}
_PUBLISHED: Final = (
    *("num_graphs", "num_nodes", "num_edges", "max_nodes", "max_edges"),
    *("num_features", "num_edge_features", "num_classes"),
)


def _known(name: str, *counts: int) -> KnownDataset:
    return KnownDataset(name, dict(zip(_PUBLISHED, counts, strict=True)), "given", _TU)


DATASETS: Final = (
    _known("tu/enzymes", 600, 19_580, 74_564, 126, 298, 21, 0, 6),
    _known("tu/proteins", 1_113, 43_471, 162_088, 620, 2_098, 4, 0, 2),
    KnownDataset("synthetic/motifs", {}, "generated", "nothing: num_graphs and seed are options"),
)

MAJORITY: Final = Baseline("majority", "majority class", "the most frequent class of the training graphs")
MEANS: Final = Baseline(
    "means",
    "logistic regression",
    "on the mean features of a graph's nodes and its counts of nodes and edges, L2, C = 1",
    scored="end",
)
SUBTREES: Final = Baseline(
    "subtrees",
    "Weisfeiler-Lehman counts",
    "logistic regression on how often each rooted subtree of three hops occurs, L2, C = 1",
    scored="end",
)

KIND: Final = Kind(
    name="graph_classification",
    seeds_are="graphs",
    measures=(
        Measure("accuracy", "accuracy", higher_is_better=True, about="share of graphs whose class is predicted"),
        Measure(
            "macro_f1",
            "macro-F1",
            higher_is_better=True,
            about="mean F1 over the classes that occur in it or are predicted, as scikit-learn's",
        ),
    ),
    loss_unit="nats",
    takes_measures=True,
    experiment=GraphClassificationExperiment,
    info=GraphSetInfo,
    plan=GraphClassificationPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.graph_classification.data.store:GraphSetStore",
        prepare="graphmill.tasks.graph_classification.data.prepare:prepare_requested",
        options=GraphSetPrepareOptions,
        counts=COUNTS,
        known=DATASETS,
        from_catalogue=from_catalogue,
        recognise="graphmill.tasks.graph_classification.data.read:holds_graphs",
    ),
    task="graphmill.tasks.graph_classification.task:GraphClassification",
    predictions=PredictsClasses("label", "prediction", names="class_names"),
    repetitions={"fold": "folds"},
    baselines=Baselines(
        (MAJORITY, MEANS, SUBTREES),
        "graphmill.tasks.graph_classification.baselines:score",
        reads=("fold", "folds", "fold_seed"),
    ),
)
