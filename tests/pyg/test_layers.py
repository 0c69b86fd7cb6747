"""PyG's layers on graphmill's operators: its results, gradients and `state_dict`, and PyG's code where it must."""

import copy
import weakref
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from rounding import Bounded, assert_within
from torch import Tensor, nn

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric import EdgeIndex
from torch_geometric import nn as peers
from torch_geometric.utils import trim_to_layer

from graphmill import pyg
from graphmill.pyg import layer_edges

IN, OUT, RELATIONS, EDGE_DIM = 6, 5, 4, 3
NAMES = ("SAGEConv", "GCNConv", "GINConv", "RGCNConv", "GATConv", "GATv2Conv")
ATTENTION = {"GATConv", "GATv2Conv"}


def edges_of(kind: str) -> tuple[int, Tensor]:
    """(num_nodes, edge_index) of a kind of graph; nodes from 12 on are isolated in all but one."""
    generator = torch.Generator().manual_seed(3)
    twice_and_loops = torch.tensor([[5, 5, 1, 1, 2], [3, 3, 1, 1, 2]])
    drawn = torch.cat([torch.randint(12, (2, 55), generator=generator), twice_and_loops], dim=1)
    made = {
        "unsorted": drawn,
        "sorted": drawn[:, drawn[1].argsort(stable=True)],
        "transposed memory": drawn.t().contiguous().t(),
        "no edges": drawn[:, :0],
        "one row": torch.stack([drawn[0], torch.full_like(drawn[0], 15)]),
    }
    return 16, made[kind]


def arguments_of(name: str, options: dict[str, object]) -> tuple[object, ...]:
    return {
        "SAGEConv": (IN, OUT),
        "GCNConv": (IN, OUT),
        "GINConv": (nn.Linear(IN, OUT),),
        "RGCNConv": (IN, OUT, RELATIONS),
        "GATConv": (IN, OUT, 2),
        "GATv2Conv": (IN, OUT, 2),
    }[name]


