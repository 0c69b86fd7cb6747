"""Everything that only a GPU can show, in one command of less than nine minutes, each part in a process of its own.

    python benchmarks/on_gpu.py                # on a host with a GPU; no network is needed
    python benchmarks/on_gpu.py --rehearse     # all of it on the CPU at small sizes: what is found there is no result
    python benchmarks/on_gpu.py --parts equality resume

Parts, most precious first; each has a time limit, and one that fails or hangs costs itself alone:
  facts      card, versions, bandwidth of copies (device, page-locked to device), rate of products
  tests      the tests that are skipped without a GPU
  equality   batches of the CPU's and of the GPU's sampler to the bit, first losses of both
  resume     a run that is killed and resumed against one that is not, to the bit
  step       sampling, gather and step beside PyG's best forms on the same card, on a Reddit-shaped graph
  reddit     epochs of a Reddit-shaped graph, by loaders of the CPU and of the GPU: seconds, busy shares, peak of memory
  products   the same of a products-shaped graph, fan-outs [25, 10]
  attention  GAT and GATv2 against PyG's layers, eager and compiled (attention_on_gpu.py)

The kernels that draw on a GPU are an image that `python tools/cubins/build.py` makes beforehand, where there is a
network; without it the parts leave them out, and say so. On a host without network see also docs/gpu.md.
The file of results is written after each part. An entry of a part that failed says how, with the end of its output.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REHEARSALS = HERE.parent / "data" / "rehearsals"
TOTAL_S = 530.0  # of a real run, all parts together
LEAST_S = 15.0  # with less left, a part is not begun


@dataclass(frozen=True, slots=True)
class Part:
    """What a child process does, and how long it may take."""

    name: str
    limit_s: float
    rehearsal_s: float


PARTS = (
    Part("facts", 40, 20),
    Part("tests", 90, 40),
    Part("equality", 60, 30),
    Part("resume", 90, 90),
    Part("step", 60, 30),
    Part("reddit", 75, 30),
    Part("products", 110, 30),
    Part("attention", 120, 60),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at small sizes")
    parser.add_argument("--part", choices=names, help=argparse.SUPPRESS)  # this process is a child
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        from gpu_parts import FUNCTIONS

        options.output.write_text(json.dumps(FUNCTIONS[options.part](options.rehearse)))
        return
    run_parts([part for part in PARTS if part.name in options.parts], rehearse=options.rehearse)


def run_parts(parts: list[Part], *, rehearse: bool) -> None:
    """One after the other; results are written as they come. Status 1 if one failed."""
    if rehearse:  # never among measured results
        os.environ.setdefault("GRAPHMILL_BENCHMARK_RESULTS", str(REHEARSALS))
    from entries import write_entries
    from origin import Origin

    began, failed = time.monotonic(), []
    for part in parts:
        origin, left_s = Origin.now(), TOTAL_S - (time.monotonic() - began)
        limit_s = part.rehearsal_s if rehearse else min(part.limit_s, left_s)
        if not rehearse and left_s < LEAST_S:
            found: dict[str, object] = {"failed": f"not begun: {left_s:.0f} s were left of {TOTAL_S:.0f}"}
        else:
            found = run_part(part.name, limit_s, rehearse=rehearse)
        write_entries("on_gpu", {part.name: (origin, {"rehearsal": rehearse, **found})})
        print(f"{part.name}: {found.get('failed', 'done')}, {found.get('wall_s', 0)} s", flush=True)
        failed += [part.name] if "failed" in found else []
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)} → see results/on_gpu.json for why")


def run_part(name: str, limit_s: float, *, rehearse: bool) -> dict[str, object]:
    """What a part found, or how it failed; its process is ended with all that it started."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output, log = Path(folder, "found.json"), Path(folder, "log")
        command = [sys.executable, __file__, "--part", name, "--output", str(output)]
        with log.open("wb") as stream:
            child = subprocess.Popen(
                [*command, *(["--rehearse"] if rehearse else [])],
                stdout=stream, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
            )  # fmt: skip
            problem = wait_for(child, limit_s)
        wall_s = round(time.monotonic() - began, 1)
        if problem is None and output.exists():
            return {"wall_s": wall_s, **json.loads(output.read_text())}
        tail = log.read_text(errors="replace").splitlines()[-30:]
        return {"wall_s": wall_s, "failed": problem or "it wrote nothing", "log": tail}


def wait_for(child: subprocess.Popen[bytes], limit_s: float) -> str | None:
    """None when it is done; else how it failed."""
    try:
        status = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        return f"ended after its limit of {limit_s:.0f} s"
    return None if status == 0 else f"it ended with {status}"


if __name__ == "__main__":
    main()
