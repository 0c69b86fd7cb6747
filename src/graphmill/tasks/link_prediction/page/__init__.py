"""Link prediction: which pairs of nodes are joined, and by what?"""

from typing import ClassVar, Final, Literal, Self

from pydantic import Field, PositiveInt, field_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.attention import refuse_fused
from graphmill.spec.columns import Measure
from graphmill.spec.exact_pass import AskedEvaluation, EvaluateOn, evaluated_on, evaluation_text
from graphmill.spec.experiment import BatchSize, DatasetSpec, Experiment, TaskSpec
from graphmill.spec.fanouts import FanOuts, resolve_fanouts
from graphmill.spec.fetching import FETCHING
from graphmill.spec.kinds.kind import Baselines, Data, FromCatalogue, Kind, KnownDataset, TaskPlan
from graphmill.spec.neighbour_training import ABOUT_FANOUTS, NeighbourTrainSpec
from graphmill.spec.node_models import GraphSageSpec, draws_anew, reads_types, refuse_other_depth, refuse_untyped
from graphmill.spec.optimizer import AdamSpec, OptimizerSpec
from graphmill.spec.partition import InParts, PartitionSpec, parts_named, refuse_partition
from graphmill.spec.transform import FeatureTransform, transform_of
from graphmill.spec.typed_graph import PartedInfo
from graphmill.tasks.link_prediction.page.data import (
    BASELINES,
    COUNTS,
    DATASETS,
    NAME,
    SPARSE,
    WITH_CANDIDATES,
    WITH_POOL,
    LinkPrepareOptions,
)
from graphmill.tasks.link_prediction.page.models import (
    ComplExSpec,
    DistMultSpec,
    DotSpec,
    EmbeddingSpec,
    HeadSpec,
    LinkLossSpec,
    LinkModelSpec,
    NegativesSpec,
    SoftmaxLossSpec,
)
from graphmill.tasks.link_prediction.page.sizes import sizes, whole_pass

Side = Literal["target", "both"]


class LinkPredictionTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["link_prediction"] = "link_prediction"
    ranked: Literal["auto", "target", "both"] = Field(
        "auto",
        description="which end of a link is ranked among all nodes; both: the mean of the two; auto: both where links "
        "have relations or no direction, else target",
    )
    val_limit: PositiveInt | None = Field(
        10_000,
        description="so many validation links are ranked during training, a random subset by train.seed; null: all. "
        "`evaluate` and the test split take all",
    )


class LinkDatasetSpec(DatasetSpec):
    """Which prepared links to learn from."""

    name: str = Field("debian-dependencies", description="name of a prepared dataset, or a path to its folder")
    undirected: bool = Field(True, description="message passing along both directions of every edge")
    features: FeatureTransform | Literal["auto"] = Field(
        "auto",
        description="what is done to features when they are read; auto: standardised where they are dense, no counts, "
        "and their columns of unlike scale, else as_stored; to sparse ones: binary sets values to 1, row_normalised "
        "makes each row sum to 1; to dense ones: standardised subtracts from each column its mean over all nodes and "
        "divides by their standard deviation",
    )


LEARNING_RATE: Final = 0.001
"""Where nobody says: 0.01, as of other tasks, ranks links worse (Cora, CiteSeer, nearest points in a plane)."""


class LinkTrainSpec(NeighbourTrainSpec):
    """How to train on links."""

    batch_size: BatchSize = Field(1024, description="links per rank and step; auto: see train.batch")
    loss: LinkLossSpec = SoftmaxLossSpec()
    num_neighbors: FanOuts = Field((15, 10), description=f"{ABOUT_FANOUTS}; model.kind=embedding reads none")
    optimizer: OptimizerSpec = AdamSpec(lr=LEARNING_RATE)

    @field_validator("optimizer", mode="before")
    @classmethod
    def _with_rate(cls, given: object) -> object:
        if isinstance(given, Spec) and "lr" not in given.model_fields_set:
            return given.model_copy(update={"lr": LEARNING_RATE})
        return {"lr": LEARNING_RATE, **given} if isinstance(given, dict) else given


class LinkPredictionExperiment(Experiment):
    """Which pairs of nodes are joined, and by what?"""

    task: LinkPredictionTaskSpec = LinkPredictionTaskSpec()
    dataset: LinkDatasetSpec = LinkDatasetSpec()
    model: LinkModelSpec = GraphSageSpec()
    embedding_channels: PositiveInt = Field(128, description="width of a node's row: what the encoder gives")
    head: HeadSpec = DotSpec()
    negatives: NegativesSpec = NegativesSpec()
    train: LinkTrainSpec = LinkTrainSpec()
    partition: PartitionSpec = PartitionSpec()


