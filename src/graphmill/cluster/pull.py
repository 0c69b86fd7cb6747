"""Fetch runs from another machine: rsync over ssh. Nothing here is deleted but checkpoints that the run itself
has pruned for newer ones, nothing half-written is fetched.

What is there is listed first; what the list names is fetched. So a run that ends meanwhile comes with the outcome of
the list's moment: an outcome is never here next to metrics that are older than it. How the jobs of runs that are done
ended is asked of sacct there (`last_word.py`).
"""

import errno
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.files import put_folder, write_json
from graphmill.cluster.last_word import fetch_last_word, has_last_word
from graphmill.cluster.remote import Source, answer_of, failure, need_rsync, ssh_command, ssh_for_rsync
from graphmill.record.documents import Pulled
from graphmill.record.manifest import MANIFEST, Manifest
from graphmill.record.run_folder import PIPELINE_FILE, RunFolder
from graphmill.record.run_paths import COMMAND_FILE
from graphmill.runtime.snapshot import FOLDER as CODE_FOLDER
from graphmill.spec.dotted import PLAN_FILE

_log = logging.getLogger(__name__)

PARTIAL: Final = ".pull-partial"
State = Literal["new", "changed", "unchanged"]
_VANISHED: Final = 24  # of rsync: files that the list named are gone; they were replaced or removed meanwhile
_PARTIAL_TRANSFER: Final = 23  # a folder that the list named is gone
SIDE: Final = ".pull-checkpoints"
_CHECKPOINTS: Final = "checkpoints"
_MARKS: Final = (PLAN_FILE, COMMAND_FILE, "metrics.csv")
_ERRNO: Final = re.compile(r": [A-Za-z/ ]+ \((\d+)\)$", re.M)  # "failed: No such file or directory (2)"
_ESCAPED: Final = re.compile(r"\\#([0-7]{3})")
# Written whole, or only ever appended to.
_KNOWN: Final = (
    *(
        PLAN_FILE,
        COMMAND_FILE,
        "initial_weights.safetensors",
        "source_*.safetensors",
        "provenance.json",
        "memory_budget.json",
        "attempts.jsonl",
        "outcome.json",
        "metrics.csv",
        "evaluations.csv",
        "rank_*.log",
        "sampler_*.log",
        "events/*.jsonl",
    ),
    *("job.json", "job.sbatch", "jobs.jsonl", "slurm-*.out", "monitor/*.csv", "staged/*.json"),
    *("sacct.json", "sacct_ended.json", "sacct_summary.txt", "epilog.json", "epilog.txt", "raw/*.log"),
    *("checksums.json", "profiler_traces/*"),
)
# In the folder that holds the runs of a pipeline.
_ABOVE: Final = (PIPELINE_FILE, "evaluations.csv", "job-*.sbatch", "jobs.jsonl", "slurm-*.out")


