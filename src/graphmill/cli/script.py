"""`script`: a job script for sbatch, written without a cluster."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.job_options import JobOptions
from graphmill.cli.options import DatasetRoot, ExperimentName, LogsRoot, Overrides, takes_groups
from graphmill.cli.show import print_line
from graphmill.cli.words import RestCommand, rest_of, short_flags_text, with_short_flags
from graphmill.spec.flags import TrainRequest, parse_train_request

if TYPE_CHECKING:
    from graphmill.spec.job.resolve import Job

_log = logging.getLogger(__name__)

_NODES_LIST = "--nodes-list"
_NOT_FOR_TRAINING = ("slurm.", "stage.", "slurm=", "stage=", "train.ranks=")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=RestCommand, epilog=short_flags_text("before or after `--`"))(takes_groups(script))


def script(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    nodes_list: Annotated[
        str | None,
        typer.Option(
            _NODES_LIST, metavar="N …", show_default=False, help="Write one script for each number of hosts: 1 2 4 8."
        ),
    ] = None,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="FOLDER", help="Where --nodes-list writes <prefix>_n<N>.sbatch.")
    ] = Path("slurm"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Write the script; else print it."),
    ] = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    job: JobOptions,
) -> None:
    """Write the script of a Slurm job.

    Needs no cluster and no run: the job makes its run folder itself, and continues in it after its time limit. What
    follows `--` goes to training. A request that the site cannot meet is refused, with the site's own numbers.

    \b
    Example:
      graphmill script debian-packages-sage --hosts 2 --time 01:00:00 -o train.sbatch
      graphmill script my.yaml --site pitzer --account PAS1266 --gres gpu:v100:1 --mem 85G
      graphmill script reddit-sage --site perlmutter --nodes-list 1 2 4 8 --allocation m1234
        --mail-user you@org.edu --mail-type END,FAIL --job-name-prefix reddit-strong --output-dir slurm
        --setup-line "module load pytorch"
        -- --max_steps 4000 --batch_size 1024 --sync_every 1 --sync_scheme deferred_allreduce
    """
    request = _training(rest_of(ctx) or [], with_short_flags(ctx, override or []), experiment)
    counts = _counts(nodes_list)
    folders = [str(logs_root) if request.logs_root == Path("logs") else str(request.logs_root)]
    folders += [str(path) for path in (request.dataset_root or root,) if path]
    if request.experiment is None:
        from graphmill.spec.load import DEFAULT_RECIPE

        _log.info(f"no experiment is named: the script trains the recipe {DEFAULT_RECIPE}")
    jobs = [
        _job(request, [*job.overrides(), *(() if count is None else (f"slurm.hosts={count}",))], folders)
        for count in counts
    ]
    for remark in dict.fromkeys(remark for each in jobs for remark in each.remarks):
        _log.info(remark)
    if nodes_list is not None:
        _write_each(jobs, output_dir)
        return
    from graphmill.cluster.jobs.script import render_script

    text = render_script(jobs[0])
    if output is None:
        typer.echo(text, nl=False)
        return
    _write(output, text)


def _counts(nodes_list: str | None) -> list[int | None]:
    """The numbers of hosts; one None if the experiment sets it."""
    if nodes_list is None:
        return [None]
    words = nodes_list.replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdecimal() and int(word) for word in words):
        raise UserError(
            f"{_NODES_LIST} {nodes_list!r} holds no numbers of hosts", fix=f"write, for example, {_NODES_LIST} 1 2 4 8"
        )
    if len(set(words)) < len(words):
        raise UserError(f"{_NODES_LIST} names a number twice", fix="name each once; each gets a script of its own")
    return [int(word) for word in words]


def _training(words: Sequence[str], overrides: Sequence[str], experiment: str | None) -> TrainRequest:
    """The arguments after `--`, and those before it, as one request to training."""
    given = [part for text in overrides for part in ("-O", text)]
    named = [] if experiment is None else [experiment]
    request = parse_train_request([*named, *words, *given])
    if request.resume or request.run_id is not None:
        what = "--resume" if request.resume else "--run-id"
        raise UserError(f"{what} is for a run that exists; this script makes its own", fix=f"leave out {what}")
    return request


def _job(request: TrainRequest, job: Sequence[str], folders: Sequence[str]) -> "Job":
    """One job; `folders`: the logs root, then the dataset root if one is given. All paths are seen from its folder."""
    from graphmill.cluster.jobs.sites import find_site
    from graphmill.spec.job.resolve import resolve_job
    from graphmill.spec.job.work import Begin
    from graphmill.spec.load import DEFAULT_RECIPE, load_experiment
    from graphmill.spec.recipes import is_recipe

    source = request.experiment or DEFAULT_RECIPE
    experiment = load_experiment(request.experiment, [*request.overrides, *job])
    base = Path.cwd() / (experiment.slurm.work_dir or "")
    begin = Begin(
        experiment=source if is_recipe(source) else str(base / source),
        overrides=tuple(text for text in request.overrides if not text.startswith(_NOT_FOR_TRAINING)),
        logs_root=str(base / folders[0]),
        dataset_root=str(base / folders[1]) if len(folders) > 1 else None,
    )
    return resolve_job(experiment, find_site(experiment.slurm.site), begin=begin, called_in=str(base))


def _write_each(jobs: Sequence["Job"], folder: Path) -> None:
    from graphmill.cluster.jobs.script import render_script, script_name

    for job, text in [(job, render_script(job)) for job in jobs]:
        path = folder / script_name(job)
        _write(path, text)
        print_line(f"sbatch {path}")


def _write(path: Path, text: str) -> None:
    from graphmill.base.files import write_text

    try:
        write_text(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", fix="name a file that you may write") from None
