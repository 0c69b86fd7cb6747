"""GPU readings through a library that stands in for the driver's: it has the same functions, and no GPU behind them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
int nvmlInitWithFlags(unsigned int flags) { return (int)flags; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned int n) { strncpy(s, "550.1", n); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) {
  *h = (void *)(unsigned long)(i + 0x7f0000000001UL);
  return 0;
}
static int of(void *h) { return (int)((unsigned long)h - 0x7f0000000001UL); }
int nvmlDeviceGetName(void *h, char *s, unsigned int n) { strncpy(s, "Tesla V100", n); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned int n) { strncpy(s, of(h) ? "GPU-b" : "GPU-a", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) {
  m->total = 16ull << 30;
  m->used = 3ull << 30;
  m->free = 13ull << 30;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *h, utilization_t *u) {
  if (of(h)) return 3;
  u->gpu = 87;
  u->memory = 41;
  return 0;
}
int nvmlDeviceGetPowerUsage(void *h, unsigned int *p) { *p = 250500; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned int *t) { *t = 61; return sensor; }
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (tmp_path / "nvml.c").write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, tmp_path / "nvml.c"], check=True)
    return tmp_path


def python(code: str, driver: Path, environ: dict[str, str]) -> str:
    command = [sys.executable, "-c", code]
    environ = {**environ, "LD_LIBRARY_PATH": str(driver)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def test_every_gpu_is_read_and_what_a_driver_does_not_say_is_none(driver: Path, source_environ):
    code = (
        "import json; from dataclasses import asdict; from graphmill.runtime.nvml import GpuUsage\n"
        "usage = GpuUsage(); print(json.dumps([asdict(reading) for reading in usage.read()])); usage.close()\n"
        "assert usage.read() == ()"
    )
    first, second = json.loads(python(code, driver, source_environ))
    assert first == {
        "uuid": "GPU-a", "busy_percent": 87.0, "memory_busy_percent": 41.0, "memory_used_mib": 3072.0,
        "memory_total_mib": 16384.0, "power_w": 250.5, "temperature_c": 61.0,
    }  # fmt: skip
    assert (second["uuid"], second["busy_percent"], second["memory_used_mib"]) == ("GPU-b", None, 3072.0)


@pytest.mark.parametrize(("visible", "subjects"), [(None, ["gpu_0", "gpu_1"]), ("1", ["gpu_1"]), ("GPU-a", ["gpu_0"])])
def test_the_monitor_watches_the_gpus_that_the_ranks_may_use(
    driver: Path, source_environ, visible: str | None, subjects: list[str], tmp_path: Path
):
    code = (
        "import os, subprocess, sys; from pathlib import Path; from graphmill.monitor.sampler import Sampler\n"
        "os.chdir(os.environ['TMPDIR'])\n"
        'held = \'held = open("events/rank_0.jsonl", "a"); print(1, flush=True); input()\'\n'
        "Path('events').mkdir()\n"
        "rank = subprocess.Popen([sys.executable, '-c', held], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "rank.stdout.readline()\n"
        "print('\\n'.join(Sampler(Path.cwd()).sample())); rank.communicate(b'\\n')"
    )
    environ = {
        **source_environ,
        "TMPDIR": str(tmp_path),
        **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
    }
    if visible is None:
        environ.pop("CUDA_VISIBLE_DEVICES", None)
    seen = [line.split(",")[1] for line in python(code, driver, environ).splitlines()]
    assert [subject for subject in seen if subject.startswith("gpu_")] == subjects
    assert "rank_0" in seen


def test_without_a_driver_there_are_none(source_environ):
    code = "from graphmill.runtime.nvml import GpuUsage; print(GpuUsage().read())"
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a driver here")
    assert python(code, Path("/nowhere"), source_environ) == "()\n"
