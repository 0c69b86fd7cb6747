"""`graphmill launch`: log in to all hosts, compare them, plan, start every rank, wait for the end of all."""

import asyncio
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.launch.judge import AttemptEvidence, Judgement, LostHost, ProcessFailure, judge, note_outcome
from graphmill.cluster.launch.ssh.agree import (
    machine_of_each,
    meeting_address,
    meeting_name,
    refuse_all,
    refuse_other_code,
    unequal,
    world_on,
)
from graphmill.cluster.launch.ssh.hosts import HostList
from graphmill.cluster.launch.ssh.session import Session
from graphmill.cluster.launch.ssh.supervise import PrintingThread, Supervision
from graphmill.cluster.launch.ssh.wire import CANNOT_LISTEN, Checked, CheckRequest, Started, StartRequest
from graphmill.record.attempts import Begun, attempt
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.secret import new_token
from graphmill.runtime.trust import TRUST_VARIABLE
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.spec.roles import RoleRank, RolesSpec
from graphmill.spec.world import World

_log = logging.getLogger(__name__)

_LAST_WORDS: Final = 10


@dataclass(frozen=True, slots=True)
class HostRow:
    """What will run on one host: a line of `--dry-run`."""

    name: str
    role_ranks: tuple[RoleRank, ...]
    python: str
    num_cores: int
    num_gpus: int
    interface: str


@dataclass(frozen=True, slots=True)
class Launch:
    """The request: a new run, or an existing one to resume."""

    hosts: HostList
    logs_root: Path
    make_plan: Callable[[MachineInfo], Plan] | None  # None: `resume` has it
    resume: RunFolder | None
    roles: RolesSpec | None = None  # of a new run
    ssh_config: Path | None = None
    port: int | None = None  # that rank 0 listens on; None: a free one
    show: Callable[[Plan, Sequence[HostRow]], None] | None = None  # then nothing is started
    resume_with: str = "graphmill launch --hosts hosts.yaml --resume"  # the command that resumes, before the run's name
    program: tuple[str, ...] = ()  # in place of the worker, for tests

    def run(self) -> int:
        """Run the launch. Returns the exit status: as a local run's, and 74 if a host was lost."""
        return asyncio.run(_launch(self))


@dataclass(frozen=True, slots=True)
class _Ready:
    """All hosts, checked and found fit."""

    sessions: Sequence[Session]
    plan: Plan
    world: World
    checked: Sequence[Checked]
    master: str

    def processes_of(self, index: int) -> tuple[int, ...]:
        """The processes of one host, consecutive."""
        each = self.world.processes_per_host
        return tuple(range(index * each, (index + 1) * each))

    def role_ranks_of(self, index: int) -> tuple[RoleRank, ...]:
        """Roles and ranks of a host's processes."""
        return tuple(self.world.role_rank(process) for process in self.processes_of(index))

    def rows(self) -> list[HostRow]:
        rows = []
        for index, (session, checked) in enumerate(zip(self.sessions, self.checked, strict=True)):
            facts = session.facts
            assert facts is not None, "it was looked at"
            name, role_ranks = session.host.name, self.role_ranks_of(index)
            rows.append(HostRow(name, role_ranks, facts.executable, facts.num_cores, facts.num_gpus, checked.interface))
        return rows


async def _launch(launch: Launch) -> int:
    sessions = await _open_all(launch)
    try:
        ready = await _prepare(launch, sessions)
        if launch.show is not None:
            launch.show(ready.plan, ready.rows())
            return exits.DONE
        return await _run(launch, ready)
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


async def _open_all(launch: Launch) -> list[Session]:
    opened = await asyncio.gather(
        *(Session.open(host, launch.ssh_config) for host in launch.hosts.hosts), return_exceptions=True
    )
    sessions = [found for found in opened if isinstance(found, Session)]
    try:
        _refuse_failures(opened)
    except BaseException:
        await asyncio.gather(*(session.close() for session in sessions))
        raise
    return sessions


