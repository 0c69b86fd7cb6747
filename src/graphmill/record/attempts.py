"""The one place where an attempt begins, for every launcher: lock the run, check if it is done, record the attempt."""

import logging
import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.retries import is_there
from graphmill.record.checksums import clear_checksums, note_checksums
from graphmill.record.documents import Attempt
from graphmill.record.extend import take_over
from graphmill.record.lock import hold
from graphmill.record.manifest import checkpoint_folders
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.runtime.trust import hand_on, refuse_foreign_code
from graphmill.spec.world import World, effect_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that this process owns."""

    folder: RunFolder
    number: int  # from 1
    resumed: bool


@contextmanager
def attempt(
    folder: RunFolder,
    *,
    command: Sequence[str],
    job_id: str = "",
    wait_s: float = 0.0,
    world: World | None = None,
    is_second_in_job: bool = False,
) -> Iterator[Begun | None]:
    """Own the run and begin an attempt; None if the run is done already. `world`: see `RunFolder.begin_attempt`.

    If another process owns the run, `OwnedError` names it; if it is not known what the run has done so far,
    `UnreadableError` names the file. Nothing in the folder was changed then.
    """
    with hold(folder.path, job_id=job_id, wait_s=wait_s):
        if folder.is_done():
            yield None
            return
        if not folder.is_command():
            refuse_foreign_code(folder.read_plan().model_dump(mode="json"))
            hand_on(folder.code(), os.environ)  # its ranks may have no list of what was named
            take_over(folder)
        resumed = _was_begun(folder)
        number = folder.begin_attempt(
            resumed=resumed, command=command, job_id=job_id, world=world, is_second_in_job=is_second_in_job
        )
        clear_checksums(folder)
        folder.note_provenance(command)
        changed = code_changes(folder.attempts())
        if number in changed:
            _log.warning(f"{changed[number]}; the rest of the run may differ from what it would have been")
        _tell_other_ranks(folder, number)
        try:
            yield Begun(folder, number, resumed)
        finally:
            _note_files(folder, job_id)
        if not is_there(folder.attempts_path):
            raise UserError(
                f"{folder.path} was removed while it trained: what is there now is not the whole run",
                fix=f"rm -rf {shlex.quote(str(folder.path))}, and train again",
            )


def _tell_other_ranks(folder: RunFolder, number: int) -> None:
    if folder.is_command():
        return
    plan, world = folder.read_plan(), folder.world()
    if world.ranks != plan.ranks:
        _log.warning(f"attempt {number} has {world.ranks} ranks, and {plan.ranks} were planned: {effect_of(plan)}")


def _note_files(folder: RunFolder, job_id: str) -> None:
    """What an attempt leaves: nothing where files cannot be read or written, which may be what ended it."""
    with best_effort_write(), suppress(UnreadableError, UserError):
        attempts = folder.attempts()
        if attempts and is_ours(attempts[-1], job_id):
            note_checksums(folder)


def is_ours(last: Attempt, job_id: str) -> bool:
    """Whether it is this job, on this host, that began the attempt.

    A host that was cut off may outlive its job: Slurm has given it up, and the run was resumed elsewhere.
    """
    return (last.job_id, last.hostname) == (job_id, socket.gethostname())


def code_changes(attempts: Sequence[Attempt]) -> dict[int, str]:
    """Describe by number (from 1) the attempts that began with other code than before, graphmill's or the user's."""
    found = {}
    for number, (before, now) in enumerate(pairwise(attempts), start=2):
        changed = ["graphmill's code"] if before.code != now.code else []
        if before.own_code and before.own_code != now.own_code:
            changed.append("the code of your own" if now.own_code else "the code of your own (no copy is used)")
        if changed:
            found[number] = f"{' and '.join(changed)} was changed before attempt {number}"
    return found


def _was_begun(folder: RunFolder) -> bool:
    if folder.attempts():  # if they cannot be read, nothing begins: their number is not known
        return True
    try:
        return bool(checkpoint_folders(folder.checkpoints_dir))
    except UnreadableError:  # reported on resume
        return True
