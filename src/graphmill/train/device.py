"""The device that a rank trains on, checked before it meets the others: what is missing is said, not met in a crash."""

import torch

from graphmill.base.errors import UserError


def rank_device(planned: str, local_rank: int) -> torch.device:
    """The device of a rank of a run that was planned for `planned`; made the current one, where it is a GPU.

    Ranks of a host take its GPUs in order. Where each was given one alone to see (srun --gpus-per-task), it is that.
    """
    if planned == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        build = f"torch {torch.__version__}"
        raise UserError(
            f"the run was planned for GPUs, and {build} cannot use any here",
            fix="install a CUDA build of torch that fits the driver (see graphmill doctor), or plan anew with"
            " train.device=cpu",
        )
    number = torch.cuda.device_count()
    index = 0 if number == 1 else local_rank
    if index >= number:
        raise UserError(
            f"rank {local_rank} of this host wants a GPU of its own, but it sees {number}",
            fix="start no more ranks on a host than it has GPUs, and look at CUDA_VISIBLE_DEVICES",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)  # what names no device means this one: peer copies, kernels of other libraries
    return device
