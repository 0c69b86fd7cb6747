"""`pipeline`: what is shown of stages: their states, what they will take, the jobs that they are packed into."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphmill.cli.show import Cell, print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.cluster.launch.pipeline import StageProgress, Stages
    from graphmill.cluster.launch.predict import Prediction
    from graphmill.cluster.launch.run_graph import RunState
    from graphmill.spec.packing import Packing
    from graphmill.spec.pipeline import StageSpec
    from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def show_states(of: "Stages", *, json: bool, without_data: Collection[str] = ()) -> None:
    """Print the stages with what became of them; those `without_data` say so."""
    from graphmill.cluster.launch.pipeline import progress

    rows = [(state, progress(state), of.runs.missing(state.name)) for state in of.runs.states()]
    if json:
        found = [
            {"stage": state.name, "status": state.status, "run": state.folder.path, "waits_for": missing}
            | {"has_data": state.name not in without_data}
            | asdict(shown)
            for state, shown, missing in rows
        ]
        print_json({"pipeline": of.pipeline.name, "stages": found})
        return
    table = [_state_row(of, *row, has_data=row[0].name not in without_data) for row in rows]
    columns = ("stage", "status", "starts from", "epochs", "steps", "attempts", "best", "folder")
    print_table(columns, table, title=f"{len(rows)} stages of {of.pipeline.name}")


def _state_row(
    of: "Stages", state: "RunState", shown: "StageProgress", missing: list[str], *, has_data: bool
) -> list[Cell]:
    source = of.pipeline.stage(state.name).init_from
    start = "-" if source is None else source.stage or source.run or source.file
    status = ", ".join(
        [
            state.status,
            *([] if has_data else ["no data"]),
            *([f"waits for {', '.join(missing)}"] if missing else []),
        ]
    )
    epochs = f"{shown.epochs} of {shown.of_epochs}" if shown.of_epochs else "-"
    steps = f"{shown.steps} of {shown.of_steps}" if shown.of_steps else "-"
    return [state.name, status, start, epochs, steps, shown.attempts, shown.best_text, str(state.folder.path)]


def as_json(prediction: "Prediction") -> dict[str, Any]:
    """A prediction as plain values."""
    values = asdict(prediction)
    return values | ({} if prediction.trial is None else {"trial": asdict(prediction.trial)})


def show_memory(chosen: "Sequence[StageSpec]", plans: "Sequence[Plan]", *, json: bool) -> None:
    """Print batch and memory of every stage, by formula."""
    from graphmill.spec.modelled import modelled

    rows = [(stage.name, plan, modelled(plan)) for stage, plan in zip(chosen, plans, strict=True)]
    if json:
        print_json(
            {
                "stages": [
                    {"stage": name, "batch_size": plan.batch_size, "ranks": plan.ranks, "device": plan.device}
                    | {"steps": plan.last_step, "sync_every": plan.sync.every, "modelled": figures}
                    for name, plan, figures in rows
                ]
            }
        )
        return
    columns = ("stage", "batch", "k", "ranks", "steps", "parameters", "MiB of batches", "of a step", "MiB per rank")
    table: list[list[Cell]] = [
        [
            *(name, plan.batch_size, plan.sync.every, plan.ranks, plan.last_step, figures.num_parameters),
            *(round(each) for each in (figures.memory.batches_mib, figures.memory.activations_mib)),
            None if figures.memory_per_rank_mib is None else round(figures.memory_per_rank_mib),
        ]
        for name, plan, figures in rows
    ]
    print_table(columns, table, title="modelled (by formula, not measured): at most")


def show_predictions(predictions: "list[Prediction]") -> None:
    """Print what is left of every stage."""
    from graphmill.spec.packing import StageCost, Unmeasured

    rows: list[list[Cell]] = []
    for each in predictions:
        cost, trial = each.cost, each.trial
        if trial is None or not isinstance(cost, StageCost):
            why = f"not yet: {cost.why}" if isinstance(cost, Unmeasured) else None
            rows.append([each.stage, each.status, each.steps_left, None, None, None, why])
            continue
        work = f"{cost.work_s.low:.1f} to {cost.work_s.high:.1f}"
        memory = f"{cost.memory_mib.low:.0f} to {cost.memory_mib.high:.0f}"
        measured = "earlier" if each.is_recorded else f"{trial.steps} steps"
        rows.append([each.stage, each.status, each.steps_left, round(cost.start_s, 1), work, memory, measured])
    columns = ("stage", "status", "steps left", "start-up s", "work s", "MiB per host", "measured")
    print_table(columns, rows, title="predicted from a trial of each stage")


def show_packing(packing: "Packing") -> None:
    """Print the jobs of a pipeline."""
    print_line("")
    for number, job in enumerate(packing.jobs, start=1):
        parts = [f"{part.stage} {part.begin_s:.0f}-{part.end_s:.0f} s" for part in job.parts]
        facts: list[tuple[str, Cell]] = [
            ("stages", ", ".join(parts)),
            ("predicted s, at most", round(job.takes_s, 1)),
            ("time limit s", job.time_s),
            ("MiB per host", job.memory_mib or None),
            ("hosts x ranks", f"{job.shape.hosts} x {job.shape.ranks_per_host}"),
        ]
        print_facts(facts, title=f"job {number} of {len(packing.jobs)}")
    for misfit in packing.misfits:
        _log.info(f"stage {misfit.stage} does not fit: {misfit.why}")
