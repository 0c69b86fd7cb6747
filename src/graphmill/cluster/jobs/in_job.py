"""What a script runs inside its job, around the ranks: `python -m graphmill.cluster.jobs.in_job VERB …`.

begin RUN | begin --experiment E --run-id ID [--logs-root DIR] [--dataset-root DIR] [-O key=value …]
    Note the attempt; make the run folder first where there is none. Prints the folder.
meet [--try N]
    Where the ranks meet: prints `HOST:PORT`, the job's first host and a port that is free on it.
end RUN STATUS [--goes-on-by requeue|follow_up|nothing] [--max-attempts N] [--tries-left N]
    How did it go? The first error first, then the epilog, then what follows: the run is done, goes on (the job is
    requeued, or a follow-up submitted), or is given up. The exit status is the job's; 69 asks for another port.
struck RUN PID [--goes-on-by requeue|follow_up|nothing] [--max-attempts N]
    Slurm has sent SIGTERM, and SIGKILL comes next. At the time limit, ranks that save in between leave by themselves:
    exit status 0, and `end` is asked as ever. Else the run goes on from its last checkpoint. PID is srun's.
"""

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.aftermath import go_on, is_ours, judge, tell
from graphmill.cluster.launch.attempt import AttemptEnd, decide
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.network import candidate_ports, is_free
from graphmill.slurm.commands import SlurmError, kill_wait_s, squeue
from graphmill.slurm.hostlist import expand_hostlist

RUN_VARIABLE = "GRAPHMILL_RUN"  # a follow-up of a script without a run folder of its own finds it here
_TICK_S = 0.05
_SAVE_WITHIN = 0.6  # of the time between SIGTERM and SIGKILL; the rest is for the requeue, or the follow-up


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb."""
    parser = argparse.ArgumentParser(
        prog="python -m graphmill.cluster.jobs.in_job",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    _add_begin(verbs.add_parser("begin"))
    verbs.add_parser("meet").add_argument("--try", dest="trial", type=int, default=1)
    _add_end(verbs.add_parser("end"))
    _add_struck(verbs.add_parser("struck"))
    options = parser.parse_args(arguments)
    try:
        return {"begin": _begin, "meet": _meet, "end": _end, "struck": _struck}[options.verb](options, os.environ)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.BAD_REQUEST
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.ANSWER_IS_NO


def _add_begin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--experiment")
    parser.add_argument("--run-id")
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    parser.add_argument("--dataset-root", type=Path)
    parser.add_argument("--script", type=Path, help="kept in a new run folder, for a follow-up job")
    parser.add_argument("-O", "--override", action="append", default=[])


def _add_end(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path)
    parser.add_argument("status", type=int)
    parser.add_argument("--tries-left", type=int, default=0, help="other ports that the script will try")
    _add_what_follows(parser)


def _add_struck(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path)
    parser.add_argument("pid", type=int)
    _add_what_follows(parser)


def _add_what_follows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--goes-on-by", choices=("requeue", "follow_up", "nothing"), default="requeue")
    parser.add_argument("--max-attempts", type=int, default=20)


def _begin(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    named = options.run or (Path(environ[RUN_VARIABLE]) if environ.get(RUN_VARIABLE) else None)
    folder = RunFolder.open(named) if named else _found_or_made(options, environ)
    if _is_done(folder):
        _say(f"{folder.path} is done already; nothing is trained")
    else:
        _note_attempt(folder, environ)
    sys.stdout.write(f"{folder.path.resolve()}\n")
    return exits.DONE


def _note_attempt(folder: RunFolder, environ: Mapping[str, str]) -> None:
    resumed = bool(folder.attempts())
    number = folder.begin_attempt(resumed=resumed, command=sys.argv, job_id=environ.get("SLURM_JOB_ID", ""))
    folder.note_provenance(sys.argv)
    restarts = environ.get("SLURM_RESTART_COUNT")  # not set in a job's first run
    again = f", requeued {restarts} times" if restarts else ""
    clock = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    hosts = environ.get("SLURM_JOB_NODELIST", socket.gethostname())
    _say(f"attempt {number} of {folder.path}: job {environ.get('SLURM_JOB_ID', '?')}{again}, on {hosts}, {clock}")


def _found_or_made(options: argparse.Namespace, environ: Mapping[str, str]) -> RunFolder:
    """The folder of a script that brings only its experiment: made by the job's first attempt, found by the others."""
    if not options.experiment or not options.run_id:
        raise UserError("begin needs a run folder, or --experiment and --run-id", fix="see --help")
    from graphmill.runtime.machine import machine_facts
    from graphmill.runtime.roots import dataset_root
    from graphmill.spec.load import load_experiment
    from graphmill.spec.plan import MachineFacts
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    folder = RunFolder(options.logs_root / options.run_id)
    if folder.plan_path.exists():
        return folder
    here = machine_facts(environ)
    experiment, root = (
        load_experiment(options.experiment, options.override),
        dataset_root(options.dataset_root, environ),
    )
    prepare_embedded(experiment, root, _say)
    plan = plan_experiment(
        experiment,
        dataset_root=root,
        run_id=options.run_id,
        machine=MachineFacts(num_cores=_count(environ, "SLURM_CPUS_ON_NODE", here.num_cores), num_gpus=here.num_gpus),
        hosts=_count(environ, "SLURM_JOB_NUM_NODES", 1),
        say=_say,
    )
    folder = RunFolder.create(plan, options.logs_root)
    if options.script:
        write_text(folder.script_path, options.script.read_text(encoding="utf-8"))
    return folder


