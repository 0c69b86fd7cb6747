"""Models by dotted path that are called as PyG's `to_hetero` models are: model(x_dict, edge_index_dict)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import DenseRows, InputForm, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.standardise import Standardise
from graphmill.nn.subgraph import edge_index, row_of_entry
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.typed_graph import TypedInfo, triplets
from graphmill.tasks.custom_model import construct, refuse_untrainable

EdgeType = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Types:
    """Types of the graph that a model reads: PyG's metadata, and the columns of each type of nodes."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    columns: tuple[tuple[int, int], ...]  # of each type of nodes, from the first to before the last

    @classmethod
    def of(cls, known: TypedInfo, num_features: int) -> "Types":
        """Types of prepared data; a plan was refused before where a relation joins several types."""
        edges = tuple((str(a), name, str(b)) for a, name, b in triplets(known))
        return cls(known.node_types, edges, known.type_columns or ((0, num_features),) * len(known.node_types))

    @property
    def widths(self) -> dict[str, int]:
        """Features of each type of nodes."""
        return {name: last - first for name, (first, last) in zip(self.nodes, self.columns, strict=True)}


class HeteroModel(nn.Module):
    """The user's module on sampled mini-batches, taken apart by types.

    Its own dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training
    step, so a step does not depend on what was drawn before it.
    """

    def __init__(
        self,
        inner: nn.Module,
        types: Types,
        *,
        seed: int,
        rank: int,
        dtype: torch.dtype,
        standardise: Standardise | None,
    ) -> None:
        super().__init__()
        self.inner, self.types, self.standardise = inner, types, standardise
        self.seed, self.rank, self.dtype = seed, rank, dtype

    @property
    def input_form(self) -> InputForm:
        """Features of every node of the batch."""
        return "rows"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Rows of the seeds [num_seeds, out_channels]."""
        if self.training:
            torch.manual_seed(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank) >> 1)
        parts = _Parts.of(batch, self.types, self.standardise)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(batch.node_types.device.type, self.dtype, enabled=is_mixed):
            rows = rows_by_type(self.inner(parts.x, parts.edges))
        return _of_seeds(rows, batch.node_types[: len(batch.seeds.ids)], parts.places, self.types.nodes)


class OnStandardisedTypes(nn.Module):
    """A model that was trained on standardised features: called with those as they were prepared."""

    def __init__(self, model: HeteroModel) -> None:
        super().__init__()
        assert model.standardise is not None
        self.standardise, self.inner = model.standardise, model.inner

    def forward(self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]) -> Mapping[str, Tensor]:
        """What the model makes of them: rows by node type."""
        scaled = {name: self.standardise(rows) for name, rows in x_dict.items()}
        return rows_by_type(self.inner(scaled, edge_index_dict))


@dataclass(frozen=True, slots=True)
class _Parts:
    """A batch by types."""

    x: dict[str, Tensor]
    edges: dict[EdgeType, Tensor]
    places: Tensor  # int64 [num_nodes]: of each node among those of its type

    @classmethod
    def of(cls, batch: MiniBatch, types: Types, standardise: Standardise | None) -> "_Parts":
        kinds = batch.node_types
        of_type = [torch.nonzero(kinds == number).flatten() for number in range(len(types.nodes))]
        places = torch.empty_like(kinds)
        for nodes in of_type:
            places[nodes] = torch.arange(len(nodes), device=kinds.device)
        local = places[edge_index(batch)]
        relations = batch.edge_attr[:, -1].long()
        edges = {edge: local[:, relations == number] for number, edge in enumerate(types.edges)}
        x = {
            name: _rows_of(batch, nodes, columns, standardise)
            for name, nodes, columns in zip(types.nodes, of_type, types.columns, strict=True)
        }
        return cls(x, edges, places)


def _rows_of(batch: MiniBatch, nodes: Tensor, columns: tuple[int, int], standardise: Standardise | None) -> Tensor:
    """Some columns of the features of some nodes of the batch; sparse rows are written out."""
    first, last = columns
    match batch.inputs:
        case DenseRows(x):
            return (x[nodes] if standardise is None else standardise(x[nodes]))[:, first:last].float()
        case SparseRows() as x:
            rows = row_of_entry(x.indptr, len(x.values))
            place = torch.full((len(x.indptr) - 1,), -1, device=nodes.device)
            place[nodes] = torch.arange(len(nodes), device=nodes.device)
            own = (place[rows] >= 0) & (x.indices >= first) & (x.indices < last)
            out = x.values.new_zeros(len(nodes), last - first)
            out[place[rows[own]], x.indices[own].long() - first] = x.values[own]
            return out
        case SelfAndMean():
            raise AssertionError("a model that reads rows was given averages")


def rows_by_type(out: object) -> Mapping[str, Tensor]:
    """What a model returned, if it is a dict of tensors. `UserError` if not."""
    if isinstance(out, Mapping) and all(isinstance(each, Tensor) for each in out.values()):
        return out
    raise UserError(
        f"model.heterogeneous is true, and the model gives a {type(out).__name__}",
        fix="let forward(x_dict, edge_index_dict) return a dict, rows by node type, as torch_geometric.nn.to_hetero's",
    )


def _of_seeds(rows: Mapping[str, Tensor], kinds: Tensor, places: Tensor, names: tuple[str, ...]) -> Tensor:
    """The rows of the seeds, which come first in a batch."""
    present = torch.unique(kinds).tolist()
    missing = [names[kind] for kind in present if names[kind] not in rows]
    if missing:
        raise UserError(
            f"the model gives rows of {', '.join(rows) or 'no type'}, and the seeds are of type {missing[0]}",
            fix=f"let forward return rows of {missing[0]} as well; a type that no relation leads to gets none",
        )
    some = next(iter(rows.values()))
    out = some.new_zeros(len(kinds), some.shape[1])
    for kind in present:
        here = torch.nonzero(kinds == kind).flatten()
        out = out.index_copy(0, here, rows[names[kind]][places[here]].to(out.dtype))
    return out


def construct_hetero(spec: CustomModelSpec, types: Types, out_channels: int, rng_seed: int) -> nn.Module:
    """The module, whose lazy layers have taken the widths of a made-up batch: the same weights on every rank."""
    torch.manual_seed(key_of(rng_seed, Purpose.INITIAL_WEIGHTS) >> 1)
    filled_in = {
        "in_channels": types.widths,
        "out_channels": out_channels,
        "metadata": (list(types.nodes), list(types.edges)),
    }
    model = construct(spec, filled_in)
    try:
        with torch.no_grad():
            model.eval()(*made_up(types))
    except UserError:
        raise
    except Exception as error:  # whatever a stranger's code raises
        raise UserError(
            f"{spec.target} cannot compute x_dict of {types.widths} and {len(types.edges)} edge types:"
            f" {type(error).__name__}: {error}",
            fix="let forward take (x_dict, edge_index_dict), as the models of torch_geometric.nn.to_hetero do",
        ) from error
    refuse_untrainable(spec.target, model)
    return model.train()


def made_up(types: Types) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor]]:
    """Make up three nodes of each type and three edges of each relation."""
    nodes = torch.arange(3)
    x = {name: torch.randn(3, width) for name, width in types.widths.items()}
    return x, {edge: torch.stack([nodes, nodes.roll(1)]) for edge in types.edges}


def check_hetero(spec: CustomModelSpec, model: nn.Module, types: Types, out_channels: int) -> None:
    """Raise a `UserError` unless the model gives rows of the wanted width, which depend on its parameters."""
    rows = rows_by_type(model(*made_up(types)))
    shapes = {name: list(each.shape) for name, each in rows.items()}
    if not rows or any(shape != [3, out_channels] for shape in shapes.values()):
        raise UserError(
            f"{spec.target} gives {shapes} of three nodes of each type",
            fix=f"let forward return [num_nodes, {out_channels}] of a type: out_channels is filled in",
        )
    if not any(each.requires_grad for each in rows.values()):
        raise UserError(
            f"{spec.target} gives values that depend on no parameter", fix="name a model with parameters to train"
        )
