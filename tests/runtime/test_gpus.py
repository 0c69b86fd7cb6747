"""What is known of GPUs by their names."""

import pytest

from graphmill.runtime.gpus import capability_of, kernels_text, precisions_on


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("v100", (7, 0)),
        ("Tesla V100-SXM2-32GB", (7, 0)),
        ("Tesla T4", (7, 5)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA A40", (8, 6)),
        ("l40s", (8, 9)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA H200", (9, 0)),
        ("nvidia_b200", (10, 0)),
        ("NVIDIA GeForce RTX 3060", None),
        ("", None),
    ],
)
def test_compute_capability_by_name(name, capability):
    assert capability_of(name) == capability


def test_formats_that_the_kernels_have():
    assert precisions_on((6, 1)) == ()
    assert precisions_on((7, 0)) == precisions_on((7, 5)) == ("fp32", "fp16")
    assert precisions_on((8, 0)) == precisions_on((10, 0)) == ("fp32", "fp16", "bf16")


def test_in_words():
    assert kernels_text("p100", (6, 0)) == "p100 (6.0): none; torch for CUDA 13 has no code for it"
    assert kernels_text("h200", (9, 0)) == "h200 (9.0): fp32, fp16, bf16"