@dataclass(frozen=True, slots=True)
class PulledRun:
    """One run of the other machine, and what fetching it did or would do."""

    name: str  # its folder below the source; empty if the source is a run itself
    state: State
    num_files: int  # new or changed
    is_finished: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    is_new: bool
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """A request to fetch runs from another machine."""

    source: Source
    to: Path
    checkpoints: bool = False
    everything: bool = False  # also files that are not ours
    ssh_config: Path | None = None

    def run(self, *, dry_run: bool = False) -> list[PulledRun]:
        """Fetch, and report what became of each run. `dry_run`: only report it."""
        need_rsync()
        entries = self._list()
        if "" in _runs(entries):  # the source is a run itself: it goes below `to` under its own name
            inside = Pull(self.source, self._folder_of_one(), self.checkpoints, self.everything, self.ssh_config)
            return inside._fetch(inside._list(), dry_run=dry_run)
        return self._fetch(entries, dry_run=dry_run)

    def _folder_of_one(self) -> Path:
        name = PurePosixPath(self.source.path).name
        if name in ("", ".", ".."):
            raise UserError(
                f"{self.source.login}:{self.source.path} is a run, but its name is not given", fix="write its path"
            )
        return self.to if self.to.name == name else self.to / name

    def _fetch(self, entries: Sequence[_Entry], *, dry_run: bool) -> list[PulledRun]:
        by_run = _by_run(entries)
        sealed = {str(PurePosixPath(entry.path).parent) for entry in entries if _name(entry.path) == MANIFEST}
        above = {PurePosixPath(run).parent for run in by_run if run}
        changed = {
            run: [
                entry
                for entry in files
                if entry.is_changed and (self._is_wanted(entry.path, run, sealed) or _is_of_runs_in(above, entry.path))
            ]
            for run, files in by_run.items()
        }
        paths = [entry.path for files in changed.values() for entry in files]
        if paths and not dry_run:
            self.to.mkdir(parents=True, exist_ok=True)
            self._copy([path for path in paths if not _is_of_checkpoint(path)])
            self._copy_checkpoints([path for path in paths if _is_of_checkpoint(path)], sealed)
        runs = sorted(run for run in by_run if run is not None)
        pulled = [_pulled(run, by_run[run], len(changed[run])) for run in runs]
        if not dry_run:
            for run in pulled:
                self._mark(run)
            self._ask_how_jobs_ended(pulled)
        return pulled

    def _mark(self, run: PulledRun) -> None:
        """Leave word of where the run is from: `verify` must know what was not fetched from what was lost."""
        folder = RunFolder(self.to / run.name)
        had_them = folder.checkpoints_dir.is_dir()
        mark = Pulled(
            source=f"{self.source.rsync_name}{run.name}".rstrip("/"), checkpoints=self.checkpoints or had_them
        )
        if run.state != "unchanged" or self.checkpoints:
            write_json(folder.pulled_path, mark.model_dump())

    def _ask_how_jobs_ended(self, pulled: Sequence[PulledRun]) -> None:
        folders = [(run, RunFolder(self.to / run.name)) for run in pulled if run.is_finished]
        wanted = [folder for run, folder in folders if run.state != "unchanged" or not has_last_word(folder)]
        if wanted:
            fetch_last_word(wanted, ssh_command(self.source, self.ssh_config))

    def _is_wanted(self, path: str, run: str | None, sealed: set[str]) -> bool:
        if run is None:
            return self.everything or path.startswith(f"{CODE_FOLDER}/")
        inside = PurePosixPath(path.removeprefix(f"{run}/"))
        if inside.parts[0] == _CHECKPOINTS:
            return self.checkpoints and str(PurePosixPath(path).parent) in sealed
        return self.everything or any(
            inside.match(known) and len(inside.parts) == len(PurePosixPath(known).parts) for known in _KNOWN
        )

    def _copy_checkpoints(self, paths: Sequence[str], listed: set[str]) -> None:
        """Copy each path to a side folder, and to its place once it is whole: a run that writes prunes some meanwhile.

        What was pruned, or replaced, while it was fetched is left for the next time. Where newer ones came, those that
        are not there any more (`listed` are) are removed here, too.
        """
        if not paths:
            return
        side = self.to / SIDE  # what a broken connection left there is continued
        self._copy([path for path in paths if _name(path) != MANIFEST], into=side, may_vanish=True)
        self._copy([path for path in paths if _name(path) == MANIFEST], into=side, may_vanish=True)
        for folder in sorted({str(PurePosixPath(path).parent) for path in paths}):
            if _put_if_whole(side / folder, self.to / folder):
                _prune(self.to / folder, self.to, listed)
        shutil.rmtree(side, ignore_errors=True)

    def _list(self) -> list[_Entry]:
        """Every file there that is not hidden, and of the copies of the user's code; whether it is new or changed."""
        options = ["--dry-run", "-ii", "--8-bit-output", "--out-format=%i %n"]
        options += [f"--include=/{CODE_FOLDER}", "--exclude=.*", "--exclude=*.tmp", "--exclude=__pycache__"]
        if not self.checkpoints:
            options.append(f"--exclude={_CHECKPOINTS}/")
        out = self._rsync(options, [])
        return [entry for line in out.splitlines() if (entry := _entry(line)) is not None]

    def _copy(self, paths: Iterable[str], *, into: Path | None = None, may_vanish: bool = False) -> None:
        names = list(paths)
        if names:
            options = ["--from0", "--files-from=-", f"--partial-dir={PARTIAL}"]
            self._rsync(options, names, into=into, may_vanish=may_vanish)

    def _rsync(
        self, options: Sequence[str], names: Sequence[str], *, into: Path | None = None, may_vanish: bool = False
    ) -> str:
        """`may_vanish`: it may leave out files that are not there any more."""
        command = [
            *("rsync", "-rt", "--protect-args", "--no-motd", "-e", ssh_for_rsync(self.ssh_config)),
            *options,
            *("--", self.source.rsync_name, f"{into or self.to}/"),
        ]
        listed = "".join(f"{name}\0" for name in names).encode("utf-8", errors="surrogateescape")
        environ = {**os.environ, "LC_ALL": "C"}  # its messages are parsed below
        done = answer_of(command, stdin=listed, environ=environ)
        is_left_out = may_vanish and done.returncode == _PARTIAL_TRANSFER and _has_only_vanished(done.complaint)
        if done.returncode not in (0, _VANISHED) and not is_left_out:
            raise failure(self.source, done.returncode, done.complaint, self.ssh_config)
        return done.out.decode("utf-8", errors="surrogateescape")


