"""`doctor`'s checks, on this machine."""

import os

from graphmill.runtime import checks
from graphmill.runtime.checks import examine


def test_every_check_speaks_and_a_trouble_says_what_would_fail(tmp_path):
    findings = examine(dataset_root=tmp_path / "data", logs_root=tmp_path, environ=os.environ)
    names = [finding.name for finding in findings]
    assert len(names) == len(set(names))
    for name in (
        "cores",
        "memory",
        "torch",
        "native core",
        "dataset root",
        "logs root",
        "/dev/shm",
        "open files",
        "clock",
    ):
        assert name in names
    assert all(finding.detail for finding in findings)
    assert all(finding.would_fail for finding in findings if finding.result != "ok")
    assert not (tmp_path / "data").exists(), "looking changes nothing"


def test_a_root_in_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    finding = checks._disk("logs root", tmp_path, 1)
    assert finding.result == "fail"
    assert "may not be written" in finding.detail


def test_a_torch_that_does_not_import_is_told(monkeypatch):
    monkeypatch.setattr(checks, "_ASK_TORCH", "raise ImportError('libcudart.so.12: cannot open')")
    facts, why = checks._ask_torch()
    assert facts is None
    assert "libcudart" in why


def test_a_full_disk_is_a_warning(tmp_path):
    assert checks._disk("logs root", tmp_path, 1 << 60).result == "warn"


def test_small_shared_memory(tmp_path):
    assert checks._shared_memory(tmp_path / "shm").result == "warn"


def test_where_the_kernels_of_attention_run():
    def told(triton: str | None, *gpus: tuple[str, tuple[int, int]]) -> checks.CheckResult:
        return checks._attention_kernels({"gpus": [{"name": n, "capability": list(c)} for n, c in gpus]}, triton)

    assert told("3.7.1") == checks.CheckResult("attention kernels", "ok", "CPU: native, fp32; GPU: Triton 3.7.1")
    assert told(None).result == "ok"
    good = told("3.7.1", ("H200", (9, 0)))
    assert (good.result, good.detail) == (
        "ok", "CPU: native, fp32; GPU: Triton 3.7.1; H200 (9.0): fp32, fp16, bf16"
    )  # fmt: skip
    assert "pip install triton" in told(None, ("H200", (9, 0))).would_fail
    assert "train.precision=bf16 with fused attention on Tesla T4" in told("3.7.1", ("Tesla T4", (7, 5))).would_fail
    assert "model.attention=fused on P100" in told("3.7.1", ("P100", (6, 0))).would_fail
