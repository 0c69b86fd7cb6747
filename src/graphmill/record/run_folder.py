"""The run folder: the only thing that the two planes share. What goes in, what comes out, and who may write."""

import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from pydantic import ValidationError

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.files import fsync_folder, json_text, write_json, write_text
from graphmill.base.foreign import quoted
from graphmill.base.json_text import parse_json
from graphmill.base.retries import is_there, remove_file, retried
from graphmill.record.documents import Attempt, Outcome, SubmittedJob, json_of, read_document
from graphmill.record.lines import append_line, complete_lines
from graphmill.record.lock import Owner, hold
from graphmill.record.manifest import hash_text, saved_steps
from graphmill.record.provenance import Provenance, collect_provenance
from graphmill.record.run_paths import COMMAND_FILE, RunPaths
from graphmill.record.weights import copy_initial_weights
from graphmill.runtime.code import code_checksum
from graphmill.runtime.snapshot import own_code
from graphmill.runtime.trust import Code, code_in, code_of_file, refuse_foreign_code, remember, vouch_for
from graphmill.spec.batch import MemoryBudget
from graphmill.spec.differences import plan_differences
from graphmill.spec.dotted import PLAN_FILE
from graphmill.spec.job.work import Command
from graphmill.spec.plan import Plan, refuse_missing_sources
from graphmill.spec.world import World

_log = logging.getLogger(__name__)

PIPELINE_FILE = "pipeline.json"  # in the folder of a pipeline's runs, once it was submitted or run
# What is in a folder whose creator was killed before it wrote the plan: the next one starts over.
_OF_A_KILLED_MAKER = re.compile(
    r"\.lock(\.owner|\.takeover)?|(initial_weights|source_[A-Za-z0-9_]+)\.safetensors"
    r"|\.((initial_weights|source_[A-Za-z0-9_]+)\.safetensors|plan\.json)\..*\.tmp"
)
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}")


