"""What a script passes to the driver: arguments of `python -m graphmill.cluster.jobs.in_job`, and their parser."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.cluster.launch.attempt import Follow
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.snapshot import Snapshot
from graphmill.spec.job.options import Launcher, OnStagingFailure, OnTimeLimit
from graphmill.spec.job.work import Begin, Command, ExamineHosts, RunCommand, RunStages


@dataclass(frozen=True, slots=True)
class Container:
    """Where the ranks run, if not on the host itself."""

    kind: str  # apptainer, pyxis, shifter or podman-hpc
    image: str
    binds: tuple[str, ...]
    python: str
    gpus: bool  # hand the GPUs in


@dataclass(frozen=True, slots=True)
class StagingArguments:
    """Copying the dataset near the ranks before they start."""

    to: str
    via: str | None
    on_failure: OnStagingFailure


@dataclass(frozen=True, slots=True)
class RunsHere:
    """The runs that the job trains."""

    runs: tuple[Path, ...]  # one after another, unless side by side; none: one is made
    begin: Begin  # how, if the script names none
    run_id: str | None
    script: Path | None  # kept in the run folder that is made, for the job that follows
    side_by_side: int = 1  # runs that share the job; 1: one after another


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of the driver."""

    work: RunsHere | RunStages | RunCommand | ExamineHosts
    on_time_limit: OnTimeLimit
    max_attempts: int
    retries: int  # after failures that another try may mend
    python: str  # of the ranks, if they have no container
    launcher: Launcher
    ranks_per_host: int
    cpus_per_rank: int
    gpus_per_host: int  # of each run that shares the job with others
    port: int | None  # of the rendezvous; None: from the job's id
    container: Container | None
    staging: StagingArguments | None
    code: Snapshot | None  # the copy of the user's own code that is imported

    @property
    def follow(self) -> Follow:
        """How an attempt that ran out of time is followed by another."""
        return "next_job" if isinstance(self.work, RunStages) and self.work.hands_over else self.on_time_limit

    def is_asked_to_stop(self) -> bool:
        """Whether a user has stopped the whole pipeline."""
        return isinstance(self.work, RunStages) and RunFolder(Path(self.work.folder)).is_asked_to_stop()

    @property
    def side_by_side(self) -> int:
        """Runs that share the job; 1: one after another."""
        return self.work.side_by_side if isinstance(self.work, RunsHere) else 1

    @property
    def cpus_per_host(self) -> int:
        """CPUs of one host, as Slurm counts them."""
        return self.ranks_per_host * self.cpus_per_rank


DESCRIPTION: Final = """The driver of a job, started once by its script, on the job's first host.

For each run in turn: own it, note the attempt, stage the dataset, start the ranks with srun, pass signals on, judge how
they ended, write the outcome and the epilog. Then finish, requeue the job, submit the next one, or give up. Without a
RUN it makes a run folder from --experiment. With --command it runs what follows -- once, in place of ranks. Exit
status: the run's, see graphmill.record.endings, or the command's own."""


