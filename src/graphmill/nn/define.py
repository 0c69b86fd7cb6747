"""How a native operator becomes one of torch's: `torch.ops.graphmill`, with shapes for tracing and its gradient.

Each is defined once: what it computes on the CPU, what shape it gives (so that torch.compile traces it), and how its
gradient follows. `torch.library.custom_op` would be shorter, but take twice the time per call.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]  # torch: not in its __all__

from graphmill import _native
from graphmill.base.errors import UserError

_OPENMP: Final = re.compile(r"/lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")
_TOLD: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def share_torch_threads(environ: Mapping[str, str] = os.environ) -> bool:
    """Have native work of this thread done by torch's OpenMP threads, if these spin; returns whether they do it.

    OpenMP's threads spin for milliseconds unless the environment says otherwise, as a launcher of ours does. Threads of
    the native core would wait for their cores. torch must be imported.
    """
    if any(name in environ for name in _TOLD):
        return False
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    loaded = {line.split(maxsplit=5)[-1] for line in lines if _OPENMP.search(line)}
    # scikit-learn brings one of its own: torch's lies in torch's folder, or is the only one.
    of_torch = sorted(loaded, key=lambda path: ("/torch" not in path, path))
    return bool(of_torch) and _native.use_openmp(of_torch[0])


share_torch_threads()
_LIBRARY: Any = torch.library.Library("graphmill", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch: unannotated

T = TypeVar("T")
Backward = Callable[..., tuple[Tensor | None, ...]]
_PLAIN: Final = (Tensor, torch.nn.Parameter)  # and no class of theirs, behind which something else may be


class NativeOperator(Generic[T]):
    """An operator as Python calls it.

    It is computed at once where nobody but autograd would see the call: torch's dispatcher takes longer to reach Python
    than a small batch takes to compute. What traces, transforms or profiles calls is given torch's own.
    """

    def __init__(self, compute: Callable[..., T], registered: Callable[..., T]) -> None:
        self.registered = registered
        """Torch's own."""
        self._compute = compute
        self._function: type[torch.autograd.Function] | None = None

    def __call__(self, *inputs: Any) -> T:  # noqa: ANN401  # as the schema says
        """What the operator makes of `inputs`."""
        if torch.compiler.is_compiling() or not _nobody_looks() or not all(map(_is_plain, inputs)):
            return self.registered(*inputs)
        if self._function is None or not torch.is_grad_enabled() or not any(map(_needs_gradient, inputs)):
            return self._compute(*inputs)
        return self._function.apply(*inputs)  # type: ignore[no-any-return, no-untyped-call]  # torch: unannotated

    def differentiate(self, save: Callable[..., None], backward: Backward) -> None:
        """Give the operator its gradient: `save(ctx, inputs, output)`, then `backward(ctx, *grads)`."""
        name = str(self.registered).removesuffix(".default").replace(".", "::")
        backward = differentiated_once(name, backward)
        torch.library.register_autograd(name, backward, setup_context=save, lib=_LIBRARY)
        compute = self._compute

        def forward(ctx: Any, *inputs: Any) -> T:  # noqa: ANN401
            output = compute(*inputs)
            save(ctx, inputs, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._function = type(name, (torch.autograd.Function,), members)


def _nobody_looks() -> bool:
    return not (
        torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._autograd._profiler_enabled()
    )


def _is_plain(value: object) -> bool:
    return not isinstance(value, Tensor) or (type(value) in _PLAIN and value.is_cpu)


def _needs_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def define(
    schema: str, compute: Callable[..., T], shape: Callable[..., Any], *, on_gpu: Callable[..., T] | None = None
) -> NativeOperator[T]:
    """The operator `schema`: `compute` on the CPU, `shape` gives results as empty tensors."""
    name = schema[: schema.index("(")]
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, compute, "CPU")
    if on_gpu is not None:
        _LIBRARY.impl(name, on_gpu, "CUDA")
    torch.library.register_fake(f"graphmill::{name}", shape, lib=_LIBRARY)
    return NativeOperator(compute, getattr(torch.ops.graphmill, name).default)


def differentiated_once(name: str, backward: Backward) -> Backward:
    """`backward(ctx, *grads)` of the operator `name`, whose gradients raise where they are differentiated.

    What native code computes is a constant to autograd: a second derivative would lack all that goes through it.
    torch's `once_differentiable` looks at `grads` alone, but a gradient depends on what was saved, too.
    """

    @wraps(backward)
    def gradients(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401  # torch's
        if not torch.is_grad_enabled():  # without create_graph
            return backward(ctx, *grads)
        held = _ReadOnce(ctx)
        with torch.no_grad():
            found = backward(held, *grads)
        sources = [t for t in (*grads, *held.saved_tensors) if isinstance(t, Tensor) and t.requires_grad]
        present = [gradient for gradient in found if gradient is not None]
        if not sources or not present:
            return found
        marked = iter(_Once.apply(name, len(present), *present, *sources))  # type: ignore[no-untyped-call]  # torch's
        return tuple(None if gradient is None else next(marked) for gradient in found)

    return gradients


class _ReadOnce:
    """A context whose saved tensors are taken out once: those of a checkpointed region cannot be taken out twice."""

    def __init__(self, ctx: Any) -> None:  # noqa: ANN401  # torch's
        self._ctx = ctx
        self.saved_tensors = ctx.saved_tensors

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._ctx, name)


class _Once(torch.autograd.Function):
    """Gradients as they are, that follow from `sources` in a way which autograd must not differentiate."""

    @staticmethod
    def forward(ctx: Any, name: str, num_gradients: int, *gradients_and_sources: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.name = name
        return tuple(gradient.view_as(gradient) for gradient in gradients_and_sources[:num_gradients])

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        raise UserError(
            f"{ctx.name} has first derivatives only, and its gradient is being differentiated",
            fix="attention='reference' for GATConv and GATv2Conv (model.attention=reference); for other layers those of"
            " torch and PyG, or weights and inputs in float64, for which these layers compute with torch's operators",
        )


def capsule(x: Tensor | None) -> Any:  # noqa: ANN401  # a capsule
    """A tensor as the core takes it, without a copy where it is contiguous; its gradient is asked of nobody here.

    The core would ask for the same by `Tensor.__dlpack__`, which takes eight times as long.
    """
    return None if x is None else to_dlpack(x if x.is_contiguous() else x.contiguous())
