"""GPUs by name: what is known of them before torch is asked, or where they are not at hand.

From NVIDIA's table of compute capabilities (developer.nvidia.com/cuda-gpus). A name is Slurm's (`a100`, in --gres) or
the driver's (`NVIDIA A100-SXM4-40GB`).
"""

import re
from typing import Final

Capability = tuple[int, int]

CAPABILITY_OF: Final[dict[str, Capability]] = {
    **dict.fromkeys(("k80",), (3, 7)),
    **dict.fromkeys(("p100",), (6, 0)),
    **dict.fromkeys(("p40", "p4"), (6, 1)),
    **dict.fromkeys(("v100", "v100s"), (7, 0)),
    **dict.fromkeys(("t4", "rtx8000"), (7, 5)),
    **dict.fromkeys(("a100", "a100x", "a30", "a800"), (8, 0)),
    **dict.fromkeys(("a40", "a10", "a10g", "a16", "a2", "a4000", "a5000", "a6000"), (8, 6)),
    **dict.fromkeys(("l4", "l40", "l40s"), (8, 9)),
    **dict.fromkeys(("h100", "h200", "h800", "gh200"), (9, 0)),
    **dict.fromkeys(("b100", "b200", "gb200"), (10, 0)),
    **dict.fromkeys(("b300", "gb300"), (10, 3)),
}
BF16_FROM: Final = (8, 0)  # bfloat16 in hardware
TRITON_FROM: Final = (7, 0)  # the oldest that Triton, as torch uses it, makes code for
CUDA_13_FROM: Final = (7, 5)  # the oldest that CUDA 13 makes code for, and so torch's wheels for it


def capability_of(name: str) -> Capability | None:
    """Compute capability of the GPU of that name; None: not known.

    >>> capability_of("v100"), capability_of("NVIDIA A100-SXM4-40GB"), capability_of("Tesla V100-PCIE-16GB")
    ((7, 0), (8, 0), (7, 0))
    >>> capability_of("NVIDIA RTX 6000 Ada Generation"), capability_of("NVIDIA RTX A6000")
    (None, (8, 6))
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((CAPABILITY_OF[word] for word in words if word in CAPABILITY_OF), None)


def text_of(capability: Capability) -> str:
    """Compute capability as NVIDIA writes it: 8.0."""
    return f"{capability[0]}.{capability[1]}"


def precisions_on(capability: Capability) -> tuple[str, ...]:
    """Number formats in which Triton's kernels of attention run on a GPU; (): they do not run there."""
    if capability < TRITON_FROM:
        return ()
    return ("fp32", "fp16", "bf16") if capability >= BF16_FROM else ("fp32", "fp16")


def kernels_text(gpu: str, capability: Capability | None) -> str:
    """Where Triton's kernels of attention run on a GPU, in words.

    >>> kernels_text("v100", (7, 0)), kernels_text("x1", None)
    ('v100 (7.0): fp32, fp16; torch for CUDA 13 has no code for it', 'x1 (compute capability not known)')
    """
    if capability is None:
        return f"{gpu} (compute capability not known)"
    old = "; torch for CUDA 13 has no code for it" if capability < CUDA_13_FROM else ""
    return f"{gpu} ({text_of(capability)}): {', '.join(precisions_on(capability)) or 'none'}{old}"
