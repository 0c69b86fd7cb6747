"""Staging: a verified copy of a dataset near the ranks, made once per host and found again by the next job.

`python -m graphmill.cluster.staging.stage RUN_FOLDER [--on-failure use_shared]` is the step of a job's script: it
copies the dataset of the run's plan below GRAPHMILL_STAGED_ROOT. Exit status: 0 the copy is there (or the shared
one is to be used, as asked) · 1 it could not be made · 2 the request was wrong.

A copy has its final name only when it is whole and verified. One that is there is looked at before it is used again:
its files' sizes and times always; their checksums too when they are small, when `--verify` asks, and when a time
differs. What fails is deleted and copied again.
"""

import argparse
import errno
import logging
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing_folder
from graphmill.base.messages import show_messages
from graphmill.cluster.staging.copying import Moved, checksums, copy_files, free_bytes, needed_bytes
from graphmill.cluster.staging.dataset import Dataset, read_dataset
from graphmill.cluster.staging.lock import only_copier
from graphmill.cluster.staging.progress import shown_progress
from graphmill.graph.header import FILE_NAME
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import (
    ROOT_VARIABLE,
    FileState,
    Share,
    StagedHost,
    StagedMark,
    read_mark,
    staged_problem,
    write_mark,
    write_staged,
)
from graphmill.runtime.job_environment import HOST_LOCAL, HOST_NUMBER
from graphmill.runtime.machine import host_name, num_cores
from graphmill.runtime.snapshot import import_from_snapshot

if TYPE_CHECKING:
    pass

_log = logging.getLogger(__name__)

ALWAYS_READ_BYTES: Final = 4 << 30  # of a copy found there, up to this many are read again: some seconds, on any disk
_MARGIN_BYTES: Final = 1 << 20

Verified = Literal["checksums", "sizes and times"]


class StagingError(Exception):
    """No copy could be made here, though the dataset itself is sound as far as is known."""


def _own_name() -> str:
    """Name of this user's folder where all users' jobs may stage, such as in /tmp. Scripts write graphmill-$UID."""
    return f"graphmill-{os.geteuid()}"


