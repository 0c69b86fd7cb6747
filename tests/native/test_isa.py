"""The kernels that are chosen are the best that the processor, and the system that saves its registers, can run."""

import pytest
from instruction_sets import isas_here, python_on

PRINT_ISA = ("-c", "import graphmill._native as native; print(native.isa())")


@pytest.mark.parametrize("asked", [None, ""])
def test_the_best_is_chosen(asked, source_environ):
    assert python_on(asked, source_environ, *PRINT_ISA).stdout.strip() == isas_here()[-1]


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512", "sse9"])
def test_one_that_is_asked_for_is_taken_or_refused(isa, source_environ):
    done = python_on(isa, source_environ, *PRINT_ISA)
    if isa in isas_here():
        assert done.stdout.strip() == isa
    else:
        assert done.returncode
        assert f"GRAPHMILL_ISA={isa}" in done.stderr
