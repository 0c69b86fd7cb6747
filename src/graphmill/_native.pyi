"""The C++ core: sampling, gathering, products, a recurrent cell, attention. Arrays are C-contiguous, on the CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# numpy arrays and CPU tensors alike
Array = Any

class Neighbourhood:
    @property
    def node_ids(self) -> NDArray[np.int64]: ...
    @property
    def indptr(self) -> NDArray[np.int64]: ...
    @property
    def indices(self) -> NDArray[np.int32]: ...
    @property
    def edge_ids(self) -> NDArray[np.int64]: ...
    @property
    def num_nodes_per_hop(self) -> list[int]: ...
    @property
    def num_edges_per_hop(self) -> list[int]: ...
    @property
    def num_rows_per_hop(self) -> list[int]: ...

class Picked:
    @property
    def indptr(self) -> NDArray[np.int64]: ...
    @property
    def sources(self) -> NDArray[np.int64]: ...
    @property
    def edge_ids(self) -> NDArray[np.int64]: ...

class NeighborSampler:
    def __init__(self, indptr: Array, indices: Array, num_threads: int = 1, num_nodes: int | None = None) -> None: ...
    def pick(
        self, nodes: Array, fanout: int, key: int, *, places: Array | None = None, num_threads: int = 1
    ) -> Picked: ...
    def sample(
        self,
        seeds: Array,
        fanouts: Sequence[int],
        key: int,
        *,
        resample: bool = False,
        with_edge_ids: bool = False,
        num_threads: int = 1,
    ) -> Neighbourhood: ...

def compress(
    sources: Array, targets: Array, num_sources: int, indptr: Array, indices: Array, order: Array, num_threads: int
) -> bool: ...
def sort_rows_by_time(indptr: Array, indices: Array, order: Array, times: Array, num_threads: int) -> None: ...
def accumulate_weights(indptr: Array, weights: Array, out: Array) -> None: ...

class Relation:
    def __init__(
        self,
        source: int,
        target: int,
        indptr: Array,
        indices: Array,
        order: Array | None = None,
        weights: Array | None = None,
        times: Array | None = None,
    ) -> None: ...

class TypedSubgraph:
    def node_ids(self, type: int) -> NDArray[np.int64]: ...
    def subgraphs(self, type: int) -> NDArray[np.int64]: ...
    def edge_index(self, relation: int) -> NDArray[np.int64]: ...
    def edge_ids(self, relation: int) -> NDArray[np.int64]: ...
    def num_nodes_per_hop(self, type: int) -> list[int]: ...
    def num_edges_per_hop(self, relation: int) -> list[int]: ...

class TypedNeighborSampler:
    def __init__(self, num_nodes: Sequence[int], relations: Sequence[Relation]) -> None: ...
    def sample(
        self,
        types: Sequence[int],
        nodes: Sequence[Array],
        times: Sequence[Array | None],
        fanouts: Sequence[Sequence[int]],
        num_hops: int,
        key: int,
        *,
        replace: bool = False,
        last: bool = False,
        disjoint: bool = False,
        induced: bool = False,
        num_threads: int = 1,
    ) -> TypedSubgraph: ...

def reused_bytes(size: int) -> NDArray[np.uint8]: ...

class EdgeLookup:
    def __init__(self, indptr: Array, sources: Array, times: Array | None, num_sources: int) -> None: ...
    def find(self, sources: Array, targets: Array, at: Array | None, found: Array, num_threads: int) -> None: ...

def draw_negatives(
    *,
    known: EdgeLookup | None,
    num_sources: int,
    num_targets: int,
    source_weights: Array | None,
    target_weights: Array | None,
    source_times: Array | None,
    target_times: Array | None,
    given: Array | None,
    at: Array | None,
    numbers: Array | None,
    key: int,
    tries: int,
    source_out: Array,
    target_out: Array,
    num_threads: int,
) -> int: ...
def count_above(
    *,
    queries: Array,
    answers: Array,
    table: Array,
    starts: Array | None,
    ends: Array | None,
    ids: Array | None,
    above: Array,
    tied: Array,
    candidates: Array,
    num_threads: int,
) -> int: ...
def count_above_given(
    *,
    queries: Array,
    answers: Array,
    table: Array,
    given: Array,
    above: Array,
    tied: Array,
    candidates: Array,
    num_threads: int,
) -> int: ...
def best_rows(
    *,
    queries: Array,
    table: Array,
    starts: Array | None,
    ends: Array | None,
    left_out: Array | None,
    ids: Array,
    scores: Array,
    num_threads: int,
) -> int: ...

class Relabeller:
    def __init__(self, num_nodes: int, *, hashed: bool = False) -> None: ...
    def begin(self, seeds: Array, *, resample: bool = False, with_edge_ids: bool = False) -> OpenBatch: ...

class OpenBatch:
    @property
    def frontier(self) -> NDArray[np.int64]: ...
    def relabel(self, indptr: Array, sources: Array, edge_ids: Array | None = None) -> None: ...
    def finish(self) -> Neighbourhood: ...

class NodeTable:
    def __init__(self, nodes: Array) -> None: ...
    def __len__(self) -> int: ...
    def find(self, nodes: Array, places: Array, num_threads: int = 1) -> None: ...

class Window:
    def __init__(self) -> None: ...
    @property
    def nodes(self) -> NDArray[np.int64]: ...
    def find(self, nodes: Array, places: Array, num_threads: int = 1) -> None: ...

class RowFinder:
    def __init__(self, storage: Array, own_begin: int, own_end: int) -> None: ...
    def find(self, nodes: Array, held: NodeTable | None, window: Window, rows: Array) -> tuple[int, int]: ...

def move_rows(rows: Array, first: int, to: Array) -> None: ...

class RowStack:
    def __init__(self, tables: Sequence[Array]) -> None: ...
    def __len__(self) -> int: ...
    def copy(self, rows: Array, out: Array, num_threads: int) -> None: ...

class Walks:
    def __init__(self, indptr: Array, indices: Array, values: Array, num_nodes: int, num_steps: int) -> None: ...
    @property
    def num_slots(self) -> int: ...

class DcgruWeights:
    def __init__(
        self, gate_weight: Array, gate_bias: Array, candidate_weight: Array, candidate_bias: Array, num_slots: int
    ) -> None: ...

class EdgeGroups:
    def __init__(
        self,
        indptr: Array,
        sources: Array,
        edge_ids: Array,
        out_indptr: Array | None,
        targets: Array | None,
        slots: Array | None,
        num_sources: int,
        num_loops: int,
    ) -> None: ...

class Attention:
    def __init__(
        self,
        groups: EdgeGroups,
        heads: int,
        x: Array,
        source_scores: Array | None,
        target_scores: Array,
        edge_attr: Array | None,
        loop_attr: Array | None,
        edge_weight: Array | None,
        att: Array | None,
        negative_slope: float,
        p: float,
        key: int | None,
    ) -> None: ...
    def forward(self, out: Array, lse: Array, num_threads: int) -> None: ...
    def weights(self, lse: Array, alpha: Array, num_threads: int) -> None: ...
    def backward(
        self,
        grad_out: Array,
        out: Array,
        lse: Array,
        pairs: Array,
        x: Array,
        source_scores: Array | None,
        target_scores: Array,
        edge_attr: Array | None,
        loop_attr: Array | None,
        edge_weight: Array | None,
        att: Array | None,
        num_threads: int,
    ) -> None: ...

class AttentionDouble(Attention): ...

def edge_dots(groups: EdgeGroups, heads: int, q: Array, k: Array, out: Array, num_threads: int) -> None: ...
def edge_dots_backward(
    groups: EdgeGroups,
    heads: int,
    q: Array,
    k: Array,
    grad: Array,
    grad_q: Array,
    grad_k: Array,
    num_threads: int,
) -> None: ...
def use_openmp(path: str) -> bool: ...
def isa() -> str: ...
def keep_freed_memory() -> bool: ...
def release_freed_memory() -> bool: ...
def subkey(key: int, coordinate: int) -> int: ...
def keys_of(key: int, ids: Array, out: Array) -> None: ...
def gather_rows(table: Array | RowStack, ids: Array, out: Array, num_threads: int) -> None: ...
def gather_self_and_mean(
    table: Array | RowStack,
    row_ids: Array | None,
    ids: Array | None,
    indptr: Array,
    indices: Array,
    out: Array,
    num_threads: int,
) -> None: ...
def gather_sparse_rows(
    indptr: Array,
    indices: Array,
    values: Array,
    ids: Array,
    out_indptr: Array,
    out_indices: Array,
    out_values: Array,
    num_threads: int,
) -> None: ...
def copy_ranges(table: Array, begins: Array, offsets: Array, out: Array, num_threads: int) -> None: ...
def take_rows(tables: list[Array], ids: list[Array], outs: list[Array], num_threads: int) -> None: ...
def copy_rows(table: Array, rows: Array, places: Array, out: Array, num_threads: int) -> None: ...
def copy_ranges_shifted(
    table: Array, begins: Array, offsets: Array, shifts: Array, out: Array, num_threads: int
) -> None: ...
def segment_mean(x: Array, indptr: Array, indices: Array, out: Array, num_threads: int) -> None: ...
def segment_mean_backward(grad_out: Array, indptr: Array, indices: Array, grad_x: Array, num_threads: int) -> None: ...
def self_and_mean_backward(grad_out: Array, indptr: Array, indices: Array, grad_x: Array, num_threads: int) -> None: ...
def self_and_sum(x: Array, scale: float, indptr: Array, indices: Array, out: Array, num_threads: int) -> None: ...
def self_and_sum_backward(
    grad_out: Array, scale: float, indptr: Array, indices: Array, grad_x: Array, num_threads: int
) -> None: ...
def norm_relu(
    x: Array, weight: Array, bias: Array, eps: float, mean: Array, variance: Array, out: Array, num_threads: int
) -> None: ...
def norm_relu_backward(
    x: Array,
    weight: Array,
    eps: float,
    mean: Array,
    variance: Array,
    out: Array,
    grad_out: Array,
    grad_x: Array,
    grad_weight: Array,
    grad_bias: Array,
    num_threads: int,
) -> None: ...
def sparse_multiply(indptr: Array, indices: Array, values: Array, w: Array, out: Array, num_threads: int) -> None: ...
def sparse_multiply_backward(
    indptr: Array, indices: Array, values: Array, grad_out: Array, grad_w: Array, num_threads: int
) -> None: ...
def linear(
    a: Array,
    w: Array,
    bias: Array | None,
    out: Array,
    relu: bool,
    row_keys: Array | None,
    p: float,
    num_threads: int,
) -> None: ...
def linear_backward(
    grad_out: Array, out: Array | None, p: float, a: Array, dw: Array, db: Array, num_threads: int
) -> None: ...
def finish(
    product: Array, bias: Array | None, out: Array, relu: bool, row_keys: Array | None, p: float, num_threads: int
) -> None: ...
def narrow_gradient(
    grad_out: Array, out: Array | None, p: float, narrow: Array, db: Array, num_threads: int
) -> None: ...
def relu_dropout(x: Array, row_keys: Array, p: float, out: Array, num_threads: int) -> None: ...
def relu_dropout_backward(grad_out: Array, out: Array, p: float, grad_in: Array, num_threads: int) -> None: ...
def dcgru_forward(
    walks: Walks,
    weights: DcgruWeights,
    x: Array,
    h: Array,
    gates: Array,
    candidate: Array,
    new_h: Array,
    num_threads: int,
) -> None: ...
def dcgru_backward(
    walks: Walks,
    weights: DcgruWeights,
    x: Array,
    h: Array,
    gates: Array,
    candidate: Array,
    grad_new: Array,
    grad_h: Array,
    grad_x: Array | None,
    grad_gate_weight: Array,
    grad_gate_bias: Array,
    grad_candidate_weight: Array,
    grad_candidate_bias: Array,
    num_threads: int,
) -> None: ...
def group_edges(
    sources: Array,
    targets: Array,
    num_sources: int,
    num_targets: int,
    num_loops: int,
    indptr: Array,
    by_target: Array,
    edge_ids: Array,
    out_indptr: Array | None,
    by_source: Array | None,
    slots: Array | None,
) -> None: ...
def sum_by_source(indptr: Array, indices: Array, values: Array, sums: Array, num_threads: int = 1) -> None: ...

class GraphParts:
    def __init__(
        self, indptr: Array, indices: Array, weights: Array, limits: Array, parts: Array, num_parts: int
    ) -> None: ...
    def stream(self, blocks: Array, width: int) -> None: ...
    def fill(self, nodes: Array, amount: int) -> None: ...
    def rebalance(self) -> int: ...
    def refine(self, num_passes: int) -> int: ...

def count_crossing(
    indptr: Array, indices: Array, first_node: int, parts: Array, num_parts: int, halos: Array
) -> int: ...
def solve_assignment(
    costs: Array,
    start: int,
    candidates: int,
    u: Array,
    v: Array,
    columns: Array,
) -> dict[str, int] | None: ...
def solve_sparse_assignment(
    indptr: Array,
    indices: Array,
    costs: Array,
    start: int,
    u: Array,
    v: Array,
    columns: Array,
) -> dict[str, int] | None: ...
def solve_assignments(
    costs: list[Array],
    start: int,
    candidates: list[int],
    u: list[Array],
    v: list[Array],
    columns: list[Array],
    num_threads: int,
) -> list[bool]: ...
def certify_assignment(costs: Array, u: Array, v: Array, columns: Array) -> tuple[float, float]: ...
def certify_sparse_assignment(
    indptr: Array, indices: Array, costs: Array, u: Array, v: Array, columns: Array
) -> tuple[float, float]: ...
def nearest_costs(
    costs: Array,
    v: Array,
    row_values: Array,
    row_columns: Array,
    column_values: Array | None,
    offsets: Array | None = None,
    num_threads: int = 1,
) -> None: ...
def soften_costs(
    costs: Array,
    v: Array,
    epsilon: Array,
    u: Array,
    column_sums: Array,
    offsets: Array | None = None,
    num_threads: int = 1,
) -> None: ...
def row_minima(costs: Array, minima: Array, num_threads: int = 1) -> None: ...
def reduce_costs(costs: Array, out: Array, offsets: Array | None = None, num_threads: int = 1) -> None: ...
def decimals(data: Array, begins: Array, ends: Array, values: Array, kinds: Array) -> None: ...
def hex_numbers(data: Array, begins: Array, ends: Array, values: Array, is_good: Array) -> None: ...
def hex_bytes(data: Array, begins: Array, ends: Array, bytes: Array, is_good: Array) -> None: ...
def window_graphs(
    ids: Array, payload: Array, begins: Array, size: int
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.float32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
]: ...
