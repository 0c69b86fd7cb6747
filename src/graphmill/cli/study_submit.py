"""What `study submit` does once its options are read."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from graphmill.api.submitting import dependency_of
from graphmill.base.errors import UserError
from graphmill.cli.options import resolved_dataset_root
from graphmill.cli.show import print_json, print_line
from graphmill.cli.submit import slurms_answers, tell_first

if TYPE_CHECKING:
    from graphmill.cli.submit_options import SubmitOptions
    from graphmill.cluster.jobs.study import Array, CellPlan
    from graphmill.record.documents import SubmittedJob


def submit_study(
    name: str,
    options: "SubmitOptions",
    *,
    overrides: Sequence[str],
    at_once: int | None,
    pack: int,
    chain: str | None,
    after: str | None,
) -> None:
    """Plan all cells, then submit them, or show what would be."""
    from graphmill.cluster.jobs.sites import find_site
    from graphmill.cluster.jobs.study import make_arrays, plan_cells
    from graphmill.spec.study import load_study

    how = _chain(chain, at_once, pack)
    logs_root, dry_run, json = options.logs_root.absolute(), options.dry_run, options.json
    dependency = "" if after is None else dependency_of(after, logs_root)
    study = load_study(name)
    plans = plan_cells(
        study,
        logs_root=logs_root,
        dataset_root=resolved_dataset_root(options.root),
        overrides=overrides,
        find_site=find_site,
        to_train=not dry_run,
        code_snapshot=options.code_snapshot,
    )
    if not plans:
        print_line(f"{study.name}: nothing is left to submit")
        return
    if how is not None:
        _chained(plans, how, dependency, dry_run=dry_run, json=json)
        return
    arrays = make_arrays(
        plans,
        study=study,
        logs_root=logs_root,
        at_once=at_once,
        pack=pack,
        find_site=find_site,
        dependency=dependency,
    )
    if dry_run:
        _show_arrays(arrays, json=json)
        return
    _submit_arrays(arrays, study.name, json=json)


def _chain(text: str | None, at_once: int | None, pack: int) -> Literal["afterok", "afterany"] | None:
    if text is None:
        return None
    if text not in ("afterok", "afterany"):
        raise UserError(f"--chain {text} is neither afterok nor afterany", fix="give one of the two")
    if at_once is not None:
        raise UserError("--chain runs one cell at a time, so --at-once has no effect", fix="leave out one of the two")
    if pack > 1:
        raise UserError(
            "--chain gives each cell a job of its own, so --pack has no effect", fix="leave out one of the two"
        )
    return "afterok" if text == "afterok" else "afterany"


def _submit_arrays(arrays: "Sequence[Array]", name: str, *, json: bool) -> None:
    from graphmill.cluster.jobs.study import submit_array

    told = []
    first: SubmittedJob | None = None
    whole: list[str] = []
    for array in arrays:
        jobs = submit_array(_after(array, whole), os.environ)
        whole.append(jobs[0].job_id.partition("_")[0])
        first = first or jobs[0]
        for request, job in zip(array.requests, jobs, strict=True):
            told.append({"job_id": job.job_id, "run": request.folder.path})
            if not json:
                print_line(f"job {job.job_id}: {request.folder.path}")
    if json:
        print_json({"jobs": told})
    tell_first(first, name, json=json)


def _after(array: "Array", submitted: Sequence[str]) -> "Array":
    """The array, which starts once the one that it waits for has ended."""
    if array.waits_for is None:
        return array
    waits = f"afterany:{submitted[array.waits_for]}"
    return replace(array, dependency=f"{array.dependency},{waits}" if array.dependency else waits)


def _chained(
    plans: "Sequence[CellPlan]",
    chain: Literal["afterok", "afterany"],
    dependency: str,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    from graphmill.cluster.jobs.study import submit_chain

    if dry_run:
        _show_chain(plans, chain, json=json)
        return
    told = []
    first: SubmittedJob | None = None
    for plan, job in submit_chain(plans, chain=chain, dependency=dependency, environ=os.environ):
        first = first or job
        told.append({"job_id": job.job_id, "run": plan.request.folder.path, "dependency": job.dependency})
        if not json:
            waits = f", {job.dependency}" if job.dependency else ""
            print_line(f"job {job.job_id}: {plan.request.folder.path}{waits}")
    if json:
        print_json({"jobs": told})
    tell_first(first, plans[0].state.run_id.partition("/")[0], json=json)


def _show_chain(plans: "Sequence[CellPlan]", chain: str, *, json: bool) -> None:
    requests = [plan.request for plan in plans]
    with slurms_answers([request.submission for request in requests]) as answers:
        if json:
            jobs = [
                {"run": request.folder.path, "command": request.submission.command, "slurm_says": answer}
                for request, answer in zip(requests, answers, strict=True)
            ]
            print_json({"jobs": jobs, "chain": chain})
            return
        for request, answer in zip(requests, answers, strict=True):
            print_line(f"{request.folder.path}: {' '.join(request.submission.command)}, {chain} the one before")
            if answer is not None:
                print_line(f"  slurm says: {answer}")
        print_line("nothing was written, and nothing submitted")


def _show_arrays(arrays: "Sequence[Array]", *, json: bool) -> None:
    """Show the whole request, and Slurm's answer to it."""
    shown = []
    with slurms_answers([array.submission for array in arrays]) as answers:
        for array, answer in zip(arrays, answers, strict=True):
            runs = [request.folder.path for request in array.requests]
            shown.append({"runs": runs, "script_path": array.script_path, "script": array.script, "slurm_says": answer})
            if json:
                continue
            waits = "" if array.waits_for is None else f", after all of {arrays[array.waits_for].script_path.name}"
            together = array.job.side_by_side
            packed = f", {together} side by side in a job" if together > 1 else ""
            print_line(f"{array.script_path}: {len(runs)} cells{packed}{waits}")
            print_line("".join(f"  {line}\n" for line in array.script.splitlines()))
            print_line(f"command: {' '.join(array.submission.command)}")
            if answer is not None:
                print_line(f"slurm says: {answer}")
        if json:
            print_json({"arrays": shown})
        else:
            print_line("nothing was written, and nothing submitted")
