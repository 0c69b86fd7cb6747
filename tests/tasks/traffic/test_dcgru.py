"""The cell against the paper's equations, written out; native against torch; both backwards."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmill.tasks.traffic.dcgru import CellAt, DcgruCell, _NativeCell, _TorchCell
from graphmill.tasks.traffic.walks import RandomWalks


def random_graph(nodes: int, density: float = 0.4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < density)).astype(np.float32)


def walks_of(adjacency: np.ndarray, steps: int) -> RandomWalks:
    edges = np.nonzero(adjacency)
    return RandomWalks.of(np.stack(edges).astype(np.int32), adjacency[edges], len(adjacency), steps)


def make_cell(channels: int, units: int, walks: RandomWalks) -> DcgruCell:
    cell = DcgruCell(channels=channels, units=units, num_slots=walks.num_slots)
    generator = torch.Generator().manual_seed(0)
    cell.reset_parameters(generator)
    for bias in (cell.gate_bias, cell.candidate_bias):
        torch.nn.init.normal_(bias, generator=generator)
    return cell


def in_torch(cell: DcgruCell, walks: RandomWalks) -> _TorchCell:
    weights = (cell.gate_weight, cell.gate_bias, cell.candidate_weight, cell.candidate_bias)
    return _TorchCell(walks.tensors(cell.gate_weight), walks, weights)


def paper(cell: DcgruCell, adjacency: np.ndarray, steps: int, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Equations 2 and 5 of the paper for one sample, node features one channel at a time, in float64."""
    w = adjacency.astype(np.float64)
    out_degree, in_degree = w.sum(axis=1), w.sum(axis=0)
    along = np.diag([1 / d if d else 0 for d in out_degree]) @ w
    against = np.diag([1 / d if d else 0 for d in in_degree]) @ w.T
    powers = [np.linalg.matrix_power(along, 0)]
    for walk in (along, against):
        powers += [np.linalg.matrix_power(walk, k) for k in range(1, steps + 1)]

    def convolve(parts: list[np.ndarray], weight: Tensor, bias: Tensor) -> np.ndarray:
        columns, out = 0, np.tile(bias.detach().double().numpy(), (len(w), 1))
        theta = weight.detach().double().numpy()
        for part in parts:
            for power in powers:
                for channel in range(part.shape[1]):
                    out += np.outer(power @ part[:, channel], theta[:, columns])
                    columns += 1
        assert columns == theta.shape[1]
        return out

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    r, u = np.split(sigmoid(convolve([h, x], cell.gate_weight, cell.gate_bias)), 2, axis=1)
    c = np.tanh(convolve([x, r * h], cell.candidate_weight, cell.candidate_bias))
    return u * h + (1 - u) * c


@pytest.mark.parametrize(("nodes", "channels", "units", "steps"), [(6, 2, 5, 2), (9, 1, 16, 3), (4, 20, 33, 1)])
def test_the_cell_is_the_papers(nodes: int, channels: int, units: int, steps: int) -> None:
    adjacency = random_graph(nodes)
    adjacency[0] = 0  # nothing leads on from here
    walks = walks_of(adjacency, steps)
    cell = make_cell(channels, units, walks)
    x, h = torch.randn(3, nodes, channels), torch.randn(3, nodes, units)
    ready = cell.at(walks)
    assert isinstance(ready, _NativeCell)
    for form in (ready, in_torch(cell, walks)):
        out = form(x, h).detach().numpy()
        for sample in range(3):
            expected = paper(cell, adjacency, steps, x[sample].double().numpy(), h[sample].double().numpy())
            np.testing.assert_allclose(out[sample], expected, atol=2e-6)


def gradients(form: CellAt, x: Tensor, h: Tensor, cell: DcgruCell) -> list[Tensor]:
    out = form(x, h)
    weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [x, h, *cell.parameters()])]


@settings(deadline=None, max_examples=30)
@given(
    nodes=st.integers(1, 40),
    samples=st.integers(1, 30),
    channels=st.integers(1, 20),
    units=st.integers(1, 40),
    steps=st.integers(1, 3),
    density=st.sampled_from([0.05, 0.5, 1.0]),
)
def test_native_and_torch_agree(
    nodes: int, samples: int, channels: int, units: int, steps: int, density: float
) -> None:
    walks = walks_of(random_graph(nodes, density, seed=nodes), steps)
    cell = make_cell(channels, units, walks)
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, nodes, channels, generator=generator).requires_grad_()
    h = torch.randn(samples, nodes, units, generator=generator).requires_grad_()
    native = gradients(cell.at(walks), x, h, cell)
    cell.double()
    x, h = (each.detach().double().requires_grad_() for each in (x, h))
    for mine, exact in zip(native, gradients(in_torch(cell, walks), x, h, cell), strict=True):
        scale = exact.abs().max().clamp(min=1e-3)
        assert (mine - exact).abs().max() <= 1e-5 * scale


def test_the_torch_form_has_the_right_gradient() -> None:
    walks = walks_of(random_graph(4), 2)
    cell = make_cell(2, 3, walks).double()
    x, h = (torch.randn(2, 4, width, dtype=torch.double, requires_grad=True) for width in (2, 3))
    assert torch.autograd.gradcheck(in_torch(cell, walks), (x, h))


def test_threads_do_not_change_a_bit() -> None:
    walks = walks_of(random_graph(50), 2)
    cell = make_cell(3, 20, walks)
    x, h = torch.randn(37, 50, 3, requires_grad=True), torch.randn(37, 50, 20, requires_grad=True)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(gradients(cell.at(walks), x, h, cell))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_every_instruction_set(isa: str, source_environ: dict[str, str]) -> None:
    call = "import test_dcgru; test_dcgru.test_the_cell_is_the_papers(9, 3, 33, 2)"
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {call}"
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder],
        env={**source_environ, "GRAPHMILL_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    if "is not one of" in done.stderr:
        pytest.skip(f"this processor does not run {isa}")
    assert done.returncode == 0, done.stderr


def test_walks_are_random_walks() -> None:
    walks = walks_of(random_graph(30, 0.2), 2)
    assert walks.num_slots == walks.native.num_slots == 5
    for matrix in walks.tensors(torch.zeros(1)):
        sums = matrix.to_dense().sum(dim=1)
        assert (((sums - 1).abs() < 1e-5) | (sums == 0)).all()
    along, against = (matrix.to_dense() for matrix in walks.tensors(torch.zeros(1)))
    assert ((along > 0) == (against.T > 0)).all()


def test_edges_given_twice_add_up() -> None:
    edges = np.array([[0, 0, 0], [1, 1, 2]], dtype=np.int32)
    walks = RandomWalks.of(edges, np.array([1, 2, 1], dtype=np.float32), 3, 1)
    along = walks.tensors(torch.zeros(1))[0].to_dense()
    np.testing.assert_allclose(along[0], [0, 0.75, 0.25])


@pytest.mark.parametrize("density", [0.02, 0.9])
def test_dense_and_sparse_walks_agree(density: float) -> None:
    walks = walks_of(random_graph(40, density), 2)
    cell = make_cell(2, 4, walks)
    assert in_torch(cell, walks).matrices[0].is_sparse == (density < 0.1)
    x, h = torch.randn(3, 40, 2), torch.randn(3, 40, 4)
    torch.testing.assert_close(in_torch(cell, walks)(x, h), cell.at(walks)(x, h), atol=1e-5, rtol=1e-4)