@dataclass(frozen=True, slots=True)
class RunFolder(RunPaths):
    """`<logs root>/<run id>/`: the files, and what they hold."""

    @classmethod
    def create(cls, plan: Plan, root: Path) -> "RunFolder":
        """Make the folder of a new run and write its plan. A folder that holds a run already is refused."""
        _refuse_incomplete(plan)
        folder = cls.place_for(plan.run_id, root)
        make_empty_folder(folder.path)
        if plan.init_from is not None:
            copy_initial_weights(plan.init_from, folder.initial_weights_path)
        for name, source in plan.sources.items():
            copy_initial_weights(source, folder.source_path(name))
        if plan.memory_budget is not None:
            write_json(folder.memory_budget_path, plan.memory_budget.model_dump(mode="json"))
        text = plan_text(plan)
        try:
            write_text(folder.plan_path, text, is_new=True)
        except FileExistsError:  # another process has begun a run of this id since
            raise folder._taken() from None
        remember(code_in(parse_json(text)))  # who begins a run of it has named it
        return folder

    @classmethod
    def place_for(cls, run_id: str, root: Path) -> "RunFolder":
        """Where a new run would be made, of which nothing is written; `UserError` if it cannot be made there."""
        folder = cls(root / checked_run_id(run_id))
        if folder.plan_path.exists():
            raise folder._taken()
        for parent in folder.path.relative_to(root).parents:
            if (root / parent / PLAN_FILE).exists():
                raise UserError(f"{root / parent} is a run, and a run cannot hold another", fix="give another --run-id")
        if folder.path.is_dir():
            _refuse_other_files(folder.path)
        return folder

    def _taken(self) -> UserError:
        resume, other = f"continue it with `graphmill train --resume {self.path}`", "give another --run-id"
        what = f"{self.path} holds a run already"
        if not self.was_refused():
            return UserError(what, fix=f"{resume}, or {other}")
        fix = f"remove {self.path}, or {other}; or, if its plan was right, {resume}"
        return UserError(f"{what}, which was refused before its first step", fix=fix)

    def was_refused(self) -> bool:
        """Whether its last attempt was refused before any step was saved: there is nothing to lose in it."""
        with suppress(UserError, UnreadableError):
            outcome = self.read_outcome()
            return outcome is not None and outcome.status == "bad_request" and not self.steps_saved()
        return False

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in `path`, or a `UserError` if there is none."""
        folder = cls(path)
        if not retried(folder.plan_path, Path.is_file):
            what = "has no plan.json, so it is not a run folder" if path.is_dir() else "is not a folder"
            raise UserError(f"{path} {what}", fix="name a folder that `graphmill train` made, such as logs/<run id>")
        return folder

    def is_command(self) -> bool:
        """Whether this is the folder of a command, not of a run."""
        return is_there(self.command_path)

    def plan_hash(self) -> str:
        """xxh3 of plan.json, byte for byte as the run began with it."""
        return hash_text(retried(self.plan_path, lambda path: path.read_text(encoding="utf-8")))

    def read_plan(self, *, trusted: Iterable[str] = ()) -> Plan:
        """The plan of this run. `trusted`: code that may be imported although the person did not run it before."""
        if trusted:
            vouch_for(code for code in self.code() if code.target in set(trusted))
        fix = "the run cannot be continued without it; start a new one"
        plan = read_document(self.plan_path, Plan, fix)
        for name in (plan.name, plan.run_id, plan.dataset.name, plan.dataset.path):
            if quoted(name) != name:  # they stand in messages and tables
                raise UserError(
                    f"{self.plan_path} is damaged: {name!r} is not one line without control characters", fix=fix
                )
        return plan

    def code(self) -> list[Code]:
        """What the plan names by dotted path, without importing anything; nothing of a plan that cannot be read."""
        return code_of_file(self.plan_path)

    def read_command(self) -> Command:
        """What a job runs in place of training."""
        return read_document(self.command_path, Command, "submit the command again: graphmill submit --run -- …")

    def read_outcome(self) -> Outcome | None:
        """How the run ended, or None if it has not, or could not record it."""
        if not is_there(self.outcome_path):
            return None
        return read_document(self.outcome_path, Outcome, "remove it, and continue the run with --resume")

    def is_done(self) -> bool:
        """Whether the run ended with all its steps done."""
        outcome = self.read_outcome()
        return outcome is not None and outcome.status == "done"

    def read_provenance(self) -> Provenance | None:
        """Where the run began, or None if it was not written."""
        if not is_there(self.provenance_path):
            return None
        return read_document(self.provenance_path, Provenance, "remove it; it only documents the run")

    def read_memory_budget(self) -> MemoryBudget | None:
        """How the size of the batches was found, or None if it was given."""
        if not is_there(self.memory_budget_path):
            return None
        return read_document(self.memory_budget_path, MemoryBudget, "remove it; it only documents the run")

    def write_outcome(self, outcome: Outcome) -> str:
        """Record how the run ended. Returns xxh3 of what was written: a disk that fails may not give it back."""
        text = json_text(json_of(outcome))
        write_text(self.outcome_path, text)
        return hash_text(text)

    def note_provenance(self, command: Sequence[str]) -> None:
        """Record where the run begins, at its first start only."""
        if is_there(self.provenance_path):
            return
        if self.is_command():
            self.write_provenance(collect_provenance(command))
        else:
            dataset = self.read_plan().dataset
            self.write_provenance(
                collect_provenance(command, dataset_checksum=dataset.prepared_checksum, synthetic=dataset.synthetic)
            )

    def write_provenance(self, provenance: Provenance) -> None:
        """Record where the run began."""
        write_json(self.provenance_path, provenance.model_dump(mode="json"))

    def begin_attempt(
        self,
        *,
        resumed: bool,
        command: Sequence[str],
        job_id: str = "",
        world: World | None = None,
        is_second_in_job: bool = False,
    ) -> int:
        """Record a start of the run and remove an earlier outcome. Returns the attempt's number, from 1.

        `world`: its processes; None: as many as in the attempt before it, or as planned.
        """
        earlier, is_retry = self.attempts(), self._may_pass()
        remove_file(self.outcome_path)
        steps: int | None = None
        with suppress(UnreadableError):  # the ranks will report it
            steps = self.steps_saved()
        attempt = Attempt(
            time=time.time(),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            resumed=resumed,
            command=tuple(command),
            job_id=job_id,
            code=code_checksum(),
            own_code=own_code(os.environ),
            steps_saved=steps,
            world=self.world() if world is None and not self.is_command() else world,
            is_second_in_job=is_second_in_job,
            is_retry=is_retry,
        )
        lines = [known.model_dump_json() for known in (*earlier, attempt)]
        write_text(self.attempts_path, "\n".join(lines) + "\n")
        return len(lines)

    def steps_saved(self) -> int:
        """Steps of each rank that are saved; of a command that trains runs, of all these. Raises `UnreadableError`."""
        if not is_there(self.runs_of_command_path):
            return saved_steps(self.checkpoints_dir)
        named = parse_json(retried(self.runs_of_command_path, lambda path: path.read_text(encoding="utf-8")))
        return sum(saved_steps(run.checkpoints_dir) for run in find_runs(Path(str(named))))

    def note_runs_of_command(self, folder: Path) -> None:
        """Note where the runs are that this command trains: a job that got on with them is followed by another."""
        write_json(self.runs_of_command_path, str(folder.absolute()))

    def _may_pass(self) -> bool:
        """Whether the run has failed, in a way that another try may mend."""
        with suppress(UserError):  # damaged: `graphmill verify` says so
            outcome = self.read_outcome()
            return outcome is not None and outcome.may_pass
        return False

    def attempts(self) -> list[Attempt]:
        """All starts of the run so far, in order."""
        if not is_there(self.attempts_path):
            return []
        try:
            return [Attempt.model_validate_json(line) for line in complete_lines(self.attempts_path)]
        except ValidationError:
            raise UserError(f"{self.attempts_path} is damaged", fix="remove it; it only counts the starts") from None

    def world(self) -> World:
        """The processes of the latest attempt; those that the run was planned for if it has not begun."""
        attempts = self.attempts()
        last = attempts[-1].world if attempts else None
        return self.read_plan().world if last is None else last

    def note_job(self, job: SubmittedJob) -> None:
        """Append a job that was submitted for this run. The job itself may append at the same moment, elsewhere."""
        append_line(self.jobs_path, job.model_dump_json())

    def jobs(self) -> list[SubmittedJob]:
        """All jobs that were submitted for this run, in order; a requeued one appears once per requeue."""
        if not is_there(self.jobs_path):
            return []
        try:
            return [SubmittedJob.model_validate_json(line) for line in complete_lines(self.jobs_path)]
        except ValidationError:
            raise UserError(f"{self.jobs_path} is damaged", fix="remove the damaged line; it only names jobs") from None

    def ask_to_stop(self) -> None:
        """Keep jobs of this run from requeueing or resubmitting themselves, until it is submitted again."""
        write_text(self.stop_path, f"asked on {socket.gethostname()}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n")

    def is_asked_to_stop(self) -> bool:
        """Whether the run was asked to stop."""
        return is_there(self.stop_path)

    def heartbeat(self) -> float | None:
        """Unix time (s) of the last heartbeat, of any rank or any host's monitor; None if there is none."""
        files = [*self.events_dir.glob("*.jsonl"), *self.monitor_dir.glob("*.csv")]
        times = []
        for file in files:
            with suppress(OSError):  # replaced at this moment
                times.append(file.stat().st_mtime)
        return max(times, default=None)

    def lock(self) -> AbstractContextManager[Owner]:
        """Keep other launchers away while the block lasts; it is released when the process ends, however it ends."""
        return hold(self.path)


