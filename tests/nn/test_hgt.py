"""HGT and R-SAGE against PyG's layers with the same weights, on graphs of several types."""

import pytest
import torch
from rounding import Bounded, assert_within
from torch import Tensor
from torch_geometric.nn import HGTConv, SAGEConv
from torch_geometric.nn.conv import HeteroConv

from graphmill.nn.attention.edges import group_edges
from graphmill.nn.edge_dots import edge_dots
from graphmill.nn.hgt import Groups, HgtLayer
from graphmill.nn.relations import RelationEdges, TypedRows, taken
from graphmill.nn.rgcn import RelationalLayer

TYPES = ("paper", "author", "field")
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "of", "field"),
    ("paper", "by", "author"),
)
COUNTS = (40, 25, 8)


def graph(seed: int) -> tuple[Tensor, dict[tuple[str, str, str], Tensor], RelationEdges, Tensor]:
    """Types of nodes, which are mixed; edges as PyG has them, and as we do: the first 30 rows have edges."""
    generator = torch.Generator().manual_seed(seed)
    types = torch.repeat_interleave(torch.arange(3), torch.tensor(COUNTS))
    types = types[torch.randperm(len(types), generator=generator)]
    of_type = [torch.nonzero(types == number).flatten() for number in range(3)]
    place = torch.empty(len(types), dtype=torch.int64)
    for nodes in of_type:
        place[nodes] = torch.arange(len(nodes))
    edge_index_dict, rows, sources, relations = {}, [], [], []
    for number, (source, _, target) in enumerate(RELATIONS):
        from_, to = of_type[TYPES.index(source)], of_type[TYPES.index(target)]
        to = to[to < 30]
        edges = torch.stack([each[torch.randint(len(each), (90,), generator=generator)] for each in (from_, to)])
        edges = edges[:, torch.unique(edges[1] * len(types) + edges[0], return_inverse=True)[1].argsort()]
        edge_index_dict[RELATIONS[number]] = place[edges]
        sources.append(edges[0])
        rows.append(edges[1])
        relations.append(torch.full((edges.shape[1],), number))
    row = torch.cat(rows)
    order = torch.argsort(row, stable=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(row, minlength=30).cumsum(0)])
    edges = RelationEdges(indptr, torch.cat(sources)[order].int(), torch.cat(relations)[order], len(RELATIONS))
    return types, edge_index_dict, edges, place


def by_type(x: Tensor, types: Tensor) -> dict[str, Tensor]:
    return {name: x[types == number] for number, name in enumerate(TYPES)}


def in_order(rows: dict[str, Tensor], types: Tensor, place: Tensor, count: int) -> Tensor:
    return torch.stack([rows[TYPES[types[node]]][place[node]] for node in range(count)])


