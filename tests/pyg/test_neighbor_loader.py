"""`graphmill.NeighborLoader` for PyG users: batches that PyG's models take as they are."""

import copy
from itertools import pairwise

import pytest
import torch
from rounding import Bounded, assert_within, magnitude
from torch import nn

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer


class Stack(nn.Module):
    """What PyG's tutorials build; `trimmed` calls it with the per-hop counts."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))

    def forward(self, x, edge_index, *, nodes=None, edges=None):
        for number, conv in enumerate(self.convs):
            if nodes is not None:
                x, edge_index, _ = trim_to_layer(number, nodes, edges, x, edge_index)
            x = conv(x, edge_index)
            x = x.relu() if number + 1 < len(self.convs) else x
        return x


def exact_output(model: Stack, x, edge_index) -> Bounded:
    """In float64; a layer adds up the products with both weights, a bias, and the mean of a node's in-neighbours."""
    degree = int(torch.bincount(edge_index[1], minlength=1).max())
    roundings = sum(conv.in_channels + 2 + conv.in_channels + 2 + degree for conv in model.convs)
    size = magnitude(model, x, edge_index)
    return Bounded(copy.deepcopy(model).double()(x.double(), edge_index).detach(), roundings * size)


def same_batch(one: Data, other: Data) -> bool:
    names = ("x", "y", "edge_index", "n_id", "e_id", "input_id", "edge_attr")
    return all(torch.equal(one[name], other[name]) for name in names)


def loader_of(data, **options):
    return graphmill.NeighborLoader(data, **{"num_neighbors": [4, 3], "batch_size": 25, **options})


def test_a_batch_has_all_that_pyg_gives(data):
    for batch in loader_of(data, input_nodes=data.train_mask):
        assert isinstance(batch, Data)
        n_id, seeds = batch.n_id, batch.n_id[: batch.batch_size]
        assert len(n_id.unique()) == len(n_id) == batch.num_nodes == sum(batch.num_sampled_nodes)
        assert batch.num_sampled_nodes[0] == batch.batch_size
        assert batch.edge_index.shape == (2, sum(batch.num_sampled_edges))
        assert torch.equal(batch.x, data.x[n_id])
        assert torch.equal(batch.y, data.y[n_id])
        assert batch.scale == 3, "what belongs to the whole graph is passed on"
        assert torch.equal(batch.train_mask, data.train_mask[n_id])
        assert torch.equal(n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.input_id, seeds)
        rows, counts = batch.edge_index[1].unique(return_counts=True)
        first_hop = rows < batch.batch_size
        assert counts[first_hop].max() <= 4
        assert counts[~first_hop].max() <= 3


def test_an_epoch_is_the_input_nodes(data):
    loader = loader_of(data, input_nodes=data.train_mask, shuffle=True)
    seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
    assert torch.equal(seeds.sort().values, data.train_mask.nonzero().view(-1))
    again = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
    assert not torch.equal(seeds, again), "the next epoch is shuffled anew"


def test_without_shuffling_the_order_is_the_given_one(data):
    nodes = torch.tensor([7, 3, 200, 11, 42])
    batches = list(loader_of(data, input_nodes=nodes, batch_size=2))
    assert torch.cat([batch.n_id[: batch.batch_size] for batch in batches]).tolist() == nodes.tolist()
    assert torch.cat([batch.input_id for batch in batches]).tolist() == [0, 1, 2, 3, 4]


def test_all_neighbours_give_the_whole_graphs_output(data):
    model = Stack([12, 16, 16, 4]).eval()
    with torch.no_grad():
        whole = exact_output(model, data.x, data.edge_index)
        for batch in loader_of(data, num_neighbors=[-1, -1, -1], batch_size=64):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            assert_within(out, whole[batch.n_id[: batch.batch_size]])


