"""Result files: benchmarks/results/NAME.json = {"entries": {ENTRY: {"origin": …, "result": …}}}.

Every entry has the origin of its own, taken when its measurement began (origin.py). A file whose entries come from
different code is an error: their figures stand in one table. Files of before this rule have one "provenance" for the
whole file, taken at its end. They are listed in before_origins.json, by checksum, with what is known against them, and
nothing else in that format is accepted: measured again, a file gets entries, and leaves the list.

The code of an entry is that of a commit in this history. Where it is not, exceptions.json says so, why and since when:
those whose code no commit holds (`code_is_of`: null) are left out of README.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmill.base.names import counted
from origin import Origin, describe

HERE = Path(__file__).parent
RESULTS = Path(os.environ.get("GRAPHMILL_BENCHMARK_RESULTS", HERE / "results"))  # tests write elsewhere
OLD = HERE / "before_origins.json"
EXCEPTIONS = HERE / "exceptions.json"
MOST_DAYS = 60  # `measured.py --check` refuses older figures
ONLY = "all"  # the entry of a file that has one
AGES = r" \([^()]* when this was written\)"  # what `measured.py --check` does not compare


def write_entries(name: str, entries: Mapping[str, tuple[Origin | Mapping[str, Any], Mapping[str, Any]]]) -> Path:
    """Write entries into results/<name>.json; those of other names stay, and are told of where their code differs."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    kept = stored.get("entries", {})
    kept |= {entry: {"origin": origin, "result": result} for entry, (origin, result) in entries.items()}
    text = json.dumps({"entries": kept}, indent=2, default=asdict)
    path.write_text(text + "\n")
    for problem in mixed(name, json.loads(text)["entries"]):
        print(f"warning: {problem}")
    return path


