"""`pipeline`: the stages of a pipeline planned, run and listed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.api.planning import make_plan
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.messages import each_text_once
from graphmill.cli.job_options import JobOptions
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, Overrides, takes_groups
from graphmill.cli.pipeline_tables import as_json, show_memory, show_packing, show_predictions, show_states
from graphmill.cli.recipes import show_recipes
from graphmill.cli.show import print_json, print_line
from graphmill.cli.submit_options import SubmitOptions, submit_remotely
from graphmill.cli.tree import Commands
from graphmill.cli.words import WordsCommand

if TYPE_CHECKING:
    from graphmill.base.errors import AbsentDataError
    from graphmill.cluster.launch.pipeline import Stages
    from graphmill.cluster.launch.run_graph import Planner
    from graphmill.spec.packing import JobLimits
    from graphmill.spec.pipeline import Pipeline, StageSpec

_log = logging.getLogger(__name__)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A YAML file, or the name of a recipe.")]
StageNames = Annotated[
    str | None,
    typer.Option("--stages", metavar="A B", show_default=False, help="Only these stages; give PIPELINE before them."),
]
Trial = Annotated[int, typer.Option("--trial", metavar="STEPS", min=3, help="Steps of each stage to measure.")]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time-limit", metavar="TIME", show_default=False, help="Of a job: minutes, HH:MM:SS or D-HH:MM:SS."),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option("--memory-limit", metavar="SIZE", show_default=False, help="Of a job, for each host, such as 64G."),
]
SkipMissing = Annotated[
    bool,
    typer.Option(
        "--skip-missing-data",
        help="Leave out stages whose data are not prepared; those after them begin with what they would begin with.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)
    group.command("plan", cls=WordsCommand)(plan)
    group.command("run", cls=WordsCommand)(run)
    group.command("submit", cls=WordsCommand)(takes_groups(submit))
    group.command("list")(list_)
    group.callback()(pipeline)
    app.add_typer(group, name="pipeline")


def pipeline() -> None:
    """Run stages in order, each with weights of earlier ones.

    \b
    Example:
      graphmill pipeline plan pipeline-neighbours --time-limit 00:30:00
      graphmill pipeline run pipeline-neighbours
      graphmill pipeline submit pipeline-neighbours --time-limit 00:30:00
      graphmill pipeline list pipeline-neighbours
    """


def plan(
    name: PipelineName,
    *,
    stages: StageNames = None,
    skip_missing_data: SkipMissing = False,
    overrides: Overrides = None,
    trial: Trial = 20,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show batch and memory of every stage by formula; measure nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and plan every stage; measure nothing, write nothing.")
    ] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Predict what each stage takes, and pack stages into jobs.

    A few steps of each stage that is not done are run here, once: measurements are kept next to the runs. Times and
    memory are intervals; jobs are packed by the upper ends. A stage may span jobs, and a job may hold several stages.

    \b
    Example:
      graphmill pipeline plan pipeline-neighbours --time-limit 00:30:00 --memory-limit 8G
      graphmill pipeline plan pipeline-horizon --stages short whole --json
    """
    from graphmill.cluster.launch.pipeline import plans_of_stages
    from graphmill.cluster.launch.predict import predict
    from graphmill.estimate.cache import Estimates
    from graphmill.spec.packing import pack

    planner = _planner(root, logs_root, to_train=not dry_run and not memory)  # a trial trains
    loaded, chosen, of = _loaded(name, stages, logs_root, overrides, skips=planner if skip_missing_data else None)
    limits = _limits(time_limit, memory_limit)
    plans = plans_of_stages(of, chosen, of.planned_by(planner))
    if memory:
        show_memory(chosen, plans, json=json)
        return
    if dry_run:
        show_states(of, json=json, without_data=_without_data(of, root, logs_root))
        return
    predictions = predict(of, chosen, plans, Estimates(logs_root), steps=trial, in_job=limits is not None)
    costs = [prediction.cost for prediction in predictions if prediction.cost is not None]
    packing = None if limits is None else pack(costs, limits)
    if json:
        jobs = {} if packing is None else {"jobs": packing.jobs, "misfits": packing.misfits}
        print_json({"pipeline": loaded.name, "stages": [as_json(each) for each in predictions], **jobs})
    else:
        show_predictions(predictions)
        if packing is not None:
            show_packing(packing)
    if packing is not None and packing.misfits:
        raise typer.Exit(exits.ANSWER_IS_NO)


