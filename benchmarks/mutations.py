"""Mistakes put into the code one at a time: does a test of their neighbourhood see each of them?

    python benchmarks/mutations.py --check | [--only NAME|NUMBER …]
        [--part second-look|own|anew|third-look|outsider|newcomer|pygs-seam|link-prediction|sign|moved]

`mutations.yaml` lists them: a file, the text that stands in it once, the text that takes its place, and the tests
that should fail then. Each is a mistake that a programmer might make, and none that cannot change what the code does.
The checkout is copied into a temporary folder and stays as it is; a mutation of native/ is built there (a compiler,
cmake, ninja and nanobind are needed). A test that fails must pass without the mutation, or the mutation counts as
neither caught nor survived. Exit status 1 where one survived. `--check`, which is part of `make check`, runs nothing:
does each text still stand in its file once, and are its tests there? Only a run of all of them writes the result file.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness import print_table, write_result
from origin import Origin

CHECKOUT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("mutations.yaml")
HANGS_S = 3600


@dataclass(frozen=True)
class Mutation:
    number: int
    name: str
    part: str
    file: str
    old: str
    new: str
    tests: str  # arguments of pytest

    @property
    def is_native(self) -> bool:
        return self.file.startswith("native/") and not self.file.startswith("native/device/")  # which the shim has


@dataclass(frozen=True)
class Verdict:
    word: str  # caught, survived, or why it says nothing
    seen_by: str = ""


class Copy:
    """The checkout in a folder of its own, and how its tests are run."""

    def __init__(self, folder: Path) -> None:
        from graphmill import _native

        self.tree, self._build = folder / "tree", folder / "build"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            if (CHECKOUT / name).is_file():
                shutil.copy(CHECKOUT / name, self.tree / name)
        if (CHECKOUT.parent / "shared").is_dir():  # raw data of some tests
            (folder / "shared").symlink_to((CHECKOUT.parent / "shared").resolve())
        self._core = Path(_native.__file__)
        self._core_here = self.tree / "src" / "graphmill" / self._core.name
        shutil.copy(self._core, self._core_here)
        # No bytecode: a file that is changed twice within a second, to the same length, would be taken for the old one.
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(self.tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        said = self._run([sys.executable, "-c", "import graphmill; print(graphmill.__file__)"]).stdout.strip()
        if not said.startswith(str(self.tree)):
            sys.exit(f"error: {said} is imported, not the copy in {self.tree}\n  → install without --editable")

    def judge(self, mutation: Mutation) -> Verdict:
        path = self.tree / mutation.file
        before = path.read_text(encoding="utf-8")
        if (places := before.count(mutation.old)) != 1:
            return Verdict(f"no such text: {places} places")
        path.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
        try:
            if mutation.is_native and (problem := self._build_core()):
                return Verdict("does not compile", problem)
            failed = self._failed(mutation.tests.split())
        finally:
            path.write_text(before, encoding="utf-8")
            if mutation.is_native:
                shutil.copy(self._core, self._core_here)
        if failed is None:
            return Verdict("survived")
        return Verdict("fails without it, too", failed) if self._failed([failed]) else Verdict("caught", failed)

    def _failed(self, arguments: list[str]) -> str | None:
        """The first test that fails; None: all pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-rfE", "-m", "not slow", "-p", "no:cacheprovider"]
        try:
            done = self._run([*command, *arguments])
        except subprocess.TimeoutExpired:
            return arguments[0]
        if done.returncode == 0:
            return None
        lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if not lines:
            sys.exit(f"error: pytest {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return lines[0].split(" - ")[0]

    def _build_core(self) -> str:
        """Compile the copy's native code and put it in its place; what is wrong, if something is."""
        core = f"-DPython_EXECUTABLE={sys.executable}"
        configure = ["cmake", "-S", str(self.tree), "-B", str(self._build), "-G", "Ninja", core]
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DSKBUILD_PROJECT_NAME=graphmill"]
        for command in ([*configure, *options], ["cmake", "--build", str(self._build)]):
            done = self._run(command)
            if done.returncode != 0:
                return (done.stdout + done.stderr)[-300:]
        shutil.copy(next(self._build.glob("_native*.so")), self._core_here)
        return ""

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environ = {**self._environ, "PATH": path}
        nice = ["nice", "-n", "5", *command]
        return subprocess.run(
            nice, cwd=self.tree, env=environ, capture_output=True, text=True, timeout=HANGS_S, check=False
        )


def listed() -> list[Mutation]:
    found = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    numbered = enumerate((part, one) for part, ones in found.items() for one in ones)
    return [Mutation(number=number, part=part, **one) for number, (part, one) in numbered]


def stale(known: list[Mutation]) -> list[str]:
    """Entries that the code or the tests have moved away from, in words."""
    found = []
    for one in known:
        path = CHECKOUT / one.file
        places = path.read_text(encoding="utf-8").count(one.old) if path.is_file() else 0
        if places != 1:
            found.append(f"{one.part}, {one.name}: its text stands in {one.file} {places} times")
        absent = [word for word in one.tests.split() if not (CHECKOUT / word.partition("::")[0]).exists()]
        found += [f"{one.part}, {one.name}: there is no {word}" for word in absent]
        if path.is_file() and path.suffix == ".py" and places == 1:
            found += _syntax_error(one, path.read_text(encoding="utf-8"))
    names = [one.name for one in known]
    return found + [f"two are called {name}" for name in sorted({name for name in names if names.count(name) > 1})]


def _syntax_error(one: Mutation, text: str) -> list[str]:
    try:
        ast.parse(text.replace(one.old, one.new))
    except SyntaxError as error:
        return [f"{one.part}, {one.name}: no Python comes of it: {error}"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME|NUMBER")
    known = listed()
    parser.add_argument("--part", choices=list(dict.fromkeys(one.part for one in known)))
    parser.add_argument("--check", action="store_true", help="only whether each text stands in its file once")
    options = parser.parse_args()
    if options.check:
        problems = stale(known)
        for problem in problems:
            print(f"benchmarks/mutations.yaml: {problem}", file=sys.stderr)
        return 1 if problems else 0
    if unknown := set(options.only) - {word for one in known for word in (one.name, str(one.number))}:
        parser.error(f"no mutation is called {', '.join(sorted(unknown))}")
    chosen = [
        one
        for one in known
        if (not options.only or {one.name, str(one.number)} & set(options.only)) and options.part in (None, one.part)
    ]
    rows, origin = [], Origin.now()
    with tempfile.TemporaryDirectory(prefix="graphmill-mutations-") as folder:
        copy = Copy(Path(folder))
        for one in chosen:
            verdict = copy.judge(one)
            print(f"{one.number:2} {one.name}: {verdict.word} {verdict.seen_by}", flush=True)
            rows.append([str(one.number), one.name, one.file, verdict.word, verdict.seen_by])
    caught = sum(row[3] == "caught" for row in rows)
    if chosen == known:
        found = [dict(zip(("name", "file", "verdict", "seen_by"), row[1:], strict=True)) for row in rows]
        write_result("mutations", {"mutations": found}, origin)
    print_table(f"{caught} of {len(rows)} caught", ["", "mutation", "file", "verdict", "seen by"], rows)
    return 0 if caught == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