@contextmanager
def best_effort_write() -> Iterator[None]:
    """Report a failed write into the run folder, and continue: it may be what ended the run."""
    try:
        yield
    except OSError as error:
        _log.error(f"could not write to the run folder: {error}")


def plan_text(plan: Plan) -> str:
    """The bytes of plan.json: same plan, same bytes. Of one that names code which nobody here named there are none:
    whoever reads them may run it.
    """
    text = plan.model_dump_json(indent=2) + "\n"
    refuse_foreign_code(parse_json(text))
    return text


def checked_run_id(run_id: str) -> str:
    """`run_id` if a folder may be called so: a name, or up to three with slashes between them, as study/cell/stage."""
    if not _RUN_ID.fullmatch(run_id) or len(run_id.encode()) > 200:
        raise UserError(
            f"{run_id!r} cannot name a run: it takes letters, digits, '.', '_', '-', and at most two '/'",
            fix="give another --run-id, for example cora-sage-1",
        )
    return run_id


def default_run_id(name: str, root: Path) -> str:
    """The experiment's name and this second; -2, -3 and so on after it, if `root` has such a folder already."""
    first = f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    others = (f"{first}-{number}" for number in count(2))
    return next(each for each in chain([first], others) if not (root / each).exists())


def with_own_folder(plan: Plan, root: Path) -> Plan:
    """The plan with a default id whose folder this process has made: of runs that begin at once, each has its own."""
    _refuse_incomplete(plan)
    while True:
        run_id = default_run_id(plan.name, root)
        try:
            root.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                (root / run_id).mkdir()
                return plan.model_copy(update={"run_id": run_id})
        except OSError as error:
            raise _cannot_be_made(root / run_id, error) from None