def _entry(line: str) -> _Entry | None:
    """A line of `--out-format='%i %n'`: `>f+++++++++ events/rank_0.jsonl`; eleven marks, a space, a name.

    Marks are blanks if nothing differs. Whoever answers there can have rsync print any line, as a message of theirs, so
    a name that rsync itself would refuse may stand in one.
    """
    marks, name = line[:11], line[12:]
    if not name or marks[1] != "f":
        return None
    name = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), name)
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise UserError(
            f"the other machine names {name!r}, which leads out of the folder that is fetched",
            fix="fetch nothing from there before its owner knows why",
        )
    return _Entry(name, is_new="+" in marks, is_changed=marks[0] != ".")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _runs(entries: Sequence[_Entry]) -> set[str]:
    """Folders that hold a plan, a command, or (predecessors' runs) metrics and no plan. The source itself is ""."""
    return {entry.path.rpartition("/")[0] for entry in entries if _name(entry.path) in _MARKS}


def _by_run(entries: Sequence[_Entry]) -> dict[str | None, list[_Entry]]:
    """The files of each run; under None those of no run."""
    runs = _runs(entries)
    found: dict[str | None, list[_Entry]] = {run: [] for run in runs}
    for entry in entries:
        parents = (str(parent) for parent in PurePosixPath(entry.path).parents)
        run = "" if "" in runs else next((parent for parent in parents if parent in runs), None)
        found.setdefault(run, []).append(entry)
    found.setdefault(None, [])
    return found


def _is_of_runs_in(folders: set[PurePosixPath], path: str) -> bool:
    """Whether a file is one that a pipeline and its jobs write next to the runs of its stages."""
    file = PurePosixPath(path)
    return file.parent in folders and any(file.match(known) for known in _ABOVE)


def _is_of_checkpoint(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) >= 3 and parts[-3] == _CHECKPOINTS and parts[-2].startswith("step_")


def _has_only_vanished(stderr: str) -> bool:
    """Whether rsync's errors are only of files that are gone, and its summary of them."""
    codes = {int(code) for code in _ERRNO.findall(stderr)}
    return errno.ENOENT in codes and codes <= {errno.ENOENT, errno.EPIPE}


def _put_if_whole(fetched: Path, place: Path) -> bool:
    """Let a checkpoint take its place if all that its manifest names is there, fetched now or before."""
    if not fetched.is_dir():
        return False
    if place.is_dir():
        for old in place.iterdir():
            if not (fetched / old.name).exists():
                shutil.copy2(old, fetched / old.name)
    try:
        problem = Manifest.read(fetched).damage(fetched)
    except (OSError, ValueError) as error:
        problem = str(error)
    except UnreadableError as error:
        raise UserError(str(error), fix="give the same command once more when the disk answers") from None
    if problem is not None:
        _log.warning(f"{place}: changed while it was fetched; give the same command again for it ({problem})")
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    put_folder(fetched, place)
    return True


def _prune(newer: Path, to: Path, listed: set[str]) -> None:
    """Remove checkpoints older than the one that came, which are not there any more, and what is left of such."""
    for path in newer.parent.glob("step_*"):
        if path.name < newer.name and path.relative_to(to).as_posix() not in listed:
            shutil.rmtree(path)


def _pulled(run: str, files: Sequence[_Entry], num_changed: int) -> PulledRun:
    is_new = any(entry.is_new for entry in files if _name(entry.path) in _MARKS)
    state: State = "unchanged" if not num_changed else "new" if is_new else "changed"
    outcome = f"{run}/outcome.json" if run else "outcome.json"
    return PulledRun(run, state, num_changed, any(entry.path == outcome for entry in files))
