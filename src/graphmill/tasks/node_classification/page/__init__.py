"""Node classification: which class is each node of a graph of?"""

from typing import ClassVar, Final, Literal, Self

from pydantic import Field

from graphmill.spec.attention import refuse_fused
from graphmill.spec.classification import ClassifierLossSpec, CrossEntropySpec, refuse_other_classes
from graphmill.spec.columns import COMM_MB, Baseline, Layout, Measure
from graphmill.spec.exact_pass import EvaluateOn, evaluated_on, evaluation_text
from graphmill.spec.experiment import DatasetSpec, Experiment, TaskSpec
from graphmill.spec.fanouts import resolve_fanouts
from graphmill.spec.fetching import FETCHING
from graphmill.spec.gpu_graph import ABOUT_GPU_DRAWS, ABOUT_GPU_ROWS, GpuDraws, GpuRows
from graphmill.spec.kinds.extras import Sampling
from graphmill.spec.kinds.kind import Baselines, Data, FromCatalogue, Kind, KnownDataset, PredictsClasses, TaskPlan
from graphmill.spec.neighbour_training import NeighbourTrainSpec
from graphmill.spec.node_models import (
    EdgeArgument,
    GraphSageSpec,
    NodeModelSpec,
    draws_anew,
    reads_types,
    refuse_other_depth,
    refuse_untyped,
)
from graphmill.spec.partition import InParts, PartitionSpec, parts_named, refuse_partition
from graphmill.spec.sign import SignSpec, hops_read, refuse_sampling
from graphmill.spec.targets import TARGET, TargetKind
from graphmill.spec.transform import FeatureTransform, transform_of
from graphmill.spec.typed_graph import PartedInfo, plain_features
from graphmill.tasks.node_classification.page.data import COUNTS, DATASETS, DENSE, MULTI_LABEL, GraphPrepareOptions
from graphmill.tasks.node_classification.page.edges import refuse_edge_features, weight_column
from graphmill.tasks.node_classification.page.sizes import refuse_gpu_graph, sizes, whole_pass


class NodeClassificationTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["node_classification"] = "node_classification"


class GraphDatasetSpec(DatasetSpec):
    """Which prepared graph to train on."""

    name: str = Field("debian-packages", description="name of a prepared dataset, or a path to a GraphStore")
    undirected: bool = Field(True, description="message passing along both directions of every edge")
    features: FeatureTransform | Literal["auto"] = Field(
        "auto",
        description="what is done to features when they are read; auto: standardised where they are dense, no counts, "
        "and their columns of unlike scale, else as_stored; to sparse ones: binary sets values to 1, "
        "row_normalised makes each row sum to 1; to dense ones: standardised subtracts from each column its mean over "
        "the training nodes and divides by their standard deviation",
    )
    edge_features: EdgeArgument | None = Field(
        None,
        description="what a model by dotted path is called with, as PyG's are: edge_weight, model(x, edge_index, "
        "edge_weight=…) with the weight of each edge [num_edges]; edge_attr, with all its features [num_edges, "
        "num_edge_features]; graphsage takes edge_weight: its means are by weight, gat and gatv2 take edge_attr; null: "
        "they are not used",
    )


class SampledTrainSpec(NeighbourTrainSpec):
    """How to train on sampled neighbourhoods."""

    loss: ClassifierLossSpec = CrossEntropySpec()
    presampled: str | None = Field(
        None,
        description="folder of epochs that `graphmill presample` has sampled with these options, to be read instead: "
        "the same batches to the bit; null: each batch is sampled when it is needed",
    )
    gpu_graph_gib: float | None = Field(
        None,
        gt=0,
        description="GPU memory that may hold the graph, GiB: topology, then the hottest rows of features; the rest is "
        "page-locked, and read over the bus; neighbours are drawn on the GPU, and batches are the same to the bit; "
        "null: the CPU draws and gathers. `graphmill plan --gpu-memory GIB` says how much there is",
    )
    gpu_draws: GpuDraws = Field("measured", description=ABOUT_GPU_DRAWS)
    gpu_rows: GpuRows = Field("own", description=ABOUT_GPU_ROWS)

    @property
    def presampled_in(self) -> str | None:
        """The folder of sampled epochs that is to be read; None: none is."""
        return self.presampled

    def sampling_anew(self) -> Self:
        """Copy that reads no sampled epochs."""
        return self.model_copy(update={"presampled": None})


