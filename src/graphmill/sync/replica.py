"""One rank's copy of the model, laid out flat: what the schemes exchange and what checkpoints hold."""

from collections.abc import Iterable, Iterator

import torch
import xxhash
from torch import Tensor, nn

from graphmill.base.errors import UserError


class Replica:
    """A model whose trainable parameters are views of one vector, and their gradients views of another.

    So a collective moves one tensor, the optimizer updates one tensor, and a hash reads one piece of memory. Buffers of
    the model (running statistics) are averaged at every sync too, so that replicas agree as wholes; of counters
    (integers, which differ if a rank had no seeds in a step) every rank takes the largest. Constants are parameters
    that need no gradient: saved with the others, never exchanged.
    """

    def __init__(self, model: nn.Module) -> None:
        """Lay a model out flat. `UserError` if a trainable parameter is not float32: its values would be rounded."""
        self.model = model
        _refuse_other_formats(model)
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        parameters = list(named.values())
        num_values = sum(p.numel() for p in parameters)
        device = parameters[0].device
        self.values = torch.empty(num_values, device=device)
        self.grads = torch.zeros(num_values, device=device)
        self.places: dict[str, slice] = {}  # of each parameter in the vectors, by its name in the model, in order
        offset = 0
        for name, parameter in named.items():
            here = slice(offset, offset + parameter.numel())
            self.values[here].copy_(parameter.detach().reshape(-1))
            parameter.data = self.values[here].view_as(parameter)
            parameter.grad = self.grads[here].view_as(parameter)
            self.places[name] = here
            offset = here.stop
        self.buffers = [b for b in model.buffers() if b.is_floating_point()]
        self.counters = [b for b in model.buffers() if not b.is_floating_point()]

    @property
    def num_parameters(self) -> int:
        """Trainable values."""
        return self.values.numel()

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter and buffer under its name in the model."""
        yield from self.model.state_dict().items()

    def state(self) -> list[Tensor]:
        """What replicas agree on after a sync: parameters, buffers, counters."""
        return [self.values, *self.buffers, *self.counters]

    def hash(self) -> int:
        """64 bits of `state`, bit for bit (xxh3)."""
        return hash_of(self.state())


def hash_of(state: Iterable[Tensor]) -> int:
    """64 bits of tensors, bit for bit (xxh3); waits for what a device computes of them."""
    digest = xxhash.xxh3_64()
    for tensor in state:
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.intdigest()


def _refuse_other_formats(model: nn.Module) -> None:
    others = [(name, p.dtype) for name, p in model.named_parameters() if p.requires_grad and p.dtype != torch.float32]
    if others:
        name, dtype = others[0]
        raise UserError(
            f"parameter {name} of the model is {str(dtype).removeprefix('torch.')} ({len(others)} of them), and "
            "training holds parameters in float32",
            fix="build the model in float32 (model.float()), and cast inside its forward where it computes otherwise",
        )
