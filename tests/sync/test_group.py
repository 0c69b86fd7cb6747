"""A rank alone, the traffic that is counted, and the replica laid out flat."""

import socket
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.spec.experiment import DilocoSpec, LocalSgdSpec
from graphmill.sync.group import Group, interface_bytes
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import Step, build_scheme

CPU = torch.device("cpu")


def small_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[2].bias.requires_grad_(False)
    return model


def test_a_rank_alone_moves_no_bytes():
    group = Group(0, 1, CPU)
    tensor = torch.ones(3)
    group.all_reduce(tensor)
    group.barrier()
    assert group.gather_numbers([3, -4]) == [[3, -4]]
    assert group.sum_numbers(torch.tensor([2.0])).tolist() == [2.0]
    assert group.gather_rows(tensor.view(3, 1), [3]).tolist() == [[1.0]] * 3
    assert (group.traffic.payload_bytes, group.traffic.control_bytes) == (0, 0)
    assert tensor.tolist() == [1.0] * 3


def received(interface: str) -> int:
    """As the kernel counts."""
    (line,) = (row for row in Path("/proc/net/dev").read_text().splitlines() if row.strip().startswith(f"{interface}:"))
    return int(line.partition(":")[2].split()[0])


def test_the_interface_counts_a_known_transfer():
    """Between two looks at the kernel's own counter, however much others send over loopback meanwhile."""
    num_bytes, at_first = 8 << 20, interface_bytes("lo")
    one, other = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with one, other:
        other.connect(one.getsockname())
        taken, _ = one.accept()
        with taken:
            thread = threading.Thread(target=other.sendall, args=(bytes(num_bytes),))
            thread.start()
            left = num_bytes
            while left:
                left -= len(taken.recv(1 << 20))
            thread.join()
    before = received("lo")
    counted = interface_bytes("lo")
    assert before <= counted <= received("lo")
    assert counted - at_first >= num_bytes


def test_parameters_and_gradients_are_views_of_one_vector():
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    replica = Replica(model)
    assert replica.num_parameters == 3 * 4 + 4 + 4 + 4 + 4 * 2, "frozen parameters are not trained, so not exchanged"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model(torch.randn(5, 3)).sum().backward()
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.requires_grad])
    assert torch.equal(flat, replica.grads)
    replica.values += 1
    assert torch.equal(model[0].weight, before["0.weight"] + 1)
    model(torch.randn(5, 3)).sum().backward()
    assert all(p.grad.data_ptr() >= replica.grads.data_ptr() for p in model.parameters() if p.requires_grad)


def test_loading_keeps_the_views():
    replica, other = Replica(small_model()), Replica(small_model())
    other.values.normal_()
    other.model[1].running_mean.fill_(7)
    weights = {name: tensor.clone() for name, tensor in other.named_tensors()}
    Weights(weights, None, "another replica").load_all_into(replica.model)
    assert torch.equal(replica.values, other.values)
    assert replica.hash() == other.hash()
    assert replica.model[0].weight.data_ptr() == replica.values.data_ptr()


def test_the_hash_sees_every_bit_of_parameters_and_buffers():
    replica = Replica(small_model())
    known = {replica.hash()}
    for index in range(replica.num_parameters):
        words = replica.values.view(torch.int32)
        words[index] ^= 1
        known.add(replica.hash())
        words[index] ^= 1
    replica.model[1].running_var[2] += 1e-6
    known.add(replica.hash())
    assert len(known) == replica.num_parameters + 2
    assert all(0 <= value < 2**64 for value in known)


def test_a_schemes_state_comes_back():
    group = Group(0, 1, CPU)

    def build(spec):
        replica = Replica(small_model())
        flat = nn.Parameter(replica.values)
        flat.grad = replica.grads
        return replica, build_scheme(spec, replica, torch.optim.Adam([flat], lr=0.1, fused=True), group)

    for spec in (DilocoSpec(scheme="diloco", every=2), LocalSgdSpec(scheme="local_sgd", warmup_steps=3)):
        (replica, scheme), (other, resumed) = build(spec), build(spec)
        for step in range(2):
            replica.grads.fill_(1.0)
            scheme.after_backward(Step(1, 1, step == 1))
        other.values.copy_(replica.values)
        resumed.load_state({name: tensor.clone() for name, tensor in scheme.state().items()})
        assert torch.equal(resumed.anchor, scheme.anchor)
        assert resumed.steps_done == scheme.steps_done == 2
        for name, tensor in scheme.state().items():
            assert torch.equal(resumed.state()[name], tensor)


def test_whole_numbers_are_part_of_the_hash():
    replica = Replica(small_model())
    before = replica.hash()
    replica.model[1].num_batches_tracked += 1
    assert replica.hash() != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_number_format_is_refused_by_the_name_of_its_parameter(dtype):
    model = small_model()
    model[1].to(dtype)
    with pytest.raises(UserError, match=rf"1\.weight.*{str(dtype)[6:]} \(2 of") as caught:
        Replica(model)
    assert "model.float()" in caught.value.fix
    assert model[0].weight.dtype == torch.float32
    assert model[1].weight.dtype == dtype, "refused before anything is changed"


def test_frozen_parameters_keep_their_format():
    model = small_model()
    model[2].bias.data = model[2].bias.data.double()
    Replica(model)
    assert model[2].bias.dtype == torch.float64
