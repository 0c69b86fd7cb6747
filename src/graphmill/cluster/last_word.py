"""What the accounting of another machine's cluster says of pulled runs once their jobs have ended.

A job writes its own accounts while it still runs; how it ended is known on its cluster only. So `pull` asks sacct
there, over the same ssh, and writes sacct_ended.json, which `verify` goes by wherever the run folder lies.
"""

import logging
import shlex
from collections.abc import Sequence
from typing import Final

from graphmill.base.files import write_json
from graphmill.cluster.remote import answer_of
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.accounting import Row, rows_in, rows_of_ended, sacct_command
from graphmill.slurm.commands import is_job_id
from graphmill.verify.accounting import ended_jobs

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 200  # jobs in one question
_NOT_FOUND: Final = 127  # of a shell: no such command


def has_last_word(folder: RunFolder) -> bool:
    """Whether the run was no job, or the end of all its jobs is known."""
    ids = _job_ids(folder)
    return not ids or set(ids) <= ended_jobs(folder)


def fetch_last_word(folders: Sequence[RunFolder], ssh: Sequence[str]) -> int:
    """Ask how the jobs of these runs ended. Returns of how many it is known now.

    `ssh`: the command that runs another one there. Where sacct does not answer a message says so, and nothing else is
    done: the runs are whole without.
    """
    asked = {folder.path: ids for folder in folders if (ids := _job_ids(folder))}
    everything = sorted({job_id for ids in asked.values() for job_id in ids})
    rows: list[Row] = []
    for begin in range(0, len(everything), _AT_ONCE):
        command = sacct_command(everything[begin : begin + _AT_ONCE])
        shell = shlex.join(["bash", "-lc", shlex.join(command)])  # a login shell: many sites put Slurm on PATH there
        done = answer_of([*ssh, shell])
        if done.returncode:
            why = (
                "there is no sacct there" if done.returncode == _NOT_FOUND else (done.complaint.strip() or "no answer")
            )
            _log.info(f"how the jobs ended is not known here: {why.splitlines()[-1]}")
            return 0
        rows += rows_in(done.text)
    ended = 0
    for path, ids in asked.items():
        own = [rows_of_ended(rows, job_id) for job_id in ids]
        if all(own):
            write_json(RunFolder(path).sacct_ended_path, [dict(row) for found in own for row in found])
            ended += 1
    if ended < len(asked):
        _log.info(f"sacct has no end yet of jobs of {len(asked) - ended} runs that are done: pull again in a while")
    return ended


def _job_ids(folder: RunFolder) -> list[str]:
    return sorted({job.job_id for job in folder.jobs() if is_job_id(job.job_id)})