@pytest.mark.parametrize("fanouts", [[4, 3, 2], [-1, 2, -1]])
def test_trim_to_layer_gives_the_same_output(data, fanouts):
    """The nodes and edges of a hop stand together, as trimming needs."""
    model = Stack([12, 16, 16, 4]).eval()
    with torch.no_grad():
        for batch in loader_of(data, num_neighbors=fanouts, batch_size=40):
            plain = exact_output(model, batch.x, batch.edge_index)
            counts = {"nodes": batch.num_sampled_nodes, "edges": batch.num_sampled_edges}
            trimmed = model(batch.x, batch.edge_index, **counts)
            seeds = slice(0, batch.batch_size)
            assert_within(trimmed[seeds], plain[seeds])


@pytest.mark.parametrize("nodes", ["mask", "ids", "all"])
def test_pygs_own_loader_gives_the_same_shape(data, nodes):
    """With all neighbours nothing is random: the same nodes and edges as PyG's, in any order, of the same seeds."""
    pytest.importorskip("pyg_lib")
    from torch_geometric.loader import NeighborLoader

    input_nodes = {"mask": data.train_mask, "ids": torch.randperm(300)[:100], "all": None}[nodes]
    options = {"num_neighbors": [-1, -1], "batch_size": 30, "input_nodes": input_nodes}
    theirs, ours = NeighborLoader(data, **options), graphmill.NeighborLoader(data, **options)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert set(other.keys()) <= set(mine.keys())
        assert torch.equal(mine.n_id.sort().values, other.n_id.sort().values)
        assert torch.equal(mine.e_id.sort().values, other.e_id.sort().values)
        assert torch.equal(mine.input_id, other.input_id)
        assert mine.batch_size == other.batch_size
        assert list(mine.num_sampled_nodes) == list(other.num_sampled_nodes)
        assert list(mine.num_sampled_edges) == list(other.num_sampled_edges)


def test_a_model_learns(data):
    torch.manual_seed(0)
    labelled = data.clone()
    labelled.y = (labelled.x[:, 0] > 0).long()
    model = Stack([12, 16, 2])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(8):
        for batch in loader_of(labelled, seed=3, shuffle=True):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-12:]) < 0.5 * sum(losses[:12])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_resumed_loader_goes_on_mid_epoch(data, prefetch, shuffle):
    def new():
        return loader_of(data, seed=9, prefetch=prefetch, shuffle=shuffle, input_nodes=data.train_mask)

    undisturbed = new()
    expected = [batch for _ in range(3) for batch in undisturbed]
    first = new()
    seen = list(first)
    for batch in first:
        seen.append(batch)
        if len(seen) == len(first) + 2:
            break
    state = first.state_dict()
    resumed = new()
    resumed.load_state_dict(state)
    seen += [batch for _ in range(2) for batch in resumed]
    assert len(seen) == len(expected)
    assert all(same_batch(*pair) for pair in zip(seen, expected, strict=True))


def test_every_epoch_draws_other_neighbours_of_the_same_seeds(data):
    loader = loader_of(data, input_nodes=data.train_mask)
    one, other = list(loader), list(loader)
    assert all(torch.equal(a.input_id, b.input_id) for a, b in zip(one, other, strict=True))
    assert all(not torch.equal(a.e_id, b.e_id) for a, b in zip(one[:-1], other[:-1], strict=True))
    drawn_before = [set(batch.e_id.tolist()) for batch in one[:-1]]
    assert all(a != set(b.e_id.tolist()) for a, b in zip(drawn_before, other, strict=False)), "not only in other order"


def test_after_an_epoch_the_next_batch_is_the_first_of_another(data):
    loader = loader_of(data, batch_size=100, shuffle=True)
    for epoch in range(3):
        assert loader.state_dict() == {"epoch": epoch, "step": 0, "seed": 0}
        for step, _ in enumerate(loader, start=1):
            assert loader.state_dict()["step"] == step % len(loader)


