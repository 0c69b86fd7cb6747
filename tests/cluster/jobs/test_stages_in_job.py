"""Which stages a job begins, by the time that it has left."""

import time
from types import SimpleNamespace

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.job_end import least_of_attempt
from graphmill.cluster.jobs.pipeline import _job, record_of
from graphmill.cluster.jobs.pipeline_record import PipelineFolder
from graphmill.cluster.jobs.stages_in_job import _StagesInJob
from graphmill.cluster.launch.pipeline import Stages
from graphmill.record.documents import Outcome
from graphmill.record.events import EventWriter, Start
from graphmill.spec.job.resolve import resolve_job
from graphmill.spec.job.site import Site
from graphmill.spec.load import inline_experiment
from graphmill.spec.packing import PackedJob, Shape, StagePart
from graphmill.spec.pipeline import Pipeline, StageSpec

STARTED = Start(
    resumed=False,
    steps_done=0,
    parameters=1,
    hostname="here",
    world_size=1,
    backend=None,
    plan_hash="",
    process_s=0.0,
    data="",
)


def job(left_s: float, *, start_s: float, num_attempts: int = 1) -> _StagesInJob:
    """One that has so much time left, and whose stages took so long to start and to end."""
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": str(round(time.time() + left_s))}
    driver = SimpleNamespace(environ=environ)
    return _StagesInJob(driver, None, None, None, None, None, num_attempts=num_attempts, start_s=start_s)


@pytest.mark.parametrize(
    ("left_s", "least_s", "start_s", "num_attempts", "is_too_late"),
    [
        (100, 0.0, 500.0, 1, True),
        (100, 500.0, 0.0, 1, True),
        (500, 0.0, 100.0, 1, False),
        (100, 0.0, 500.0, 0, False),
    ],
    ids=["by what starting took here", "by the plan", "there is time", "the first of a job is always worth it"],
)
def test_a_stage_is_not_begun_with_less_time_than_starting_costs(left_s, least_s, start_s, num_attempts, is_too_late):
    stages = job(left_s, start_s=start_s, num_attempts=num_attempts)
    assert stages._is_too_late(SimpleNamespace(least_s=least_s), "s256") is is_too_late


def test_what_starting_costs_is_what_it_took(new_run):
    folder, _ = new_run(1)
    folder.begin_attempt(resumed=False, command=["test"])
    assert least_of_attempt(folder) == 0.0, "the ranks did not get that far"
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(STARTED.model_copy(update={"process_s": 10.0}))
    assert least_of_attempt(folder) >= 17.0, "one and a half starts of a process, and 2 s"
    folder.begin_attempt(resumed=True, command=["test"])
    assert least_of_attempt(folder) == 0.0, "that was of an earlier attempt"


def test_a_stage_that_is_done_is_in_no_job(new_run, tmp_path):
    done, _ = new_run(1, run_id="p/first")
    done.write_outcome(Outcome(status="done", exit_code=0, epochs=2, steps_per_rank=8, wall_s=1.0))
    listed = tuple(StageSpec(name=name) for name in ("first", "second"))
    stages = Stages(Pipeline("p", {}, (), "own", listed), tmp_path / "logs")
    planned = dict.fromkeys(("first", "second"), UserError("no data", fix="prepare them"))
    assert record_of(stages, listed, planned).chosen == ("second",)


def test_a_job_goes_on_with_what_earlier_ones_of_its_kind_left():
    """One for CPUs has no GPU for a stage that a job before it did not finish."""
    left = {"on-gpu": "gpu", "on-cpus": "cpu", "done": "cpu", "own": "cpu", "later": "cpu"}
    planned = {name: SimpleNamespace(stage=StageSpec(name=name), kind_of_job=kind) for name, kind in left.items()}
    submitted = SimpleNamespace(stages=list(planned.values()), chosen=tuple(left), planned=planned.__getitem__)
    stages = SimpleNamespace(state=lambda stage: SimpleNamespace(status="done" if stage.name == "done" else "stopped"))
    in_job = _StagesInJob(None, SimpleNamespace(stages=("own",)), None, submitted, stages, None)
    assert [each.stage.name for each in in_job._mine()] == ["on-cpus", "own"]


def test_a_job_of_stages_asks_for_the_memory_of_its_driver_too(tmp_path):
    alone = resolve_job(inline_experiment({"train": {"epochs": 1}}, "the test"), Site(name="own"))
    record = SimpleNamespace(name="p", planned=lambda _: SimpleNamespace(job=alone))
    parts = (StagePart("first", 0.0, 1.0, is_last=True, takes_s=1.0),)
    packed = PackedJob(parts, Shape(), time_s=60, memory_mib=1000)
    assert _job(PipelineFolder(tmp_path), record, packed, "p").mem == "1128M"
