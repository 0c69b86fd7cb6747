"""Checksums of the files of a run at its end: of those that a rank answers for, its seal, and of the others.

The ranks' own files are in their seals, each in the last event of a rank that is done, checkpoints in their manifests.
Logs and what is appended to while processes end may grow afterwards: what they held must be there still. The other
files must be the same.

A seal finds what an accident did to a finished run: a bad copy, an edit in the wrong window, a disk. It is not a
signature: anyone who forges a run can write a new seal, too.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import xxhash
from pydantic import BaseModel, ConfigDict

from graphmill.base.files import write_json
from graphmill.base.retries import is_there, remove_file, retried
from graphmill.record.documents import read_document
from graphmill.record.manifest import file_checksum
from graphmill.record.run_folder import RunFolder

CHECKSUMS_FILE: Final = "checksums.json"
_WRITTEN_ONCE: Final = (
    *("job.json", "job.sbatch", "command.json", "epilog.json", "epilog.txt", "sacct.json", "sacct_summary.txt"),
    *("staged/*.json", "initial_weights.safetensors", "source_*.safetensors", "profiler_traces/[!.]*"),
)
_APPENDED_TO: Final = ("monitor/*.csv", "rank_*.log", "sampler_*.log", "slurm-*.out", "jobs.jsonl")


class FileChecksum(BaseModel):
    """What a file held."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    bytes: int
    xxh3: str  # of the first `bytes` bytes


class FileChecksums(BaseModel):
    """Contents of checksums.json."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    files: dict[str, FileChecksum]  # by path in the run folder
    attempts: int = 0  # that had begun by then


def checksums_path(folder: RunFolder) -> Path:
    """Where the checksums of an attempt that ended are."""
    return folder.path / CHECKSUMS_FILE


def note_checksums(folder: RunFolder) -> None:
    """Record the files as they are now: an attempt ends."""
    found = {name: _checksum(path) for name, path in _files(folder)}
    _write(folder, FileChecksums(files=found, attempts=len(folder.attempts())))


def renew_checksums(folder: RunFolder, names: Collection[str]) -> None:
    """Record files that were written again after the attempt's end, as accounts are; the others stay as recorded."""
    if not is_there(checksums_path(folder)):
        return
    again = {name: _checksum(folder.path / name) for name in names if is_there(folder.path / name)}
    known = _read(folder)
    _write(folder, known.model_copy(update={"files": {**known.files, **again}}))


def clear_checksums(folder: RunFolder) -> None:
    """An attempt begins: what its files will hold is not known."""
    remove_file(checksums_path(folder))


def changed_files(folder: RunFolder) -> Iterator[str]:
    """Describe the files that differ from when the last attempt ended. `UserError`: the record is damaged."""
    recorded = _read(folder)
    if recorded.attempts and len(folder.attempts()) > recorded.attempts:
        return  # pulled during a later attempt, which deleted the record where it runs
    known, here = recorded.files, dict(_files(folder))
    for name, checksum in known.items():
        if name not in here:
            yield f"{name} was removed"
        elif not _is_as_recorded(here[name], checksum, may_grow=_matches(name, _APPENDED_TO)):
            yield f"{name} was changed"
    for name in here:
        if name not in known and not _matches(name, _APPENDED_TO):
            yield f"{name} was added"


def _files(folder: RunFolder) -> Iterator[tuple[str, Path]]:
    for pattern in (*_WRITTEN_ONCE, *_APPENDED_TO):
        for path in sorted(folder.path.glob(pattern)):
            yield path.relative_to(folder.path).as_posix(), path


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(Path(name).match(pattern) for pattern in patterns)


def _checksum(path: Path) -> FileChecksum:
    content = retried(path, Path.read_bytes)
    return FileChecksum(bytes=len(content), xxh3=xxhash.xxh3_64_hexdigest(content))


def _is_as_recorded(path: Path, known: FileChecksum, *, may_grow: bool) -> bool:
    content = retried(path, Path.read_bytes)
    if len(content) != known.bytes and not (may_grow and len(content) > known.bytes):
        return False
    return xxhash.xxh3_64_hexdigest(content[: known.bytes]) == known.xxh3


def _write(folder: RunFolder, checksums: FileChecksums) -> None:
    write_json(checksums_path(folder), checksums.model_dump(mode="json"))


def _read(folder: RunFolder) -> FileChecksums:
    fix = "remove it: what it covers is then not checked"
    return read_document(checksums_path(folder), FileChecksums, fix)


def seal_of(folder: RunFolder, rank: int) -> dict[str, str]:
    """Name → xxh3 of the files that this rank is responsible for, and of its own events so far."""
    checksums = {path.name: file_checksum(path) for path in _answered_for(folder, rank) if is_there(path)}
    return {**checksums, "events": file_checksum(folder.events_path(rank))}


def broken_seals(folder: RunFolder, rank: int, seal: dict[str, str], events_before: bytes) -> list[str]:
    """Names of the files that are not what the seal says, or are gone.

    `events_before`: what the rank's own file held before the event that has the seal.
    """
    now = {"events": xxhash.xxh3_64_hexdigest(events_before)}
    known = {path.name: path for path in _answered_for(folder, rank)}
    for path in known.values():
        if is_there(path):
            now[path.name] = file_checksum(path)
    names = {"events": folder.events_path(rank).name}
    changed = [names.get(name, name) for name, checksum in now.items() if seal.get(name) != checksum]
    return changed + [name for name in seal if name not in now and name in known]


def _answered_for(folder: RunFolder, rank: int) -> list[Path]:
    """Files that a rank answers for: the plan, which every rank has read; rank 0 covers the rest."""
    if rank > 0:
        return [folder.plan_path]
    return [
        folder.plan_path,
        folder.provenance_path,
        folder.attempts_path,
        folder.metrics_path,
        folder.evaluations_path,
        folder.outcome_path,
    ]
