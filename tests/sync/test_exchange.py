"""Gradients that are exchanged in pieces: what backward knows goes out, in one order, and the sums are those of one."""

import gc
from contextlib import nullcontext
from weakref import ref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphmill.base.errors import UserError
from graphmill.sync.exchange import GradientExchange
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica


class Carried(Group):
    """A rank of two, whose other rank has gradients of 0: it carries nothing, and notes what it is given."""

    def begin_all_reduce(self, tensor):
        self.given.append(tensor.clone())

    def all_reduce(self, tensor):
        self.waited.append(tensor.clone())

    def finish(self, work):
        assert work is None


def exchange_of(model, piece_bytes):
    group = Carried(0, 2, torch.device("cpu"))
    group.given, group.waited = [], []
    return GradientExchange(Replica(model), group, torch.float32, piece_bytes=piece_bytes)


def layers(*sizes):
    return nn.ParameterList([nn.Parameter(torch.ones(size)) for size in sizes])


@pytest.mark.parametrize(
    ("sizes", "least", "pieces"),
    [
        ((4, 4, 4), 4, [(8, 12), (4, 8), (0, 4)]),
        ((4, 4, 4), 5, [(4, 12), (0, 4)]),
        ((1, 9, 2), 3, [(1, 12), (0, 1)]),
        ((4, 4, 4), 12, [(0, 12)]),
        ((4, 4, 4), 100, [(0, 12)]),
        ((4, 4, 0), 4, [(4, 8), (0, 4)]),
        ((0, 4, 4), 4, [(4, 8), (0, 4)]),
        ((0,), 4, []),
    ],
)
def test_pieces_end_between_parameters_and_cover_all(sizes, least, pieces):
    found = exchange_of(layers(*sizes), 4 * least).pieces
    assert [(piece.start, piece.stop) for piece in found] == pieces


def test_a_piece_goes_out_when_it_and_those_before_it_are_known():
    model = layers(2, 2, 2)
    exchange = exchange_of(model, 8)
    exchange.begin(2.0)
    model[1].sum().backward()
    assert not exchange.group.given, "the last goes out first"
    (model[2].sum() * 6).backward()
    assert [piece.tolist() for piece in exchange.group.given] == [[3.0, 3.0], [0.5, 0.5]]
    exchange.finish(2.0)
    assert exchange.replica.grads.tolist() == [0.0, 0.0, 0.5, 0.5, 3.0, 3.0]
    assert len(exchange.group.given) == 2
    assert [piece.tolist() for piece in exchange.group.waited] == [[0.0, 0.0]], "one span: what is sent after backward"


def test_backward_that_is_no_last_step_of_a_round_sends_nothing():
    model = layers(2, 2)
    exchange = exchange_of(model, 8)
    (model[0] + model[1]).sum().backward()
    assert not exchange.group.given
    exchange.begin(2.0)
    (model[0] + model[1]).sum().backward()
    exchange.finish(2.0)
    assert exchange.replica.grads.tolist() == [1.0] * 4


def test_a_profile_has_all_of_the_exchange_after_backward():
    model = layers(2, 2)
    exchange = exchange_of(model, 8)
    exchange.group.spans.around = lambda name: nullcontext()
    exchange.begin(2.0)
    (model[0] + model[1]).sum().backward()
    assert not exchange.group.given
    exchange.finish(2.0)
    assert exchange.replica.grads.tolist() == [0.5] * 4


def test_hooks_keep_no_model_alive():
    model = layers(2, 2)
    exchange = exchange_of(model, 8)
    assert len(exchange.pieces) == 2
    seen = ref(model)
    del model, exchange
    gc.collect()
    assert seen() is None


class Reentrant(nn.Module):
    """The last parameter is read in two pieces of the graph, which backward goes through one after the other."""

    def __init__(self):
        super().__init__()
        self.parameters_of = layers(2, 2)

    def forward(self, x, *, use_reentrant):
        for _ in range(2):
            x = checkpoint(lambda row: row * self.parameters_of[1], x, use_reentrant=use_reentrant)
        return (x * self.parameters_of[0]).sum()


def test_a_gradient_that_changes_after_it_was_sent_is_told_and_the_advice_works():
    model = Reentrant()
    exchange = exchange_of(model, 8)
    exchange.begin(1.0)
    loss = model(torch.ones(2, requires_grad=True), use_reentrant=True)
    with pytest.raises(UserError, match=r"gradient of parameters_of\.1 more than once") as caught:
        loss.backward()
    assert "use_reentrant=False" in caught.value.fix
    model = Reentrant()
    exchange = exchange_of(model, 8)
    exchange.begin(1.0)
    model(torch.ones(2, requires_grad=True), use_reentrant=False).backward()
    exchange.finish(1.0)
    assert exchange.replica.grads.tolist() == [1.0, 1.0, 2.0, 2.0]