def run(
    name: PipelineName,
    *,
    stages: StageNames = None,
    skip_missing_data: SkipMissing = False,
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and plan every stage, list them, and stop before anything runs.")
    ] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Run the stages of a pipeline on this machine, one after another.

    A stage that is done is not run again; one that was interrupted resumes, also in the middle of an epoch; one whose
    definition has changed since it began is refused, with the difference. A stage that fails stops those that take its
    weights (exit status 1). Ctrl-C stops the pipeline (75), and the same command resumes it. -O is laid over all
    stages, also over what the file says of one of them.

    \b
    Example:
      graphmill pipeline run pipeline-neighbours --logs-root logs
      graphmill pipeline run pipeline-can -O dataset.name=mine
      graphmill pipeline run pipeline-neighbours --stages few

    \b
    A pipeline file:
      name: neighbours
      experiment: debian-packages-sage
      set: {train.ranks: 2}
      evaluate_on: all
      stages:
        - {name: few, set: {train.num_neighbors: [5, 3], train.epochs: 3}}
        - {name: many, set: {train.epochs: 3}, init_from: {stage: few, weights: best}}
    """
    from graphmill.cluster.jobs.pipeline_here import running_here
    from graphmill.cluster.launch.evaluation_sets import evaluate_on_all
    from graphmill.cluster.launch.pipeline import plans_of_stages
    from graphmill.cluster.launch.run_graph import run_graph

    planner = _planner(root, logs_root, to_train=not dry_run)
    loaded, chosen, of = _loaded(name, stages, logs_root, overrides, skips=planner if skip_missing_data else None)
    plan_of = of.planned_by(planner)
    plans_of_stages(of, chosen, plan_of)
    if dry_run:
        show_states(of, json=json, without_data=_without_data(of, root, logs_root))
        return
    evaluated = None
    if loaded.evaluate_on == "all":
        evaluated = lambda stage: evaluate_on_all(of, loaded.stage(stage), plan_of)  # noqa: E731  # one line says it
    with running_here(of, chosen, plan_of):
        code = run_graph(of.runs, [stage.name for stage in chosen], plan_of=plan_of, after=evaluated)
    if json:
        show_states(of, json=True)
    if code:
        raise typer.Exit(code)
    if not json:
        print_line(f"{loaded.name}: {len(chosen)} stages are done; `graphmill pipeline list {name}` shows them")


def submit(
    ctx: typer.Context,
    name: PipelineName,
    *,
    stages: StageNames = None,
    skip_missing_data: SkipMissing = False,
    trial: Annotated[
        int,
        typer.Option(
            "--trial", metavar="STEPS", min=0, help="Steps of each stage to measure here; 0: measure nothing."
        ),
    ] = 20,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    options: SubmitOptions,
    job: JobOptions,
) -> None:
    """Submit the stages of a pipeline as a chain of Slurm jobs.

    Stages are packed into jobs by what a trial of each predicts: a stage may span jobs, a job may hold several stages,
    and no job asks for more time or memory than it needs. Each job waits for the end of the one before it, continues
    what is unfinished, and leaves out what is done; a failed stage stops those that take its weights. A stage that runs
    out of time is continued by the next job, or by the same one, requeued.

    \b
    Example:
      graphmill pipeline submit pipeline-neighbours --time-limit 00:30:00 --dry-run
      graphmill pipeline submit pipeline-neighbours --site perlmutter --account m1234 --time-limit 02:00:00
      graphmill pipeline submit my-pipeline.yaml --on me@login.cluster:projects/gnn
      graphmill watch logs/neighbours
    """
    given = job.overrides()
    submit_remotely(ctx, ["pipeline", "submit"], [name], [*(options.override or []), *given], options)
    from graphmill.base.amounts import mib_of
    from graphmill.cli.pipeline_submit import one_time_limit, submit_stages

    memory = None if memory_limit is None else mib_of(memory_limit)
    if memory_limit is not None and not memory:
        raise UserError(f"--memory-limit {memory_limit} is not an amount of memory", fix="write, for example, 8G")
    skips = _planner(options.root, options.logs_root, to_train=False) if skip_missing_data else None
    loaded, chosen, _ = _loaded(name, stages, options.logs_root, options.override, skips=skips)
    submit_stages(loaded, chosen, options, overrides=one_time_limit(time_limit, given), memory_mib=memory, trial=trial)


def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE", show_default=False, help="A YAML file or a recipe; all such recipes if left out."
        ),
    ] = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """List the stages of a pipeline with their state, and whether their data are there; or the recipes.

    \b
    Example:
      graphmill pipeline list
      graphmill pipeline list pipeline-neighbours --json
    """
    if name is not None:
        _, _, of = _loaded(name, None, logs_root)
        missing = _without_data(of, root, logs_root)
        show_states(of, json=json, without_data=missing)
        for stage, error in missing.items():
            _log.info(f"stage {stage}: {error}")
        return
    show_recipes("pipeline", json=json)


def _loaded(
    name: str,
    stages: str | None,
    logs_root: Path,
    overrides: Sequence[str] | None = None,
    *,
    skips: "Planner | None" = None,
) -> "tuple[Pipeline, list[StageSpec], Stages]":
    """`skips`: stages whose data are not prepared are left out, as this planner finds."""
    from graphmill.cluster.launch.pipeline import Stages, stages_without_data
    from graphmill.spec.pipeline import chosen_stages, load_pipeline, without

    loaded = replace(load_pipeline(name), laid_over=tuple(overrides or ()))
    names = (stages or "").replace(",", " ").split()
    if stages is not None and not names:
        raise UserError("--stages names no stage", fix="name some after it, or leave it out for all")
    chosen, of = chosen_stages(loaded, names), Stages(loaded, logs_root)
    if skips is None:
        return loaded, chosen, of
    missing = stages_without_data(of, chosen, of.planned_by(skips))
    for stage, error in missing.items():
        _log.info(f"stage {stage} is left out: {error}")
    if len(missing) == len(chosen):
        raise UserError("the data of no stage are prepared", fix="see above what to type for each of them")
    loaded = without(loaded, missing)
    return (
        loaded,
        [stage for stage in loaded.stages if stage.name in {each.name for each in chosen}],
        Stages(loaded, logs_root),
    )


def _without_data(of: "Stages", root: Path | None, logs_root: Path) -> "dict[str, AbsentDataError]":
    from graphmill.cluster.launch.pipeline import stages_without_data
    from graphmill.tasks import planning

    planner = _planner(root, logs_root, to_train=False)
    with each_text_once(planning.__name__):  # stages share data, and what is said of them
        return stages_without_data(of, of.pipeline.stages, of.planned_by(planner))


def _planner(root: Path | None, logs_root: Path, *, to_train: bool) -> "Planner":
    return lambda experiment, run_id: make_plan(experiment, root, run_id, to_train=to_train, logs_root=logs_root)


def _limits(time_limit: str | None, memory_limit: str | None) -> "JobLimits | None":
    from graphmill.base.amounts import mib_of, seconds_of
    from graphmill.spec.packing import JobLimits

    if time_limit is None:
        if memory_limit is not None:
            raise UserError("--memory-limit is for packing into jobs", fix="give --time-limit, too")
        return None
    seconds = seconds_of(time_limit)
    if not seconds:
        raise UserError(f"--time-limit {time_limit} is not a span of time", fix="write, for example, 00:30:00")
    memory = None if memory_limit is None else mib_of(memory_limit)
    if memory_limit is not None and not memory:
        raise UserError(f"--memory-limit {memory_limit} is not an amount of memory", fix="write, for example, 8G")
    return JobLimits(float(seconds), memory)