class NodeClassificationExperiment(Experiment):
    """Which class is each node of a graph of?"""

    task: NodeClassificationTaskSpec = NodeClassificationTaskSpec()
    dataset: GraphDatasetSpec = GraphDatasetSpec()
    model: NodeModelSpec = GraphSageSpec()
    train: SampledTrainSpec = SampledTrainSpec()
    partition: PartitionSpec = PartitionSpec()


class GraphInfo(PartedInfo):
    """What the planner must know about a prepared graph."""

    num_nodes: int
    num_edges: int
    num_features: int
    target_kind: TargetKind = Field("class", description="of a node: its class, or which labels it has")
    num_classes: int = Field(description="classes, or labels")
    has_sparse_features: bool
    scales_differ: bool = Field(False, description="dense features have columns of unlike scale, and are no counts")
    edge_features: tuple[str, ...] = ()

    @property
    def plain_edge_features(self) -> tuple[str, ...]:
        """Columns of the edge features that are not types."""
        return plain_features(self.edge_features, self.edge_types)


class NodeClassificationPlan(TaskPlan):
    """What only the ranks of a node classification need."""

    of_weights: ClassVar[tuple[str, ...]] = ("model", "features", "edge_features")

    kind: Literal["node_classification"] = "node_classification"
    dataset: GraphInfo
    undirected: bool
    features: FeatureTransform
    edge_features: EdgeArgument | None = None
    model: NodeModelSpec
    num_neighbors: tuple[int, ...] = Field(description="(): nothing is sampled")
    relation_fanouts: tuple[tuple[int, ...], ...] | None = Field(
        None, description="of each relation in turn; absent: num_neighbors are for all together"
    )
    presampled: str | None = Field(None, description="folder of sampled epochs; null: they are sampled in training")
    gpu_graph_gib: float | None = Field(None, description="of a GPU, for the graph; absent: it is the CPU's")
    gpu_draws: GpuDraws | None = Field(None, description="who draws of it; absent: it is the CPU's")
    gpu_rows: GpuRows = Field("own", description="where its rows are, if it lies for GPUs")
    loss: ClassifierLossSpec = CrossEntropySpec()
    edge_dropout: float = Field(0.0, description="of a step; 0: all that were drawn are read")
    evaluate_on: EvaluateOn | None = Field(None, description="absent: layer by layer")
    partition: PartitionSpec | None = Field(None, description="absent: the graph is stored whole")

    @property
    def weight_decay(self) -> float:
        """1 / training nodes, as if each weight were normal with variance 1 before the data; never above 0.005."""
        return min(0.005, 1 / max(1, self.dataset.num_train))  # more costs attention two points on pubmed (60 nodes)

    @property
    def edge_columns(self) -> tuple[int, ...]:
        """Which columns of the edge features the model is called with; () if none."""
        if self.reads_types:
            return (len(self.dataset.edge_features) - 1,)  # the types of a typed graph's edges
        match self.edge_features:
            case None:
                return ()
            case "edge_attr":
                return tuple(range(len(self.dataset.plain_edge_features)))
            case "edge_weight":
                return (weight_column(self.dataset.plain_edge_features),)

    @property
    def has_weighted_means(self) -> bool:
        """Whether the built-in layers take means by the weights of edges."""
        return isinstance(self.model, GraphSageSpec) and self.edge_features == "edge_weight"

    @property
    def in_parts(self) -> InParts | None:
        """How its graph is divided among hosts; None: it is stored whole."""
        return self.dataset.placed(self.partition)

    @property
    def reads_types(self) -> bool:
        """Whether the model reads the types of edges; no feature of them then."""
        return reads_types(self.model)

    @property
    def hops(self) -> int:
        """How many hops from a node its model reads."""
        return hops_read(self.model, self.num_neighbors)

    @property
    def resamples(self) -> bool:
        """Whether a node draws its neighbours anew at each hop: models whose layers each compute their own rows."""
        return draws_anew(self.model)

    @property
    def presampled_in(self) -> str | None:
        """The folder of sampled epochs that it reads; None: it reads none."""
        return self.presampled

    def reading_presampled(self, folder: str) -> Self:
        """Copy of the section that reads sampled epochs from `folder`."""
        return self.model_copy(update={"presampled": folder})

    @property
    def evaluation(self) -> str:
        """How a model of unknown layers is evaluated, in words; "": layer by layer."""
        return evaluation_text(self.evaluate_on, whole_pass(self))

    def within(self, experiment: Experiment, memory_bytes: int | None) -> Self:
        """Section with an evaluation that fits the memory of a process."""
        assert isinstance(experiment.train, SampledTrainSpec)
        requested, in_parts = experiment.train.evaluate_on, self.partition is not None
        way = evaluated_on(requested, self.model, whole_pass(self), memory_bytes, in_parts=in_parts)
        return self.model_copy(update={"evaluate_on": way})

    @property
    def tied_to_ranks(self) -> str:
        """Why another number of ranks than planned cannot resume, in words; "": it can."""
        if self.presampled is None or self.resamples:
            return ""
        return (
            f"train.presampled holds batches of the ranks of the plan, and those of model.kind={self.model.kind} cannot"
            " be cut for others (those of graphsage, rgcn, rsage and hgt can)"
        )

    @property
    def unused(self) -> str:
        """What the data hold and the model does not read, in words; "": nothing."""
        known, found = self.dataset, []
        rest = [name for number, name in enumerate(known.plain_edge_features) if number not in self.edge_columns]
        if rest:
            found.append(f"edge features {', '.join(rest)} of {known.name} (dataset.edge_features)")
        if known.edge_types and not self.reads_types:
            found.append(f"types of edges and nodes of {known.name} (model.kind=rgcn, rsage and hgt)")
        return "; ".join(found)


