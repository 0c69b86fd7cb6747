"""Nothing changed that should not: every recipe, before and after a change of the code, compared to the bit.

    python benchmarks/unchanged.py record --python OTHER/.venv/bin/python --output base.json [--slurm]
    python benchmarks/unchanged.py record --python .venv/bin/python --output new.json [--slurm]
    python benchmarks/unchanged.py compare base.json new.json [--explained explained.json]

`record` runs, with the command line of the given installation, every recipe that runs here (shortened) with 1 and 2
ranks under every scheme, options that no recipe uses, runs that are killed or stopped and then resumed, and with
`--slurm` runs on two hosts of a dev cluster. Of each it keeps the SHA-256 of every tensor of the final and of the best
weights, and all rows of metrics with the outcome; of each prepared dataset the SHA-256 of every array. What has been
run is kept in a work folder: an interrupted recording continues. `unchanged_matrix.py` lists the runs.

Bits depend on the processor's instruction set and on the version of torch: make both records on one machine. `compare`
refuses records of different ones. It exits with 1 where a run differs or is missing, and nothing explains it:
`--explained` names a JSON object of patterns (`RUN` or `RUN#ASPECT`, as in a shell; aspects are weights, best,
metric:NAME, arrays, missing) and reasons. What is explained is printed as such, with its reason.
"""

import argparse
import contextlib
import fnmatch
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from unchanged_matrix import (
    DATA,
    PREPARE_SPELLINGS,
    RECIPES,
    SKIPPED,
    SPELLINGS,
    Case,
    Data,
    Settings,
    cases,
    raw_file,
)
from unchanged_reading import digest, measures, read_run, read_store, saved_steps

HERE = Path(__file__).resolve().parent
RAW_DATA = HERE.parents[1] / "shared" / "data"
EXIT_OUT_OF_TIME = 75
TIMEOUT_S = 1200
TAIL = 1500  # characters of what a failed command printed
FACTS = """
import json, pathlib, platform, torch, numpy, graphmill
from graphmill import _native
print(json.dumps({"package": str(pathlib.Path(graphmill.__file__).resolve().parent), "torch": torch.__version__,
    "numpy": numpy.__version__, "python": platform.python_version(), "native_isa": _native.isa(),
    "torch_isa": torch.backends.cpu.get_cpu_capability()}))
"""
MUST_AGREE = ("cpu_model", "torch", "numpy", "native_isa", "torch_isa")


# --- the installation that is recorded


@dataclass(frozen=True, slots=True)
class Installation:
    """A Python that has some commit of graphmill, and where what it makes is kept."""

    python: str
    facts: dict[str, Any]
    known_keys: str  # text of its page on the keys of an experiment
    prepare_help: str

    @classmethod
    def of(cls, python: str) -> "Installation":
        absolute = str(Path(python).absolute())  # not resolved: a virtual environment's python is a link
        facts = json.loads(_output([absolute, "-c", FACTS]))
        checkout = Path(facts.pop("package")).parents[1]
        git = ["git", "-C", str(checkout)]
        facts["commit"] = _output([*git, "rev-parse", "HEAD"]).strip()
        facts["changes"] = (
            digest(changes) if (changes := _output([*git, "diff", "HEAD", "--", "src", "native", "recipes"])) else ""
        )
        facts["cpu_model"] = _cpu_model()
        facts["recipes"] = sorted(path.stem for path in (checkout / "recipes").glob("*.yaml"))
        keys = _output([absolute, "-m", "graphmill.cli.reference", "experiment"])
        return cls(absolute, facts, keys, _output([absolute, "-m", "graphmill.cli", "prepare", "--help"]))

    def command(self, *words: str) -> list[str]:
        return [self.python, "-m", "graphmill.cli", *words]

    def overrides(self, settings: Settings) -> list[str]:
        """`-O key=value` for each, spelled as this commit does."""
        spelled = [f"{self.key(name)}={json.dumps(value)}" for name, value in settings.items()]
        return [word for text in spelled for word in ("-O", text)]

    def key(self, name: str) -> str:
        known = [spelling for spelling in SPELLINGS.get(name, (name,)) if f"| `{spelling}` |" in self.known_keys]
        if not known:
            raise SystemExit(f"this commit has no key {name}: add its new spelling to SPELLINGS in unchanged_matrix.py")
        return known[0]

    def prepare_words(self, data: Data, raw_root: Path, work: Path) -> list[str]:
        words = ["prepare", data.name]
        if data.source:
            words += ["--from", str(raw_file(data, raw_root, work))]
        if data.store_as:
            words += ["--as", data.store_as]
        options = [f"{name}={value}" for name, value in data.options.items()]
        for name, value in (
            ("adjacency", str(raw_root / data.adjacency) if data.adjacency else ""),
            ("random_split", "true" if data.random_split else ""),
        ):
            flag, key = PREPARE_SPELLINGS[name]
            if value and flag in self.prepare_help:
                words += [flag, value] if name != "random_split" else [flag]
            elif value:
                options.append(key if "=" in key else f"{key}={value}")
        return words + [word for option in options for word in ("-o", option)]


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environ())
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} exited with {done.returncode}:\n{done.stderr[-TAIL:]}")
    return done.stdout


