"""`submit`: an experiment as a job of Slurm."""

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.api.submitting import dependency_of, say_what_counts, sent, to_submit
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.retries import is_there
from graphmill.cli.agree import agree_to_code, agree_to_job
from graphmill.cli.job_options import JobOptions
from graphmill.cli.options import After, ExperimentName, Ranks, RunId, resolved_dataset_root, takes_groups
from graphmill.cli.plan import show_plan
from graphmill.cli.show import Cell, print_facts, print_json, print_line
from graphmill.cli.submit_command import CommandArguments, Data, Run, is_command, submit_command
from graphmill.cli.submit_options import SubmitOptions, submit_remotely
from graphmill.cli.words import RestCommand, rest_of, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphmill.cluster.jobs.sbatch import Submission
    from graphmill.cluster.jobs.submit import JobRequest, RunRequest
    from graphmill.record.documents import SubmittedJob
    from graphmill.record.run_folder import RunFolder

_log = logging.getLogger(__name__)

LOOK_S = 3.0  # at the reason why a new job waits; sbatch accepts many a job that can never start


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=RestCommand, epilog=short_flags_text())(takes_groups(submit))


def submit(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    after: After = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an ended run: name it in place of EXPERIMENT, or with --run-id."),
    ] = False,
    run_id: RunId = None,
    run: Run = False,
    data: Data = None,
    options: SubmitOptions,
    job: JobOptions,
) -> None:
    """Submit an experiment, or with --run any command, as a job of Slurm.

    The job's resources are set in the experiment's section `slurm` and in the site's profile. The run folder is made
    here, with the plan, the job and its script; the job id is recorded in it. With --on all of this happens on another
    machine: the experiment's file and the modules that it names are sent there first.

    A command runs once, on one host, in a folder LOGS_ROOT/jobs/<command>-<UTC time>: the same script, limits, monitor
    and epilog. Its words follow --, and no shell reads them; the job ends with its exit status.

    \b
    Example:
      graphmill submit debian-packages-sage --hosts 2 --time 00:30:00 --dry-run
      graphmill submit debian-packages-sage --hosts 2 --site perlmutter --account m1234 --qos regular
      graphmill submit my.yaml --after logs/first-run
      graphmill submit --resume logs/my-run-20261121T081500Z --time 02:00:00 --mem 16G
      graphmill submit --resume logs/my-run-20261121T081500Z --hosts 1 --ranks 2
      graphmill submit my.yaml --on me@login.cluster:projects/gnn --time 02:00:00
      graphmill submit --run --time 60 --cpus-per-host 8 --mem 32G -- graphmill prepare ogbn-products
      graphmill submit --run --dry-run -- ./convert.sh "raw files/*.csv"
    """
    from graphmill.record.run_folder import RunFolder

    overrides = [*with_short_flags(ctx, options.override or []), *job.overrides()]
    overrides += [] if ranks is None else [f"train.ranks={ranks}"]
    submit_remotely(ctx, ["submit"], [] if experiment is None else [experiment], overrides, options)
    dependency = "" if after is None else dependency_of(after, options.logs_root)
    rest = rest_of(ctx)
    if rest and not run:
        raise UserError(
            "what follows -- is a command, which only --run runs",
            fix="leave out --, or write: graphmill submit --run -- COMMAND",
        )
    words = (rest or []) if run else None
    if words is not None or data is not None or (resume and is_command(experiment, run_id, options.logs_root)):
        given = {
            "EXPERIMENT": experiment,
            "--ranks": ranks,
            "--code-snapshot": options.code_snapshot,
            "--resume": resume,
        }
        root = resolved_dataset_root(options.root)
        arguments = CommandArguments(words, data, root, options.logs_root, run_id, dependency)
        submit_command(arguments, overrides, given, dry_run=options.dry_run, json=options.json)
        return
    request = to_submit(
        experiment,
        overrides,
        _agree,
        resume=resume,
        root=options.root,
        logs_root=options.logs_root,
        run_id=run_id,
        dependency=dependency,
        code_snapshot=options.code_snapshot,
        prepare=not options.dry_run,
    )
    if isinstance(request, RunFolder):
        print_line(f"{request.path} is done already")
    elif options.dry_run:
        show_request(request, json=options.json)
    else:
        tell_submitted(request.folder, sent(request, is_new=not resume), json=options.json)


def _agree(folder: "RunFolder") -> None:
    agree_to_code(folder)
    agree_to_job(folder)


def show_request(request: "RunRequest", *, json: bool) -> None:
    """Show the whole request, and Slurm's answer to it: also, and above all, if it refuses."""
    with slurms_answers([request.submission]) as (answer,):
        if json:
            print_json({"run": request.folder.path, "plan": request.plan, **request_as_json(request, answer)})
            return
        show_plan(request.plan, json=False)
        print_line("")
        print_request(request, answer)