def resolve(experiment: NodeClassificationExperiment, dataset: GraphInfo) -> NodeClassificationPlan:
    """The task's section of a plan."""
    model, undirected = experiment.model, experiment.dataset.undirected
    refuse_sampling(model, experiment, dataset.name, dataset.num_parts)
    drawn = resolve_fanouts(
        () if isinstance(model, SignSpec) else experiment.train.num_neighbors,
        dataset,
        undirected=undirected,
        num_parts=dataset.num_parts,
        presampled=experiment.train.presampled,
    )
    features = transform_of(experiment.dataset.features, dataset)
    refuse_other_depth(model, drawn.of_hops)
    refuse_fused(model, experiment.train)
    refuse_edge_features(experiment.dataset.edge_features, model, dataset, undirected=undirected)
    refuse_untyped(model, dataset, undirected=undirected, precision=experiment.train.precision)
    refuse_other_classes(experiment.train.loss, dataset.num_classes, dataset.name)
    refuse_partition(experiment.partition, dataset.num_parts, dataset.name)
    made = NodeClassificationPlan(
        dataset=dataset,
        undirected=undirected,
        features=features,
        edge_features=experiment.dataset.edge_features,
        model=model,
        num_neighbors=drawn.of_hops,
        relation_fanouts=drawn.by_relation or None,
        edge_dropout=experiment.train.edge_dropout,
        presampled=experiment.train.presampled,
        gpu_graph_gib=experiment.train.gpu_graph_gib,
        gpu_draws=None if experiment.train.gpu_graph_gib is None else experiment.train.gpu_draws,
        gpu_rows=experiment.train.gpu_rows,
        loss=experiment.train.loss,
        partition=None if dataset.num_parts is None else experiment.partition,
    )
    refuse_gpu_graph(made, experiment)
    return made