class LinkInfo(PartedInfo):
    """What the planner must know about prepared links; `num_train` counts training links."""

    num_nodes: int
    num_edges: int = Field(description="of the graph that messages pass along")
    num_features: int = Field(description="0: nodes have none")
    num_relations: int = Field(description="0: links have no relation")
    links: dict[Literal["train", "val", "test"], int]
    candidates: Literal["all", "given", "shared"] = Field(
        description="what a link is ranked among: all nodes, nodes given for each, or one pool of pairs"
    )
    links_have_direction: bool
    has_sparse_features: bool
    scales_differ: bool = Field(False, description="dense features have columns of unlike scale, and are no counts")
    edge_features: tuple[str, ...] = ()


class LinkPredictionPlan(TaskPlan):
    """What only the ranks of a link prediction need."""

    of_weights: ClassVar[tuple[str, ...]] = ("model", "features", "head")

    kind: Literal["link_prediction"] = "link_prediction"
    dataset: LinkInfo
    undirected: bool
    features: FeatureTransform
    model: LinkModelSpec
    embedding_channels: int
    head: HeadSpec
    negatives: NegativesSpec
    num_neighbors: tuple[int, ...] = Field(description="(): no neighbours are read")
    relation_fanouts: tuple[tuple[int, ...], ...] | None = Field(
        None, description="of each relation in turn; absent: num_neighbors are for all together"
    )
    loss: LinkLossSpec
    ranked: Side
    val_limit: int | None
    edge_dropout: float = Field(0.0, description="of a step; 0: all that were drawn are read")
    evaluate_on: EvaluateOn | None = Field(None, description="absent: layer by layer, or a table")
    partition: PartitionSpec | None = Field(None, description="absent: the message graph is stored whole")

    @property
    def in_parts(self) -> InParts | None:
        """How its message graph is divided among hosts; None: it is stored whole."""
        return self.dataset.placed(self.partition)

    @property
    def edge_columns(self) -> tuple[int, ...]:
        """Which columns of the edge features the model is called with: the types of a typed graph's edges, or none."""
        return (len(self.dataset.edge_features) - 1,) if reads_types(self.model) else ()

    @property
    def resamples(self) -> bool:
        """Whether a node draws its neighbours anew at each hop: models whose layers each compute their own rows."""
        return draws_anew(self.model)

    @property
    def evaluation(self) -> str:
        """How an encoder of unknown layers is evaluated, in words; "": layer by layer, or it is a table."""
        return "" if isinstance(self.model, EmbeddingSpec) else evaluation_text(self.evaluate_on, whole_pass(self))

    def within(self, experiment: Experiment, memory_bytes: int | None) -> Self:
        """Section with an evaluation that fits the memory of a process."""
        assert isinstance(experiment.train, LinkTrainSpec)
        requested = experiment.train.evaluate_on
        if isinstance(self.model, EmbeddingSpec):
            _refuse_way(requested)
            return self
        way = evaluated_on(requested, self.model, whole_pass(self), memory_bytes, in_parts=self.partition is not None)
        return self.model_copy(update={"evaluate_on": way})

    @property
    def unused(self) -> str:
        """What the data hold and the plan does not read, in words; "": nothing."""
        known, found = self.dataset, []
        if isinstance(self.model, EmbeddingSpec) and known.num_features:
            found.append(f"features of the nodes of {known.name} (model.kind=embedding reads none)")
        if known.num_relations and not isinstance(self.head, DistMultSpec | ComplExSpec):
            found.append(f"relations of the links of {known.name} (head.kind=distmult and complex read them)")
        return "; ".join(found)


