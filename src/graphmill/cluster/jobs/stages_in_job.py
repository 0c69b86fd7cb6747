"""The stages of a pipeline inside one job: in order, those before it that are unfinished first, each a run of its own.

A stage that is done is not run again. One that failed in a job of this chain is not run again by a later one, and what
takes its weights is not run at all. What the job has no time for is left to the next job of the chain, or to this one,
requeued.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs import job_end, next_job
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.pipeline_record import (
    PipelineFolder,
    PlannedStage,
    SubmittedPipeline,
    plans_of,
    stages_of,
)
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.steps import single_python
from graphmill.cluster.jobs.submit import code_of_job, read_job
from graphmill.cluster.launch.evaluation_sets import evaluate_on_all
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import DONE, NEW, PlanOf, RunState, checked_plan
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import warn_of_damage
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.runtime.trust import code_of_file, hand_on, remember, vouch_for
from graphmill.slurm.job import job_deadline
from graphmill.spec.job.work import RunStages

_log = logging.getLogger(__name__)

StageEnd = Literal["done", "failed", "over"]
"""What became of a stage here; `over`: the job ends now."""
_FAILURES: Final = (exits.ANSWER_IS_NO, exits.BAD_REQUEST)


def run_stages(driver: Driver, part: RunStages) -> int:
    """Run the stages of this job, or as far as it gets. Returns the exit status of the job."""
    folder = PipelineFolder(Path(part.folder))
    code = code_of_file(folder.record_path)
    vouch_for(code)  # by whoever submitted the script
    hand_on(code, os.environ)
    submitted = folder.read()
    plan_of = plans_of(folder, submitted, warn_of_damage)
    return _StagesInJob(driver, part, folder, submitted, stages_of(folder, submitted), plan_of).run()


@dataclass(slots=True)
class _StagesInJob:
    driver: Driver
    part: RunStages
    folder: PipelineFolder
    submitted: SubmittedPipeline
    stages: Stages
    plan_of: PlanOf
    code: int = exits.DONE  # of the job, if it is over before all stages were considered
    num_attempts: int = 0  # begun by this job
    start_s: float = 0.0  # what the start and the end of an attempt took here at most
    problems: list[str] = field(default_factory=list)

    def run(self) -> int:
        for planned in self._mine():
            name = planned.stage.name
            end = self._stage(planned, f"[{self._number(name)}/{len(self.submitted.stages)}] {name}")
            if end == "over":
                return self.code
            if end == "failed" and name in self.part.stages:  # others belong to an earlier job
                self.problems.append(name)
        if self.problems:
            _log.info(f"not done: {', '.join(self.problems)}")
        return exits.ANSWER_IS_NO if self.problems else exits.DONE

    def _mine(self) -> Iterator[PlannedStage]:
        """The stages of this job, and those that an earlier job of the same kind has left unfinished."""
        own = [self.submitted.planned(name) for name in self.part.stages]
        last = self._number(own[-1].stage.name)
        for name in self.submitted.chosen:
            planned = self.submitted.planned(name)
            if name in self.part.stages or (
                self._number(name) < last and planned.kind_of_job == own[0].kind_of_job and self._is_left(planned)
            ):
                yield planned

    def _number(self, name: str) -> int:
        return [planned.stage.name for planned in self.submitted.stages].index(name) + 1

    def _is_left(self, planned: PlannedStage) -> bool:
        return self.stages.state(planned.stage).status != DONE

    def _stage(self, planned: PlannedStage, title: str) -> StageEnd:
        state = self.stages.state(planned.stage)
        if self.driver.signals.terminated:
            return self._terminated(title)
        if self.folder.jobs.is_asked_to_stop() or state.folder.is_asked_to_stop():
            _log.info(f"{title}: not run: a stop was requested (graphmill stop)")
            return self._over(exits.OUT_OF_TIME)
        if state.status == DONE:
            _log.info(f"{title}: done already")
            return self._evaluated(planned, title)
        why_not = self._why_not(state)
        if why_not:
            _log.info(f"{title}: {why_not}")
            return "failed"
        if self._is_too_late(planned, title):
            return self._follow()
        return self._trained(planned, title)

    def _why_not(self, state: RunState) -> str:
        """Why the stage cannot be run; empty if it can."""
        missing = self.stages.runs.missing(state.name)
        if missing:
            return f"not run, because it takes weights of {', '.join(missing)}, which is not done"
        if self.submitted.has_failed(state) and not self._is_tried_again(state):
            job = state.folder.attempts()[-1].job_id
            return f"failed in job {job}, and is not run again by this chain; see {state.folder.path}"
        return ""

    def _is_tried_again(self, state: RunState) -> bool:
        outcome = state.folder.read_outcome()
        is_retry = outcome is not None and outcome.may_pass
        return is_retry and job_end.retries_left(state.folder, self.driver.arguments.retries) > 0

    def _is_too_late(self, planned: PlannedStage, title: str) -> bool:
        """Whether it is too late for another attempt; the first one of a job is always worth it."""
        if not self.num_attempts:
            return False
        left_s, least_s = job_deadline(self.driver.environ).remaining_s(), max(planned.least_s, self.start_s)
        if left_s >= least_s:
            return False
        _log.info(f"{title}: not begun: {left_s:.0f} s are left of the job, and it takes at least {least_s:.0f} s")
        return True

    def _trained(self, planned: PlannedStage, title: str) -> StageEnd:
        try:
            folder = self._begun(planned, title)
        except UserError as error:
            _log.error(f"{error}")
            return "failed"
        self.num_attempts += 1
        decision = self.driver.train(folder)
        self.start_s = max(self.start_s, job_end.least_of_attempt(folder))
        if decision.step == "finish":
            return self._evaluated(planned, title)
        if decision.step == "retry":
            self._note_next(folder)
            return self._over(exits.DONE if self.part.hands_over else decision.exit_code)
        if decision.exit_code in _FAILURES and not self.driver.signals.terminated:
            _log.info(f"{title}: failed (exit status {decision.exit_code}); see {folder.path}")
            return "failed"
        return self._over(decision.exit_code)

    def _begun(self, planned: PlannedStage, title: str) -> RunFolder:
        """The run of a stage: made now, with the weights of the stages before it, or begun by an earlier job."""
        state = self.stages.state(planned.stage)
        plan = checked_plan(self.stages.runs, planned.stage.name, self.plan_of)
        if state.status == NEW:
            _log.info(f"{title}: starts")
            folder = RunFolder.create(plan, self.stages.logs_root)
        else:
            _log.info(f"{title}: resumes")
            folder = state.folder
        if not folder.script_path.exists() or read_job(folder).code != planned.job.code:
            write_text(folder.job_path, planned.job.model_dump_json(indent=2) + "\n")
            write_text(folder.script_path, render_script(planned.job))
            remember(code_of_job(folder))
        return folder

    def _note_next(self, folder: RunFolder) -> None:
        """The run waits for the next job of the chain."""
        own = JobEnvironment(self.driver.environ).queue_id
        chain = [job.job_id for job in self.folder.jobs.jobs()]
        if not self.part.hands_over or own not in chain:
            return
        later = [job for job in self.folder.jobs.jobs()[chain.index(own) + 1 :] if job.job_id != own]
        if later:
            folder.note_job(later[0])

    def _evaluated(self, planned: PlannedStage, title: str) -> StageEnd:
        if self.submitted.evaluate_on == "own":
            return "done"
        python = single_python(self.driver.arguments, self.folder.path, self.driver.job_here)
        try:
            evaluate_on_all(self.stages, planned.stage, self.plan_of, python=python)
        except UserError as error:
            if self.driver.signals.terminated:
                return self._terminated(title)
            _log.error(f"{title}: {error}")
            return "failed"
        return "done"

    def _terminated(self, title: str) -> StageEnd:
        """Slurm ends the job while no rank runs."""
        cause = job_end.why_terminated(self.driver.environ)
        _log.info(f"SIGTERM before {title} was complete: {cause.ending.replace('_', ' ')}")
        if cause.ending == "stopped" or cause.is_requeued:
            return self._over(exits.OUT_OF_TIME)
        return self._follow()

    def _follow(self) -> StageEnd:
        """Leave the rest to the next job, or to this one, requeued."""
        way = self.driver.arguments.follow
        if way == "stop":
            _log.info("no other job follows (slurm.on_time_limit: stop)")
        else:
            until = job_end.patience_until(self.driver.environ, in_haste=self.driver.signals.terminated)
            next_job.retry(self.folder.jobs, way, self.driver.environ, until=until)
        return self._over(exits.DONE if way == "next_job" else exits.OUT_OF_TIME)

    def _over(self, code: int) -> StageEnd:
        self.code = code
        return "over"
