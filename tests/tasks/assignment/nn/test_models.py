"""Models: order, unit and constants of rows do not matter; untrained they are a seed that learns nothing."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch.utils._python_dispatch import TorchDispatchMode

from graphmill.tasks.assignment.data import features
from graphmill.tasks.assignment.data.batches import reduced
from graphmill.tasks.assignment.nn import dual_gnn, loss, one_gnn
from graphmill.tasks.assignment.nn.dual_gnn import DualGnn
from graphmill.tasks.assignment.nn.loss import completed, missing_share, objective
from graphmill.tasks.assignment.nn.one_gnn import OneGnn

EPS = 2**-23
ONE = {"hidden_channels": 16, "num_layers": 2, "rounds": 2, "topk": 4, "soft_sweeps": 3, "dropout": 0.0}
DUAL = {"hidden_channels": 16, "num_layers": 2, "heads": 4, "topk": 4, "dropout": 0.0, "tile_pairs": 200}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(kind: str, *, moved: float = 0.05, **more):
    torch.manual_seed(0)
    made = OneGnn(**{**ONE, **more}) if kind == "one_gnn" else DualGnn(**{**DUAL, **more})
    for parameter in made.parameters():  # heads begin with zeros
        parameter.data += moved * torch.randn_like(parameter)
    return made


def problem(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def predicted(made, matrix):
    given, _ = reduced([matrix])
    with torch.no_grad():
        return made(given).last.v[0].double().numpy()


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
@pytest.mark.parametrize("shape", [(30, 30), (20, 34)])
def test_rows_and_columns_have_no_order(kind, shape):
    made, matrix, rng = model(kind), problem(*shape), np.random.default_rng(1)
    rows, columns = rng.permutation(shape[0]), rng.permutation(shape[1])
    v = predicted(made, matrix)
    # Sums over rows and columns in another order: 2⁻²³ of sums of up to 34 terms, through every layer.
    np.testing.assert_allclose(predicted(made, matrix[rows][:, columns]), v[columns], rtol=0, atol=2000 * EPS)
    assert np.ptp(v) > 0.01


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_unit_and_constants_of_rows_do_not_matter(kind):
    made, matrix = model(kind), problem(25, 25)
    other = predicted(made, 1000 * matrix + np.arange(25)[:, None])
    np.testing.assert_allclose(other / 1000, predicted(made, matrix), rtol=0, atol=2000 * EPS)


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_a_batch_is_its_instances(kind):
    made = model(kind)
    matrices = [problem(9, 9, seed=1), problem(20, 20, seed=2), problem(12, 17, seed=3)]
    given, _ = reduced(matrices)
    with torch.no_grad():
        together = made(given).last.v
    for one, matrix in zip(together, matrices, strict=True):
        count = matrix.shape[1]
        np.testing.assert_allclose(one[:count].numpy(), predicted(made, matrix), rtol=0, atol=2000 * EPS)
        assert not one[count:].any()


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_untrained_it_is_the_seed_that_learns_nothing(kind):
    made = model(kind, moved=0.0, **({"soft_sweeps": 0} if kind == "one_gnn" else {}))
    given, _ = reduced([problem(15, 15)])
    found = made(given)
    assert torch.equal(found.last.v, found.reduced_v)
    minima = given.costs[0].amin(dim=0)
    assert torch.equal(found.reduced_v[0], minima)


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_every_parameter_is_trained(kind):
    given, _ = reduced([problem(18, 18), problem(18, 18, seed=1)])
    made = model(kind)
    found = made(given)
    sum(objective(each, given).sum() for each in found.rounds).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in made.parameters())


def test_tiles_change_nothing():
    given, _ = reduced([problem(23, 31)])
    values, gradients = [], []
    for pairs in (1, 100, 10**6):
        made = model("dual_gnn", tile_pairs=pairs)
        found = made(given).last
        objective(found, given).sum().backward()
        values.append(found.v.detach())
        gradients.append(torch.cat([each.grad.flatten() for each in made.parameters()]))
    for value, gradient in zip(values, gradients, strict=True):
        torch.testing.assert_close(value, values[-1], rtol=0, atol=500 * EPS)
        torch.testing.assert_close(
            gradient, gradients[-1], rtol=2000 * EPS, atol=2000 * EPS * float(gradient.abs().max())
        )


def test_a_tile_is_all_of_the_pairs_that_are_held():
    """The largest tensor of a step: [batch, tile, columns, width], whatever the number of rows."""
    largest = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple) else (out,):
                if isinstance(each, torch.Tensor):
                    largest[0] = max(largest[0], each.numel())
            return out

    made, (given, _) = model("dual_gnn", tile_pairs=64 * 4), reduced([problem(64, 64)])
    with Watch():
        objective(made(given).last, given).sum().backward()
    assert largest[0] <= max(64 * 4 * 16, 64 * 64)  # a tile, or the costs themselves


@pytest.mark.parametrize("kind", ["one_gnn", pytest.param("dual_gnn", marks=pytest.mark.slow)])
def test_it_learns_more_than_row_minima(kind):
    matrices = [problem(24, 24, seed=seed) for seed in range(24)]
    optima = np.array([matrix[linear_sum_assignment(matrix)].sum() for matrix in matrices])
    given, minima = reduced(matrices)
    optimum = torch.tensor(optima - minima, dtype=torch.float32)
    made = model(kind, moved=0.0, **({"soft_sweeps": 0} if kind == "one_gnn" else {}))
    optimizer, shares = torch.optim.Adam(made.parameters(), lr=0.01), []
    for _ in range(60 if kind == "one_gnn" else 30):
        found = made(given)
        share = missing_share(
            objective(found.last, given), optimum, found.reduced_v.sum(1), given.num_rows * found.scale.squeeze(1)
        )
        optimizer.zero_grad()
        share.mean().backward()
        optimizer.step()
        shares.append(share.mean().item())
    assert shares[0] > 0.8  # 1, but for the unit that stands below
    assert shares[-1] < 0.6


def test_what_is_worth_less_than_row_minima_is_not_taken():
    given, _ = reduced([problem(12, 12), problem(12, 12, seed=1)])
    made = model("one_gnn", moved=3.0)
    found = made(given)
    v = found.best_v(given)
    worth = objective(completed(v, given), given)
    assert (worth >= found.reduced_v.sum(dim=1) * (1 - 100 * EPS)).all()
    assert torch.equal(v, found.reduced_v)  # weights as wild as these are worth nothing


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_sweeps_as_defined_make_the_same_model(kind, monkeypatch):
    """What runs where there is no native code: on a GPU."""
    made, (given, _) = model(kind), reduced([problem(30, 30), problem(20, 34, seed=1)])

    def run():
        made.zero_grad()
        found = made(given).last
        objective(found, given).sum().backward()
        return found.v.detach(), torch.cat([each.grad.flatten() for each in made.parameters()])

    native = run()
    for module in (features, one_gnn, dual_gnn, loss):
        monkeypatch.setattr(module, "nearest", features.nearest_as_defined)
    monkeypatch.setattr(features, "soften", features.soften_as_defined)
    for one, other in zip(native, run(), strict=True):
        torch.testing.assert_close(one, other, rtol=2000 * EPS, atol=2000 * EPS * float(one.abs().max()))


@pytest.mark.parametrize("kind", ["one_gnn", "dual_gnn"])
def test_products_in_bfloat16_come_near(kind):
    made, (given, _) = model(kind), reduced([problem(30, 30)])
    exact = made(given).last.v.detach()
    with torch.autocast("cpu", torch.bfloat16):
        found = made(given).last
        objective(found, given).sum().backward()
    assert found.v.dtype == torch.float32
    assert all(each.grad.isfinite().all() for each in made.parameters())
    # 2⁻⁸ of every product's inputs, through the layers.
    torch.testing.assert_close(found.v.detach(), exact, rtol=0, atol=2**-8 * 10 * float(exact.abs().max()))
