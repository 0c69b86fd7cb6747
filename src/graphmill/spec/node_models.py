"""Models that give a row to each node, as they are asked for: their keys and defaults."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.attention import AttentionSpec
from graphmill.spec.experiment import CustomModelSpec, Fraction
from graphmill.spec.relational import TYPED_MODELS, HgtSpec, RelationalSpec
from graphmill.spec.sign import SignSpec
from graphmill.spec.synonyms import HIDDEN_WIDTH
from graphmill.spec.typed_graph import TypedInfo, no_union_of_types, triplets

EdgeArgument = Literal["edge_weight", "edge_attr"]
"""What a model by dotted path is called with besides x and edge_index, as PyG's are."""


class GraphSageSpec(Spec):
    """GraphSAGE with mean aggregation (Hamilton et al. 2017, arXiv 1706.02216)."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")
    called_elsewhere: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sage": {"kind": "graphsage", "num_layers": 2},
        "sageconv": {"kind": "graphsage", "num_layers": 2},
    }

    kind: Literal["graphsage"] = "graphsage"
    hidden_channels: PositiveInt = Field(256, description="width of every layer but one that gives the result")
    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    dropout: Fraction = Field(0.5, description="probability of dropping a hidden channel")
    input_dropout: Fraction = Field(0.0, description="probability of dropping an input feature")
    residual: bool = Field(
        False,
        description="each hidden layer after the first adds the row that it reads of the node itself, after activation "
        "and dropout (Kipf & Welling 2017, arXiv 1609.02907, appendix B)",
    )
    jumping_knowledge: Literal["none", "cat", "max"] = Field(
        "none",
        description="what gives the result: none, the last layer; else all layers are hidden, and a linear head reads "
        "a node's rows of each, beside each other (cat) or each channel's largest (max; Xu et al. 2018, arXiv "
        "1806.03536)",
    )

    @property
    def num_hidden(self) -> int:
        """Layers whose width is `hidden_channels`."""
        return self.layers_read or self.num_layers - 1

    @property
    def layers_read(self) -> int:
        """Layers whose rows the head of jumping knowledge reads; 0: there is no head."""
        return 0 if self.jumping_knowledge == "none" else self.num_layers

    @property
    def head_channels(self) -> int:
        """Columns that this head reads."""
        return self.hidden_channels * {"none": 0, "cat": self.num_layers, "max": 1}[self.jumping_knowledge]

    @model_validator(mode="after")
    def _has_a_residual_layer(self) -> Self:
        if self.residual and self.num_hidden < 2:
            raise ValueError(
                f"residual is true, but {self.num_hidden} of num_layers {self.num_layers} is hidden, and a hidden layer"
                f" adds the one before it: set num_layers to {self.num_layers + 2 - self.num_hidden} or more, with as"
                " many fan-outs in train.num_neighbors, or leave residual out"
            )
        return self


class NodeAttentionSpec(AttentionSpec):
    """Attention over sampled neighbours and the node itself, with features of edges if dataset.edge_features asks so.

    gat: Velickovic et al. 2018, arXiv 1710.10903; gatv2: Brody et al. 2022, arXiv 2105.14491. The last layer takes the
    mean over its heads.
    """

    called_elsewhere: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "gatconv": {"kind": "gat", "num_layers": 2},
        "gatv2conv": {"kind": "gatv2", "num_layers": 2},
    }

    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    dropout: Fraction = Field(0.5, description="probability of dropping a channel of what a layer reads")


def _of_pyg(target: str, **options: float) -> dict[str, Any]:
    return {"kind": "custom", "target": f"torch_geometric.nn.{target}", "options": options}


def _of_layers(name: str) -> dict[str, Any]:
    return _of_pyg(f"models.{name}", hidden_channels=64, num_layers=2, dropout=0.5)


class NodeCustomModelSpec(CustomModelSpec):
    """Any PyTorch or PyG model by dotted path; how it is called, and what it gives, is the task's to say."""

    heterogeneous: bool = Field(
        False,
        description="of a typed graph: made with metadata (node types, edge types) as well, called as PyG's to_hetero "
        "models are, model(x_dict, edge_index_dict), and gives a dict of rows by node type",
    )

    called_elsewhere: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **dict.fromkeys(("gcn", "gcnconv", "graphconv"), _of_layers("GCN")),
        **dict.fromkeys(("gin", "ginconv"), _of_layers("GIN")),
        **dict.fromkeys(("edgecnn", "edgeconv"), _of_layers("EdgeCNN")),
        **dict.fromkeys(("tag", "tagcn", "tagconv"), _of_pyg("TAGConv", K=2)),
        **dict.fromkeys(("cheb", "chebnet", "chebconv"), _of_pyg("ChebConv", K=2)),
        **dict.fromkeys(("arma", "armaconv"), _of_pyg("ARMAConv")),
        **dict.fromkeys(("transformer", "transformerconv"), _of_pyg("TransformerConv")),
    }
    """Models of PyG, by the words that people have for them, as sections that train as they are."""


