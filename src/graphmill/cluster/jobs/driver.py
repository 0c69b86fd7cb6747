"""The driver of a job, which trains runs: one attempt of each, from its first line to what follows it."""

import logging
import math
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.names import counted
from graphmill.base.retries import is_io_error, remove_file
from graphmill.cluster.jobs import job_end, next_job
from graphmill.cluster.jobs.arguments import Arguments, RunsHere
from graphmill.cluster.jobs.new_run import find_or_make
from graphmill.cluster.jobs.next_job import why_leave
from graphmill.cluster.jobs.srun_step import Signals, SrunStep, has_begun, last_events, last_line, unsaid
from graphmill.cluster.jobs.steps import (
    JobHere,
    Rendezvous,
    environment,
    rank_command,
    staging_command,
)
from graphmill.cluster.launch.attempt import Decision, decide
from graphmill.cluster.launch.judge import AttemptEvidence, Judgement, judge, note_outcome
from graphmill.record.attempts import Begun, attempt, is_ours
from graphmill.record.endings import ENDINGS, EndingName
from graphmill.record.events import Failure
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.runtime.network import address_of_interface, candidate_ports, is_free, loopback
from graphmill.runtime.trust import vouch_for
from graphmill.slurm.commands import SlurmError
from graphmill.slurm.hostlist import expand_hostlist
from graphmill.slurm.job import kill_wait_s
from graphmill.spec.world import World, world_of

_log = logging.getLogger(__name__)

TRIES: Final = 3  # ports that are tried, if one is taken between the check and its use
OWNER_LEAVES_WITHIN_S: Final = 90.0  # the owner of a run may be a job that Slurm has given up a moment ago
_LOST_GRACE_S: Final = 20.0  # for srun, once a rank has found another one unresponsive
_LOOK_EVERY_S: Final = 2.0
_SRUN_AGAIN_S: Final = 5.0  # it has tried for a minute by itself
_PORTS_APART: Final = 211  # prime: runs that share a host begin to look for a port far from each other
_PREPARE_EVERY_S: Final = 60.0  # the successor, while Slurm does not take it