def _meet(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    hosts = expand_hostlist(environ.get("SLURM_JOB_NODELIST", ""))
    if not hosts:
        raise UserError(
            "SLURM_JOB_NODELIST is not set, so this is no job of Slurm", fix="submit the script with sbatch"
        )
    ports = candidate_ports(_count(environ, "SLURM_JOB_ID", 0) + 101 * (options.trial - 1))
    # The batch script runs on the job's first host, where rank 0 will listen; a port lost until then is tried again.
    port = next((port for port in ports if is_free(port)), None)
    if port is None:
        raise UserError(f"no port is free on {socket.gethostname()}", fix="exclude that host: --sbatch-arg --exclude=…")
    sys.stdout.write(f"{hosts[0]}:{port}\n")
    return exits.DONE


def _end(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    folder = RunFolder.open(options.run)
    if not is_ours(folder.attempts()[-1], environ):
        _say("the run goes on in another attempt, so nothing is decided here: Slurm had given this one up")
        return exits.LOST_A_RANK
    return _follow(judge(folder, options.status, environ, tries_left=options.tries_left), folder, options, environ)


def _struck(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        is_time_up = any(job.reason == "TimeLimit" for job in squeue([environ.get("SLURM_JOB_ID", "")]))
    except SlurmError as error:
        _say(f"SIGTERM came, and nobody can say whether the time is up, so nothing follows: {error.message}")
        is_time_up = False
    if not is_time_up:  # cancelled or preempted: what follows is not ours to say
        return 128 + signal.SIGTERM
    _say("the time limit has struck before the run had left; the ranks were asked to save at once")
    if _has_ended(options.pid, within_s=_SAVE_WITHIN * kill_wait_s()):
        return exits.DONE
    folder = RunFolder.open(options.run)
    _say("they could not, within their round: what they did since their last checkpoint is lost")
    return _follow(judge(folder, exits.OUT_OF_TIME, environ, struck=True), folder, options, environ)


def _has_ended(pid: int, *, within_s: float) -> bool:
    """Wait for a process that need not be a child. A dead one that its parent has not yet missed has ended, too."""
    import psutil

    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # type: ignore[no-untyped-call]
                time.sleep(_TICK_S)
                continue
        return True
    return False


def _follow(end: AttemptEnd, folder: RunFolder, options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    decision = decide(end, goes_on_by=options.goes_on_by, max_attempts=options.max_attempts)
    if decision.step == "go_on" and folder.is_asked_to_stop():
        decision = replace(decision, step="give_up", reason="a person asked it to stop (graphmill stop)")
    if decision.step != "try_again":
        tell(folder, end, decision, environ)
    if decision.step == "go_on":
        go_on(folder, options.goes_on_by, environ)
    return decision.exit_code


def _is_done(folder: RunFolder) -> bool:
    outcome = folder.read_outcome()
    return outcome is not None and outcome.status == "done"


def _count(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else otherwise


def _say(text: str) -> None:
    """Into the job's log; standard output is for the script."""
    sys.stderr.write(f"graphmill: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
