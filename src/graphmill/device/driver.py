"""Starts kernels through CUDA's driver, by three of its functions, whose interface has been the same for ten years.

torch's own loader is private and passes integers of 32 bits, while keys have 64. The shim is a library with the same
three functions, so that what is tested on the CPU is what starts kernels on a GPU.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError, UserError

THREADS: Final = 256  # in a block: what the kernels are compiled for
_MOST_BLOCKS: Final = (1 << 31) - 1
_MASK: Final = (1 << 64) - 1

Argument = Tensor | int | ctypes.Structure | None


class KernelDriver:
    """A module of kernels that is loaded, and the stream that they are started on."""

    def __init__(self, library: str | Path, image: bytes, stream: Callable[[], int]) -> None:
        """Load a module into the current context.

        Args:
            library: the driver, `libcuda.so.1`, or the shim.
            image: cubins and PTX as nvcc's fatbin holds them; the shim has its own kernels and ignores it.
            stream: of which kernel starts are part.

        Raises:
            UserError: the library cannot be loaded, or refuses the image.
        """
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise UserError(f"{library} cannot be loaded: {error}", fix="install NVIDIA's driver") from None
        self._library.cuLaunchKernel.argtypes = [
            ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
        ]  # fmt: skip
        self._stream = stream
        self._module = ctypes.c_void_p()
        self._image = image  # the driver may read it later
        self._check(self._library.cuModuleLoadData(ctypes.byref(self._module), image), "load the kernels")
        self._functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, num_threads: int, *arguments: Argument) -> None:
        """Start a kernel; the host does not wait for it.

        Args:
            name: of the kernel, without its prefix.
            num_threads: how many threads there must be at least; none: nothing is started.
            arguments: in the kernel's order. A tensor is its address, which must stay valid as torch's allocator
                keeps it for the stream; None a null pointer; an integer has 64 bits.

        Raises:
            UserError: the driver refused.
        """
        blocks = -(-num_threads // THREADS)
        if blocks == 0:
            return
        if blocks > _MOST_BLOCKS:
            raise InvalidInputError(f"{num_threads} threads are more than one start has", fix="make smaller batches")
        values = [_value_of(argument) for argument in arguments]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        status = self._library.cuLaunchKernel(
            self._function(name), blocks, 1, 1, THREADS, 1, 1, 0, self._stream(), addresses, None
        )
        self._check(status, f"start {name}")

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            status = self._library.cuModuleGetFunction(
                ctypes.byref(function), self._module, f"graphmill_{name}".encode()
            )
            self._check(status, f"find the kernel {name}")
            self._functions[name] = function
        return self._functions[name]

    def _check(self, status: int, what: str) -> None:
        if status == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else "unknown error"
        raise UserError(
            f"CUDA's driver could not {what}: {reason} ({status})", fix="graphmill doctor says what the device can do"
        )


def _value_of(argument: Argument) -> ctypes.Structure | ctypes.c_void_p | ctypes.c_uint64:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, Tensor):
        return address(argument)
    if isinstance(argument, int):
        return ctypes.c_uint64(argument & _MASK)
    return argument


def address(tensor: Tensor | None, dtype: torch.dtype | None = None) -> ctypes.c_void_p:
    """The address of a tensor's values, null for none.

    Raises:
        InvalidInputError: it is not contiguous, or not of the dtype that the kernel reads.
    """
    if tensor is None:
        return ctypes.c_void_p(None)
    if not tensor.is_contiguous() or (dtype is not None and tensor.dtype != dtype):
        raise InvalidInputError(
            f"a kernel takes contiguous tensors{'' if dtype is None else f' of {dtype}'}, and this one is "
            f"{tensor.dtype} with strides {tensor.stride()}",
            fix="x.contiguous() or x.to(dtype)",
        )
    return ctypes.c_void_p(tensor.data_ptr())
