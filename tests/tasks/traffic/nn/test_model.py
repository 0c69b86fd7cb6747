"""DCRNN: it reads the graph, samples by schedule, and takes its scale along."""

from collections import Counter

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_within

from graphmill.base.errors import UserError
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.sync.replica import Replica
from graphmill.tasks.traffic.data.windows import WindowBatch
from graphmill.tasks.traffic.nn import dcgru
from graphmill.tasks.traffic.nn.dcgru import RandomWalks
from graphmill.tasks.traffic.nn.model import AnyForecaster, Dcrnn, Forecaster

NODES = 6


def ring(shift: int = 1) -> RandomWalks:
    numbers = np.arange(NODES, dtype=np.int32)
    return RandomWalks.of(np.stack([numbers, (numbers + shift) % NODES]), np.ones(NODES, np.float32), NODES, 2)


def model(walks: RandomWalks | None = None, **changes) -> Dcrnn:
    options = {
        "horizon": 4,
        "rnn_units": 8,
        "num_layers": 2,
        "cl_decay_steps": 0.0,
        "seed": 1,
    }
    return Dcrnn(walks or ring(), **{**options, **changes})


def inputs(windows: int = 3) -> torch.Tensor:
    return torch.randn(windows, 5, NODES, 4, generator=torch.Generator().manual_seed(0))


def test_forecasts_have_their_shape() -> None:
    assert model()(inputs()).shape == (3, 4, NODES)


def test_the_graph_is_used() -> None:
    forecasts = [model(walks)(inputs()) for walks in (ring(1), ring(2), RandomWalks.identity(NODES, 2))]
    for number, one in enumerate(forecasts):
        for other in forecasts[number + 1 :]:
            assert (one - other).abs().max() > 1e-3


def test_every_weight_learns() -> None:
    net = model()
    net(inputs()).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def reach(walks: RandomWalks) -> set[int]:
    """The sensors whose forecasts depend on the inputs of sensor 0."""
    x = inputs(1).requires_grad_()
    net = model(walks)
    found = set()
    for node in range(NODES):
        (grad,) = torch.autograd.grad(net(x)[0, :, node].sum(), x)
        if grad[0, :, 0].abs().sum() > 0:
            found.add(node)
    return found


def test_an_identity_graph_is_no_graph() -> None:
    assert reach(RandomWalks.identity(NODES, 2)) == {0}
    assert reach(ring()) == set(range(NODES))