NodeModelSpec = Annotated[
    GraphSageSpec | NodeAttentionSpec | RelationalSpec | HgtSpec | SignSpec | NodeCustomModelSpec,
    Field(discriminator="kind"),
]


def reads_types(model: object) -> bool:
    """Whether a model reads the types of edges; no feature of them then."""
    return isinstance(model, TYPED_MODELS) or (isinstance(model, NodeCustomModelSpec) and model.heterogeneous)


def draws_anew(model: object) -> bool:
    """Whether a node draws its neighbours anew at each hop: models whose layers each compute their own rows."""
    return isinstance(model, GraphSageSpec | RelationalSpec | HgtSpec | SignSpec)


def refuse_other_depth(model: NodeModelSpec, fanouts: Sequence[int]) -> None:
    """Raise a `UserError` if a built-in model has not as many layers as there are fan-outs."""
    if not isinstance(model, CustomModelSpec | SignSpec) and len(fanouts) != model.num_layers:
        raise UserError(
            f"train.num_neighbors has {len(fanouts)} fan-outs, but model.num_layers is {model.num_layers},"
            " and each layer reads one hop",
            fix=f"give {model.num_layers} fan-outs, or set model.num_layers={len(fanouts)}",
        )


def reads_node_types(model: object) -> bool:
    """Whether a model reads the types of nodes as well."""
    return reads_types(model) and not (isinstance(model, RelationalSpec) and model.kind == "rgcn")


def refuse_untyped(model: Spec, dataset: TypedInfo, *, undirected: bool, precision: str) -> None:
    """Raise a `UserError` if a model that reads types is asked of edges that have none, or fewer than it has bases."""
    if not reads_types(model):
        return
    count = len(dataset.edge_types)
    if not count:
        kind = getattr(model, "kind", None)
        asked = "model.heterogeneous" if isinstance(model, NodeCustomModelSpec) else f"model.kind={kind}"
        raise UserError(
            f"{asked} reads types of edges, and the edges of {dataset.name} have no types",
            fix="name a graph that has types (graphmill inspect NAME shows them; prepare reads them from a .npz file"
            " with edge_type and edge_type_names), or set model.kind=graphsage, gat or gatv2",
        )
    if undirected:
        raise no_union_of_types(dataset.name)
    if isinstance(model, HgtSpec) and precision != "fp32":
        raise UserError(
            f"model.kind is hgt, which computes in fp32, and train.precision is {precision}",
            fix="set train.precision=fp32",
        )
    mixed = [each for each, ends in zip(dataset.edge_types, triplets(dataset), strict=True) if None in ends]
    if isinstance(model, NodeCustomModelSpec) and mixed:
        raise UserError(
            f"model.heterogeneous is true, and {mixed[0]} of {dataset.name} joins nodes of several types, which PyG's"
            " dicts of edges cannot name",
            fix="prepare the graph with relations between two types of nodes, or set model.kind=rgcn, rsage or hgt",
        )
    if isinstance(model, RelationalSpec) and model.num_bases is not None and model.num_bases > count:
        raise UserError(
            f"model.num_bases is {model.num_bases}, but the edges of {dataset.name} have {count} types: more bases than"
            " types are no decomposition",
            fix=f"set model.num_bases to {count} or less, or leave it out: a matrix for each type",
        )
