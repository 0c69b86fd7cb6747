"""The models of node classification, as they are asked for: their keys and defaults."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.config.frozen import Spec
from graphmill.spec.attention import AttentionSpec
from graphmill.spec.experiment import CustomModelSpec, Fraction
from graphmill.spec.relational import RelationalSpec
from graphmill.spec.synonyms import HIDDEN_WIDTH


class GraphSageSpec(Spec):
    """GraphSAGE with mean aggregation (Hamilton et al. 2017, arXiv 1706.02216)."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["graphsage"] = "graphsage"
    hidden_channels: PositiveInt = Field(256, description="width of every layer but the last")
    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    dropout: Fraction = Field(0.5, description="probability of dropping a hidden channel")
    input_dropout: Fraction = Field(0.0, description="probability of dropping an input feature")


class NodeAttentionSpec(AttentionSpec):
    """Attention over sampled neighbours and the node itself, with features of edges if dataset.edge_features asks so.

    gat: Velickovic et al. 2018, arXiv 1710.10903; gatv2: Brody et al. 2022, arXiv 2105.14491. The last layer takes the
    mean over its heads.
    """

    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    dropout: Fraction = Field(0.5, description="probability of dropping a channel of what a layer reads")


NodeModelSpec = Annotated[
    GraphSageSpec | NodeAttentionSpec | RelationalSpec | CustomModelSpec, Field(discriminator="kind")
]
