"""A device that is not the CPU, made of the CPU: which tensor is where is checked as on a GPU, and values are real.

Its tensors wrap tensors of the CPU, and say that they are on `DEVICE`. An operator that is given tensors from both
sides raises, as on a GPU; so does a native operator, which finds no memory to read. `WAITS` lists what would make a
rank wait for a GPU: a value that is read, a result whose length only the values tell, a blocking copy; `COPIED` the
shapes of what goes there. Kernels find its memory, as `shim_kernels` starts them.

What it cannot show: that CUDA's kernels exist and are right, streams, page-locked memory, nccl. Torch learns of the
device for the whole process, so this runs in one of its own.
"""

import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

aten = torch.ops.aten
WAITS: list[str] = []  # of the thread that steps
COPIED: list[tuple[int, ...]] = []
HANDED_OVER: set[int] = set()  # ids of tensors that were made known to the stream that computes


def _waited(what: str) -> None:
    if threading.current_thread() is threading.main_thread():  # loaders may wait
        WAITS.append(what)


class _Module(_DummyBackendModule):
    """What torch asks of a device's module besides."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        del seed  # draws are made by the CPU's generator


_setup_privateuseone_for_python_backend("pretended", backend_module=_Module())
DEVICE = torch.device("pretended", 0)


class OnDevice(torch.Tensor):
    """A tensor of the device: `values_` is what it holds."""

    values_: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "OnDevice":
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=DEVICE,
        )  # fmt: skip

    def __init__(self, inner: torch.Tensor) -> None:
        self.values_ = inner

    def data_ptr(self) -> int:
        return self.values_.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def record_stream(self, stream: "Stream") -> None:
        del stream
        HANDED_OVER.add(id(self))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.data.__set__:  # the flat parameters of `sync.replica`
            args[0].values_ = args[1].values_
        with torch._C.DisableTorchFunctionSubclass():  # else results on the CPU would be taken for the device's
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class PretendedDevice(TorchDispatchMode):
    """Inside, `device=DEVICE` makes tensors of the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Step:
    """Which step is queued: what was queued in it is not over yet, and what was before may be."""

    number = 0


class Event:
    """In the place of torch.cuda.Event. To wait for what this step has queued is to wait for the device."""

    def __init__(self, stream: "Stream") -> None:
        self.stream, self.step = stream, Step.number

    def synchronize(self) -> None:
        if self.step == Step.number:
            _waited("what the step has queued was waited for")


class Stream:
    """In the place of torch.cuda.Stream: there is one order of things anyway."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record_event(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        assert event.stream is not self, "the copy has a stream of its own"


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    ours = [each for each in tensors if isinstance(each, OnDevice)]
    target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
    if func is aten._pin_memory.default:
        return args[0].clone()
    if ours and func is aten._local_scalar_dense.default:
        _waited("a value was read")
    if ours and func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        _waited("the length of a result was asked")
    is_mask = func in (aten.index.Tensor, aten.index_put_.default) and any(
        each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1]
    )
    if ours and (is_mask or func in (aten.nonzero.default, aten.masked_select.default)):
        _waited("a mask was counted")
    crosses = func in (aten._to_copy.default, aten.copy_.default)
    if func is aten._to_copy.default and target is not None:
        if ours and target.type == "cpu":
            _waited("a copy to the CPU")
        if not ours and target.type != "cpu" and not kwargs.get("non_blocking"):
            _waited("a blocking copy from the CPU")
    if func is aten.copy_.default and ours and not (kwargs.get("non_blocking") or (len(args) > 2 and args[2])):
        if not isinstance(args[0], OnDevice):
            _waited("a copy to the CPU")
        elif not isinstance(args[1], OnDevice):
            _waited("a blocking copy from the CPU")
    is_sent = func is aten._to_copy.default and target is not None and target.type != "cpu" and not ours
    if is_sent or (func is aten.copy_.default and isinstance(args[0], OnDevice) and not isinstance(args[1], OnDevice)):
        COPIED.append(tuple(args[0].shape))
    if ours and func is aten.equal.default:
        _waited("tensors were compared")
    if ours and not crosses and any(each.dim() and not isinstance(each, OnDevice) for each in tensors):
        raise RuntimeError(f"{func} was given tensors of {sorted({str(each.device) for each in tensors})}")
    inner_args, inner_kwargs = tree_map(
        lambda each: each.values_ if isinstance(each, OnDevice) else each, (args, kwargs)
    )
    if target is not None:
        inner_kwargs = {**inner_kwargs, "device": torch.device("cpu")}
    out = func(*inner_args, **inner_kwargs)
    if not (target.type != "cpu" if target is not None else isinstance(args[0], OnDevice) if crosses else ours):
        return out
    out = tree_map(lambda each: OnDevice(each) if isinstance(each, torch.Tensor) else each, out)
    return return_and_correct_aliasing(func, args, kwargs, out)