@contextmanager
def slurms_answers(submissions: "Sequence[Submission]") -> "Iterator[list[str | None]]":
    """What Slurm says of each, for the block to show; None: it was not asked. A refusal is raised after the block."""
    from graphmill.cluster.jobs.sbatch import check_with_slurm
    from graphmill.slurm.commands import SlurmError, SlurmMissingError

    answers: list[str | None] = [None] * len(submissions)
    refusal: SlurmError | None = None
    for number, submission in enumerate(submissions):
        try:
            answers[number] = check_with_slurm(submission, os.environ)
        except SlurmMissingError as error:
            _log.info(f"not checked: {error.message}")
            break
        except SlurmError as error:
            answers[number], refusal = error.message, refusal or error
    yield answers
    if refusal is not None:
        raise refusal


def request_as_json(request: "JobRequest", answer: str | None) -> dict[str, object]:
    """What would be asked of Slurm, and its answer."""
    return {
        "job": request.job,
        "script_path": request.folder.script_path,
        "script": request.script,
        "command": request.submission.command,
        "changes": request.changes,
        "slurm_says": answer,
    }


def print_request(request: "JobRequest", answer: str | None) -> None:
    """Print for a person what would be asked of Slurm, and its answer."""
    job = request.job.model_dump(mode="json")
    work = job.pop("work")
    facts: list[tuple[str, Cell]] = [
        (key, _text(value)) for key, value in (job | work).items() if value not in (None, [], {})
    ]
    print_facts(facts, title="job")
    print_line(f"\n{request.folder.script_path}{' (there already)' if is_there(request.folder.script_path) else ''}")
    print_line("".join(f"  {line}\n" for line in request.script.splitlines()))
    say_what_counts(request)
    if request.changes:
        print_line(f"asked for otherwise than before: {'; '.join(request.changes)}")
    print_line(f"command: {' '.join(request.submission.command)}")
    if answer is not None:
        print_line(f"slurm says: {answer}")
    print_line("nothing was written, and nothing submitted")


def tell_submitted(folder: "RunFolder", job: "SubmittedJob", *, json: bool) -> None:
    """Print the job id at once, then the job's state in Slurm."""
    from graphmill.cluster.jobs.sbatch import first_state
    from graphmill.slurm.states import explain_reason

    if not json:
        print_line(f"job {job.job_id}: {folder.path}")
    reading = first_state(job, within_s=LOOK_S)
    reason = explain_reason(reading.reason) if reading is not None and reading.phase == "waits" else None
    if json:
        print_json(
            {
                "job_id": job.job_id,
                "cluster": job.cluster,
                "run": folder.path,
                "dependency": job.dependency,
                "state": reading.state if reading else None,
                "reason": reading.reason if reading else None,
                "meaning": reason.meaning if reason else None,
                "hopeless": reason.is_hopeless if reason else False,
            }
        )
    elif reading is not None and reading.phase == "runs":
        print_line(f"it runs on {reading.hosts}")
    elif reading is not None and reason is None:
        print_line(f"it has ended: {reading.state}")
    elif reason is not None and reason.is_hopeless:
        _log.warning(f"as submitted, it will never start: {reason.meaning}\n  → {reason.advice}")
    elif reason is not None:
        print_line(f"it waits: {reason.meaning}")
    if not json:
        print_line(f"watch it with `graphmill watch {folder.path}`")
    has_failed = reading is not None and not reading.is_alive and not reading.has_succeeded
    if has_failed or (reason is not None and reason.is_hopeless):
        raise typer.Exit(exits.ANSWER_IS_NO)


def tell_first(job: "SubmittedJob | None", watched: str, *, json: bool) -> None:
    """Print the state of the first of several jobs, for all of them; `watched`: what `graphmill watch` takes."""
    from graphmill.cluster.jobs.sbatch import first_state
    from graphmill.slurm.states import explain_reason

    if job is None:
        return
    reading = first_state(job, within_s=LOOK_S)
    if reading is not None and reading.phase == "waits":
        reason = explain_reason(reading.reason)
        if reason.is_hopeless:
            _log.warning(f"as submitted, job {job.job_id} will never start: {reason.meaning}\n  → {reason.advice}")
            raise typer.Exit(exits.ANSWER_IS_NO)
        if not json:
            print_line(f"job {job.job_id} waits: {reason.meaning}")
    if not json:
        print_line(f"watch them with `graphmill watch {watched}`")


def _text(value: object) -> Cell:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return value if isinstance(value, bool) else str(value)