def mixed(name: str, entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with the entries of one file: nothing, or that they come from different code."""
    codes: dict[str, list[str]] = {}
    for entry, stored in entries.items():
        codes.setdefault(stored["origin"]["code"]["checksum"], []).append(entry)
    if len(codes) < 2:
        return []
    groups = "; ".join(f"{', '.join(found)}: code {checksum}" for checksum, found in codes.items())
    return [f"{name}.json mixes code ({groups}) → measure all of them again from one commit"]


def problems(results: Path = RESULTS, old: Path = OLD) -> list[str]:
    """Of all result files: mixed code, entries without origin, and files of the old format that are not on the list."""
    listed = json.loads(old.read_text()) if old.exists() else {}
    found: list[str] = []
    for path in sorted(results.glob("*.json")):
        name, stored = path.stem, json.loads(path.read_text())
        if "entries" in stored:
            without = [entry for entry, value in stored["entries"].items() if not value.get("origin")]
            found += [f"{path.name}: no origin of {', '.join(without)}"] if without else mixed(name, stored["entries"])
            found += [f"{old.name} lists {name}, which has origins now → delete its lines"] if name in listed else []
        elif listed.get(name, {}).get("sha256") != sha256(path):
            found.append(f"{path.name} has no origin for each entry, and is not the file that {old.name} knows")
    return found


def exceptions() -> dict[str, dict[str, Any]]:
    """By result: why its code is that of no commit here, and since when that is known."""
    return json.loads(EXCEPTIONS.read_text()) if EXCEPTIONS.exists() else {}


def of_no_commit(results: Path = RESULTS, excepted: Mapping[str, Any] | None = None) -> list[str]:
    """Entries whose code no commit of this history holds, and exceptions that are none. Nothing of a shallow clone."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return []
    known = exceptions() if excepted is None else excepted
    found: list[str] = []
    for path in sorted(results.glob("*.json")):
        entries = json.loads(path.read_text()).get("entries", {})
        codes = [value["origin"]["code"] for value in entries.values() if value.get("origin")]
        wrong = sorted({why for code in codes if (why := _no_commit(code))})
        if wrong and path.stem not in known:
            what = "; ".join(wrong)
            found.append(f"{path.name}: {what} → measure again from a commit, or say why in {EXCEPTIONS.name}")
        elif not wrong and path.stem in known:
            found.append(f"{EXCEPTIONS.name} lists {path.stem}, whose code is that of a commit → delete its lines")
    return found


def too_old(results: Path = RESULTS, most_days: int = MOST_DAYS) -> list[str]:
    """Figures that were measured longer ago."""
    found = []
    for path in sorted(results.glob("*.json")):
        stored = json.loads(path.read_text())
        origins = [value["origin"] for value in stored.get("entries", {}).values() if value.get("origin")]
        times = [origin["time_utc"] for origin in origins] or [stored["provenance"]["time_utc"]]
        if (days := max(map(_days_old, times))) > most_days:
            found.append(f"{path.name}: {days} days old, {most_days} at most → measure again")
    return found


def age(result: Mapping[str, Any]) -> str:
    """When it was measured, and how old that is: for README."""
    if "old" in result:
        return _when(result["old"]["time_utc"], (result["old"]["code"] or {}).get("commit"))
    first = min(result["origins"].values(), key=lambda origin: origin["time_utc"])
    return _when(first["time_utc"], first["code"]["commit"])


def _no_commit(code: Mapping[str, Any]) -> str | None:
    if code["commit"] is None:
        return "no commit is named"
    command = ["git", "-C", str(HERE), "merge-base", "--is-ancestor", code["commit"], "HEAD"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return f"commit {code['commit'][:8]} is not in this history"
    return f"commit {code['commit'][:8]} with changes that are not committed" if code["dirty"] else None


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True, check=False).stdout.strip()


def _days_old(time_utc: str) -> int:
    """Days of the calendar, not spans of 24 hours."""
    return (datetime.now(UTC).date() - datetime.fromisoformat(time_utc).date()).days


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(name: str) -> dict[str, Any] | None:
    """A result as the tables want it: entries by name (or the only one), and "origins" or "old" beside them."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    if "entries" not in stored:
        known = json.loads(OLD.read_text())[name]["known"] if OLD.exists() else []
        return {**stored["result"], "old": stored["provenance"], "known": known}
    entries = stored["entries"]
    results = {entry: value["result"] for entry, value in entries.items()}
    found = results[ONLY] if set(results) == {ONLY} else results
    excepted = exceptions().get(name)
    beside = {} if excepted is None else {"excepted": excepted}
    return {**found, "origins": {entry: value["origin"] for entry, value in entries.items()}, **beside}


def source(result: Mapping[str, Any], command: str) -> str:
    """Where, when, by which code and command: a line for each origin. `command` where an old file does not say."""
    load = result.get("foreign_cores")
    busy = f"; others used {load:.2f} cores" if load is not None else ""
    if "old" in result:
        return _old_source(result, command, busy)
    lines: dict[str, list[str]] = {}
    for entry, origin in result["origins"].items():
        code, processor = origin["code"], origin["processor"]
        line = (
            f"`python {' '.join(origin['argv'])}`, {_commit(code['commit'], dirty=code['dirty'])},"
            f" {_when(origin['time_utc'], code['commit'])}, {counted(processor['num_cores'], 'core')} of"
            f" {describe(processor)}, {code['isa']}"
        )
        lines.setdefault(line, []).append(entry)
    names = {line: f"{', '.join(found)}: " if len(lines) > 1 else "" for line, found in lines.items()}
    excepted = result.get("excepted")
    known = f" *{excepted['reason'].capitalize()} ({excepted['date']}).*" if excepted else ""
    return "\n".join(f"{names[line]}{line}{busy}.{known}\n" for line in lines)


def _old_source(result: Mapping[str, Any], command: str, busy: str) -> str:
    old = result["old"]
    code = old["code"] or {"commit": None, "dirty": None}
    known = "".join(f" {sentence}" for sentence in result["known"])
    return (
        f"`{command}`, {_commit(code['commit'], dirty=code['dirty'])}, {_when(old['time_utc'], code['commit'])},"
        f" {counted(old['num_cores'], 'core')} of {old['cpu_model']}{busy}."
        f" *Recorded before each entry had an origin of its own: commit and date are those of the file, taken at its"
        f" end.*{known}\n"
    )


def _commit(commit: str | None, *, dirty: bool | None) -> str:
    if commit is None:
        return "no commit"
    return f"commit {commit[:8]}{' with changes that are not committed' if dirty else ''}"


def _when(time_utc: str, commit: str | None) -> str:
    """The day, and how old the figure was when the page was written: in days, and in commits to what it measures.

    Days of the calendar, not spans of 24 hours: entries of one day share a line at any hour that it is written.
    """
    days = _days_old(time_utc)
    later = _commits_since(commit) if commit else None
    code = "" if later is None else f", {later} commits to the code later"
    return f"{time_utc[:10]} ({days} days old{code} when this was written)"


def _commits_since(commit: str) -> int | None:
    """None where the history does not reach back that far."""
    command = ["git", "-C", str(HERE), "rev-list", "--count", f"{commit}..HEAD", "--", ":/src", ":/native"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None