def _make_root(root: Path) -> None:
    """Make the root; one that bears the user's name must be the user's alone, and not made first by another user."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700 if root.name == _own_name() else 0o777)
    if root.name != _own_name():
        return
    found = root.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise StagingError(f"{root} is a link, which whoever made it may lead anywhere")
    if found.st_uid != os.geteuid():
        raise StagingError(f"{root} belongs to another user (uid {found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StagingError(
            f"others may write to {root}, which is for one user (chmod go-w, once you saw what is there)"
        )


def stage(dataset: Dataset, root: Path, *, verify: bool = False, threads: int | None = None) -> StagedHost:
    """Have a verified copy of the dataset below `root`, by making it or by finding it there.

    Raises `StagingError` if that is impossible (no room, no permission, a disk that returns other bytes), and
    `UserError` if the dataset itself is damaged.
    """
    began = time.monotonic()
    target = dataset.copy_in(root.absolute())
    workers = threads or min(8, max(4, num_cores()))
    try:
        _make_root(root)
        with only_copier(target):
            verified = _reusable(dataset, target, verify, workers)
            copy_s = 0.0 if verified else _copy(dataset, target, workers)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(dataset, target) from error
        where = f" ({error.filename})" if error.filename else ""
        raise StagingError(f"{target}: {error.strerror or error}{where}") from error
    return StagedHost(
        hostname=host_name(os.environ),
        time=time.time(),
        outcome="reused" if verified else "copied",
        source=str(dataset.folder),
        to=str(target),
        checksum=dataset.checksum,
        bytes=dataset.bytes,
        seconds=round(time.monotonic() - began, 3),
        copy_s=round(copy_s, 3),
        mib_per_s=None if verified else round(dataset.bytes / 2**20 / max(copy_s, 1e-6), 1),
        verified=verified or "checksums",
    )


def _reusable(dataset: Dataset, target: Path, verify: bool, threads: int) -> Verified | None:
    """How far the copy that is there was verified; None: there is none, or it was deleted."""
    mark = read_mark(target)
    if mark is None or mark.checksum != dataset.checksum or mark.xxh3.keys() != dataset.sizes.keys():
        if target.exists():
            _log.info(f"{target} is not a verified copy: it is made again")
            shutil.rmtree(target)
        return None
    problem = staged_problem(target, dataset.checksum)
    if problem is None and not verify and dataset.bytes > ALWAYS_READ_BYTES:
        return "sizes and times"
    with suppress(FileNotFoundError), shown_progress("verifying", dataset.bytes) as moved:
        found = checksums([target / name for name in mark.xxh3], threads=threads, moved=moved)
        damaged = [name for name, seen in zip(mark.xxh3, found, strict=True) if seen != mark.xxh3[name]]
        damaged += [name for name in dataset.xxh3 if mark.xxh3[name] != dataset.xxh3[name]]
        if not damaged:
            if problem:
                _log.info(f"{target}: {problem}; its checksums are right, so it is used")
                _vouch(dataset, target, mark.xxh3)
            return "checksums"
        problem = f"{', '.join(sorted(set(damaged)))} is not what was copied there"
    _log.warning(f"{target}: {problem}: this copy is deleted, and made again")
    shutil.rmtree(target)
    return None


def _copy(dataset: Dataset, target: Path, threads: int) -> float:
    """Make the copy. Returns the seconds that moving the bytes took."""
    remove_leftovers(target)
    if needed_bytes(dataset.sizes.values()) + _MARGIN_BYTES > free_bytes(target.parent):
        raise _no_room(dataset, target)
    began = time.monotonic()
    with replacing_folder(target) as temporary:
        with shown_progress("copying", dataset.bytes) as moved:
            copy_files(dataset.sizes, dataset.folder, temporary, threads=threads, moved=moved)
        copy_s = time.monotonic() - began
        with shown_progress("verifying", dataset.bytes) as moved:
            found = _verified(dataset, temporary, threads, moved)
        _vouch(dataset, temporary, found)
    return copy_s


def refuse_too_large(datasets: Sequence[Dataset], root: Path) -> None:
    """Raise a `StagingError` if the copies that are still to be made do not fit in `root` together."""
    missing = [each for each in datasets if not each.copy_in(root).exists()]
    needed = sum(needed_bytes(each.sizes.values()) + _MARGIN_BYTES for each in missing)
    place = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if missing and needed > free_bytes(place):
        names = ", ".join(each.name for each in missing)
        raise StagingError(
            f"{root} has {free_bytes(place) / 2**20:,.1f} MiB free, and {names} need {needed / 2**20:,.1f}"
        )


def _no_room(dataset: Dataset, target: Path) -> StagingError:
    needed, free = needed_bytes(dataset.sizes.values()) + _MARGIN_BYTES, free_bytes(target.parent)
    quota = "" if needed > free else ", but a quota, or another job, takes more"
    return StagingError(
        f"{target.parent} has {free / 2**20:,.1f} MiB free{quota}, and {dataset.name} needs {needed / 2**20:,.1f}"
    )


def _verified(dataset: Dataset, folder: Path, threads: int, moved: Moved) -> dict[str, str]:
    """The checksums of the copy in `folder`, once they are those of the dataset."""
    names = list(dataset.sizes)
    found = dict(zip(names, checksums([folder / name for name in names], threads=threads, moved=moved), strict=True))
    others = [name for name in names if name not in dataset.xxh3]  # no recorded checksum: compare with the source
    own = checksums([dataset.folder / name for name in others], threads=threads, moved=lambda _: None)
    expected = {**dataset.xxh3, **dict(zip(others, own, strict=True))}
    for name in names:
        if found[name] == expected[name]:
            continue
        if name in dataset.xxh3:
            (source,) = checksums([dataset.folder / name], threads=1, moved=lambda _: None)
            if source != dataset.xxh3[name]:
                raise UserError(
                    f"{dataset.folder / name}: its checksum is {source}, and metadata.json says {dataset.xxh3[name]}",
                    fix="prepare the dataset again: graphmill prepare NAME --force",
                )
        raise StagingError(f"{folder.parent}: {name} was copied, and read back otherwise; the disk may be failing")
    return found


def _vouch(dataset: Dataset, folder: Path, xxh3: Mapping[str, str]) -> None:
    os.utime(folder / FILE_NAME)  # the youngest: what was verified just now is not read again when the store is opened
    states = {name: FileState.of(folder / name) for name in dataset.sizes}
    mark = StagedMark(
        checksum=dataset.checksum,
        source=str(dataset.folder),
        hostname=host_name(os.environ),
        time=time.time(),
        files=states,
        xxh3=dict(xxh3),
    )
    write_mark(folder, mark)


def stage_for_run(
    folder: RunFolder,
    root: Path,
    *,
    via: Path | None = None,
    verify: bool = False,
    on_failure: Literal["fail", "use_shared"] = "fail",
) -> StagedHost:
    """Stage the dataset of a run, or the data of a command, on this host, and record the result in the folder."""
    share = _share_of(folder)
    dataset = _dataset_of(folder, share if via is None else None)
    shared = dataset.folder
    began = time.monotonic()
    try:
        if via is not None:
            dataset = read_dataset(Path(stage(dataset, via, verify=verify).to), share)
        staged = stage(dataset, root, verify=verify)
    except StagingError as error:
        if on_failure == "fail":
            raise
        staged = _shared_instead(dataset, str(error), time.monotonic() - began)
        _log.warning(f"staging failed: {error}")
        _log.warning(f"what runs on {staged.hostname} reads the shared copy {shared}, as staging.on_failure asks")
    write_staged(folder, staged)
    return staged


def _share_of(folder: RunFolder) -> Share | None:
    """What this host needs of a run's graph, if that is in parts or others sample; None: all of it."""
    plan = None if folder.is_command() else folder.read_plan()
    if plan is None or (plan.task.in_parts is None and plan.roles is None):
        return None
    from graphmill.partition.placement import share_of_plan

    world = folder.world()
    number = "0" if world.hosts == 1 else os.environ.get(HOST_NUMBER, "")
    if not (number.isascii() and number.isdecimal() and int(number) < world.hosts):
        raise UserError(
            f"{folder.path} needs other data on each of {world.hosts} hosts, and {HOST_NUMBER} does not say which"
            " of them this one is",
            fix=f"start this with srun, once per host; or by hand with {HOST_NUMBER}=N, counted from 0",
        )
    return share_of_plan(plan, int(number), world)


