"""The seal: checksums of the files at the end of a run, in the last event of a rank that is done.

It finds what an accident did to a finished run: a bad copy, an edit in the wrong window, a disk. It is not a signature:
anyone who forges a run can write a new seal, too.
"""

from pathlib import Path

import xxhash

from graphmill.base.retries import is_there
from graphmill.record.manifest import file_checksum
from graphmill.record.run_folder import RunFolder


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
