"""PyG's forms of one training step: the tutorial's, trimmed, and the best that can be made of it."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from problem import CLASSES, FANOUTS, HIDDEN, Problem


class PygSage(nn.Module):
    """The tutorial's model."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.convs = nn.ModuleList([SAGEConv(num_features, HIDDEN), SAGEConv(HIDDEN, CLASSES)])
        self.dropout = 0.5

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(self.convs[0](x, edge_index).relu(), 0.5, training=True)
        return self.convs[1](h, edge_index)

    def trimmed(self, x: Tensor, edge_index: Tensor, nodes: list[int], edges: list[int]) -> Tensor:
        from torch_geometric.utils import trim_to_layer

        for number, conv in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(number, nodes, edges, x, edge_index)
            x = conv(x, edge_index)
            if number == 0:
                x = F.dropout(x.relu(), 0.5, training=True)
        return x

    def bipartite(self, x: Tensor, x_rows: Tensor, edges1: object, edges2: object, rows2: int) -> Tensor:
        """`x_rows`: of the first layer's rows themselves; `x`: what the columns of `edges1` count."""
        h = F.dropout(self.convs[0]((x, x_rows), edges1).relu(), self.dropout, training=True)
        return self.convs[1]((h, h[:rows2]), edges2)


class PygLoaderStep:
    """NeighborLoader, then the whole or the trimmed subgraph."""

    def __init__(self, problem: Problem, *, trimmed: bool) -> None:
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader
        from torch_geometric.typing import SparseTensor  # noqa: F401

        self.model, self.is_trimmed = PygSage(problem.num_features), trimmed
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        data = Data(x=torch.from_numpy(problem.x), y=torch.from_numpy(problem.y))
        indptr = torch.from_numpy(problem.graph.indptr)
        row = torch.from_numpy(problem.graph.indices.astype(np.int64))
        data.edge_index = torch.stack(
            [row, torch.repeat_interleave(torch.arange(problem.graph.num_nodes), indptr.diff())]
        )
        seeds = torch.from_numpy(np.concatenate(problem.seeds))
        loader = NeighborLoader(
            data, num_neighbors=list(FANOUTS), batch_size=len(problem.seeds[0]), input_nodes=seeds, is_sorted=True
        )
        self.batches = iter(loader)

    def step(self, _: int) -> None:
        batch = next(self.batches)
        self.optimizer.zero_grad()
        if self.is_trimmed:
            out = self.model.trimmed(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        else:
            out = self.model(batch.x, batch.edge_index)
        F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size]).backward()
        self.optimizer.step()


class PygBestStep:
    """pyg-lib's sampler, bipartite calls, edges in one of FORMS.

    `sample` is called as `torch.ops.pyg.neighbor_sample` is; tests pass another.
    """

    FORMS = ("edge_index", "CSR", "CSR, global ids")

    def __init__(self, problem: Problem, form: str, sample: Callable | None = None) -> None:
        if sample is None:
            import pyg_lib  # noqa: F401

            sample = torch.ops.pyg.neighbor_sample
        self.problem, self.form, self.sample = problem, form, sample
        self.model = PygSage(problem.num_features)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        self.colptr = torch.from_numpy(problem.graph.indptr)
        self.row = torch.from_numpy(problem.graph.indices.astype(np.int64))
        self.x, self.y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
        self.buffer = torch.empty(0)

    def step(self, number: int) -> None:
        seeds = torch.from_numpy(self.problem.seeds[number])
        sampled = self.sample(self.colptr, self.row, seeds, list(FANOUTS), csc=True, return_edge_id=False)
        self.optimizer.zero_grad()
        F.cross_entropy(self.forward(sampled), self.y[seeds]).backward()
        self.optimizer.step()

    def forward(self, sampled: tuple) -> Tensor:
        """Logits of the seeds."""
        row, col, nodes, _, nodes_per_hop, edges_per_hop = sampled
        rows1, rows2, first = nodes_per_hop[0] + nodes_per_hop[1], nodes_per_hop[0], edges_per_hop[0]
        edges2 = self._edges(row[:first], col[:first], rows2, rows1)
        if self.form == "CSR, global ids":
            edges1 = self._edges(nodes[row], col, rows1, len(self.x))
            return self.model.bipartite(self.x, self._gathered(nodes[:rows1]), edges1, edges2, rows2)
        x = self._gathered(nodes)
        return self.model.bipartite(x, x[:rows1], self._edges(row, col, rows1, len(nodes)), edges2, rows2)

    def _gathered(self, nodes: Tensor) -> Tensor:
        """Their features, in a buffer that is used again."""
        size = len(nodes) * self.x.shape[1]
        if self.buffer.numel() < size:
            self.buffer = torch.empty(size * 9 // 8)
        return torch.index_select(self.x, 0, nodes, out=self.buffer[:size].view(len(nodes), -1))

    def _edges(self, row: Tensor, col: Tensor, num_rows: int, num_columns: int) -> Tensor:
        if self.form == "edge_index":
            return torch.stack([row, col])
        indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(col, minlength=num_rows), 0, out=indptr[1:])
        return torch.sparse_csr_tensor(indptr, row, torch.ones(len(row)), size=(num_rows, num_columns))


def pyg_best_forms(problem: Problem) -> dict[str, PygBestStep]:
    """One of each, where pyg-lib is installed."""
    try:
        import pyg_lib  # noqa: F401
    except ImportError:
        print("pyg-lib is not installed: PyG's best forms are left out")
        return {}
    return {f"PyG best ({form})": PygBestStep(problem, form) for form in PygBestStep.FORMS}