def _environ() -> dict[str, str]:
    """No run depends on the shell that this was started from."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPHMILL_", "OMP_", "SLURM_"))}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PYG_DATA_ROOT", "SCRATCH", "PYTHONPATH"):
        mine.pop(name, None)
    return mine | {"COLUMNS": "200", "OMP_WAIT_POLICY": "PASSIVE"}


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(
        line.split("\t: ", 1) for line in lines if line.startswith(("model name", "model\t")) and "\t: " in line
    )
    return " ".join(value.strip() for value in facts.values())


# --- record


class Recorder:
    """Runs what has not been run yet; one JSON file per finished entry."""

    def __init__(self, installation: Installation, work: Path, raw_root: Path) -> None:
        self.installation, self.work, self.raw_root = installation, work.resolve(), raw_root.resolve()
        self.data, self.runs, self.results = self.work / "data", self.work / "runs", self.work / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self._claim()

    def _claim(self) -> None:
        """A work folder belongs to one commit on one machine."""
        path, facts = self.work / "installation.json", self.installation.facts
        if path.exists() and json.loads(path.read_text()) != facts:
            raise SystemExit(f"{self.work} holds runs of another commit or machine ({path}): give another --work")
        path.write_text(json.dumps(facts, indent=1))

    def entry(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The entry of `key`: read where it was made before; where making it fails, what was printed."""
        path = self.results / f"{key.replace('/', '--')}.json"
        if path.exists():
            return json.loads(path.read_text())
        began = time.monotonic()
        try:
            found = make() | {"seconds": round(time.monotonic() - began, 1)}
        except (ValueError, OSError, subprocess.TimeoutExpired, psutil.Error) as error:
            print(f"{key}: FAILED {error}", flush=True)
            return {"failed": str(error)}
        path.write_text(json.dumps(found))
        print(f"{key}: {found['seconds']} s", flush=True)
        return found

    def prepare(self, data: Data) -> dict[str, Any]:
        words = self.installation.prepare_words(data, self.raw_root, self.work)
        self._run(self.installation.command(*words, "--force", "--dataset-root", str(self.data)))
        return {"arrays": read_store(self.data / data.stored_name)}

    def run(self, case: Case) -> dict[str, Any]:
        folder = self.runs / case.run_id
        shutil.rmtree(folder, ignore_errors=True)
        found: dict[str, Any] = {}
        if case.how in {"kill", "stop"}:
            found["interrupted_at_step"] = self._interrupt(case, folder)
            self._run(self.installation.command("train", "--resume", str(folder), *self._roots()))
        else:
            self._run(self._train(case))
        return found | read_run(folder)

    def _roots(self) -> list[str]:
        return ["--dataset-root", str(self.data), "--logs-root", str(self.runs)]

    def _train(self, case: Case) -> list[str]:
        settings = {"train.threads": 1, "train.device": "cpu"} | case.settings
        words = [case.recipe, "--run-id", case.run_id, *self._roots(), *self.installation.overrides(settings)]
        if case.how == "slurm":
            return self.installation.command("submit", *words)
        return self.installation.command("train", *words, "--ranks", str(case.ranks))

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environ(), cwd=self.work, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise ValueError(f"exit {done.returncode}: {shlex.join(command)}\n{(done.stdout + done.stderr)[-TAIL:]}")

    def _interrupt(self, case: Case, folder: Path) -> int:
        """Start the run, kill or stop it once enough steps are saved. Returns how many were, when it had ended."""
        with tempfile.TemporaryFile("w+") as printed:
            process = subprocess.Popen(
                self._train(case), stdout=printed, stderr=subprocess.STDOUT, env=_environ(), cwd=self.work
            )
            until = time.monotonic() + TIMEOUT_S
            while saved_steps(folder) < case.threshold_steps and process.poll() is None and time.monotonic() < until:
                time.sleep(0.002)
            _end(process, kill=case.how == "kill")
            expected = -signal.SIGKILL if case.how == "kill" else EXIT_OUT_OF_TIME
            if process.returncode != expected:
                printed.seek(0)
                raise ValueError(f"exit {process.returncode}, not {expected}:\n{printed.read()[-TAIL:]}")
        return saved_steps(folder)

    def submit_all(self, chosen: list[Case]) -> None:
        """Submit on one dev cluster of two hosts, and wait for each."""
        missing = [case for case in chosen if not (self.results / f"{case.run_id}.json").exists()]
        if not missing:
            return
        lines = ["set -e"]
        for case in missing:
            shutil.rmtree(self.runs / case.run_id, ignore_errors=True)
            lines.append(shlex.join(self._train(case)))
            watch = self.installation.command("watch", case.run_id, "--logs-root", str(self.runs), "--interval", "1")
            lines.append(shlex.join(watch))
        script = self.work / "slurm.sh"
        script.write_text("\n".join(lines) + "\n")
        cluster = self.installation.command("devcluster", "run", "--hosts", "2", "--no-ssh", "--", "sh", str(script))
        try:
            self._run(cluster)
        except ValueError as error:  # each run says for itself whether it finished
            print(f"two hosts: {error}", flush=True)


