"""`report`: a run, a study or a pipeline as one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import LogsRoot
from graphmill.cli.show import print_line

if TYPE_CHECKING:
    from graphmill.cluster.jobs.pipeline_record import RecordedStage
    from graphmill.cluster.launch.pipeline import Stages
    from graphmill.estimate.cache import Estimates
    from graphmill.report.page import Page
    from graphmill.report.pipeline_page import PredictedStage, StageOfReport
    from graphmill.spec.plan import Plan

_SUFFIXES = {False: (".html", ".htm"), True: (".md", ".markdown")}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|STUDY|PIPELINE]",
            show_default=False,
            help="A run, a study, a pipeline, or a folder of runs; the latest run if left out.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False, help="To write; else report.html, or report.md."
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown, with tables and no figures.")] = False,
    logs_root: LogsRoot = Path("logs"),
) -> None:
    """Write a report: one HTML file that holds all it shows.

    Headline measures, learning curves, where the time went, what a job asked for and used, what was verified, where it
    comes from, and the plan. Of a study: its configurations compared, and every run. Of a pipeline: its stages, as
    predicted and as measured, and the weights that they handed over. It is read without a network.

    \b
    Example:
      graphmill report logs/cora-sage-1
      graphmill report study-demo --output demo.html
      graphmill report logs/neighbours --markdown
    """
    path = output or Path("report.md" if markdown else "report.html")
    if path.suffix.lower() not in _SUFFIXES[markdown]:
        kind, other = ("Markdown", "") if markdown else ("HTML", " --markdown for Markdown, or")
        raise UserError(
            f"--output {path} ends in {path.suffix or 'nothing'}, and the report is written as {kind}",
            fix=f"give{other} --output {path.with_suffix(_SUFFIXES[markdown][0])}",
        )
    from graphmill.base.files import write_text

    page = _page(what, logs_root, path.parent)
    if markdown:
        from graphmill.report.markdown import markdown as written
    else:
        from graphmill.report.html import html as written
    text = written(page)
    write_text(path, text)
    print_line(f"{path}: the report of {page.what} {page.title}, {len(text.encode()) / 1024:,.0f} KiB")


def _page(what: str | None, logs_root: Path, page_folder: Path) -> "Page":
    from datetime import UTC, datetime

    import graphmill
    from graphmill.cli.find_run import find_several, name_of_runs, named_pipeline

    written = f"Written by graphmill {graphmill.__version__}, {datetime.now(UTC).strftime('%Y-%m-%d %H:%M')} UTC"
    name = None if what is None else name_of_runs(what, logs_root)
    pipeline = named_pipeline(name, logs_root)
    if pipeline is not None:
        return _of_pipeline(pipeline.path, written)
    runs = find_several(name, logs_root)
    is_folder = name is not None and not any((path / "plan.json").exists() for path in (Path(name), logs_root / name))
    if name is not None and (len(runs) > 1 or is_folder):
        from graphmill.report.study_page import study_page

        return study_page(Path(name).name, runs, written=written, page_folder=page_folder)
    from graphmill.report.run_page import run_page

    return run_page(runs[0], written=written)


def _of_pipeline(path: Path, written: str) -> "Page":
    from graphmill.cluster.jobs.pipeline_record import PipelineFolder, stages_of
    from graphmill.cluster.launch.evaluation_sets import EVALUATIONS_FILE, read_evaluations
    from graphmill.estimate.cache import Estimates
    from graphmill.report.pipeline_page import Crossed, pipeline_page

    folder = PipelineFolder(path)
    record = folder.read_record()
    stages = stages_of(folder, record)
    trials = Estimates(stages.logs_root, keep=False)
    found = [_stage(recorded, stages, trials) for recorded in record.stages]
    if all(stage.folder is None for stage in found):
        raise UserError(f"no stage of {path} has begun", fix=f"`graphmill watch {path}` says what it waits for")
    rows = read_evaluations(path / EVALUATIONS_FILE)
    crossed = [Crossed(row.stage, row.set, row.measure, row.value) for row in rows]
    return pipeline_page(record.name, found, crossed, written=written)


def _stage(recorded: "RecordedStage", stages: "Stages", trials: "Estimates") -> "StageOfReport":
    from graphmill.cluster.launch.run_graph import NEW
    from graphmill.report.pipeline_page import StageOfReport

    spec, state = recorded.stage, stages.state(recorded.stage)
    has_begun = state.status != NEW
    plan = state.folder.read_plan() if has_begun else recorded.plan
    sources = {key.removeprefix("sources."): source for key, source in spec.all_sources().items()}
    return StageOfReport(
        name=spec.name,
        folder=state.folder if has_begun else None,
        takes=tuple((role, source.stage or source.run or source.file) for role, source in sources.items()),
        predicted=None if plan is None else _predicted(recorded, plan, trials),
    )


def _predicted(recorded: "RecordedStage", plan: "Plan", trials: "Estimates") -> "PredictedStage | None":
    """Predict the whole stage from the trial that was made of it on this host; None: no trial was made."""
    from graphmill.estimate.trial import cost_of, known_trial
    from graphmill.report.pipeline_page import PredictedStage
    from graphmill.spec.packing import Interval

    trial = known_trial(trials, plan)
    if trial is None:
        return None
    cost, least = (cost_of(recorded.stage, plan, trial, kept=kept) for kept in ((), trial.baselines_s))
    aside_s, ranks = cost.start_s + trial.finish_s, plan.ranks_per_host
    return PredictedStage(
        Interval(aside_s + least.work_s.low, aside_s + cost.work_s.high),  # another stage may have scored the baselines
        Interval(cost.memory_mib.low / ranks, cost.memory_mib.high / ranks),
    )
