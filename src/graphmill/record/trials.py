"""The folder of a search: which trials it has asked for, how each ended, and how long it has taken.

A trial's run, or its runs with several seeds, lie beside these files, each in a folder of its own. They alone say what
a search knows: Optuna's sampler is told all of it before each choice and keeps nothing, so that a search which was
killed asks for what it would have asked for anyway. A trial exists once its line does; whoever continues takes the one
without an end first.

Any number of processes may work on a search, on hosts that share its folder. Each trial has a lock of its own, which
its process holds until the trial has ended: one without an end whose lock is free is that of a process that is gone,
and of whoever finds it first. Lines are added under the folder's lock. A line says which trials were running when its
own was asked for, so that what the choice knew can be told again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.base.json_text import parse_json
from graphmill.base.retries import is_there, retried
from graphmill.record.lines import append_line, complete_lines
from graphmill.record.lock import OwnedError, Owner, hold

TrialState = Literal["complete", "pruned", "failed"]

_ASKED: Final = "search.json"
_TRIALS: Final = "trials.jsonl"
_SPENT: Final = "spent.json"
_WAIT_S: Final = 60.0  # for the folder's lock, which is held for a moment


class _Line(BaseModel):
    """A line of trials.jsonl; no number is null in it, and a score may be none."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="strings")

    trial: int


class RequestedTrial(_Line):
    """Values that a trial was given."""

    values: dict[str, Any]
    running: tuple[int, ...] = ()  # trials before it that others were at: the choice did not know their ends


class TrialEnd(_Line):
    """How a trial ended."""

    state: TrialState
    scores: tuple[tuple[int, float], ...] = ()  # on the validation split: epoch, value; of a pruned one, up to there
    best: tuple[int, float] | None = None  # epoch and value of the best checkpoint, of one that is complete
    of_seeds: tuple[float, ...] = ()  # value of the best checkpoint of each seed; `scores`, `best`: of the first
    why: str = ""  # it was pruned, or failed

    @property
    def score(self) -> float | None:
        """The best score on the validation split, mean over the seeds; None: it is not complete."""
        return fmean(self.of_seeds) if self.of_seeds else None if self.best is None else self.best[1]


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """One trial of a search: what was asked for, and what came of it."""

    number: int
    values: Mapping[str, Any]
    end: TrialEnd | None  # None: it runs, or is to be continued
    running: tuple[int, ...] = ()  # trials before it that had not ended when it was asked for

    @property
    def name(self) -> str:
        """Name of the trial, and of its run if no seeds were given."""
        return f"trial-{self.number:04d}"

    @property
    def state(self) -> str:
        """How it ended, in a word."""
        return "unfinished" if self.end is None else self.end.state

    @property
    def score(self) -> float | None:
        """What it is compared by; None: it is not complete."""
        return None if self.end is None else self.end.score

    def knew(self, trials: Sequence["SearchTrial"]) -> list["SearchTrial"]:
        """Trials before it as they were when it was asked for: what ran then has no end."""
        return [replace(each, end=None) if each.number in self.running else each for each in trials[: self.number]]

    def runs(self, seeds: Sequence[int]) -> dict[str, int | None]:
        """The names of its runs, as a study names those of a cell, each with its seed; None: the experiment's own."""
        return {f"{self.name}__seed-{seed}": seed for seed in seeds} or {self.name: None}


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """`<logs root>/<search>/`: the files, and what they hold."""

    path: Path

    def begin(self, search: Mapping[str, Any]) -> None:
        """Note what is searched, or refuse what differs from that with a `UserError`; limits are no part of it."""
        path = self.path / _ASKED
        if not is_there(path):
            write_json(path, dict(search))
            return
        begun = parse_json(retried(path, lambda file: file.read_text(encoding="utf-8")))
        known = {"seeds": [], **begun} if isinstance(begun, dict) else {}  # a search of before there were any
        others = [key for key in search if known.get(key) != search[key]]
        if others:
            raise UserError(
                f"{self.path} holds a search with another {', another '.join(others)}",
                fix="leave the change out to continue it, or give another --name for a new one",
            )

    def refuse_others(self) -> None:
        """Raise a `UserError` if something else than a search is in the folder."""
        if not self.path.is_dir() or is_there(self.path / _ASKED):
            return
        others = sorted(each.name for each in self.path.iterdir() if not each.name.startswith("."))
        if others:
            raise UserError(
                f"{self.path} is no search: it holds {', '.join(others[:3])}", fix="give another --name, or --logs-root"
            )

    def trials(self) -> list[SearchTrial]:
        """All trials, in the order in which they were asked for."""
        path = self.path / _TRIALS
        lines = complete_lines(path) if is_there(path) else []
        try:
            asked = [RequestedTrial.model_validate_json(line) for line in lines if '"values"' in line]
            ended = [TrialEnd.model_validate_json(line) for line in lines if '"values"' not in line]
        except ValidationError:
            raise UserError(f"{path} is damaged", fix="restore it, or begin the search anew with --name") from None
        ends = {end.trial: end for end in ended}
        return [SearchTrial(each.trial, each.values, ends.get(each.trial), each.running) for each in asked]

    def ask(self, values: Mapping[str, Any]) -> SearchTrial:
        """Add a trial; whoever does holds the folder's lock."""
        trials = self.trials()
        running = tuple(trial.number for trial in trials if trial.end is None)
        self._append(RequestedTrial(trial=len(trials), values=dict(values), running=running))
        return self.trials()[-1]

    def tell(self, end: TrialEnd) -> None:
        """Add how a trial ended; whoever does holds the folder's lock."""
        self._append(end)

    def _append(self, line: _Line) -> None:
        append_line(self.path / _TRIALS, line.model_dump_json(exclude_defaults=True))

    def spent_s(self, trial: int | None = None) -> float:
        """Seconds that the search, or one trial of it, has taken in all attempts, by the last note of each process."""
        if trial is not None:
            return _seconds(self._claims / f"{trial}" / _SPENT)
        return sum(map(_seconds, [self.path / _SPENT, *self._claims.glob(f"*/{_SPENT}")]))

    def note_spent(self, trial: int, seconds: float) -> None:
        """Note how long a trial has taken so far; whoever does has claimed it."""
        write_json(self._claims / f"{trial}" / _SPENT, {"seconds": round(seconds, 1)})

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from adding lines while the block lasts, which is short."""
        self._claims.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(hold(self._claims, wait_s=_WAIT_S))
            except OwnedError as error:
                raise UserError(
                    f"{self.path} could not be written to for {_WAIT_S:.0f} s: it is locked by"
                    f" {error.owner.describe() if error.owner else 'another process'}",
                    fix="see whether that process is stuck, and give the same command again",
                ) from None
            yield

    def claim(self, trial: int, *, job_id: str = "") -> AbstractContextManager[Owner]:
        """Keep other processes from a trial while the block lasts; `OwnedError` if a living one has it."""
        path = self._claims / f"{trial}"
        path.mkdir(exist_ok=True)
        return hold(path, job_id=job_id)

    @property
    def _claims(self) -> Path:
        return self.path / ".claims"


def _seconds(path: Path) -> float:
    found = parse_json(retried(path, lambda file: file.read_text(encoding="utf-8"))) if is_there(path) else {}
    return float(found.get("seconds", 0.0)) if isinstance(found, dict) else 0.0


def counts(trials: Sequence[SearchTrial]) -> dict[str, int]:
    """How many trials ended how."""
    states = [trial.state for trial in trials]
    return {state: states.count(state) for state in ("complete", "pruned", "failed", "unfinished")}
