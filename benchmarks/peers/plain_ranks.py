"""What a script of several processes has around its model, under torchrun or alone."""

import os

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def join() -> tuple[int, int]:
    """Rank, and number of ranks."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def parallel(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model) if dist.is_initialized() else model


def leave() -> None:
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
