"""How a model of unknown layers is evaluated: in one pass over the whole graph, or on neighbourhoods. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel

from graphmill.base.errors import UserError
from graphmill.spec.attention import is_fused
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.node_models import GraphSageSpec, NodeAttentionSpec
from graphmill.spec.node_sizes import SampledPlan
from graphmill.spec.relational import HgtSpec, RelationalSpec
from graphmill.spec.sign import SignSpec

EvaluateOn = Literal["whole_graph", "neighbourhoods"]
AskedEvaluation = Literal["auto", "whole_graph", "neighbourhoods"]

ABOUT_EVALUATE_ON: Final = (
    "exact evaluation of models whose layers are not known (all but graphsage and sign): whole_graph, one call of the "
    "model on the whole graph by every rank; neighbourhoods, on all neighbours of 512 nodes at a time, shared out "
    "over the ranks; auto: whole_graph where the graph is stored whole and that call is estimated to take no more "
    "than half of a process's share of the host's memory (of 4 GiB where it is not known, as a GPU's); both give the "
    "same, to rounding"
)

_COPIES: Final = 6  # of messages, in unknown layers: both ends, their difference or sum, and what is summed up
_COPIES_AT_PYG: Final = {
    **dict.fromkeys(("GraphSAGE", "SAGEConv", "GIN", "GINConv"), 2),
    **dict.fromkeys(("GCN", "GCNConv", "GAT", "GATConv"), 3),
}
"""Copies of messages in layers of PyG: one more than PyG 2.8 holds at once, as measured."""
_ROWS: Final = 4  # of a node: what a layer reads, projects, gives, and the activation
_IDS: Final = 64  # bytes of an edge: edge_index with and without loops, the sampler's copies
_NO_WIDTH: Final = 16  # numbers below it count layers or heads
_UNSEEN_WIDTH: Final = 256  # where options name no width
_PROJECTING: Final = ("GCN", "GAT", "GCNConv", "GATConv", "GATv2Conv")  # PyG's whose messages are never inputs
_NATIVE: Final = ("GraphSAGE", "GCN", "GAT")  # PyG's whose fused layers write neither sparse features out nor messages
_UNKNOWN_MEMORY: Final = 4 << 30  # a GPU's, or of a job that has no hosts yet
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePass:
    """One call of a model on a whole graph."""

    num_nodes: int
    num_entries: int  # edges in the directions that messages pass along, at most
    num_features: int
    num_edge_columns: int
    width: int  # of the widest messages
    copies: int = _COPIES  # of the messages of all edges, held at once; 0: none is written

    @property
    def num_bytes(self) -> int:
        """What it takes, at most: a layer's messages as PyG writes them, rows of nodes, and the inputs."""
        messages = self.copies * 4 * self.width * (self.num_entries + self.num_nodes)  # a loop for each node
        rows = _ROWS * 4 * self.width * self.num_nodes + 2 * 4 * self.num_features * self.num_nodes
        return messages + rows + self.num_entries * (_IDS + 4 * self.num_edge_columns)


def whole_pass_of(plan: SampledPlan, model: BaseModel, out_channels: int) -> WholePass:
    """One call of a plan's `model` on its whole graph."""
    known = plan.dataset
    stay_sparse = known.has_sparse_features and _is_native(model)
    return WholePass(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        num_features=0 if stay_sparse else known.num_features,
        num_edge_columns=len(plan.edge_columns),
        width=widest(
            model,
            num_features=0 if stay_sparse else known.num_features,
            has_sparse_features=known.has_sparse_features,
            out_channels=out_channels,
        ),
        copies=_copies(model),
    )


def widest(model: BaseModel, *, num_features: int, has_sparse_features: bool, out_channels: int) -> int:
    """Channels of the widest messages, from the numbers of a model's section: how it is built is not known here.

    The largest number times that of heads, if there are some, or what the model gives. Messages may also be the inputs,
    as GIN's are, unless the model is known to project them first.
    """
    numbers = dict(_numbers(model.model_dump()))
    heads = max([1, *(number for name, number in numbers.items() if "head" in name.rsplit(".", 1)[-1])])
    largest = max((number for name, number in numbers.items() if "head" not in name), default=0)
    inputs = 0 if _projects_inputs(model, has_sparse_features=has_sparse_features) else num_features
    hidden = (largest if largest >= _NO_WIDTH else _UNSEEN_WIDTH) // (heads if _shares_out(model) else 1)
    return max(heads * hidden, heads * out_channels, inputs)


