"""`python -m kernel_checks ptxas PLACE...`: the gate behind ptxas as a command; exits 1 where a limit is broken."""

import argparse
import json
import os
import sys
import time
from pathlib import Path


def main() -> int:
    """Look at variants (module:function) or cubin files; 0: all within the limits."""
    os.environ.pop("TRITON_INTERPRET", None)  # before any kernel is imported: it would leave nothing to compile
    from kernel_checks.ptxas import Limits, examined_all, examined_file, table, variants_of

    asked = _asked()
    limits = Limits(asked.registers, asked.occupancy, asked.in_flight)
    began, findings = time.monotonic(), []
    for place in asked.places:
        if place.endswith(".cubin"):
            findings += examined_file(Path(place), warps=asked.warps, dynamic_shared=asked.shared)
        else:
            named = [at for at, variant in enumerate(variants_of(place)) if asked.only in variant.name]
            findings += examined_all(place, named[:: asked.every], jobs=asked.jobs)
    broken = sum(bool(limits.broken(each)) for each in findings)
    if asked.json:
        text = json.dumps([each.as_json(limits) for each in findings], indent=1)
        asked.json.write_text(text + "\n", encoding="utf-8")
    print(table(findings, limits))
    print(f"{len(findings)} variants, {broken} beyond the limits, {time.monotonic() - began:.0f} s")
    if not findings:
        print("nothing was examined: is --only a part of a variant's name?", file=sys.stderr)
    return 1 if broken or not findings else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kernel_checks", description=__doc__)
    parser.add_argument("check", choices=["ptxas"])
    parser.add_argument("places", nargs="+", help="module:function or file.py:function that gives variants; a cubin")
    parser.add_argument("--only", default="", help="variants whose name holds this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write what was found there")
    parser.add_argument("--registers", type=int, default=254, help="at most, of a thread")
    parser.add_argument("--occupancy", type=float, default=0.0, help="at least")
    parser.add_argument("--in-flight", type=float, default=0.0, help="bytes an SM at least, by the model")
    parser.add_argument("--warps", type=int, default=4, help="of a program, for cubin files")
    parser.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory, for cubin files")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