def pair(name: str, *arguments: object, **options: object) -> tuple[nn.Module, nn.Module]:
    """Our layer and PyG's, with the weights of PyG's."""
    torch.manual_seed(0)
    arguments = arguments or arguments_of(name, options)
    theirs = getattr(peers, name)(*copy.deepcopy(arguments), **options)
    with torch.no_grad():
        for parameter in theirs.parameters():  # some begin at zero, which would hide them
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ours = getattr(pyg, name)(*copy.deepcopy(arguments), **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def beside(name: str, num_edges: int, *, edge_dim: int | None = EDGE_DIM) -> tuple[Tensor, ...]:
    """What the layer takes beside x and edge_index."""
    generator = torch.Generator().manual_seed(4)
    if name == "RGCNConv":
        return (torch.randint(RELATIONS, (num_edges,), generator=generator),)
    if name in ATTENTION and edge_dim is not None:
        return (torch.randn(num_edges, edge_dim, generator=generator),)
    return ()


def results(layer: nn.Module, x: object, edge_index: Tensor, *rest: Tensor, dtype=torch.float32, sign=False):
    """Output, and gradients of a loss that weighs every value differently; `sign`: of what is absolute."""

    def given(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return (tensor.abs() if sign else tensor).to(dtype).detach().clone().requires_grad_()

    layer = copy.deepcopy(layer).to(dtype)
    if sign:
        for parameter in layer.parameters():
            parameter.data.abs_()
    ends = tuple(given(each) for each in x) if isinstance(x, tuple) else given(x)
    others = [given(each) for each in rest]
    out = layer(ends, edge_index, *others)
    weights = torch.linspace(-1, 2, out.numel(), dtype=dtype).view_as(out)
    inputs = {f"x{i}": each for i, each in enumerate(ends if isinstance(ends, tuple) else (ends,))}
    inputs |= {f"rest{i}": each for i, each in enumerate(others) if each.requires_grad} | dict(layer.named_parameters())
    loss = (out * (weights.abs() if sign else weights)).sum()
    gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    named = dict(zip(inputs, gradients, strict=True))
    return {"out": out.detach()} | {n: g for n, g in named.items() if g is not None}


def assert_pygs(ours: nn.Module, theirs: nn.Module, x: object, edge_index: Tensor, *rest: Tensor) -> None:
    """Each value as near to PyG's in float64 as roundings of its terms allow.

    A layer without attention is a sum of products of its inputs and parameters, and so are its gradients: their terms'
    absolute values add up to what the layer gives for absolute inputs. One with attention is compared by its largest
    value; its operator's own tests hold bounds.
    """
    found = results(ours, x, edge_index, *rest)
    exact = results(theirs, x, edge_index, *rest, dtype=torch.float64)
    assert exact.keys() <= found.keys()
    for key in found.keys() - exact.keys():  # features of no edges: PyG does not read their weights at all
        assert not found[key].any(), key
    if type(theirs).__name__ in ATTENTION or (
        getattr(theirs, "normalize", False) is True and hasattr(theirs, "project")
    ):
        for key, value in exact.items():
            assert found[key].shape == value.shape
            scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
            assert bool(((found[key] - value).abs() <= 1e-5 * scale).all()), key
        return
    size = results(theirs, x, edge_index, *rest, dtype=torch.float64, sign=True)
    num_nodes = len(x[0]) + len(x[1]) if isinstance(x, tuple) else len(x)
    roundings = edge_index.shape[1] + num_nodes + 4 * (IN + OUT) + 20  # the longest sums, one after another
    for key, value in exact.items():
        assert_within(found[key], Bounded(value, roundings * size[key]))


@pytest.fixture
def pygs_code(monkeypatch) -> Callable[[str], list[int]]:
    """A list that grows by 1 with each call of the forward of PyG's class."""

    def watch(name: str) -> list[int]:
        calls: list[int] = []
        peer = getattr(peers, name)
        forward = peer.forward

        def counted(self, *arguments, **options):
            calls.append(1)
            return forward(self, *arguments, **options)

        monkeypatch.setattr(peer, "forward", counted)
        return calls

    return watch


KINDS = ["unsorted", "sorted", "transposed memory", "no edges", "one row"]
OPTIONS: list[tuple[str, dict[str, object]]] = [
    ("SAGEConv", {}),
    ("SAGEConv", {"aggr": "sum", "root_weight": False}),
    ("SAGEConv", {"aggr": "add", "bias": False}),
    ("SAGEConv", {"root_weight": False, "bias": False}),
    ("SAGEConv", {"normalize": True}),
    ("GCNConv", {}),
    ("GCNConv", {"bias": False, "add_self_loops": False}),
    ("GCNConv", {"normalize": False}),
    ("GCNConv", {"improved": True}),
    ("GINConv", {}),
    ("GINConv", {"eps": 0.3, "train_eps": True, "aggr": "mean"}),
    ("RGCNConv", {}),
    ("RGCNConv", {"num_bases": 2}),
    ("RGCNConv", {"aggr": "sum", "root_weight": False}),
    ("RGCNConv", {"bias": False, "root_weight": False}),
    ("GATConv", {"edge_dim": EDGE_DIM}),
    ("GATConv", {"edge_dim": EDGE_DIM, "add_self_loops": False, "concat": False}),
    ("GATConv", {"edge_dim": EDGE_DIM, "fill_value": "max", "residual": True, "bias": False}),
    ("GATv2Conv", {"edge_dim": EDGE_DIM}),
    ("GATv2Conv", {"edge_dim": EDGE_DIM, "share_weights": True, "concat": False, "residual": True}),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_pygs_results_and_gradients(name, options, kind, pygs_code):
    num_nodes, edge_index = edges_of(kind)
    ours, theirs = pair(name, **options)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1])
    assert_pygs(ours, theirs, x, edge_index, *rest)
    calls = pygs_code(name)
    ours(x, edge_index, *rest)
    assert not calls


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_attention_without_features_of_edges(name, pygs_code):
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = pair(name)
    assert_pygs(ours, theirs, torch.randn(num_nodes, IN), edge_index)
    ours, theirs = pair(name, IN, OUT, edge_dim=1)
    assert_pygs(ours, theirs, torch.randn(num_nodes, IN), edge_index, torch.randn(edge_index.shape[1]))
    calls = pygs_code(name)
    ours(torch.randn(num_nodes, IN), edge_index, torch.randn(edge_index.shape[1]))
    assert not calls


@pytest.mark.parametrize("name", ["SAGEConv", "GINConv", "RGCNConv", "GATConv", "GATv2Conv"])
@pytest.mark.parametrize("num_targets", [16, 20])
def test_two_sorts_of_nodes(name, num_targets, pygs_code):
    _, edge_index = edges_of("unsorted")
    widths = (IN, IN) if name == "GINConv" else (IN, IN + 1)
    first = {"GINConv": nn.Linear(IN, OUT)}.get(name, widths)
    rest = {"GINConv": (), "RGCNConv": (OUT, RELATIONS)}.get(name, (OUT,))
    ours, theirs = pair(name, first, *rest)
    x = (torch.randn(14, widths[0]), torch.randn(num_targets, widths[1]))
    beside_them = beside(name, edge_index.shape[1], edge_dim=None)
    assert_pygs(ours, theirs, x, edge_index, *beside_them)
    calls = pygs_code(name)
    ours(x, edge_index, *beside_them)
    assert not calls


@pytest.mark.parametrize("name", ["SAGEConv", "GINConv", "GATConv"])
def test_targets_without_rows(name, pygs_code):
    _, edge_index = edges_of("unsorted")
    ours, theirs = pair(name)
    x, size = torch.randn(14, IN), (14, 18)
    with torch.no_grad():
        expected = theirs.double()((x.double(), None), edge_index, size=size)
        calls = pygs_code(name)
        found = ours((x, None), edge_index, size=size)
    assert not calls
    assert torch.allclose(found.double(), expected, atol=1e-5)


@pytest.mark.parametrize("in_channels", [2, 40])
@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv"])
@pytest.mark.parametrize("is_leaf", [True, False])
def test_either_order_of_sum_and_product(name, in_channels, is_leaf):
    """What is narrower is read along the edges."""
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = pair(name, in_channels, OUT)
    x = torch.randn(num_nodes, in_channels)
    if is_leaf:
        assert_pygs(ours, theirs, x, edge_index)
    else:
        with torch.no_grad():
            assert torch.allclose(ours(x, edge_index).double(), theirs.double()(x.double(), edge_index), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"improved": True}, {"normalize": False}], ids=str)
