"""The cell against the paper's equations, written out; native against torch; both backwards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import Bounded, assert_within, cat
from slow_cases import num_examples
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.nn.dcgru import CellAt, DcgruCell, RandomWalks, _NativeCell, _TorchCell


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


@pytest.mark.each_isa
@pytest.mark.parametrize(("nodes", "channels", "units", "steps"), [(6, 2, 5, 2), (9, 1, 16, 3), (4, 20, 33, 1)])
def test_the_cell_is_the_papers(nodes: int, channels: int, units: int, steps: int) -> None:
    adjacency = random_graph(nodes)
    adjacency[0] = 0  # nothing leads on from here
    walks = walks_of(adjacency, steps)
    cell = make_cell(channels, units, walks)
    x, h = torch.randn(3, nodes, channels), torch.randn(3, nodes, units)
    ready = cell.at(walks)
    assert isinstance(ready, _NativeCell)
    bounds = WrittenOut(cell, walks).gradients(x, h)[0].slack
    for form in (ready, in_torch(cell, walks)):
        out = form(x, h).detach().numpy()
        for sample in range(3):
            expected = paper(cell, adjacency, steps, x[sample].double().numpy(), h[sample].double().numpy())
            assert_within(torch.from_numpy(out[sample]), Bounded(torch.from_numpy(expected), bounds[sample]))


def gradients(form: CellAt, x: Tensor, h: Tensor, cell: DcgruCell) -> list[Tensor]:
    out = form(x, h)
    return [out.detach(), *torch.autograd.grad(out, [x, h, *cell.parameters()], loss_weights(out))]


def loss_weights(out: Tensor) -> Tensor:
    """The gradient of the loss with respect to each output."""
    return torch.cos(torch.arange(out.numel(), dtype=torch.float32)).view_as(out).to(out.dtype)


class WrittenOut:
    """The cell and its backward in their equations, with a bound on the roundings of both."""

    def __init__(self, cell: DcgruCell, walks: RandomWalks) -> None:
        self.gate_weight, self.gate_bias, self.candidate_weight, self.candidate_bias = map(
            Bounded.of, cell.parameters()
        )
        self.units, self.channels, self.steps = cell.units, cell.channels, walks.max_diffusion_step
        self.matrices = [Bounded.of(matrix.to_dense()) for matrix in walks.tensors(torch.zeros((), dtype=torch.double))]

    def diffused(self, x: Bounded) -> list[Bounded]:
        slots = [x]
        for matrix in self.matrices:
            slots.append(matrix @ x)
            for _ in range(self.steps - 1):
                slots.append(matrix @ slots[-1])
        return slots

    def undiffused(self, slots: list[Bounded]) -> Bounded:
        total = slots[0]
        for number, matrix in enumerate(self.matrices):
            of_walk = slots[1 + number * self.steps : 1 + (number + 1) * self.steps]
            back = of_walk[-1]
            for slot in reversed(of_walk[:-1]):
                back = matrix.t() @ back + slot
            total = total + matrix.t() @ back
        return total

    def product_backward(self, grad: Bounded, inputs: Bounded, weight: Bounded) -> tuple[Bounded, Bounded, Bounded]:
        rows, columns = (each.moved(lambda x: x.flatten(0, 1)) for each in (grad, inputs))
        return grad @ weight, rows.t() @ columns, rows.sum(0)

    def gradients(self, x: Tensor, h: Tensor) -> list[Bounded]:
        """The new h; the gradients of x, of h, and of the cell's parameters."""
        h_, x_slots = Bounded.of(h), self.diffused(Bounded.of(x))
        gate_inputs = cat([*self.diffused(h_), *x_slots], 2)
        reset, update = (gate_inputs @ self.gate_weight.t() + self.gate_bias).sigmoid().split(self.units, 2)
        candidate_inputs = cat([*x_slots, *self.diffused(reset * h_)], 2)
        candidate = (candidate_inputs @ self.candidate_weight.t() + self.candidate_bias).tanh()
        new_h = candidate + update * (h_ - candidate)

        grad, of_x, of_h = Bounded.of(loss_weights(h)), self.channels, self.units
        before = grad * (1 - update) * (1 - candidate * candidate)
        inputs, *of_candidate = self.product_backward(before, candidate_inputs, self.candidate_weight)
        num_slots = len(x_slots)
        parts = inputs.split([of_x] * num_slots + [of_h] * num_slots, 2)
        grad_x, grad_reset_h = self.undiffused(parts[:num_slots]), self.undiffused(parts[num_slots:])
        of_reset = grad_reset_h * h_ * reset * (1 - reset)
        of_update = grad * (h_ - candidate) * update * (1 - update)
        inputs, *of_gates = self.product_backward(cat([of_reset, of_update], 2), gate_inputs, self.gate_weight)
        parts = inputs.split([of_h] * num_slots + [of_x] * num_slots, 2)
        grad_h = grad * update + grad_reset_h * reset + self.undiffused(parts[:num_slots])
        return [new_h, grad_x + self.undiffused(parts[num_slots:]), grad_h, *of_gates, *of_candidate]


