"""The GPU kernels of attention compile without a GPU, for compute capability 9.0 and 8.0, and hold no atomics."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def compiled(environ: dict[str, str], cache: Path, *arguments: str) -> list[dict]:
    """What `compile_triton.py` says of each variant."""
    environ = {name: value for name, value in environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("compile_triton.py")
    done = subprocess.run(
        [sys.executable, script, *arguments], env={**environ, "TRITON_CACHE_DIR": str(cache)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_deterministic_code_for(found: list[dict], num_variants: int) -> None:
    kernels = {"attention_forward", "attention_weights", "attention_backward_targets", "attention_backward_sources"}
    assert {each["kernel"] for each in found} == kernels
    assert len(found) == num_variants * len(kernels)
    for each in found:
        assert each["entries"] == 1
        assert each["target"].startswith(f"sm_{each['capability']}")
        assert not each["atomics"], each


def test_both_forms_compile(source_environ, tmp_path):
    assert_deterministic_code_for(compiled(source_environ, tmp_path), 4)


@pytest.mark.slow
def test_every_format_compiles(source_environ, tmp_path):
    assert_deterministic_code_for(compiled(source_environ, tmp_path, "all"), 42)
