"""The device that a rank trains on, checked before the rendezvous: a missing one is an error message, not a crash."""

import logging
import os
import re
from collections.abc import Iterable, MutableMapping
from typing import Final

import torch

from graphmill.base.errors import UserError
from graphmill.nn.attention.layers import refuse_missing_triton
from graphmill.spec.attention import is_fused, refuse_gpus
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

_ALLOCATOR: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # torch 2.9's name, and the one before


_PLAN_AGAIN: Final = "plan again with train.device=cpu"


def rank_device(planned: str, local_rank: int, *, instead: str = _PLAN_AGAIN) -> torch.device:
    """The device of a rank of a run that was planned for `planned`; a GPU becomes the current device.

    Ranks of a host take its GPUs in order. If each sees only one of its own (srun --gpus-per-task), it is that.
    `instead`: what to do where there is no GPU, in words.
    """
    if planned == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        build = f"torch {torch.__version__}"
        raise UserError(
            f"the run was planned for GPUs, and {build} cannot use any here",
            fix=f"install a CUDA build of torch that fits the driver (see graphmill doctor), or {instead}",
        )
    choose_allocator(os.environ)
    number = torch.cuda.device_count()
    index = 0 if number == 1 else local_rank
    if index >= number:
        raise UserError(
            f"rank {local_rank} of this host wants a GPU of its own, but it sees {number}",
            fix="start no more ranks on a host than it has GPUs, and look at CUDA_VISIBLE_DEVICES",
        )
    capability, architectures = torch.cuda.get_device_capability(index), torch.cuda.get_arch_list()
    if not is_built_for(capability, architectures):
        raise UserError(
            f"{torch.cuda.get_device_name(index)} has compute capability {capability[0]}.{capability[1]}, and torch"
            f" {torch.__version__} is built for {', '.join(architectures)}",
            fix="install a build of torch for an older CUDA (see graphmill doctor), or ask for newer GPUs",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)  # the default where no device is named: peer copies, kernels of other libraries
    return device


def device_of(plan: Plan, local_rank: int, *, instead: str = _PLAN_AGAIN) -> torch.device:
    """The device of a rank, on which the plan's model runs as well: `rank_device`, and the kernels of attention.

    How it rounds the factors of products is as planned from here on. `instead`: as of `rank_device`.
    """
    device = rank_device(plan.device, local_rank, instead=instead)
    torch.backends.cuda.matmul.allow_tf32 = plan.tf32
    model = getattr(plan.task, "model", None)
    if device.type == "cuda" and is_fused(model):
        refuse_missing_triton(torch.cuda.get_device_name(device))
        capability = torch.cuda.get_device_capability(device)
        refuse_gpus(model, plan.precision, [(torch.cuda.get_device_name(device), capability)])
    return device


def choose_allocator(environ: MutableMapping[str, str]) -> None:
    """Let torch's memory on GPUs grow in place, before the first of it is taken, unless `environ` says otherwise.

    Batches of many sizes leave gaps in segments of fixed size, up to running out of memory that is free. See "CUDA
    semantics, memory management" in PyTorch's manual.
    """
    for name in _ALLOCATOR:
        if name in environ:
            _log.info(f"expandable_segments is left to {name}={environ[name]}")
            return
    recent = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 9)
    environ[_ALLOCATOR[0] if recent else _ALLOCATOR[1]] = "expandable_segments:True"


def is_built_for(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Whether a build with code for `architectures` (`sm_80`, `compute_90`: torch.cuda.get_arch_list) runs on a GPU.

    Machine code (sm) runs within its major version from its minor version on; PTX (compute) on everything newer. See
    "Application compatibility" in NVIDIA's CUDA C++ best practices guide.

    >>> is_built_for((7, 0), ["sm_75", "sm_80", "compute_120"]), is_built_for((8, 6), ["sm_75", "sm_80"])
    (False, True)
    """
    for architecture in architectures:
        parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", architecture)
        if parts is None:  # an unknown vendor or version: left to torch
            return True
        kind, built = parts[1], (int(parts[2]), int(parts[3]))
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return True
    return False