def resolve(experiment: LinkPredictionExperiment, dataset: LinkInfo) -> LinkPredictionPlan:
    """The task's section of a plan."""
    model, head, is_embedding = experiment.model, experiment.head, isinstance(experiment.model, EmbeddingSpec)
    num_neighbors = () if is_embedding else experiment.train.num_neighbors
    undirected = experiment.dataset.undirected
    drawn = resolve_fanouts(num_neighbors, dataset, undirected=undirected, num_parts=dataset.num_parts, presampled=None)
    features = transform_of(experiment.dataset.features, dataset)
    both = "both" if dataset.num_relations or not dataset.links_have_direction else "target"
    if not isinstance(model, EmbeddingSpec):
        _refuse_featureless(dataset, model.kind)
        refuse_other_depth(model, drawn.of_hops)
        refuse_fused(model, experiment.train)
        precision = experiment.train.precision
        refuse_untyped(model, dataset, undirected=experiment.dataset.undirected, precision=precision)
    elif experiment.train.edge_dropout:
        raise UserError(
            f"train.edge_dropout is {experiment.train.edge_dropout:g}, but model.kind embedding reads no edges",
            fix="leave train.edge_dropout out",
        )
    _refuse_odd(head, experiment.embedding_channels)
    refuse_partition(experiment.partition, dataset.num_parts, dataset.name)
    negatives = experiment.negatives
    return LinkPredictionPlan(
        dataset=dataset,
        undirected=experiment.dataset.undirected,
        features=features,
        model=model,
        embedding_channels=experiment.embedding_channels,
        head=head,
        negatives=negatives.model_copy(update={"side": both}) if negatives.side == "auto" else negatives,
        num_neighbors=drawn.of_hops,
        relation_fanouts=drawn.by_relation or None,
        edge_dropout=experiment.train.edge_dropout,
        loss=experiment.train.loss,
        ranked=both if experiment.task.ranked == "auto" else experiment.task.ranked,
        val_limit=experiment.task.val_limit,
        partition=None if dataset.num_parts is None else experiment.partition,
    )


def _refuse_featureless(dataset: LinkInfo, kind: str) -> None:
    if not dataset.num_features:
        raise UserError(
            f"model.kind is {kind}, which reads features of nodes, and those of {dataset.name} have none",
            fix="set model.kind=embedding, or prepare the data with features",
        )


def _refuse_way(evaluate_on: AskedEvaluation) -> None:
    if evaluate_on != "auto":
        raise UserError(
            f"train.evaluate_on is {evaluate_on}, but model.kind embedding is a table, whose rows are not computed",
            fix="leave train.evaluate_on out",
        )


def _refuse_odd(head: HeadSpec, channels: int) -> None:
    if isinstance(head, ComplExSpec) and channels % 2:
        raise UserError(
            f"embedding_channels is {channels}, and head.kind=complex takes two channels for a complex number",
            fix=f"set embedding_channels={channels + 1}",
        )


def from_catalogue(experiment: LinkPredictionExperiment, known: KnownDataset, path: str) -> LinkInfo | None:
    """What is published of links that are not prepared."""
    if not known.sizes:
        return None
    parts = parts_named(experiment.dataset.name)
    counts = dict(known.sizes)
    val, test = counts.pop("num_val"), counts.pop("num_test")
    return LinkInfo(
        name=known.name,
        path=path,
        checksum=FromCatalogue(),
        synthetic=False,
        num_relations=0,
        links={"train": counts["num_train"], "val": val, "test": test},
        candidates="shared" if known.name in WITH_POOL else "given" if known.name in WITH_CANDIDATES else "all",
        links_have_direction=known.name not in WITH_POOL,
        has_sparse_features=known.name in SPARSE,
        num_parts=None if parts is None else parts.num_parts,
        **counts,
    )


def _hits(k: int, *, is_shown: bool = True) -> Measure:
    about = f"share of links that rank among the first {k}"
    return Measure(f"hits_at_{k}", f"Hits@{k}", higher_is_better=True, about=about, is_shown=is_shown)


KIND: Final = Kind(
    name=NAME,
    seeds_are="links",
    measures=(
        Measure(
            "mrr",
            "MRR",
            higher_is_better=True,
            about="mean of 1 / rank among all nodes that are no known link, ties counted half",
        ),
        _hits(1),
        _hits(10),
        _hits(50, is_shown=False),
        _hits(100, is_shown=False),
        Measure("auc", "AUC", higher_is_better=True, about="of links against as many drawn pairs that are no link"),
        Measure("ap", "average precision", higher_is_better=True, about="of the same"),
    ),
    loss_unit="nats",
    own_columns=FETCHING,
    experiment=LinkPredictionExperiment,
    info=LinkInfo,
    plan=LinkPredictionPlan,
    resolve=resolve,
    sizes=sizes,
    data=Data(
        store="graphmill.tasks.link_prediction.parts:PreparedLinks",
        prepare="graphmill.tasks.link_prediction.data.prepare:prepare_requested",
        options=LinkPrepareOptions,
        counts=COUNTS,
        known=DATASETS,
        from_catalogue=from_catalogue,
        recognise="graphmill.tasks.link_prediction.data.read:holds_links",
    ),
    task="graphmill.tasks.link_prediction.task:LinkPrediction",
    baselines=Baselines(BASELINES, "graphmill.tasks.link_prediction.baselines:score"),
)
