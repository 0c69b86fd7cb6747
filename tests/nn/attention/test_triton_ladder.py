"""The ladder of `tools/kernel_checks` says nothing of the GPU kernels of attention."""

import os

import pytest

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is a GPU: set TRITON_INTERPRET=1 to run the interpreter", allow_module_level=True)

import sys
from pathlib import Path

from kernel_checks.ladder import climb

sys.path.insert(0, str(Path(__file__).parent))
import attention_cases

FEW = ("gatv2: hubs, loops and dropout",)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in FEW else [pytest.mark.slow])
        for case in attention_cases.every()
    ],
)
def test_nothing_is_found(case):
    climbed = climb(case)
    assert climbed.faults == []
    assert {each.kernel for each in climbed.moved} >= {
        "attention_forward", "attention_weights", "attention_backward_targets", "attention_backward_sources",
    }  # fmt: skip
