"""`python -m kernel_checks ptxas|ladder PLACE...`: the checks as commands, which exit 1 where something is wrong."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path


def main() -> int:
    """Do what the command line asks; the exit status."""
    asked = _asked()
    # Before any kernel is imported: the interpreter is chosen then, for good.
    if asked.check == "ladder":
        os.environ["TRITON_INTERPRET"] = "1"
        return _ladder(asked)
    os.environ.pop("TRITON_INTERPRET", None)
    return _ptxas(asked)


def _ptxas(asked: argparse.Namespace) -> int:
    """Look at variants (module:function) or cubin files."""
    from kernel_checks.ptxas import Limits, examined_all, examined_file, given_by, table

    limits = Limits(asked.registers, asked.occupancy, asked.in_flight)
    began, findings = time.monotonic(), []
    for place in asked.places:
        if place.endswith(".cubin"):
            findings += examined_file(Path(place), warps=asked.warps, dynamic_shared=asked.shared)
        else:
            named = [at for at, variant in enumerate(given_by(place)) if asked.only in variant.name]
            findings += examined_all(place, named[:: asked.every], jobs=asked.jobs)
    broken = sum(bool(limits.broken(each)) for each in findings)
    print(table(findings, limits))
    print(f"{len(findings)} variants, {broken} beyond the limits, {time.monotonic() - began:.0f} s")
    return _ended(asked, [each.as_json(limits) for each in findings], broken)


def _ladder(asked: argparse.Namespace) -> int:
    """Take the steps for cases (module:function)."""
    from kernel_checks.ladder import climb, report
    from kernel_checks.ptxas import given_by

    began, found = time.monotonic(), []
    for place in asked.places:
        for case in given_by(place):
            if asked.only in case.name:
                found.append(climb(case))
                print(report(found[-1]))
    faulty = sum(bool(each.faults) for each in found)
    print(f"{len(found)} cases, {faulty} with faults, {time.monotonic() - began:.0f} s")
    return _ended(asked, [asdict(each) for each in found], faulty)


def _ended(asked: argparse.Namespace, found: list[dict[str, object]], wrong: int) -> int:
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not found:
        print("nothing was examined: is --only a part of a name?", file=sys.stderr)
    return 1 if wrong or not found else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kernel_checks", description=__doc__)
    parser.add_argument("check", choices=["ptxas", "ladder"])
    parser.add_argument("places", nargs="+", help="module:function or file.py:function; for ptxas also cubin files")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--json", type=Path, help="write what was found there")
    of_ptxas = parser.add_argument_group("ptxas")
    of_ptxas.add_argument("--every", type=int, default=1, help="only every n-th variant")
    of_ptxas.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    of_ptxas.add_argument("--registers", type=int, default=254, help="at most, of a thread")
    of_ptxas.add_argument("--occupancy", type=float, default=0.0, help="at least")
    of_ptxas.add_argument("--in-flight", type=float, default=0.0, help="bytes an SM at least, by the model")
    of_ptxas.add_argument("--warps", type=int, default=4, help="of a program, for cubin files")
    of_ptxas.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory, for cubin files")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
