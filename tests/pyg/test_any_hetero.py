"""Any `HeteroData` and any options: a right batch, or a `UserError` that says what to give; nothing else."""

import contextlib
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData

KINDS = [("a", "to", "b"), ("b", "to", "a"), ("a", "in", "a")]
EDGE_CHANGES = {
    "out of range": lambda e: e + 7,
    "negative": lambda e: -e - 1,
    "float": lambda e: e.float(),
    "float with nan": lambda e: e.float() * torch.nan,
    "int32": lambda e: e.int(),
    "uint8": lambda e: e.to(torch.uint8),
    "transposed": lambda e: e.T,
    "not contiguous": lambda e: e.repeat_interleave(2, 1)[:, ::2],
    "empty": lambda e: e[:, :0],
    "flat": lambda e: e.reshape(-1),
    "list": lambda e: e.tolist(),
    "none": lambda e: None,
    "huge": lambda e: e + 2**40,
}
VALUE_CHANGES = {
    "negative": lambda v: -v.float() - 1,
    "nan": lambda v: v.float() * torch.nan,
    "infinite": lambda v: v.float() + torch.inf,
    "zero": lambda v: v * 0,
    "short": lambda v: v[:-1],
    "two columns": lambda v: torch.stack([v, v], 1),
    "complex": lambda v: v.to(torch.complex64),
    "bool": lambda v: v > 2,
    "numpy": lambda v: v.numpy(),
    "text": lambda v: "x",
    "missing": lambda v: None,
    "same": lambda v: v,
}


@st.composite
def graphs(draw) -> HeteroData:
    """Small, and perhaps wrong in one or two places."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    counts = {name: draw(st.integers(0, 6)) for name in ("a", "b")}
    data = HeteroData()
    for name, count in counts.items():
        if draw(st.booleans()):
            data[name].x = torch.rand(count, draw(st.integers(1, 3)), generator=generator)
        else:
            data[name].num_nodes = count
        data[name].time = torch.randint(0, 5, (count,), generator=generator)
    for kind in KINDS:
        number = draw(st.integers(0, 12)) if counts[kind[0]] and counts[kind[2]] else 0
        ends = [torch.randint(max(counts[end], 1), (number,), generator=generator) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
        data[kind].w = torch.rand(number, generator=generator)
        data[kind].edge_time = torch.randint(0, 5, (number,), generator=generator)
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(KINDS))
        with contextlib.suppress(RuntimeError, TypeError, LookupError, ValueError, AttributeError):  # no such tensor
            match draw(st.sampled_from(["edges", "w", "edge_time", "time"])):
                case "edges":
                    change = EDGE_CHANGES[draw(st.sampled_from(sorted(EDGE_CHANGES)))]
                    data[kind].edge_index = change(data[kind].edge_index)
                case "time":
                    change = VALUE_CHANGES[draw(st.sampled_from(sorted(VALUE_CHANGES)))]
                    data["a"].time = change(data["a"].time)
                case name:
                    change = VALUE_CHANGES[draw(st.sampled_from(sorted(VALUE_CHANGES)))]
                    data[kind][name] = change(data[kind][name])
    return data


OPTIONS = st.fixed_dictionaries(
    {
        "num_neighbors": st.one_of(
            st.lists(st.integers(-1, 3), min_size=1, max_size=3),
            st.fixed_dictionaries({kind: st.just([2, 2]) for kind in KINDS}),
            st.just({KINDS[0]: [2]}),
        )
    },
    optional={
        "replace": st.booleans(),
        "disjoint": st.booleans(),
        "subgraph_type": st.sampled_from(["directional", "bidirectional", "induced"]),
        "weight_attr": st.sampled_from(["w", "nothing"]),
        "time_attr": st.sampled_from(["time", "edge_time", "nothing"]),
        "temporal_strategy": st.sampled_from(["uniform", "last"]),
        "batch_size": st.integers(1, 5),
    },
)
EXPECTED = (UserError, ValueError, NotImplementedError)  # ValueError: PyG's own words on fan-outs of missing types


def whole_ends(batch, kind) -> torch.Tensor:
    ends = batch[kind].edge_index
    return torch.stack([batch[kind[0]].n_id[ends[0]], batch[kind[2]].n_id[ends[1]]])


def assert_right(batch, data, options) -> None:
    for name in ("a", "b"):
        if "x" in data[name]:
            assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
    for kind in KINDS:
        if batch[kind].get("e_id") is None:  # both directions were made of one
            continue
        edges = torch.as_tensor(data[kind].edge_index).long()
        assert torch.equal(whole_ends(batch, kind), edges[:, batch[kind].e_id])
        if options.get("weight_attr") == "w" and data[kind].get("w") is not None:
            assert (torch.as_tensor(data[kind].w)[batch[kind].e_id].reshape(-1) > 0).all()


@settings(max_examples=150)
@given(graphs(), OPTIONS, st.sampled_from(["a", "b"]), st.integers(0, 5))
def test_nodes_of_any_graph(data, options, seeds_of, at):
    count = data[seeds_of].num_nodes or 0
    if options.get("time_attr") == "edge_time":
        options["input_time"] = torch.full((count,), at)
    with warnings.catch_warnings(), contextlib.suppress(*EXPECTED):
        warnings.simplefilter("ignore")
        for batch in graphmill.NeighborLoader(data, input_nodes=seeds_of, **options):
            assert_right(batch, data, options)
            if options.get("time_attr") == "edge_time" and options.get("subgraph_type") != "bidirectional":
                for kind in KINDS:
                    if data[kind].get("edge_time") is not None:
                        assert (torch.as_tensor(data[kind].edge_time)[batch[kind].e_id] <= at).all()


@settings(max_examples=150)
@given(graphs(), OPTIONS, st.sampled_from(KINDS), st.sampled_from(["binary", "triplet", None]), st.integers(1, 2))
def test_links_of_any_graph(data, options, kind, mode, amount):
    options = {name: value for name, value in options.items() if name != "time_attr"}
    sampling = None if mode is None else {"mode": mode, "amount": amount}
    with warnings.catch_warnings(), contextlib.suppress(*EXPECTED):
        warnings.simplefilter("ignore")
        loader = graphmill.LinkNeighborLoader(data, edge_label_index=kind, neg_sampling=sampling, **options)
        known = set(zip(*torch.as_tensor(data[kind].edge_index).tolist(), strict=True))
        for batch in loader:
            assert_right(batch, data, options)
            if mode == "binary":
                ends = batch[kind].edge_label_index
                pairs = zip(batch[kind[0]].n_id[ends[0]].tolist(), batch[kind[2]].n_id[ends[1]].tolist(), strict=True)
                of_label = list(zip(pairs, batch[kind].edge_label.tolist(), strict=True))
                assert all((pair in known) == (label > 0) for pair, label in of_label)