def from_catalogue(experiment: NodeClassificationExperiment, known: KnownDataset, path: str) -> GraphInfo | None:
    """What is published of a graph that is not prepared, or not in parts."""
    if not known.sizes:
        return None
    parts = parts_named(experiment.dataset.name)
    return GraphInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=False,
        target_kind="labels" if known.name in MULTI_LABEL else "class",
        has_sparse_features=known.name not in DENSE,
        num_parts=None if parts is None else parts.num_parts,
        **known.sizes,
    )


SYNC_ABLATION: Final = Layout(
    name="sync-ablation",
    columns={
        **{name: name for name in ("run_id", "sync_every", "epoch", "loss")},
        "microF1": "val_micro_f1",
        "macroF1": "val_macro_f1_all_classes",
        "best_microF1": "best_val_micro_f1",
        "best_macroF1": "best_val_macro_f1_all_classes",
        "local_steps": "steps_done",
        "epoch_steps": "epoch_steps",
        "effective_global_steps": "global_steps",
        "seed_nodes_epoch_global": "num_seeds",
        "seed_nodes_cum_global": "num_seeds_cum",
        "target_global_steps": "target_global_steps",
        "world_size": "world_size",
        "time": "train_s",
        "syncs": "num_syncs",
        **COMM_MB,
    },
    unsaid={"sync_scheme": "deferred_allreduce"},  # the only one that it could run
)
"""The header of the GraphSAGE sync-ablation scripts: docs/coming-from.md."""


MAJORITY: Final = Baseline(
    "majority", "majority class", "the most frequent class of the training nodes, or the labels that over half have"
)
LOGISTIC: Final = Baseline("logistic", "logistic regression", "on a node's own features, L2, C = 1", scored="end")
PROPAGATED: Final = Baseline(
    "propagated",
    "logistic regression, propagated",
    "the same on features averaged over as many hops as there are fan-outs (SGC, arXiv 1902.07153)",
    scored="end",
)
STACKED: Final = Baseline(
    "stacked",
    "logistic regression, all hops",
    "the same on a node's own features and those of each hop side by side, as SIGN reads them (arXiv 2004.11198)",
    scored="end",
)
PERCEPTRON: Final = Baseline(
    "perceptron", "multilayer perceptron", "one hidden layer of 128 on a node's own features", scored="end"
)
LABELS: Final = Baseline(
    "labels", "label propagation", "labels of training nodes spread along edges, without features", scored="end"
)

KIND: Final = Kind(
    name="node_classification",
    seeds_are="nodes",
    measures=(
        Measure(
            "micro_f1",
            "micro-F1",
            higher_is_better=True,
            about="exact neighbourhoods; of one class per node the same as accuracy",
        ),
        Measure(
            "macro_f1",
            "macro-F1",
            higher_is_better=True,
            about="mean F1 over the classes that occur in it or are predicted, or over all labels, as scikit-learn's",
        ),
        Measure(
            "macro_f1_all_classes",
            "macro-F1 over all classes",
            higher_is_better=True,
            about="those that neither occur nor are predicted count 0; for merge --layout sync-ablation",
            is_shown=False,
        ),
    ),
    loss_unit="nats",
    own_columns=FETCHING,
    takes_measures=True,
    experiment=NodeClassificationExperiment,
    info=GraphInfo,
    plan=NodeClassificationPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.node_classification.parts:PreparedGraph",
        prepare="graphmill.tasks.node_classification.data.prepare:prepare_requested",
        options=GraphPrepareOptions,
        counts=COUNTS,
        known=DATASETS,
        from_catalogue=from_catalogue,
        recognise="graphmill.tasks.node_classification.data.read:holds_graph",
    ),
    predictions=PredictsClasses("label", "prediction", names="class_names", several=TARGET),
    task="graphmill.tasks.node_classification.task:NodeClassification",
    layouts=(SYNC_ABLATION,),
    baselines=Baselines(
        (MAJORITY, LABELS, LOGISTIC, PROPAGATED, STACKED, PERCEPTRON),
        "graphmill.tasks.node_classification.baselines:score",
        reads=("features", "undirected", "hops"),
    ),
    extras=(
        Sampling(
            presample="graphmill.tasks.node_classification.access:epochs_of",
            serve="graphmill.tasks.node_classification.task:serve",
        ),
    ),
)