async def _prepare(launch: Launch, sessions: Sequence[Session]) -> _Ready:
    asked = meeting_name(launch.hosts, sessions)
    last = len(sessions) - 1
    looked = (session.look(asked if index == last else None) for index, session in enumerate(sessions))
    _refuse_failures(await asyncio.gather(*looked, return_exceptions=True))
    refuse_other_code(sessions)
    remark = unequal(sessions)
    if remark:
        _log.info(remark)
    master = meeting_address(launch.hosts, sessions)
    roles = launch.roles if launch.resume is None else launch.resume.read_plan().roles
    machine = machine_of_each(sessions, roles)
    plan = await asyncio.to_thread(_plan, launch, machine)
    before = plan.world if launch.resume is None else launch.resume.world()
    world = world_on(launch.hosts, plan, before, machine)
    return _Ready(sessions, plan, world, await _check_all(launch, sessions, plan, master), master)


def _plan(launch: Launch, machine: MachineInfo) -> Plan:
    if launch.resume is not None:
        return launch.resume.read_plan()
    assert launch.make_plan is not None, "a new run is planned"
    return launch.make_plan(machine)


async def _check_all(launch: Launch, sessions: Sequence[Session], plan: Plan, master: str) -> list[Checked]:
    root = (launch.logs_root if launch.resume is None else launch.resume.path).resolve()
    with _token(root) as (token, text):
        answers = await asyncio.gather(
            *(
                session.ask(
                    CheckRequest(
                        folder=str(root),
                        token=token,
                        text=text,
                        dataset=plan.dataset.path,
                        checksum=plan.dataset.prepared_checksum,
                        master=master,
                        reserve_port=index == 0,
                        port=launch.port if index == 0 else None,
                        interface=session.host.interface,
                    ),
                    Checked,
                )
                for index, session in enumerate(sessions)
            ),
            return_exceptions=True,
        )
    _refuse_failures(answers)
    checked = [answer for answer in answers if isinstance(answer, Checked)]
    refuse_all([error for pair in zip(sessions, checked, strict=True) for error in _problems(*pair, root)])
    return checked


def _problems(session: Session, checked: Checked, root: Path) -> list[UserError]:
    name = session.host.name
    if not checked.shares_folder:
        return [
            UserError(
                f"{name} does not see this host's {root}: ranks write their events and their parts of each"
                " checkpoint into one run folder, which all hosts must share at the same path",
                fix="give a --logs-root on a file system that all hosts mount; without one in reach of this machine,"
                " log in to a host that has it, launch there, and fetch the results with `graphmill pull`",
            )
        ]
    return [UserError(f"{name}: {problem}", fix=_fix(name, problem)) for problem in checked.problems]


def _fix(name: str, problem: str) -> str:
    if not problem.startswith(CANNOT_LISTEN):
        return f"see to it on {name}"
    return f"`ss -ltnp` on {name} shows who does; give another --port, or leave it out: then a free one is taken"


@contextmanager
def _token(folder: Path) -> Iterator[tuple[str, str]]:
    """A file in `folder` that a host can only know if it shares the folder: its name and its text."""
    name, text = f".graphmill-token-{secrets.token_hex(8)}", secrets.token_hex(16)
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to: {error.strerror}", fix="give a --logs-root that you may write to"
        ) from None
    try:
        yield name, text
    finally:
        path.unlink(missing_ok=True)


def _refuse_failures(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, UserError):
            raise answer
    refuse_all([answer for answer in answers if isinstance(answer, UserError)])


async def _run(launch: Launch, ready: _Ready) -> int:
    resume = launch.resume
    folder = RunFolder.create(ready.plan, launch.logs_root) if resume is None else resume
    with ExitStack() as until_the_end:  # in a thread: what the provenance asks for takes longer than a heartbeat
        begun = await asyncio.to_thread(
            until_the_end.enter_context, attempt(folder, command=sys.argv, world=ready.world)
        )
        if begun is None:
            _log.info(f"{folder.path} is done already: {ready.plan.calendar.num_epochs} epochs")
            return exits.DONE
        return await _attempt(launch, ready, begun)