def test_an_iteration_that_was_broken_off_is_over(data):
    """`for batch in loader` begins an epoch, as everywhere; only a loaded state goes on in the middle of one."""
    loader = loader_of(data)
    next(iter(loader))
    assert len(list(loader)) == len(loader)
    assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_workers": 2}, marks=pytest.mark.forks),
        pytest.param({"num_workers": 3, "filter_per_worker": True}, marks=pytest.mark.forks),
        {"prefetch": 0},
    ],
)
def test_workers_and_threads_change_nothing(data, options):
    """Over two epochs."""
    one, other = loader_of(data, shuffle=True), loader_of(data, shuffle=True, **options)
    pairs = [pair for _ in range(2) for pair in zip(one, other, strict=True)]
    assert len(pairs) == 2 * len(one)
    assert all(same_batch(*pair) for pair in pairs)


def test_two_seeds_differ(data):
    one, other = (next(iter(loader_of(data, seed=seed))) for seed in (0, 1))
    assert not torch.equal(one.n_id, other.n_id)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.cfloat])
def test_features_keep_their_format(data, dtype):
    other = data.clone()
    other.x = (data.x * 10).to(dtype)
    batch = next(iter(loader_of(other)))
    assert batch.x.dtype == dtype
    assert torch.equal(batch.x, other.x[batch.n_id])


def test_features_in_another_layout(data):
    other = data.clone()
    other.x = data.x.t().contiguous().t()
    batch = next(iter(loader_of(other)))
    assert torch.equal(batch.x, data.x[batch.n_id])


def test_ids_that_a_transform_makes_int32(data):
    def narrow(out):
        out.node = out.node.int()
        return out

    batch = next(iter(loader_of(data, transform_sampler_output=narrow)))
    assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": torch.tensor([[0, 500], [1, 2]])}, "edge_index: edge 1 is 500 → 2"),
        ({"edge_index": torch.tensor([[0, -3], [1, 2]])}, "edge_index: edge 1 is -3 → 2"),
    ],
)
def test_a_broken_graph_is_refused(data, change, message):
    broken = data.clone()
    for name, value in change.items():
        broken[name] = value
    with pytest.raises(UserError, match=message):
        loader_of(broken)


@pytest.mark.parametrize("nodes", [torch.tensor([300]), torch.tensor([-1]), torch.tensor([[1, 1]])])
def test_broken_input_nodes_are_refused(data, nodes):
    with pytest.raises(UserError, match="input_nodes"):
        loader_of(data, input_nodes=nodes)


def test_a_state_of_another_seed_is_refused(data):
    with pytest.raises(UserError, match="seed 1, the loader of 2"):
        loader_of(data, seed=2).load_state_dict(loader_of(data, seed=1).state_dict())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"input_nodes": torch.ones(299, dtype=torch.bool)}, r"mask of shape \[299\]"),
        ({"input_nodes": torch.ones(2, 150, dtype=torch.bool)}, r"mask of shape \[2, 150\]"),
        ({"input_nodes": torch.tensor([1.5, 2.0])}, "float32"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_neighbors": [4, -2]}, "num_neighbors"),
        ({"num_neighbors": [2.5]}, "num_neighbors"),
        ({"num_neighbors": 4}, "num_neighbors"),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(data, options, says):
    with pytest.raises(UserError, match=says):
        loader_of(data, **options)


def test_arguments_stand_where_pygs_do(data):
    by_place = graphmill.NeighborLoader(data, [4, 3], data.train_mask, batch_size=25)
    by_name = loader_of(data, input_nodes=data.train_mask)
    assert all(same_batch(*pair) for pair in zip(by_place, by_name, strict=True))


@pytest.mark.parametrize("form", [torch.as_tensor, list, lambda ids: ids.numpy()])
def test_input_nodes_may_be_an_array_or_a_list(data, form):
    seeds = torch.arange(40)
    pairs = zip(loader_of(data, input_nodes=form(seeds)), loader_of(data, input_nodes=seeds), strict=True)
    assert all(same_batch(*pair) for pair in pairs)


def test_a_state_past_the_end_of_this_loaders_epochs_is_refused(data):
    with pytest.raises(UserError, match="step 7"):
        loader_of(data, batch_size=100).load_state_dict({"epoch": 0, "step": 7, "seed": 0})
