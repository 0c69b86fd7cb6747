"""`pipeline submit`: the stages of a pipeline as a chain of Slurm jobs."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphmill.base.errors import UserError
from graphmill.cli.job_options import yaml_text
from graphmill.cli.options import resolved_dataset_root
from graphmill.cli.show import print_json, print_line
from graphmill.cli.submit import slurms_answers, tell_first

if TYPE_CHECKING:
    from graphmill.cli.submit_options import SubmitOptions
    from graphmill.cluster.jobs.pipeline import PipelineRequest
    from graphmill.cluster.jobs.pipeline_record import SubmittedPipeline
    from graphmill.cluster.jobs.submit import RunRequest
    from graphmill.cluster.launch.pipeline import Stages
    from graphmill.cluster.launch.predict import Prediction
    from graphmill.record.documents import SubmittedJob
    from graphmill.spec.packing import Packing
    from graphmill.spec.pipeline import Pipeline, StageSpec
    from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def submit_stages(
    loaded: "Pipeline",
    chosen: "Sequence[StageSpec]",
    options: "SubmitOptions",
    *,
    overrides: Sequence[str],
    memory_mib: float | None,
    trial: int,
) -> None:
    """Plan, predict, pack; then submit the jobs, or show them."""
    from graphmill.cluster.jobs.pipeline import make_request, plan_stages, refuse_alive, submit_pipeline
    from graphmill.cluster.jobs.pipeline_record import PipelineFolder
    from graphmill.cluster.jobs.sites import find_site
    from graphmill.cluster.launch.pipeline import Stages

    dry_run, json = options.dry_run, options.json
    of = Stages(loaded, options.logs_root.absolute())
    folder = PipelineFolder(of.logs_root / loaded.name)
    stages = plan_stages(
        of,
        chosen,
        overrides=overrides,
        dataset_root=resolved_dataset_root(options.root),
        find_site=find_site,
        to_train=not dry_run,
        code_snapshot=options.code_snapshot,
    )
    record, packing, predictions = _packed(of, chosen, stages, memory_mib, trial=trial, dry_run=dry_run)
    if not record.chosen:
        print_line(f"{loaded.name}: nothing is left to submit")
        return
    _refuse_misfits(loaded.name, packing)
    planned = [each for each in stages.values() if not isinstance(each, UserError)]
    request = make_request(folder, record, packing, planned)
    if dry_run:
        _show(request, predictions, json=json)
        return
    refuse_alive(folder, of)
    jobs = submit_pipeline(request, of, os.environ)
    _tell(request, jobs, predictions, json=json)


def _packed(
    of: "Stages",
    chosen: "Sequence[StageSpec]",
    stages: "Mapping[str, RunRequest | UserError]",
    memory_mib: float | None,
    *,
    trial: int,
    dry_run: bool,
) -> "tuple[SubmittedPipeline, Packing, dict[str, Prediction]]":
    from graphmill.cluster.jobs.pipeline import limits_of, pack_stages, record_of
    from graphmill.cluster.jobs.pipeline_record import PipelineFolder, plans_of
    from graphmill.cluster.launch.pipeline import plans_of_stages
    from graphmill.record.weights import warn_of_damage

    record = record_of(of, chosen, stages)
    folder = PipelineFolder(of.logs_root / of.pipeline.name)
    plan_of = plans_of(folder, record, warn_of_damage)
    plans = dict(zip([stage.name for stage in chosen], plans_of_stages(of, chosen, plan_of), strict=True))
    wanted = [of.pipeline.stage(name) for name in record.chosen]
    predictions = _predictions(of, wanted, plans, trial=trial, keep=not dry_run)
    limits = limits_of([record.planned(stage.name) for stage in wanted or chosen], memory_mib)
    packing, record = pack_stages(record, predictions, limits)
    return record, packing, predictions


def _predictions(
    of: "Stages", wanted: "Sequence[StageSpec]", plans: "Mapping[str, Plan]", *, trial: int, keep: bool
) -> "dict[str, Prediction]":
    """Predictions by stage; none for stages that are not to be measured, or cannot be, unless measured before."""
    from graphmill.cluster.launch.predict import predict
    from graphmill.estimate.cache import Estimates
    from graphmill.estimate.trial import known_trial

    estimates = Estimates(of.logs_root, keep=keep)
    found: dict[str, Prediction] = {}
    for stage in wanted:
        plan = plans[stage.name]
        if trial == 0 and known_trial(estimates, plan) is None:
            _log.info(f"stage {stage.name}: not measured (--trial 0), so its job asks for all the time that it may")
            continue
        if not keep and not plan.dataset.is_prepared:
            _log.info(f"stage {stage.name}: not measured, for its data are not prepared here")
            continue
        (found[stage.name],) = predict(of, [stage], [plan], estimates, steps=trial, in_job=True)
    return found


def _refuse_misfits(name: str, packing: "Packing") -> None:
    from graphmill.config.problems import Problem, refuse

    fix = "give a longer --time-limit, or more --memory-limit"
    refuse([Problem(f"stage {misfit.stage}", misfit.why, fix) for misfit in packing.misfits], f"pipeline {name}")


def _show(request: "PipelineRequest", predictions: "dict[str, Prediction]", *, json: bool) -> None:
    shown: list[dict[str, Any]] = []
    with slurms_answers([chained.submission("") for chained in request.jobs]) as answers:
        for number, (chained, answer) in enumerate(zip(request.jobs, answers, strict=True), start=1):
            dependency = f"afterany of job {number - 1}" if number > 1 else ""
            shown.append(_as_json(chained, answer) | {"dependency": dependency})
            if json:
                continue
            stages = ", ".join(part.stage for part in chained.packed.parts)
            over = "; hands over to the next job" if chained.packed.hands_over else ""
            print_line(f"job {number} of {len(request.jobs)}: {stages}{over}{'; ' + dependency if dependency else ''}")
            print_line(f"{chained.script_path}")
            print_line("".join(f"  {line}\n" for line in chained.script.splitlines()))
            if answer is not None:
                print_line(f"slurm says: {answer}")
        if json:
            print_json({"pipeline": request.submitted.name, "stages": list(predictions.values()), "jobs": shown})
        else:
            print_line("nothing was written, and nothing submitted")


def _as_json(chained: Any, answer: str | None) -> dict[str, Any]:  # noqa: ANN401  # imported where it is used
    return {
        "stages": [part.stage for part in chained.packed.parts],
        "hands_over": chained.packed.hands_over,
        "time_s": chained.job.time_s,
        "mem": chained.job.mem,
        "script_path": chained.script_path,
        "script": chained.script,
        "slurm_says": answer,
    }


def _tell(
    request: "PipelineRequest", jobs: "Sequence[SubmittedJob]", predictions: "dict[str, Prediction]", *, json: bool
) -> None:
    told = [
        {"job_id": job.job_id, "dependency": job.dependency, "stages": [part.stage for part in chained.packed.parts]}
        for chained, job in zip(request.jobs, jobs, strict=True)
    ]
    if json:
        facts = {"pipeline": request.submitted.name, "folder": request.folder.path}
        print_json({**facts, "stages": list(predictions.values()), "jobs": told})
    else:
        for each, chained in zip(told, request.jobs, strict=True):
            waits = f", {each['dependency']}" if each["dependency"] else ""
            print_line(f"job {each['job_id']}: {', '.join(each['stages'])}, {chained.job.time_s // 60} min{waits}")
    tell_first(jobs[0], str(request.folder.path), json=json)


def one_time_limit(time_limit: str | None, job: Sequence[str]) -> list[str]:
    """The overrides of the job with `--time-limit` as slurm.time; `UserError` if --time is given, too."""
    given = [override for override in job if override.startswith("slurm.time=")]
    if time_limit is None:
        return list(job)
    if given:
        raise UserError(
            f"--time-limit {time_limit} and --time are both given, and both are the limit of a job",
            fix="leave out one of the two",
        )
    return [*job, f"slurm.time={yaml_text(time_limit)}"]