async def _attempt(launch: Launch, ready: _Ready, begun: Begun) -> int:
    folder = begun.folder
    started = time.time()
    sessions = ready.sessions
    host_of = {number: session for index, session in enumerate(sessions) for number in ready.processes_of(index)}
    names = {
        number: f"{session.host.name}:{_brief(ready.world.role_rank(number))}" for number, session in host_of.items()
    }
    width = max(map(len, names.values()))
    shown = PrintingThread({number: f"{name:<{width}} | " for number, name in names.items()})
    try:
        _refuse_failures(await asyncio.gather(*_starts(launch, ready, begun), return_exceptions=True))
        running = {index: set(ready.processes_of(index)) for index in range(len(sessions))}
        supervision = Supervision(running, sessions, shown)
        await supervision.run()
        ahead_s = {number: session.ahead_s for number, session in host_of.items()}
        seen = supervision
        judgement = judge(
            folder,
            AttemptEvidence(
                started, seen.ended, seen.killed, ahead_s=ahead_s, requested=seen.requested, lost=seen.lost
            ),
        )
        report = _report(launch, folder, judgement, seen)
        if report is None and not seen.received:
            shown.release()
    finally:
        shown.close()
    if report is not None:
        sys.stderr.write(report)
    note_outcome(folder, judgement, started)
    return judgement.ending.exit_status


def _starts(launch: Launch, ready: _Ready, begun: Begun) -> list["asyncio.Future[Started]"]:
    port, token = ready.checked[0].port, new_token()
    assert port is not None, "rank 0's host has reserved one"
    return [
        asyncio.ensure_future(
            session.ask(
                StartRequest(
                    run=str(begun.folder.path.resolve()),
                    processes=ready.processes_of(index),
                    stems=tuple(role_rank.stem for role_rank in ready.role_ranks_of(index)),
                    num_processes=ready.world.processes,
                    threads=ready.world.threads,
                    resume=begun.resumed,
                    master=ready.master,
                    port=port,
                    interface=ready.checked[index].interface,
                    token=token,
                    trusted=os.environ.get(TRUST_VARIABLE, ""),
                    program=launch.program,
                ),
                Started,
            )
        )
        for index, session in enumerate(ready.sessions)
    ]


def _brief(role_rank: RoleRank) -> str:
    """Short name of a process, printed before each line of its output."""
    return str(role_rank.rank) if role_rank.role == "trainer" else role_rank.name.replace(" ", "-")


def _report(launch: Launch, folder: RunFolder, judgement: Judgement, seen: Supervision) -> str | None:
    """What to show the user; None: the ranks have printed it."""
    first = judgement.first
    if first is None or judgement.ending.name == "interrupted":
        return None
    resume = f"{launch.resume_with} {folder.path}"
    if first.process is None:
        return _lost_report(seen.lost, first, resume)
    said = seen.shown.tail(first.process)
    if judgement.ending.name == "bad_request":  # the rank has printed what clashes and what to type
        return "".join(f"{line}\n" for line in said)
    log = folder.log_path_of(folder.world().role_rank(first.process))
    return judgement.report(said, log=str(log) if log.exists() else None, resume=resume)


def _lost_report(all_lost: Sequence[LostHost], first: ProcessFailure, resume: str) -> str:
    others = [host.name for host in all_lost if host.name != first.host]
    also = f" (and then {', '.join(others)})" if others else ""
    words = next(host.words for host in all_lost if host.name == first.host)
    lines = [f"error: {first.describe()}{also}", *(f"  | {word}" for word in words[-_LAST_WORDS:])]
    advice = "  → see whether the host is up and the network holds; its ranks end by themselves; then continue with"
    return "\n".join([*lines, f"{advice} `{resume}`", ""])