def _dataset_of(folder: RunFolder, share: Share | None) -> Dataset:
    if folder.is_command():
        data = folder.read_command().data
        if data is None:
            raise UserError(f"{folder.path} names no data to stage", fix="submit it with --data DATASET")
        return read_dataset(Path(data))
    plan = folder.read_plan().dataset
    dataset = read_dataset(Path(plan.path), share)
    if dataset.checksum != plan.checksum:
        raise UserError(
            f"{plan.path} holds the dataset {dataset.checksum}, and the run was planned for {plan.checksum}",
            fix="bring back that dataset, or plan a new run",
        )
    return dataset


def _shared_instead(dataset: Dataset, message: str, seconds: float) -> StagedHost:
    return StagedHost(
        hostname=host_name(os.environ),
        time=time.time(),
        outcome="use_shared",
        source=str(dataset.folder),
        to=str(dataset.folder),
        checksum=dataset.checksum,
        bytes=dataset.bytes,
        seconds=round(seconds, 3),
        copy_s=0.0,
        mib_per_s=None,
        verified="nothing",
        message=message,
    )


def staged_text(staged: StagedHost) -> str:
    """One line for a log."""
    size = f"{staged.bytes / 2**20:,.1f} MiB"
    if staged.outcome == "reused":
        return f"{staged.to}: {size} were there, verified by {staged.verified} in {staged.seconds:.1f} s"
    return f"{staged.to}: {size} copied in {staged.copy_s:.1f} s ({staged.mib_per_s:,.0f} MiB/s), verified by checksums"


def main(arguments: Sequence[str] | None = None) -> int:
    """Stage the dataset of the run, or the data of the command, in RUN_FOLDER on this host."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.cluster.staging.stage", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help=f"else ${ROOT_VARIABLE}, ${HOST_LOCAL}/graphmill-UID, $TMPDIR/graphmill-UID",
    )
    parser.add_argument("--via", type=Path, metavar="FOLDER", help="copied there first, once for all hosts")
    parser.add_argument("--verify", action="store_true", help="read a copy that is there in full, however large")
    parser.add_argument("--on-failure", choices=("fail", "use_shared"), default="fail")
    options = parser.parse_args(arguments)
    show_messages(f"stage {host_name(os.environ)}: ")
    try:
        import_from_snapshot(os.environ)
        folder = RunFolder(options.run)
        staged = stage_for_run(
            folder if folder.is_command() else RunFolder.open(options.run),
            staged_root(options.to, os.environ),
            via=options.via,
            verify=options.verify,
            on_failure=options.on_failure,
        )
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except StagingError as error:
        _log.error(f"{error}\n  → make room, or set staging.on_failure=use_shared")
        return exits.ANSWER_IS_NO
    if staged.outcome != "use_shared":
        _log.info(staged_text(staged))
    return exits.DONE


def staged_root(option: Path | None, environ: Mapping[str, str]) -> Path:
    """Where copies are made: the option, else GRAPHMILL_STAGED_ROOT, else the host's own folder of the job."""
    if option is not None:
        return option
    if environ.get(ROOT_VARIABLE):
        return Path(environ[ROOT_VARIABLE])
    local = environ.get(HOST_LOCAL) or environ.get("TMPDIR")
    if local:  # which may be /tmp, where every user's jobs stage
        return Path(local) / _own_name()
    raise UserError(f"no target: neither --to, nor {ROOT_VARIABLE}, {HOST_LOCAL} or TMPDIR", fix="give --to FOLDER")


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit on a signal; half a copy is removed on the way out."""
    del frame
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
