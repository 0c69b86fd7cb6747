"""Graphs whose nodes have values: what `prepare` takes, and which have a name of their own."""

from typing import Final

from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.config.frozen import Spec
from graphmill.spec.columns import Baseline
from graphmill.spec.kinds.kind import KnownDataset

NAME: Final = "node_regression"


class ValuesPrepareOptions(Spec):
    """Options of `graphmill prepare` for a graph whose nodes have values."""

    random_split: bool = Field(False, description="split 60/20/20 at random in place of the file's own split")
    split_seed: NonNegativeInt = Field(0, description="of a random split")
    num_nodes: PositiveInt | None = Field(None, ge=10, description="synthetic/values: how many; null: 2000")
    targets: PositiveInt | None = Field(None, description="synthetic/values: values of each node; null: 1")
    seed: NonNegativeInt | None = Field(None, description="synthetic/values: of the generator; null: 0")


COUNTS: Final = {"num_nodes": "nodes", "num_edges": "edges", "num_targets": "values"}
DATASETS: Final = (
    KnownDataset("synthetic/values", {}, "generated", "nothing: num_nodes, targets and seed are options"),
)

MEAN: Final = Baseline("mean", "mean", "of the training nodes, for each value")
LINEAR: Final = Baseline("linear", "linear regression", "on a node's own features, least squares", scored="end")
