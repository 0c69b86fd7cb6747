"""The driver of a job: what a script execs on the job's first host, `python -m graphmill.cluster.jobs.in_job … RUN…`.

One process from the first line to the exit status: own the run, note the attempt, stage the dataset, find a port for
the rendezvous, srun the ranks, pass signals on, judge how they ended, requeue or submit the next job. Several runs are
trained one after another, or side by side (`side_by_side.py`), and a run that is done is passed over, so a requeued job
continues where it was. With `--pipeline`, the runs are stages (`stages_in_job.py`); with `--command`,
the job runs that in place of ranks (`command_in_job.py`); with `--examine`, nothing is trained.
"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import show_messages
from graphmill.base.retries import is_io_error
from graphmill.cluster.jobs.arguments import Arguments, RunsHere, parse_arguments
from graphmill.cluster.jobs.command_in_job import CommandDriver
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.examine_in_job import examine
from graphmill.cluster.jobs.side_by_side import SharedSignals, train_side_by_side
from graphmill.cluster.jobs.srun_step import Signals
from graphmill.cluster.jobs.stages_in_job import run_stages
from graphmill.runtime.snapshot import import_from_snapshot, put_into
from graphmill.spec.job.work import ExamineHosts, RunCommand, RunStages

_log = logging.getLogger(__name__)


def main(words: Sequence[str] | None = None) -> int:
    """Do all the work, or as far as this job gets. Returns the exit status of the job."""
    arguments = parse_arguments(words)
    show_messages("graphmill: ")
    try:
        return _work(arguments)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except UnreadableError as error:  # no attempt was begun, or it is not known which: nothing follows by itself
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
    except OSError as error:
        _log.error(f"{error}")
        return exits.IO_ERROR if is_io_error(error) else exits.ANSWER_IS_NO


def _work(arguments: Arguments) -> int:
    shared = SharedSignals([Signals() for _ in range(arguments.side_by_side)])
    shared.install()
    put_into(os.environ, arguments.code)  # the ranks inherit it
    import_from_snapshot(os.environ)
    kind = CommandDriver if isinstance(arguments.work, RunCommand) else Driver
    drivers = [kind(arguments, os.environ, each, number) for number, each in enumerate(shared.each)]
    first = drivers[0]
    match arguments.work:
        case ExamineHosts(folder=folder):
            return examine(first, Path(folder))
        case RunStages() as part:
            return run_stages(first, part)
        case RunsHere(side_by_side=number) if number > 1:
            return train_side_by_side(drivers, first.runs(), os.environ)
    for run in first.runs():
        decision = first.train(run)
        if decision.step != "finish":
            return decision.exit_code
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main())