@dataclass(slots=True)
class Driver:
    """One job that trains runs, or one run of several that share the job."""

    unbegun: ClassVar = Judgement(ENDINGS["stopped"], None)
    finished: ClassVar = "the run is done"
    leave_message: ClassVar = "the ranks were asked to save at once"
    left_late: ClassVar = "the ranks did not finish their round in time: steps since the last checkpoint are lost"
    tells_problem: ClassVar = False  # in the outcome; what was wrong with ranks is in the log and the events

    arguments: Arguments
    environ: Mapping[str, str]
    signals: Signals
    number: int = 0  # of the runs that share the job
    num_attempts: int = 0  # of any run, begun by this job
    cause: job_end.Cause | None = None  # why Slurm asked the job to end, if it did
    _looked_at: float = 0.0
    _lost_hosts: Sequence[str] = ()  # by the latest attempt; the next one leaves them out
    _prepare_at: float = math.inf  # monotonic time, s: when the successor is to be submitted; infinity: it need not be

    def runs(self) -> list[RunFolder]:
        """The runs to train, in order."""
        named, work = self.environ.get(next_job.RUN_VARIABLE), self.arguments.work
        assert isinstance(work, RunsHere), "others are run by name"
        runs = work.runs or ((Path(named),) if named else ())
        found = [RunFolder.open(run) for run in runs] or [find_or_make(self.arguments, self.environ)]
        return [RunFolder(folder.path.resolve()) for folder in found]

    def train(self, folder: RunFolder) -> Decision:
        """One attempt of one run. Returns what follows, which has been started.

        Whoever submitted the script has named the code that the run is of.
        """
        vouch_for(folder.code())
        if self.arguments.follow == "resubmit":
            why = why_leave(
                folder, self.environ, max_attempts=self.arguments.max_attempts, retries=self.arguments.retries
            )
            if why:
                _log.info(f"{folder.path}: nothing to do: {why}")
                return Decision("give_up", why, exits.DONE)
        job = self.job.job_id
        world = self.world(folder)
        with attempt(
            folder,
            command=sys.argv,
            job_id=job,
            wait_s=OWNER_LEAVES_WITHIN_S,
            world=world,
            is_second_in_job=self.num_attempts > 0,
        ) as begun:
            if begun is None:
                _log.info(f"{folder.path} is done already; nothing is trained")
                return Decision("finish", "the run is done", exits.DONE)
            self.num_attempts += 1
            next_job.note_itself(folder, self.environ)
            self._announce(begun)
            if self.arguments.follow == "resubmit" and begun.number < self.arguments.max_attempts:
                self._prepare_at = 0.0
                self._prepare_successor(folder)
            started = folder.attempts()[-1].time
            decision = self._attempted(folder, started)
        # Nobody owns the run by now: Slurm may have given up a host that was cut off, and nobody hears its driver.
        if decision.step == "retry" and self.arguments.side_by_side == 1:  # others of the job have not ended yet
            until = job_end.patience_until(self.environ, in_haste=self.signals.terminated)
            lost = self._lost_hosts
            next_job.retry(folder, self.arguments.follow, self.environ, until=until, lost_hosts=lost)
        return decision

    def _attempted(self, folder: RunFolder, started: float) -> Decision:
        if self.is_asked_to_stop(folder):  # before there was a step that could be told
            return self.not_begun(folder)
        try:
            staged = self._stage(folder, started)
            if staged is not None:
                return self.follow(folder, staged, tries_left=0)
            return self.start(folder, started)
        except (UnreadableError, OSError) as error:  # what the ranks left cannot be judged now
            if not is_io_error(error):
                raise
            unjudged = Judgement(ENDINGS[self.requested or "io_error"], None, str(error))
            return self.follow(folder, unjudged, tries_left=0)

    def is_asked_to_stop(self, folder: RunFolder) -> bool:
        """Whether a person has stopped the run, or the pipeline that it is of."""
        return folder.is_asked_to_stop() or self.arguments.is_asked_to_stop()

    def not_begun(self, folder: RunFolder) -> Decision:
        """What follows where a person stopped it before anything was started."""
        self.cause = job_end.Cause("stopped")
        return self.follow(folder, self.unbegun, tries_left=0)

    def world(self, folder: RunFolder) -> World | None:
        """Return as many ranks as the job has room for, which may differ from the plan; None: there are no ranks."""
        hosts, plan = self.job_here.num_hosts, folder.read_plan()
        ranks = hosts * self.arguments.ranks_per_host - plan.world.samplers
        return world_of(plan, ranks=ranks, hosts=hosts)

    @property
    def job(self) -> JobEnvironment:
        """What Slurm says of this job."""
        return JobEnvironment(self.environ)

    @property
    def job_here(self) -> JobHere:
        """The properties of this job that commands depend on."""
        number, whole = self.arguments.side_by_side, self.job.memory_mib
        memory = None if number == 1 or whole is None else whole // number
        return JobHere(self.job.job_id or "0", self.job.num_hosts, Path.cwd(), memory_mib=memory)

    def here_for(self, folder: RunFolder) -> JobHere:
        """Job environment with the data of the run added, which a container must be shown."""
        return self.job_here if self.arguments.container is None else replace(self.job_here, data=self.data(folder))

    def data(self, folder: RunFolder) -> Path | None:
        """The prepared data that are read; None: there are none."""
        return Path(folder.read_plan().dataset.path)

    def _announce(self, begun: Begun) -> None:
        again = f", requeued {counted(self.job.num_restarts, 'time')}" if self.job.num_restarts else ""
        clock = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        hosts = self.job.hosts or socket.gethostname()
        job = self.job.job_id or "?"
        _log.info(f"attempt {begun.number} of {begun.folder.path}: job {job}{again}, on {hosts}, {clock}")

    def _stage(self, folder: RunFolder, started: float) -> Judgement | None:
        """Copy the dataset near the ranks. None if that succeeded, or nothing is to be copied."""
        if self.arguments.staging is None or self.data(folder) is None:
            return None
        command = staging_command(self.arguments, folder.path, self.here_for(folder))
        step = self.srun(command, environment(self.arguments, self.environ, None), folder, started)
        if step.status == exits.DONE and self.cause is None:
            return None
        if self.cause is None and step.was_ended():
            self.ask_why(folder)
        return self.judge_staging(step, folder, started)

    def judge_staging(self, step: SrunStep, folder: RunFolder, started: float) -> Judgement:
        """How an attempt ended whose data could not be staged."""
        problem = f"staging the dataset failed: {step.first_error() or f'srun ended with exit status {step.status}'}"
        status = exits.BAD_REQUEST if step.status == exits.BAD_REQUEST else None
        return judge(folder, AttemptEvidence(started, requested=self.requested, status=status, problem=problem))

    def start(self, folder: RunFolder, started: float) -> Decision:
        """Start the ranks, and judge how they ended."""
        for trial in range(1, TRIES + 1):
            if self.is_asked_to_stop(folder):  # while the data were copied, or another port was looked for
                return self.not_begun(folder)
            rendezvous = self.rendezvous(trial)
            here = self.here_for(folder)
            command = rank_command(self.arguments, folder.path, here, rendezvous, trial, folder.world())
            remove_file(folder.outcome_path)  # of the previous try
            step = self.srun(command, environment(self.arguments, self.environ, rendezvous), folder, started)
            evidence = AttemptEvidence(
                started,
                step.exits() if self.arguments.launcher == "srun" else (),
                requested=self.requested,
                status=step.status,
                problem=unsaid(step),
                message=step.first_error() or last_line(folder.log_path(0), since=started),
            )
            judgement = judge(folder, self._with_cause(evidence, folder))
            decision = self.follow(folder, judgement, tries_left=TRIES - trial)
            if decision.step != "other_port":
                return decision
        raise AssertionError("the last try has no other port")

    def srun(self, command: Sequence[str], environ: Mapping[str, str], folder: RunFolder, started: float) -> SrunStep:
        """Run an srun to its end. One that found no controller to ask, and so started no rank, is begun again."""
        until = job_end.patience_until(self.environ, in_haste=False)
        while True:
            step = SrunStep.start(command, environ)
            self._wait(step, folder, started)
            if (
                has_begun(folder, started)
                or self.cause is not None
                or not step.found_no_slurm()
                or time.time() >= until
            ):
                return step
            _log.warning(f"Slurm did not answer srun, and no rank has begun: again for {until - time.time():.0f} s")
            time.sleep(_SRUN_AGAIN_S)

    def rendezvous(self, trial: int) -> Rendezvous:
        """The driver is on the job's first host, where rank 0 will listen; a port taken until then is replaced.

        Ranks that are all there meet on its loopback; those of several hosts at its name, or on the named interface.
        """
        hosts = expand_hostlist(self.job.hosts)
        if not hosts:
            raise UserError(
                "SLURM_JOB_NODELIST is not set, so this is not a job of Slurm", fix="submit the script with sbatch"
            )
        if self.arguments.port is not None:
            return Rendezvous(self._meeting_host(hosts), self.arguments.port)
        ports = candidate_ports(port_key(int(self.job.job_id or 0), self.number) + 101 * (trial - 1))
        port = next((port for port in ports if is_free(port)), None)
        if port is None:
            host = socket.gethostname()
            raise UserError(f"no port is free on {host}", fix="exclude that host: --sbatch-arg --exclude=…")
        return Rendezvous(self._meeting_host(hosts), port)

    def _meeting_host(self, hosts: Sequence[str]) -> str:
        if self.arguments.launcher == "torchrun":  # whose agents find out by the name which of them is the first
            return hosts[0]
        interface = self.environ.get("GLOO_SOCKET_IFNAME")
        return loopback() if len(hosts) == 1 else address_of_interface(interface) if interface else hosts[0]

    def _prepare_successor(self, folder: RunFolder) -> None:
        """Submit the job that follows this one, if that is due."""
        if time.monotonic() < self._prepare_at:
            return
        try:
            job = next_job.prepare(folder, self.environ)
        except (SlurmError, OSError) as error:
            self._prepare_at = time.monotonic() + _PREPARE_EVERY_S
            _log.warning(f"the job that is to follow cannot be submitted now, and is again in a minute: {error}")
            return
        self._prepare_at = math.inf
        _log.info(f"job {job.job_id} waits for the end of this one, to continue the run if need be")
        if folder.is_asked_to_stop():  # meanwhile: whoever asked did not see this job
            next_job.cancel(folder, self.environ)

    def _wait(self, step: SrunStep, folder: RunFolder, started: float) -> None:
        """Wait until the step has ended, or need not be waited for. Sets `cause` if Slurm asked it to end."""
        missed_at = 0.0

        def is_over() -> bool:
            nonlocal missed_at
            if self.signals.terminated:
                return True
            self._prepare_successor(folder)
            if not missed_at and self._has_missed_a_rank(folder, started):
                missed_at = time.monotonic()
            return bool(missed_at) and time.monotonic() - missed_at > _LOST_GRACE_S

        if step.wait(self.signals, is_over):
            return
        if not self.signals.terminated:
            _log.warning("a rank was lost, and srun still waits for its host: not waiting any longer")
            step.kill()
            return
        self.cause = cause = job_end.why_terminated(self.environ)
        _log.info(f"SIGTERM: {cause.ending.replace('_', ' ')}; {self.leave_message}")
        has_left = step.wait_within(self.signals, job_end.SAVE_WITHIN * kill_wait_s())
        if not has_left and self.left_late:
            _log.warning(self.left_late)

    def _has_missed_a_rank(self, folder: RunFolder, started: float) -> bool:
        """Whether a rank has left because another one became unresponsive. Checked every few seconds."""
        if time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return False
        self._looked_at = time.monotonic()
        return any(
            isinstance(event, Failure) and event.exit_code == exits.LOST_A_RANK and event.time >= started
            for event in last_events(folder)
        )

    @property
    def requested(self) -> EndingName | None:
        """The ending that Slurm, or a person, asked for."""
        return None if self.cause is None else self.cause.ending

    def _with_cause(self, evidence: AttemptEvidence, folder: RunFolder) -> AttemptEvidence:
        """Add why ranks left, or died, on a signal that the driver did not get: a preemption's goes to the steps only.

        Of ranks that left no word of their own Slurm may know more: that it took the hosts away, or that time was up.
        None has one where it still ran the task prolog: a stop ends that, and the tasks with an exit status of Slurm's.
        """
        if evidence.requested is not None:
            return evidence
        found = judge(folder, evidence)
        is_silent = found.first is None or found.first.is_echo or found.first.is_by_signal
        is_silent = is_silent or not has_begun(folder, evidence.started)
        if found.ending.name == "stopped" or (found.ending.name == "failed" and is_silent):
            self.ask_why(folder, is_signalled=found.ending.name == "stopped")
        return replace(evidence, requested=self.requested)

    def ask_why(self, folder: RunFolder, *, is_signalled: bool = True) -> None:
        """Set `cause`. `is_signalled`: it is known that a signal came, if not from whom."""
        if self.is_asked_to_stop(folder):
            self.cause = job_end.Cause("stopped")
            return
        cause = job_end.why_terminated(self.environ)
        if is_signalled or cause.ending != "stopped" or cause.is_cancelled:
            self.cause = cause

    def follow(self, folder: RunFolder, judgement: Judgement, *, tries_left: int) -> Decision:
        """Record and report how the attempt ended. Returns what follows."""
        arguments = self.arguments
        last = folder.attempts()[-1]
        if not is_ours(last, self.job.job_id):
            _log.info("Slurm had given this attempt up, and the run was resumed elsewhere: nothing is decided here")
            return Decision("give_up", "another attempt owns the run", exits.LOST_A_RANK)
        end = job_end.attempt_end(folder, judgement, tries_left=tries_left, retries=arguments.retries)
        decision = decide(end, on_time_limit=arguments.follow, max_attempts=arguments.max_attempts)
        if decision.step == "other_port":
            first = judgement.first
            _log.warning(f"{first.describe() if first else judgement.ending.text}; {decision.reason}")
            return decision
        if decision.step == "finish":
            decision = replace(decision, reason=self.finished)
        if decision.step == "retry" and self.is_asked_to_stop(folder):
            decision = replace(decision, step="give_up", reason="stop was requested (graphmill stop)")
        if self.cause is not None and self.cause.is_requeued:
            decision = replace(decision, step="give_up", reason="Slurm requeues the job itself")
        elif arguments.follow == "resubmit":
            decision = self._with_successor(folder, decision)
        job_end.report_failure(folder, judgement)
        with best_effort_write():
            note_outcome(folder, judgement, last.time, message=judgement.problem if self.tells_problem else "")
        job_end.report_end(folder, judgement, end, decision, self.environ, in_haste=self.signals.terminated)
        self._lost_hosts = judgement.lost_hosts
        return decision

    def _with_successor(self, folder: RunFolder, decision: Decision) -> Decision:
        """The decision, if a person's word on the successor counts; where nothing is to follow, it is cancelled."""
        if decision.step == "retry":
            gone = "" if self.signals.terminated else next_job.cancelled_successor(folder, self.environ)
            why = f"job {gone}, which was to follow, was cancelled"
            return replace(decision, step="give_up", reason=why) if gone else decision
        if self.cause is not None and not self.cause.is_known:
            return replace(decision, reason=f"{decision.reason}; the job that follows asks Slurm again")
        next_job.cancel(folder, self.environ)
        return decision


def port_key(job_id: int, number: int) -> int:
    """Where a run looks for a port first; `number`: which of those that share the job."""
    return job_id + _PORTS_APART * number
