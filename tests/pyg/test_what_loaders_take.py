"""What `graphmill.NeighborLoader` takes of a user's script: a batch, or a `UserError` with what to do; nothing else."""

import contextlib
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as PygsLoader

NODES, EDGES = 20, 60


def made(**changed) -> Data:
    draw = torch.Generator().manual_seed(1)
    whole = {
        "x": torch.randn(NODES, 4, generator=draw),
        "y": torch.arange(NODES) % 3,
        "edge_index": torch.randint(0, NODES, (2, EDGES), generator=draw),
        "train_mask": torch.arange(NODES) < 8,
    }
    return Data(**{name: value for name, value in (whole | changed).items() if value is not None})


def first_batch(data, **options):
    return next(iter(graphmill.NeighborLoader(data, **{"num_neighbors": [3, 2], "batch_size": 5} | options)))


GOOD = made()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"edge_index": torch.randint(0, NODES, (EDGES, 2))}, r"\[60, 2\]"),
        ({"edge_index": torch.randint(0, NODES, (3, EDGES))}, r"\[3, 60\]"),
        ({"edge_index": torch.randint(0, NODES, (EDGES,))}, r"\[60\]"),
        ({"edge_index": GOOD.edge_index.float()}, "float32"),
        ({"edge_index": GOOD.edge_index > 3}, "bool"),
        ({"edge_index": GOOD.edge_index - 1}, "-1"),
        ({"edge_index": GOOD.edge_index + 1}, "20"),
        ({"edge_index": GOOD.edge_index.to_sparse()}, "sparse_coo"),
        ({"edge_index": GOOD.edge_index.tolist()}, "list"),
        ({"x": torch.full((NODES, 4), torch.nan)}, "row 0, column 0 is nan"),
        ({"x": torch.full((NODES, 4), torch.inf, dtype=torch.bfloat16)}, "inf"),
        ({"x": GOOD.x.to_sparse_csr()}, "sparse_csr"),
        ({"x": GOOD.x.tolist()}, "x is a list"),
        ({"x": GOOD.x.to("meta")}, "meta"),
        ({"y": torch.zeros(NODES - 1)}, r"y is \[19\]"),
        ({"y": torch.tensor(1)}, r"y is \[\]"),
        ({"train_mask": torch.ones(NODES + 1, dtype=torch.bool)}, r"train_mask is \[21\]"),
        ({"edge_attr": torch.ones(EDGES + 1, 2)}, r"edge_attr is \[61, 2\]"),
        ({"edge_weight": torch.full((EDGES,), torch.nan)}, "edge_weight"),
        ({"num_nodes": 7}, "edge_index"),
        ({"num_nodes": "many"}, "no number of nodes"),
        ({"num_nodes": 2**40}, "nodes"),
    ],
)
def test_a_graph_that_would_be_read_wrongly_is_refused(changed, says):
    with pytest.raises(UserError, match=says) as refused:
        first_batch(made(**changed))
    assert refused.value.fix


def test_what_prepare_refuses_of_edges_a_loader_refuses_in_the_same_words():
    from graphmill.tasks.node_classification.data.labelled import check_labelled
    from graphmill.tasks.node_classification.data.sources.pyg import from_data

    for wrong in (GOOD.edge_index.T, GOOD.edge_index.float(), GOOD.edge_index + 5, -GOOD.edge_index):
        with pytest.raises(UserError) as by_loader:
            first_batch(made(edge_index=wrong))
        with pytest.raises(UserError) as by_prepare:
            check_labelled(from_data(made(edge_index=wrong), name="wrong", split_seed=0))
        assert by_loader.value.message.partition(": ")[2] == by_prepare.value.message.partition("): ")[2]
        assert by_loader.value.fix == by_prepare.value.fix


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_integers_name_the_same_edges(dtype):
    """Keys of edges are computed in 64 bits: 200 nodes squared do not fit one byte, nor two."""
    edges = torch.randint(0, 200, (2, 900), generator=torch.Generator().manual_seed(3))
    wide, narrow = (Data(x=torch.rand(200, 1), edge_index=each) for each in (edges, edges.to(dtype)))
    for one, other in zip(
        *(graphmill.NeighborLoader(each, [3], batch_size=50) for each in (wide, narrow)), strict=True
    ):
        assert torch.equal(one.e_id, other.e_id)


def test_advice_for_a_transposed_adjacency_is_right():
    data = made(edge_index=None)
    data.adj_t = torch.sparse_coo_tensor(GOOD.edge_index.flip(0), torch.ones(EDGES), (NODES, NODES)).coalesce()
    with pytest.raises(UserError, match="no edge_index") as refused:
        first_batch(data)
    exec(refused.value.fix, {"data": data, "torch_geometric": __import__("torch_geometric.utils")})
    batch, expected = (first_batch(each, num_neighbors=[-1]) for each in (data, made()))
    assert set(map(tuple, batch.n_id[batch.edge_index].T.tolist())) == set(
        map(tuple, expected.n_id[expected.edge_index].T.tolist())
    )


def test_advice_for_features_is_right():
    for wrong in ({"x": torch.full((NODES, 4), torch.nan)}, {"edge_weight": torch.full((EDGES,), -torch.inf)}):
        data = made(**wrong)
        with pytest.raises(UserError) as refused:
            first_batch(data)
        exec(refused.value.fix.partition("by 0: ")[2], {"data": data})
        assert first_batch(data).batch_size == 5


def test_a_gradient_reaches_features_that_are_learnt():
    x = torch.rand(NODES, 4, requires_grad=True)
    first_batch(made(x=x)).x.sum().backward()
    assert x.grad is not None
    assert x.grad.sum() > 0