@pytest.mark.parametrize("heads", [1, 4])
def test_a_layer_is_pygs(heads):
    """Results and gradients, in float64 on PyG's side."""
    torch.manual_seed(0)
    types, edge_index_dict, edges, place = graph(1)
    width = 16
    layer = HgtLayer(width, heads, num_relations=len(RELATIONS), num_node_types=3)
    layer.reset_parameters(torch.Generator().manual_seed(3))
    with torch.no_grad():
        for each in (layer.key_bias, layer.query_bias, layer.value_bias, layer.out_bias, layer.prior, layer.skip):
            each.normal_()
    peer = HGTConv(width, width, (list(TYPES), list(RELATIONS)), heads).double()
    with torch.no_grad():
        for number, name in enumerate(TYPES):
            lin = peer.kqv_lin.lins[name]
            of_type = (layer.key, layer.query, layer.value), (layer.key_bias, layer.query_bias, layer.value_bias)
            lin.weight.copy_(torch.cat([each[number] for each in of_type[0]]))
            lin.bias.copy_(torch.cat([each[number] for each in of_type[1]]))
            peer.out_lin.lins[name].weight.copy_(layer.out[number])
            peer.out_lin.lins[name].bias.copy_(layer.out_bias[number])
            peer.skip[name].fill_(layer.skip[number].item())
        for number, relation in enumerate(RELATIONS):
            places = [peer.edge_types_map[relation] + len(RELATIONS) * head for head in range(heads)]
            peer.k_rel.weight[places] = layer.key_relation[number].double()
            peer.v_rel.weight[places] = layer.value_relation[number].double()
            peer.p_rel["__".join(relation)].copy_(layer.prior[number])
    x = torch.randn(len(types), width)
    mine = x.clone().requires_grad_()
    theirs = x.double().requires_grad_()
    added, rest = layer(mine, types, edges, Groups.of((1, 0, 0, 0), 3))
    out = added + rest * mine[:30]
    found = peer(by_type(theirs, types), edge_index_dict)
    expected = in_order(found, types, place, 30)
    # 1e-4: some hundred roundings of numbers below 10, in sums of 16 and of as many edges as a row has
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    grad = torch.randn(30, width)
    out.backward(grad)
    expected.backward(grad.double())
    torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-4, atol=1e-3)
    for number, name in enumerate(TYPES[:2]):
        wanted = peer.kqv_lin.lins[name].weight.grad
        got = torch.cat([layer.key.grad[number], layer.query.grad[number], layer.value.grad[number]]).double()
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def test_r_sage_is_pygs_sage_by_relation():
    """`HeteroConv` of SAGEConv with aggr="sum": own matrices of the relations to a type add up."""
    torch.manual_seed(0)
    types, edge_index_dict, edges, place = graph(2)
    peer = HeteroConv({each: SAGEConv((6, 6), 5) for each in RELATIONS}, aggr="sum").double()
    layer = RelationalLayer(
        6, 5, num_relations=len(RELATIONS), num_bases=None, num_node_types=3, training_dtype=torch.float32
    )
    with torch.no_grad():
        layer.root.zero_()
        for number, relation in enumerate(RELATIONS):
            conv, target = peer.convs[relation], TYPES.index(relation[2])
            layer.weight[number] = conv.lin_l.weight
            layer.root[target] += conv.lin_r.weight
            layer.bias[target] += conv.lin_l.bias
    x = torch.randn(len(types), 6)
    found = peer(by_type(x.double(), types), edge_index_dict)
    expected = in_order(found, types, place, 30)
    out = layer(x, types, edges, None)
    torch.testing.assert_close(out.double(), expected.double(), rtol=1e-5, atol=1e-5)


def test_rows_by_type():
    generator = torch.Generator().manual_seed(0)
    types = torch.randint(0, 4, (50,), generator=generator) * 2  # two types have no row
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((50, 7), (8, 3, 7), (8, 3)))
    out = TypedRows.of(types, 8).linear(x, weight, bias)
    for row, kind in enumerate(types.tolist()):
        assert_within(out[row : row + 1], Bounded.of(x[row : row + 1]) @ Bounded.of(weight[kind]).t() + bias[kind])
    some = torch.tensor([3, 3, 0], dtype=torch.int32)
    assert torch.equal(taken(x, some), x[some.long()])


@pytest.mark.parametrize(("heads", "channels"), [(1, 1), (3, 5), (4, 16), (2, 33)])
@pytest.mark.parametrize("threads", [1, 2])
def test_dots_of_edges_and_their_gradients(heads, channels, threads):
    generator = torch.Generator().manual_seed(heads)
    edge_index = torch.stack(
        [torch.randint(0, 70, (300,), generator=generator), torch.randint(0, 50, (300,), generator=generator)]
    )
    q, k = (torch.randn(n, heads * channels, generator=generator) for n in (50, 70))
    leaves = [each.clone().requires_grad_() for each in (q, k)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = edge_dots(*leaves, heads, group_edges(edge_index, 70, 50, 0))
        grad = torch.randn(300, heads, generator=generator)
        found = [out, *torch.autograd.grad(out, leaves, grad)]
    finally:
        torch.set_num_threads(before)
    exact = [each.double().requires_grad_() for each in (q, k)]
    wanted = (exact[0][edge_index[1]] * exact[1][edge_index[0]]).unflatten(1, (heads, channels)).sum(-1)
    wanted_grads = torch.autograd.grad(wanted, exact, grad.double())
    for mine, theirs in zip(found, [wanted, *wanted_grads], strict=True):
        # sums of at most 40 products of numbers below 5: 40 roundings of 2^-24 each of at most 40 * 25
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=40 * 2**-24 * 1000)


def test_dots_without_edges():
    groups = group_edges(torch.empty(2, 0, dtype=torch.int64), 3, 2, 0)
    assert edge_dots(torch.randn(2, 4), torch.randn(3, 4), 2, groups).shape == (0, 2)