def _refuse_incomplete(plan: Plan) -> None:
    """Raise a `UserError` for a plan that cannot be trained: without its data, or weights that it needs."""
    _ = plan.dataset.prepared_checksum
    refuse_missing_sources(plan.kind, plan.task, plan.sources)


def refuse_other_plan(folder: RunFolder, plan: Plan, requested: Plan, *, with_others: str = "") -> None:
    """Raise a `UserError` if a run was planned differently than it is asked for now.

    `with_others`: the options that continue it with other numbers of ranks and hosts, if they are not those of `train`.
    """
    differences = plan_differences(plan, requested)
    if not differences:
        return
    fix = "leave the change out to continue that run, or give another --run-id, or --logs-root, for a new one"
    if folder.was_refused():
        fix = f"remove {folder.path}: that run was refused before its first step"
    elif any(text.startswith(("ranks is ", "hosts is ")) for text in differences):
        resume = with_others or f"--resume {folder.path} --ranks {requested.ranks}"
        fix = f"another number of ranks continues it with {resume}; otherwise {fix}"
    raise UserError(f"{folder.path} was planned otherwise: {'; '.join(differences)}", fix=fix)


def find_runs(root: Path) -> list[RunFolder]:
    """Every run below `root`, by path; `root` itself if it is one."""
    return _holding(root, PLAN_FILE)


def find_runs_and_commands(root: Path) -> list[RunFolder]:
    """Every run below `root`, and the folders of commands that jobs run in place of training."""
    return _holding(root, PLAN_FILE, COMMAND_FILE)


def _holding(root: Path, *marks: str) -> list[RunFolder]:
    found = []
    for folder, children, files in os.walk(root):
        children.sort()
        if any(mark in files for mark in marks):
            found.append(RunFolder(Path(folder)))
            children.clear()  # runs are not nested
    return sorted(found, key=lambda run: run.path)


def make_empty_folder(path: Path) -> None:
    """A folder that holds nothing, or what a killed maker left; `UserError` if it holds more."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir()
        _refuse_other_files(path)
        fsync_folder(path.parent)
    except OSError as error:
        raise _cannot_be_made(path, error) from None


def _cannot_be_made(path: Path, error: OSError) -> UserError:
    return UserError(
        f"the run folder {path} cannot be made: {error.strerror}", fix="give a --logs-root that you may write to"
    )


def _refuse_other_files(folder: Path) -> None:
    if any(not _OF_A_KILLED_MAKER.fullmatch(child.name) for child in folder.iterdir()):
        raise UserError(f"{folder} holds other files already", fix="give another --run-id, or another --logs-root")
