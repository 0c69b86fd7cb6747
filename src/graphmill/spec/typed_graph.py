"""Graphs whose nodes and edges have types, and that may be in parts: what the planner knows of them."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from graphmill.base.errors import AbsentDataError, UserError
from graphmill.spec.kinds.kind import DatasetInfo
from graphmill.spec.partition import DEFAULT_METHOD, PARTS_FOLDER, InParts, PartitionSpec

EDGE_TYPE: Final = "edge_type"
"""Name of the last column of a typed graph's edge features: the number of each edge's type."""


class TypedInfo(DatasetInfo):
    """Names of the types, in the order of their numbers; none of a graph without types."""

    edge_types: tuple[str, ...] = Field((), description='as "source:name:target", where * is nodes of several types')
    node_types: tuple[str, ...] = ()
    type_columns: tuple[tuple[int, int], ...] = Field(
        (), description="of each node type: which features are its own; absent: types share them"
    )

    @model_serializer(mode="wrap")
    def _without_absent_types(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise without the types if there are none, as in plans that were made before graphs had types."""
        known: dict[str, Any] = handler(self)
        if not self.edge_types:
            known.pop("edge_types", None)
            known.pop("node_types", None)
        if not self.type_columns:
            known.pop("type_columns", None)
        return known


def triplets(dataset: TypedInfo) -> tuple[tuple[str | None, str, str | None], ...]:
    """Triplet of each edge type (source, name, target), as PyG writes it; None in place of an end of several types."""
    return tuple(_triplet(each, dataset.node_types) for each in dataset.edge_types)


def _triplet(text: str, node_types: Sequence[str]) -> tuple[str | None, str, str | None]:
    source = next((each for each in node_types if text.startswith(f"{each}:")), None)
    rest = text.removeprefix(f"{source or '*'}:")
    target = next((each for each in node_types if rest.endswith(f":{each}")), None)
    return source, rest.removesuffix(f":{target or '*'}"), target


def source_types(dataset: TypedInfo) -> tuple[int | None, ...]:
    """Number of the node type at which the edges of each edge type begin; None: several node types."""
    return tuple(None if each is None else dataset.node_types.index(each) for each, _, _ in triplets(dataset))


def plain_features(edge_features: Sequence[str], edge_types: Sequence[str]) -> tuple[str, ...]:
    """The columns of edge features that are numbers, and no type."""
    return tuple(edge_features[:-1] if edge_types else edge_features)


def no_union_of_types(dataset: str, option: str = "dataset.undirected") -> UserError:
    """The error where features of edges are asked of the union of both directions of a typed graph."""
    return UserError(
        f"{option} is true, but the edges of {dataset} have types, and the other direction of an edge would have none",
        fix=f"set {option}=false; for messages in both directions prepare the graph with"
        " -o reverse_relations=true, which adds rev_NAME for each relation NAME",
    )


class PartedInfo(TypedInfo):
    """Facts of a dataset that may be in parts."""

    num_parts: int | None = Field(None, description="absent: the graph is stored whole")

    @property
    def prepared_checksum(self) -> str:
        """The checksum; a `UserError` if nothing is prepared, or it is not in parts."""
        if self.is_prepared or self.num_parts is None:
            return super().prepared_checksum
        root, _, name = self.path.rpartition(f"/{PARTS_FOLDER}/{self.name}/")
        _, _, method = name.partition("-")
        how = f"--num-parts {self.num_parts}" + ("" if method == DEFAULT_METHOD else f" --method {method}")
        raise AbsentDataError(
            f"{self.name} is not in {self.num_parts} parts under {root}: this plan has its sizes from the catalogue,"
            " and cannot be trained",
            fix=f"graphmill partition {self.name} {how} --dataset-root {root}; before that, if it is not prepared yet:"
            f" graphmill prepare {self.name} --dataset-root {root} (add --from PATH if it is not a download)",
        )

    def placed(self, spec: PartitionSpec | None) -> InParts | None:
        """How its parts are divided among hosts; None: it is stored whole."""
        if spec is None or self.num_parts is None:
            return None
        return InParts(self.num_parts, spec.placement, spec.topology, spec.seeds)