def test_weights_of_edges(options, pygs_code):
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = pair("GCNConv", **options)
    x, weight = torch.randn(num_nodes, IN), torch.rand(edge_index.shape[1])
    with torch.no_grad():
        expected = theirs.double()(x.double(), edge_index, weight.double())
    calls = pygs_code("GCNConv")
    found, unweighted = ours(x, edge_index, weight), ours(x, edge_index)
    assert not calls
    assert torch.allclose(found.double(), expected, atol=1e-5)
    assert not torch.allclose(found, unweighted, atol=1e-3)
    assert torch.equal(ours(x, edge_index, weight), found)  # from what is kept
    weight.mul_(3)
    changed = ours(x, edge_index, weight)
    assert torch.allclose(changed.double(), theirs(x.double(), edge_index, weight.double()), atol=1e-5)
    assert not torch.allclose(changed, found, atol=1e-3)


def test_weights_that_learn_are_pygs(pygs_code):
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = pair("GCNConv")
    x = torch.randn(num_nodes, IN)
    weights = [torch.full((edge_index.shape[1],), 0.5, requires_grad=True) for _ in range(2)]
    calls = pygs_code("GCNConv")
    for layer, weight in zip((ours, theirs), weights, strict=True):
        layer(x, edge_index, weight).square().sum().backward()
    assert len(calls) == 2
    assert torch.equal(weights[0].grad, weights[1].grad)


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_go_both_ways(name):
    options = {"edge_dim": EDGE_DIM} if name in ATTENTION else {}
    ours, theirs = pair(name, **options)
    assert isinstance(ours, getattr(peers, name))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    fresh = getattr(peers, name)(*arguments_of(name, {}), **options)
    fresh.load_state_dict(ours.state_dict())
    for key, value in theirs.state_dict().items():
        assert torch.equal(value, fresh.state_dict()[key])
    assert repr(ours) == repr(theirs)
    assert torch.equal(next(iter(copy.deepcopy(ours).parameters())), next(iter(ours.parameters())))