def _end(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    """Kill a launcher and its ranks, or ask it to stop; returns when all of them are gone."""
    tree = [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
    if kill:
        for rank in tree:  # the ranks first: a launcher that sees one die ends the others in order
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()
        process.kill()
    else:
        process.send_signal(signal.SIGTERM)
    process.wait(timeout=TIMEOUT_S)
    psutil.wait_procs(tree, timeout=60)


def record(options: argparse.Namespace) -> None:
    began = time.monotonic()
    installation = Installation.of(options.python)
    folder = f"{installation.facts['commit'][:12]}{installation.facts['changes'][:8]}"
    work = options.work or HERE.parent / "data" / "benchmarks" / "unchanged" / folder
    recorder = Recorder(installation, work, options.raw)
    chosen = [case for case in cases(slurm=options.slurm) if fnmatch.fnmatch(case.key, options.only)]
    prepared = {}
    for data in DATA:
        key = f"prepared/{data.stored_name}"
        prepared[key] = recorder.entry(key, partial(recorder.prepare, data))
    here = [case for case in chosen if case.how != "slurm"]
    with ThreadPoolExecutor(options.jobs) as pool:
        made = pool.map(lambda case: recorder.entry(case.key, lambda: recorder.run(case)), here)
        runs = dict(zip([case.key for case in here], made, strict=True))
    hosts = [case for case in chosen if case.how == "slurm"]
    recorder.submit_all(hosts)
    for case in hosts:
        runs[case.key] = recorder.entry(case.key, partial(read_run, recorder.runs / case.run_id))
    for entry in runs.values():
        if "failed" not in entry:
            entry["weights_sha256"], entry["metrics_sha256"] = digest(entry["final"]), digest(measures(entry))
    not_covered = [name for name in installation.facts["recipes"] if name not in RECIPES and "study-" not in name]
    content = {"provenance": installation.facts, "skipped": SKIPPED, "recipes_not_covered": not_covered}
    options.output.write_text(json.dumps(content | {"runs": prepared | runs}, indent=1) + "\n")
    failed = [key for key, entry in (prepared | runs).items() if "failed" in entry]
    print(f"{len(prepared)} datasets and {len(runs)} runs in {time.monotonic() - began:.0f} s: {options.output}")
    print(f"failed: {', '.join(failed) or 'none'}; recipes not covered: {', '.join(not_covered) or 'none'}")
    sys.exit(1 if failed else 0)


# --- compare


def differences(base: dict[str, Any], new: dict[str, Any] | None) -> dict[str, str]:
    """Aspect → what differs, in words and numbers."""
    if new is None:
        return {"missing": "no such run in the new record"}
    failed = {which: entry["failed"] for which, entry in (("base", base), ("new", new)) if "failed" in entry}
    if failed:
        return {"failed": "; ".join(f"{which}: {text.splitlines()[-1]}" for which, text in failed.items())}
    if "arrays" in base:
        return _tensors_differ("arrays", base["arrays"], new["arrays"])
    found = _tensors_differ("weights", base["final"], new["final"]) | _tensors_differ("best", base["best"], new["best"])
    before, after = measures(base), measures(new)
    for name, values in before.items():
        if name not in after:
            found[f"metric:{name}"] = "not in the new record"
        elif wrong := [where for where, value in values.items() if after[name].get(where) != value]:
            was, now = values[wrong[0]], after[name].get(wrong[0])
            found[f"metric:{name}"] = f"{wrong[0]}: {was} → {now} ({len(wrong)} of {len(values)} differ)"
    return found


def _tensors_differ(aspect: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Equal where the same contents are there; that they were renamed is no difference."""
    left, right = (
        {name: json.dumps(entry, sort_keys=True) for name, entry in side.items()} for side in (before, after)
    )
    if sorted(left.values()) == sorted(right.values()) or (
        aspect == "arrays" and set(left.values()) <= set(right.values())
    ):
        return {}
    changed = [name for name in left if left[name] != right.get(name)]
    return {aspect: f"{len(changed)} of {len(left)} differ: {', '.join(changed[:4])}"}


def explain(key: str, aspect: str, explained: dict[str, str]) -> str | None:
    for pattern, reason in explained.items():
        run, _, part = pattern.partition("#")
        if fnmatch.fnmatchcase(key, run) and fnmatch.fnmatchcase(aspect, part or "*"):
            return reason
    return None


def compare(options: argparse.Namespace) -> None:
    base, new = (json.loads(path.read_text()) for path in (options.base, options.new))
    clash = [
        f"{name}: {base['provenance'][name]} and {new['provenance'][name]}"
        for name in MUST_AGREE
        if base["provenance"][name] != new["provenance"][name]
    ]
    if clash:
        print("these records are of different machines or versions, whose bits differ anyway: " + "; ".join(clash))
        sys.exit(2)
    explained = json.loads(options.explained.read_text()) if options.explained else {}
    counts = {"equal": 0, "explained": 0, "differs": 0}
    for key, entry in base["runs"].items():
        found = {
            aspect: (text, explain(key, aspect, explained))
            for aspect, text in differences(entry, new["runs"].get(key)).items()
        }
        verdict = "equal" if not found else "explained" if all(reason for _, reason in found.values()) else "differs"
        counts[verdict] += 1
        print(f"{verdict:<10}{key}")
        for aspect, (text, reason) in found.items():
            print(f"          {aspect}: {text}" + (f"; explained: {reason}" if reason else ""))
    added = [key for key in new["runs"] if key not in base["runs"]]
    print(f"base {base['provenance']['commit'][:12]}, new {new['provenance']['commit'][:12]}: {counts}")
    print(f"only in the new record: {', '.join(added) or 'none'}")
    sys.exit(1 if counts["differs"] else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("record", help="run everything with one installation")
    command.add_argument("--python", required=True, help="of the installation")
    command.add_argument("--output", type=Path, required=True)
    command.add_argument("--work", type=Path, help="where runs are kept; else data/benchmarks/unchanged/COMMIT")
    command.add_argument("--raw", type=Path, default=RAW_DATA, help="folder of raw data")
    command.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time; bits do not depend on it")
    command.add_argument("--only", default="*", help="pattern of runs, such as 'cora-sage/*'")
    command.add_argument("--slurm", action="store_true", help="also on two hosts; needs Slurm and root or namespaces")
    command.set_defaults(action=record)
    command = commands.add_parser("compare", help="two records of one machine; exit 1 where they differ")
    command.add_argument("base", type=Path)
    command.add_argument("new", type=Path)
    command.add_argument("--explained", type=Path, help="JSON: pattern of runs → reason")
    command.set_defaults(action=compare)
    options = parser.parse_args()
    options.action(options)


if __name__ == "__main__":
    main()
