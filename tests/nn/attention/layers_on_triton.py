"""GATConv and GATv2Conv by Triton's kernels in its interpreter, against plain PyTorch; says what it has compared."""

import itertools

import torch

from graphmill.nn import define as defining

define = defining.define


def define_by_gpu(schema, compute, shape, *, on_gpu=None):
    """What is defined for GPUs runs on the CPU."""
    return define(schema, on_gpu or compute, shape)


defining.define = define_by_gpu

from graphmill.nn.attention import GATConv, GATv2Conv, layers, operator  # noqa: E402

layers.FORMATS["cpu"] = layers.FORMATS["cuda"]


def results(layer, x, edge_index, edge_attr):
    x, edge_attr = x.clone().requires_grad_(), edge_attr.clone().requires_grad_()
    out, (ends, alpha) = layer(x, edge_index, edge_attr, return_attention_weights=True, dropout_key=torch.tensor([5]))
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    gradients = torch.autograd.grad((out * weights).sum(), [x, edge_attr, *layer.parameters()])
    return [out, ends, alpha, *gradients]


def main() -> None:
    torch.manual_seed(0)
    x, edge_index, edge_attr = torch.randn(5, 4), torch.randint(5, (2, 16)), torch.randn(16, 3)
    for kind in (GATConv, GATv2Conv):
        fused, plain = (kind(4, 3, 2, dropout=0.3, edge_dim=3, attention=form) for form in ("fused", "reference"))
        plain.load_state_dict(fused.state_dict())
        for mine, other in zip(results(fused, x, edge_index, edge_attr), results(plain, x, edge_index, edge_attr),
                               strict=True):  # fmt: skip
            assert torch.allclose(mine, other, rtol=0, atol=2.0**-17), (kind, mine - other)
        print(kind.__name__)
    for kind in (GATConv, GATv2Conv):
        layer = kind(4, 3, 2, edge_dim=3)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x, edge_index, edge_attr)
        full = layer(x, edge_index, edge_attr).detach()
        assert float((out.detach() - full).abs().max()) < 2.0**-4 * float(full.abs().max())
        assert all(each.dtype == torch.float32 for each in torch.autograd.grad(out.sum(), layer.parameters()))
    print("autocast")
    seen = []
    original = operator._attention
    operator._attention = lambda *arguments: seen.append(arguments) or original(*arguments)
    for kind, p in itertools.product((GATConv, GATv2Conv), (0.0, 0.3)):
        kind(4, 3, 2, dropout=p, edge_dim=3)(x, edge_index, edge_attr)
    for arguments in seen:
        leaves = [each.detach().requires_grad_(each.is_floating_point()) if isinstance(each, torch.Tensor) else each
                  for each in arguments]  # fmt: skip
        checked = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(original.registered, tuple(leaves), test_utils=checked)
    print("opcheck")


if __name__ == "__main__":
    main()