@pytest.mark.parametrize("name", NAMES)
def test_float64_is_pygs(name, pygs_code):
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = (each.double() for each in pair(name))
    x, rest = torch.randn(num_nodes, IN, dtype=torch.float64), beside(name, edge_index.shape[1], edge_dim=None)
    expected, calls = theirs(x, edge_index, *rest), pygs_code(name)
    assert torch.equal(ours(x, edge_index, *rest), expected)
    assert calls == [1]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SAGEConv", {"aggr": "max"}),
        ("SAGEConv", {"aggr": "lstm"}),
        ("SAGEConv", {"aggr": ["mean", "max"]}),
        ("SAGEConv", {"project": True}),
        ("SAGEConv", {"flow": "target_to_source"}),
        ("GCNConv", {"cached": True}),
        ("GCNConv", {"aggr": "max"}),
        ("GINConv", {"aggr": "max"}),
        ("RGCNConv", {"aggr": "max"}),
        ("GATConv", {"aggr": "mean"}),
        ("GATv2Conv", {"aggr": "mean"}),
    ],
    ids=str,
)
def test_options_that_are_pygs(name, options, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair(name, **options)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    expected, calls = theirs(x, edge_index, *rest), pygs_code(name)
    assert torch.equal(ours(x, edge_index, *rest), expected)
    assert calls == [1]


def test_blocks_of_relations_are_pygs(pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair("RGCNConv", IN, 2 * IN, RELATIONS, num_blocks=2)
    x, rest = torch.randn(num_nodes, IN), beside("RGCNConv", edge_index.shape[1])
    expected, calls = theirs(x, edge_index, *rest), pygs_code("RGCNConv")
    assert torch.equal(ours(x, edge_index, *rest), expected)
    assert calls == [1]


def test_a_relation_out_of_range_raises_what_pyg_raises():
    num_nodes, edge_index = edges_of("sorted")
    x, edge_type = torch.randn(num_nodes, IN), torch.full((edge_index.shape[1],), RELATIONS)
    for layer in pair("RGCNConv"):
        with pytest.raises(RuntimeError, match="out of bounds"):
            layer(x, edge_index, edge_type)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_alpha_is_pygs(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair(name)
    x = torch.randn(num_nodes, IN)
    (out, (edges, alpha)), calls = theirs(x, edge_index, return_attention_weights=True), pygs_code(name)
    found, (found_edges, found_alpha) = ours(x, edge_index, return_attention_weights=True)
    assert torch.equal(out, found)
    assert torch.equal(edges, found_edges)
    assert torch.equal(alpha, found_alpha)
    assert calls == [1]


@pytest.mark.parametrize("name", NAMES)
def test_other_forms_of_edges_are_pygs(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair(name)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    index = EdgeIndex(edge_index, sparse_size=(num_nodes, num_nodes))
    expected, calls = theirs(x, index, *rest), pygs_code(name)
    assert torch.equal(ours(x, index, *rest), expected)
    assert calls == [1]


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GINConv"])
def test_a_sparse_adjacency_is_pygs(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair(name)
    x = torch.randn(num_nodes, IN)
    adjacency = torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.shape[1]), (num_nodes,) * 2).coalesce()
    adjacency = adjacency.to_sparse_csr()
    expected, calls = theirs(x, adjacency), pygs_code(name)
    assert torch.equal(ours(x, adjacency), expected)
    assert calls == [1]


@pytest.mark.parametrize("name", NAMES)
def test_hooks_and_overridden_steps_are_pygs(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair(name)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    seen = []
    handle = ours.register_message_forward_hook(lambda *_: seen.append(1))
    calls = pygs_code(name)
    assert torch.equal(ours(x, edge_index, *rest), theirs(x, edge_index, *rest))
    assert seen
    assert len(calls) == 2
    handle.remove()
    ours(x, edge_index, *rest)
    assert len(calls) == 2
    ours.message = lambda x_j, **_: x_j
    ours(x, edge_index, *rest)
    assert len(calls) == 3


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv", "GATv2Conv"])
def test_a_hook_on_a_part_is_called(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, _ = pair(name)
    part = ours.lin if hasattr(ours, "lin") else ours.lin_l
    part.register_forward_hook(lambda _module, _inputs, out: out * 0 + 1)
    calls = pygs_code(name)
    ours(torch.randn(num_nodes, IN), edge_index)
    assert calls == [1]


def test_compiled_and_transformed_layers_are_pygs(pygs_code, monkeypatch):
    num_nodes, edge_index = edges_of("sorted")
    ours, theirs = pair("SAGEConv")
    x = torch.randn(num_nodes, IN)
    expected = theirs(x, edge_index)
    calls = pygs_code("SAGEConv")
    with monkeypatch.context() as patched:
        patched.setattr(torch.compiler, "is_compiling", lambda: True)
        assert torch.equal(ours(x, edge_index), expected)
    assert calls == [1]
    found = torch.func.grad(lambda x: ours(x, edge_index).sum())(x)
    assert len(calls) == 2
    leaf = x.clone().requires_grad_()
    theirs(leaf, edge_index).sum().backward()
    assert torch.allclose(found, leaf.grad, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours(x, edge_index), theirs(x, edge_index))


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv", "GATv2Conv"])
def test_a_lazy_layer_takes_its_shape_and_then_is_fused(name, pygs_code):
    num_nodes, edge_index = edges_of("sorted")
    ours, calls = getattr(pyg, name)(-1, OUT), pygs_code(name)
    x = torch.randn(num_nodes, IN)
    first = ours(x, edge_index)
    assert calls == [1]
    assert torch.allclose(ours(x, edge_index), first, atol=1e-5)
    assert calls == [1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("place", "node"), [(0, 16), (1, 16), (0, -1)])
def test_an_edge_to_no_node_raises_what_pyg_raises(name, place, node):
    num_nodes, edge_index = edges_of("sorted")
    edge_index = edge_index.clone()
    edge_index[place, 7] = node
    ours, theirs = pair(name)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs_raised:
        theirs(x, edge_index, *rest)
    with pytest.raises(theirs_raised.type):
        ours(x, edge_index, *rest)


@pytest.mark.parametrize("name", NAMES)
def test_features_of_another_width_raise_what_pyg_raises(name):
    num_nodes, edge_index = edges_of("sorted")
    ours, _ = pair(name)
    with pytest.raises(RuntimeError, match=r"shape|size|dimension"):
        ours(torch.randn(num_nodes, IN + 1), edge_index, *beside(name, edge_index.shape[1], edge_dim=None))


def test_a_second_derivative_raises():
    num_nodes, edge_index = edges_of("sorted")
    ours, _ = pair("SAGEConv")
    x = torch.randn(num_nodes, IN, requires_grad=True)
    (grad,) = torch.autograd.grad(ours(x, edge_index).square().sum(), x, create_graph=True)
    with pytest.raises(UserError, match="first derivatives"):
        grad.sum().backward()


# ---- what is kept with edge_index ------------------------------------------------------------------------------------


def test_edges_are_made_once_and_go_with_the_tensor(monkeypatch):
    num_nodes, edge_index = edges_of("unsorted")
    edge_index, made = edge_index.clone(), []
    compress = layer_edges._native.compress
    monkeypatch.setattr(layer_edges._native, "compress", lambda *each: made.append(1) or compress(*each))
    first, second = pair("SAGEConv")[0], pair("GINConv")[0]
    x = torch.randn(num_nodes, IN)
    for layer in (first, second, first):
        layer(x, edge_index).sum().backward()
    assert made == [1]
    assert edge_index in layer_edges._made
    watched = weakref.ref(edge_index)
    del edge_index
    assert watched() is None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_holds_no_edge_index(name):
    num_nodes, edge_index = edges_of("unsorted")
    edge_index = edge_index.clone()
    ours, _ = pair(name)
    watched = weakref.ref(edge_index)
    ours(torch.randn(num_nodes, IN), edge_index, *beside(name, edge_index.shape[1], edge_dim=None)).sum().backward()
    assert edge_index in layer_edges._made
    del edge_index
    assert watched() is None


@pytest.mark.parametrize("name", NAMES)
def test_edges_that_are_changed_in_place_are_read_again(name):
    num_nodes, edge_index = edges_of("unsorted")
    edge_index = edge_index.clone()
    ours, theirs = pair(name)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    first = ours(x, edge_index, *rest)
    edge_index.copy_(edge_index.flip(0))
    found = ours(x, edge_index, *rest)
    assert not torch.allclose(first, found, atol=1e-3)
    assert torch.allclose(found, theirs(x, edge_index, *rest), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_and_then_with(name, mode):
    num_nodes, edge_index = edges_of("unsorted")
    ours, theirs = pair(name)
    x, rest = torch.randn(num_nodes, IN), beside(name, edge_index.shape[1], edge_dim=None)
    with mode():
        own_edges = edge_index.clone()  # under inference mode, a tensor without versions
        found = ours(x, own_edges, *rest)
        assert torch.allclose(found, theirs(x, edge_index, *rest), atol=1e-5)
        assert not ours(x, edge_index, *rest).requires_grad
    assert_pygs(ours, theirs, x, edge_index, *rest)


def test_dropout_of_attention_follows_torchs_generator():
    num_nodes, edge_index = edges_of("unsorted")
    for name in sorted(ATTENTION):
        ours, theirs = pair(name, dropout=0.5)
        x = torch.randn(num_nodes, IN)
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(ours(x, edge_index))
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])
        assert torch.allclose(ours.eval()(x, edge_index), theirs.eval()(x, edge_index), atol=1e-5)


# ---- models on batches -----------------------------------------------------------------------------------------------


class Stack(nn.Module):
    """Two layers, on the whole subgraph or on what each layer needs of it."""

    def __init__(self, library: object, name: str, widths: list[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        conv = getattr(library, name)
        self.name = name
        of_gin = name == "GINConv"
        self.convs = nn.ModuleList(
            conv(nn.Linear(a, b)) if of_gin else conv(a, b, *([RELATIONS] if name == "RGCNConv" else []))
            for a, b in pairwise(widths)
        )

    def forward(self, x, edge_index, edge_type, *, nodes=None, edges=None):
        for number, conv in enumerate(self.convs):
            if nodes is not None:
                x, edge_index, edge_type = trim_to_layer(number, nodes, edges, x, edge_index, edge_type)
            x = conv(x, edge_index, edge_type) if self.name == "RGCNConv" else conv(x, edge_index)
            x = x.relu() if number + 1 < len(self.convs) else x
        return x


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_model_trained_on_batches(name, is_trimmed, data, pygs_code):
    """Losses fall together: each step's is PyG's to what roundings of the steps before it add up to."""
    loader = graphmill.NeighborLoader(data, num_neighbors=[4, 3], batch_size=100, shuffle=True, seed=2)
    losses = []
    calls = pygs_code(name)
    for library in (pyg, peers):
        model = Stack(library, name, [12, 16, 4])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loader.load_state_dict({"epoch": 0, "step": 0, "seed": 2})
        found = []
        for batch in loader:
            trimmed = {"nodes": batch.num_sampled_nodes, "edges": batch.num_sampled_edges} if is_trimmed else {}
            out = model(batch.x, batch.edge_index, batch.edge_attr % RELATIONS, **trimmed)[: batch.batch_size]
            loss = nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
        if library is pyg:
            assert not calls
    assert len(losses[0]) == len(losses[1]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