def _is_native(model: BaseModel) -> bool:
    """Whether it is a model of PyG's that fused layers compute: sparse features and messages are not written out."""
    if not isinstance(model, CustomModelSpec) or not model.fused or _name_at_pyg(model) not in _NATIVE:
        return False
    others = ("project", "residual", "cached", "flow")  # with which, as with other sums, PyG's own code computes
    sums = ("mean", "add", "sum") if _name_at_pyg(model) == "GraphSAGE" else ("add", "sum")
    return not any(map(model.options.get, others)) and model.options.get("aggr", sums[0]) in sums


def _copies(model: BaseModel) -> int:
    """Copies of messages that are held at once; 0 where none is written."""
    if is_fused(model) or _is_native(model):
        return 0
    if not isinstance(model, CustomModelSpec) or model.options.get("aggr", "sum") not in ("mean", "add", "sum"):
        return _COPIES
    if model.options.get("v2"):  # GAT of GATv2's layers, which hold both ends of every edge
        return _COPIES
    return _COPIES_AT_PYG.get(_name_at_pyg(model), _COPIES)


def _name_at_pyg(model: CustomModelSpec) -> str:
    """What PyG calls it; "": it is another's."""
    package, _, name = model.target.rpartition(".")
    return name if package in ("torch_geometric.nn", "torch_geometric.nn.models") else ""


def _shares_out(model: BaseModel) -> bool:
    """Whether its heads share its hidden channels out, as those of PyG's whole model do, not of its layers."""
    return (
        isinstance(model, CustomModelSpec)
        and _name_at_pyg(model) == "GAT"
        and model.options.get("concat", True) is True
    )


def _projects_inputs(model: BaseModel, *, has_sparse_features: bool) -> bool:
    if isinstance(model, CustomModelSpec):
        return _name_at_pyg(model) in _PROJECTING
    return isinstance(model, NodeAttentionSpec | HgtSpec) or (isinstance(model, RelationalSpec) and has_sparse_features)


def _numbers(section: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _numbers({f"{name}.{place}": each for place, each in enumerate(value)}, prefix)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def evaluated_on(
    evaluate_on: AskedEvaluation, model: object, full_pass: WholePass, memory_bytes: int | None, *, in_parts: bool
) -> EvaluateOn | None:
    """Which way a plan takes; None: the model is evaluated layer by layer. `UserError` if the way asked for is not its.

    Args:
        evaluate_on: `train.evaluate_on`.
        model: the section.
        full_pass: what a call on the whole graph would be.
        memory_bytes: that each process may use; None: unknown.
        in_parts: whether the graph is stored in parts.
    """
    if isinstance(model, GraphSageSpec | SignSpec):
        if evaluate_on == "auto":
            return None
        raise UserError(
            f"train.evaluate_on is {evaluate_on}, but model.kind {model.kind} is evaluated"
            f" {'layer by layer' if isinstance(model, GraphSageSpec) else 'row by row'}",
            fix="leave train.evaluate_on out",
        )
    if evaluate_on == "whole_graph" and in_parts:
        raise UserError(
            "train.evaluate_on is whole_graph, but the graph is in parts, and no rank has all of it",
            fix="set train.evaluate_on=neighbourhoods, or name the graph that was partitioned",
        )
    if evaluate_on != "auto":
        return evaluate_on
    return "neighbourhoods" if in_parts or full_pass.num_bytes > _room(memory_bytes) else "whole_graph"


def evaluated_on_other(
    way: EvaluateOn | None, known: WholePass, other: WholePass, *, in_parts: bool
) -> EvaluateOn | None:
    """Which way a trained model is evaluated on another graph: on the whole of it only if it is no larger.

    Args:
        way: of the plan.
        known: a call on the graph that the model was trained on.
        other: on the other one.
        in_parts: whether that is stored in parts.
    """
    fits = not in_parts and other.num_bytes <= known.num_bytes
    return "neighbourhoods" if way == "whole_graph" and not fits else way


def evaluation_text(way: EvaluateOn | None, full_pass: WholePass) -> str:
    """What a plan says of it, with the estimate; "": the model is evaluated layer by layer."""
    estimate = f"{full_pass.num_bytes / _MIB:,.0f} MiB at most, by formula"
    match way:
        case None:
            return ""
        case "whole_graph":
            return f"in one pass over the whole graph, {estimate}"
        case "neighbourhoods":
            return f"on neighbourhoods, 512 nodes at a time; one pass over the whole graph would take {estimate}"


def _room(memory_bytes: int | None) -> int:
    return (_UNKNOWN_MEMORY if memory_bytes is None else memory_bytes) // 2