def parse_arguments(words: Sequence[str] | None = None) -> Arguments:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m graphmill.cluster.jobs.in_job",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    new = parser.add_argument_group("a run folder made by the job")
    new.add_argument("--experiment")
    new.add_argument("--run-id")
    new.add_argument("--logs-root", default="logs")
    new.add_argument("--dataset-root")
    new.add_argument("-O", "--override", action="append", default=[])
    new.add_argument("--script", type=Path, help="kept in the run folder, for the job that follows")
    of_pipeline = parser.add_argument_group("stages of a pipeline, in place of RUN")
    of_pipeline.add_argument("--pipeline", type=Path, metavar="FOLDER")
    of_pipeline.add_argument("--stage", action="append", default=[], metavar="NAME")
    of_pipeline.add_argument("--hand-over", action="store_true", help="the next job continues what is not finished")
    of_command = parser.add_argument_group("a command in place of RUN: its words follow --")
    of_command.add_argument("--command", type=Path, metavar="FOLDER")
    of_command.add_argument("--data", metavar="FOLDER", help="prepared data that it reads")
    of_hosts = parser.add_argument_group("a look at the hosts, in place of RUN")
    of_hosts.add_argument("--examine", type=Path, metavar="FOLDER")
    end = parser.add_argument_group("what follows an attempt")
    end.add_argument("--on-time-limit", choices=("requeue", "resubmit", "stop"), default="requeue")
    end.add_argument("--max-attempts", type=int, default=20)
    end.add_argument("--retries", type=int, default=0, help="after failures that another try may mend")
    ranks = parser.add_argument_group("the ranks")
    ranks.add_argument("--python", default=sys.executable or "python3", help="where they have no container")
    ranks.add_argument("--launcher", choices=("srun", "torchrun"), default="srun")
    ranks.add_argument("--ranks-per-host", type=int, default=1)
    ranks.add_argument("--cpus-per-rank", type=int, default=1)
    ranks.add_argument("--gpus-per-host", type=int, default=0, help="of each run, with --side-by-side")
    ranks.add_argument("--side-by-side", type=int, default=1, metavar="N", help="runs share the hosts, N at a time")
    ranks.add_argument("--port", type=int, help="of the rendezvous; else from the job's id")
    kind = ranks.add_mutually_exclusive_group()
    kind.add_argument("--apptainer", metavar="IMAGE")
    kind.add_argument("--pyxis", metavar="IMAGE")
    kind.add_argument("--shifter", metavar="IMAGE")
    kind.add_argument("--podman-hpc", metavar="IMAGE")
    ranks.add_argument("--bind", action="append", default=[], help="a folder seen inside the container")
    ranks.add_argument("--container-python", default="python3")
    ranks.add_argument("--container-gpus", action="store_true")
    code = parser.add_argument_group("code of the user's own")
    code.add_argument("--code", type=Path, metavar="FOLDER", help="the copy that is imported; else what lies there")
    code.add_argument("--code-origin", action="append", default=[], metavar="FOLDER", help="what 0/, 1/, … are of")
    staging = parser.add_argument_group("staging")
    staging.add_argument("--staging-to", metavar="FOLDER")
    staging.add_argument("--staging-via", metavar="FOLDER")
    staging.add_argument("--staging-on-failure", choices=("fail", "use_shared"), default="fail")
    own, dashes, rest = _split(sys.argv[1:] if words is None else words)
    options = parser.parse_args(own)
    if bool(dashes) != (options.command is not None) or (dashes and not rest):
        parser.error("--command FOLDER and -- WORD… go together")
    return _arguments(options, tuple(rest))


def _split(words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split at the first `--`: what follows belongs to the command, a second `--` too, which argparse would remove."""
    found = list(words)
    at = found.index("--") if "--" in found else len(found)
    return found[:at], found[at : at + 1], found[at + 1 :]


def _arguments(options: argparse.Namespace, words: tuple[str, ...]) -> Arguments:
    return Arguments(
        work=_work(options, words),
        on_time_limit=options.on_time_limit,
        max_attempts=options.max_attempts,
        retries=options.retries,
        python=options.python,
        launcher=options.launcher,
        ranks_per_host=options.ranks_per_host,
        cpus_per_rank=options.cpus_per_rank,
        gpus_per_host=options.gpus_per_host,
        port=options.port,
        container=_container(options),
        staging=StagingArguments(options.staging_to, options.staging_via, options.staging_on_failure)
        if options.staging_to
        else None,
        code=None
        if options.code is None
        else Snapshot(options.code.name, str(options.code), tuple(options.code_origin)),
    )


def _work(options: argparse.Namespace, words: tuple[str, ...]) -> RunsHere | RunStages | RunCommand | ExamineHosts:
    if options.examine is not None:
        return ExamineHosts(folder=str(options.examine))
    if options.pipeline is not None:
        return RunStages(folder=str(options.pipeline), stages=tuple(options.stage), hands_over=options.hand_over)
    if options.command is not None:
        return RunCommand(folder=str(options.command), command=Command(words=words, data=options.data))
    begin = Begin(
        experiment=options.experiment,
        overrides=tuple(options.override),
        logs_root=options.logs_root,
        dataset_root=options.dataset_root,
    )
    return RunsHere(tuple(options.runs), begin, options.run_id, options.script, options.side_by_side)


def _container(options: argparse.Namespace) -> Container | None:
    images = {
        kind: getattr(options, kind.replace("-", "_")) for kind in ("apptainer", "pyxis", "shifter", "podman-hpc")
    }
    for kind, image in images.items():
        if image:
            return Container(kind, image, tuple(options.bind), options.container_python, options.container_gpus)
    return None