def test_weights_are_a_function_of_the_seed() -> None:
    first, again, other = (dict(model(seed=seed).named_parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_scale_is_in_the_checkpoint() -> None:
    state = Forecaster(model(), mean=50.0, std=10.0).state_dict()
    assert state["mean"] == 50
    assert state["std"] == 10
    other = Forecaster(model(), mean=1.0, std=2.0)
    other.load_state_dict(state)
    batch = WindowBatch(Seeds(0, 0, SeedIds(np.arange(3))), torch.rand(3, 9, NODES) + 60, torch.rand(3, 5, 2))
    scaled = other.net(batch.inputs(torch.tensor(50.0), torch.tensor(10.0)))
    assert_within(other(batch), Bounded.of(scaled) * 10 + 50)


def test_the_scale_is_no_ranks_to_change() -> None:
    replica = Replica(Forecaster(model(), mean=58.78, std=12.13))
    assert replica.buffers == []
    assert replica.num_parameters == Replica(model()).num_parameters
    assert {"mean", "std"} <= dict(replica.named_tensors()).keys()


class TwoLinear(torch.nn.Module):
    """A stranger's model: forecasts from a sensor's own history and the sum over its neighbours."""

    def __init__(self, in_channels: int, out_channels: int, history: int, horizon: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2 * in_channels * history, out_channels * horizon)

    def forward(self, x, edge_index, edge_weight):
        around = torch.zeros_like(x).index_add_(2, edge_index[1], x[:, :, edge_index[0]] * edge_weight[:, None])
        return self.linear(torch.cat([x, around], dim=3).transpose(1, 2).flatten(2)).transpose(1, 2)


def test_anybodys_model() -> None:
    edges = torch.tensor([[0, 1], [1, 2]]), torch.ones(2)
    net = AnyForecaster(TwoLinear(4, 1, history=5, horizon=4), *edges, horizon=4, seed=0, rank=0)
    assert net(inputs(), 0).shape == (3, 4, NODES)
    wrong = AnyForecaster(TwoLinear(4, 1, history=5, horizon=3), *edges, horizon=4, seed=0, rank=0)
    with pytest.raises(UserError, match=r"TwoLinear made \[3, 3, 6\]"):
        wrong(inputs(), 0)


class Dropping(TwoLinear):
    def forward(self, x, edge_index, edge_weight):
        return torch.nn.functional.dropout(super().forward(x, edge_index, edge_weight), 0.5, self.training)


def test_ranks_drop_other_values_of_anybodys_model() -> None:
    edges = torch.tensor([[0, 1], [1, 2]]), torch.ones(2)
    inner = Dropping(4, 1, history=5, horizon=4)
    nets = [AnyForecaster(inner, *edges, horizon=4, seed=0, rank=rank) for rank in (0, 1, 0)]
    one, other, again = (net(inputs(), 0) == 0 for net in nets)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_scheduled_sampling_falls_with_the_steps() -> None:
    net = model(cl_decay_steps=100.0, horizon=12)
    shares = [net.true_share(step) for step in (0, 200, 460, 461, 800, 10**9)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.98
    assert shares[-1] < 1e-6
    assert shares[2] > 0.5 > shares[3], "it is 0.5 after τ ln τ = 460.5 steps"
    drawn = Counter(flag for step in range(455, 466) for flag in net.true_inputs(step))
    assert 0.3 < drawn[True] / (11 * 12) < 0.7
    assert model().true_share(0) == 0


def test_scheduled_sampling_is_keyed() -> None:
    net, same, other = (model(cl_decay_steps=100.0, horizon=12, seed=seed) for seed in (5, 5, 6))
    steps = range(440, 480)
    assert [net.true_inputs(s) for s in steps] == [same.true_inputs(s) for s in steps]
    assert [net.true_inputs(s) for s in steps] != [other.true_inputs(s) for s in steps]


def test_true_readings_are_fed_where_they_are_known_and_only_in_training() -> None:
    net = model(cl_decay_steps=1e9)
    targets, known = torch.randn(3, 4, NODES), torch.ones(3, 4, NODES, dtype=torch.bool)
    own = net(inputs())
    fed = net(inputs(), targets, known, 0)
    assert torch.equal(fed[:, 0], own[:, 0])  # the first forecast is made from GO
    assert (fed[:, 1:] - own[:, 1:]).abs().max() > 1e-3
    assert torch.equal(net(inputs(), targets, ~known, 0), own)
    assert torch.equal(net.eval()(inputs(), targets, known, 0), own)


def test_bfloat16_follows_float32() -> None:
    net = model()
    exact = net(inputs())
    with torch.autocast("cpu", torch.bfloat16):
        rough = net(inputs())
    assert rough.dtype == torch.float32
    assert (rough - exact).abs().max() < 0.05


@pytest.mark.slow
def test_it_is_traced_whole_and_gives_the_bits_of_torchs_arithmetic(monkeypatch: pytest.MonkeyPatch):
    net, x = model(), inputs()

    def run(forward) -> list[torch.Tensor]:
        net.zero_grad()
        out = forward(x)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in net.parameters())]

    torch.compiler.reset()
    traced = run(torch.compile(net, backend="aot_eager", fullgraph=True))
    monkeypatch.setattr(dcgru, "is_native", lambda _: False)
    monkeypatch.setattr(dcgru, "_DENSE_FROM", 0.0)
    for one, other in zip(run(net), traced, strict=True):
        assert torch.equal(one, other)