@pytest.mark.each_isa
@settings(deadline=None, max_examples=num_examples(12, explored=30))
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
    """With the equations written out, and so with each other: native in float32, torch in float32 and in float64."""
    walks = walks_of(random_graph(nodes, density, seed=nodes), steps)
    cell = make_cell(channels, units, walks)
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, nodes, channels, generator=generator).requires_grad_()
    h = torch.randn(samples, nodes, units, generator=generator).requires_grad_()
    exact = WrittenOut(cell, walks).gradients(x, h)
    for form in (cell.at(walks), in_torch(cell, walks)):
        for found, bounded in zip(gradients(form, x, h, cell), exact, strict=True):
            assert_within(found, bounded)
    cell.double()
    x, h = (each.detach().double().requires_grad_() for each in (x, h))
    for found, bounded in zip(gradients(in_torch(cell, walks), x, h, cell), exact, strict=True):
        assert_within(found, bounded, computed=torch.float64)


@pytest.mark.parametrize("size", [60.0, 100.0, 1000.0])
def test_saturated_gates(size: float) -> None:
    """e^x overflows at 88.7, and its bits run over into the sign: a sigmoid is 0 or 1 there, and a tangent -1 or 1."""
    walks = walks_of(random_graph(6), 2)
    cell = make_cell(2, 20, walks)
    signs = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        cell.gate_bias.copy_(size * signs.repeat(20))
        cell.candidate_bias.copy_(size * signs.repeat_interleave(10))
    x, h = torch.randn(3, 6, 2, requires_grad=True), torch.randn(3, 6, 20, requires_grad=True)
    exact = WrittenOut(cell, walks).gradients(x, h)
    for form in (cell.at(walks), in_torch(cell, walks)):
        for found, bounded in zip(gradients(form, x, h, cell), exact, strict=True):
            assert_within(found, bounded)


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


def test_walks_are_random_walks() -> None:
    walks = walks_of(random_graph(30, 0.2), 2)
    assert walks.num_slots == walks.native.num_slots == 5
    for matrix in walks.tensors(torch.zeros(1)):
        sums = matrix.to_dense().double().sum(dim=1)  # of float32 values: each is rounded once, by half a unit at most
        assert (((sums - 1).abs() <= 2.0**-24) | (sums == 0)).all()
    along, against = (matrix.to_dense() for matrix in walks.tensors(torch.zeros(1)))
    assert ((along > 0) == (against.T > 0)).all()


def test_edges_given_twice_add_up() -> None:
    edges = np.array([[0, 0, 0], [1, 1, 2]], dtype=np.int32)
    walks = RandomWalks.of(edges, np.array([1, 2, 1], dtype=np.float32), 3, 1)
    along = walks.tensors(torch.zeros(1))[0].to_dense()
    assert along[0].tolist() == [0, 0.75, 0.25]


@pytest.mark.parametrize("density", [0.02, 0.9])
def test_dense_and_sparse_walks_agree(density: float) -> None:
    walks = walks_of(random_graph(40, density), 2)
    cell = make_cell(2, 4, walks)
    assert in_torch(cell, walks).matrices[0].is_sparse == (density < 0.1)
    x, h = torch.randn(3, 40, 2), torch.randn(3, 40, 4)
    exact = WrittenOut(cell, walks).gradients(x, h)[0]
    for form in (in_torch(cell, walks), cell.at(walks)):
        assert_within(form(x, h), exact)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_gradient_of_the_native_step_is_not_differentiated(frozen: bool) -> None:
    walks = walks_of(random_graph(6), 2)
    cell = make_cell(2, 5, walks).requires_grad_(not frozen)
    x, h = torch.randn(3, 6, 2, requires_grad=True), torch.randn(3, 6, 5)
    (first,) = torch.autograd.grad(cell.at(walks)(x, h).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(cell.at(walks)(x, h).sum(), x)
    assert torch.equal(first, expected)
    with pytest.raises(UserError, match="first derivatives"):
        first.pow(2).sum().backward()