def test_every_argument_of_pygs_loader_is_known_and_its_defaults_are_taken():
    import inspect

    from torch.utils.data import DataLoader

    own = inspect.signature(graphmill.NeighborLoader.__init__).parameters
    theirs = {**inspect.signature(DataLoader.__init__).parameters, **inspect.signature(PygsLoader.__init__).parameters}
    skipped = {"self", "kwargs", "dataset", "batch_size", *own}
    given = {name: each.default for name, each in theirs.items() if name not in skipped}
    assert "weight_attr" in given
    given["subgraph_type"] = theirs["subgraph_type"].default
    assert first_batch(made(), **given).batch_size == 5


def test_a_generator_is_refused_with_what_to_give():
    with pytest.raises(UserError, match="generator") as refused:
        first_batch(made(), generator=torch.Generator())
    assert "seed" in refused.value.fix


def test_a_name_that_is_mistyped_is_an_error_with_the_nearest():
    with pytest.raises(UserError, match=r"batchsize.*\n.*batch_size"):
        graphmill.NeighborLoader(made(), [3], batchsize=5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda data: graphmill.LinkNeighborLoader(data, [3], neg_sampling="binari"), "neg_sampling is 'binari'"),
        (lambda data: graphmill.LinkNeighborLoader(data, [3], neg_sampling={"amount": 2}), "neg_sampling is"),
        (lambda data: graphmill.NeighborLoader(data, [3], subgraph_type="inducd"), "subgraph_type is 'inducd'"),
        (lambda data: graphmill.NeighborLoader(data, [3], temporal_strategy="lst"), "temporal_strategy is 'lst'"),
        (lambda data: graphmill.ShaDowKHopSampler(data, depth=1, num_neighbors=3, batchsize=3), "no batchsize"),
        (lambda data: graphmill.ShaDowKHopSampler(data, depth=0, num_neighbors=3), "depth is 0"),
    ],
)
def test_a_word_that_is_mistyped_is_an_error_with_what_to_give(make, says):
    with pytest.raises(UserError, match=says) as refused:
        make(made())
    assert refused.value.fix


def test_a_hetero_data_with_transposed_edges_is_refused():
    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(5, 2), torch.rand(6, 2)
    for wrong, says in ((torch.randint(0, 5, (9, 2)), r"\[9, 2\]"), (torch.tensor([[5], [0]]), "5 → 0")):
        data["a", "to", "b"].edge_index = wrong
        with pytest.raises(UserError, match=says):
            graphmill.NeighborLoader(data, [2], ("a", None))


# Anything at all

TENSORS = {
    "transposed": lambda t: t.T if t.dim() == 2 else t,
    "not contiguous": lambda t: t.repeat_interleave(2, 0)[::2],
    "csr": lambda t: t.to_sparse_csr() if t.dim() == 2 else t.to_sparse(),
    "coo": lambda t: t.to_sparse(),
    "numpy": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "meta": lambda t: t.to("meta"),
    "short": lambda t: t[:-1],
    "empty": lambda t: t[:0],
    "no dimension": lambda t: t.reshape(-1)[0],
    "one more dimension": lambda t: t[None],
    "learnt": lambda t: t.float().requires_grad_(),
    "largest": lambda t: t.long() + 2**62,
    "negative": lambda t: -t.float() - 1,
    "nan": lambda t: t.float() * torch.nan,
    "conjugate": lambda t: torch.complex(t.float(), t.float()).conj(),
    "none": lambda t: None,
    "text": lambda t: "x",
    **{
        str(dtype): lambda t, dtype=dtype: t.to(dtype)
        for dtype in (torch.bool, torch.uint8, torch.int16, torch.int32, torch.uint64, torch.float16, torch.bfloat16,
                      torch.float64, torch.float8_e4m3fn, torch.complex64, torch.complex32)
    },
}  # fmt: skip
ANYTHING = st.sampled_from(
    [0, -1, 1, 3, 2**31, 2**70, 1.5, float("nan"), float("inf"), "3", None, True, [], {}, [1], b"x"]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["batch_size", "seed", "prefetch", "shuffle", "num_neighbors", "input_nodes", "input_time"]),
    st.one_of(ANYTHING, st.lists(ANYTHING, max_size=3), st.just(torch.arange(3)), st.just(np.arange(3))),
    max_size=2,
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["x", "y", "edge_index", "train_mask", "edge_attr"]), st.sampled_from(list(TENSORS)), max_size=2
    ),
    ARGUMENTS,
)
def test_anything_is_a_batch_or_a_user_error(changes, arguments):
    whole = {**GOOD.to_dict(), "edge_attr": torch.rand(EDGES, 2)}
    try:
        changed = {name: TENSORS[change](whole[name]) for name, change in changes.items()}
    except (RuntimeError, ValueError):  # torch has no such tensor
        return
    data = Data(**whole | changed)
    with warnings.catch_warnings(), contextlib.suppress(UserError):
        warnings.simplefilter("ignore")
        batch = first_batch(data, **arguments)
        assert_right(batch, data)


def assert_right(batch, data):
    for name, ids in (("x", batch.n_id), ("y", batch.n_id), ("edge_attr", batch.e_id)):
        if data.get(name) is not None:
            expected = torch.as_tensor(data[name])[ids]
            torch.testing.assert_close(batch[name], expected, rtol=0, atol=0, equal_nan=True)
    assert (batch.n_id[batch.edge_index] == torch.as_tensor(data.edge_index).long()[:, batch.e_id]).all()
