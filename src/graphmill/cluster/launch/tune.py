"""Search for the values of an experiment's keys: trials one after another, each a run, or one for each seed, here.

A trial is asked for by one appended line, runs like any run, and its end is one appended line (`record/trials.py`).
Killed at any moment, the same command finds the trial without an end and continues, begins, or only judges its runs.
Several processes may do so at once, each at a trial of its own.
With several seeds the first run alone is compared with those of other trials while it lasts: where it falls behind, the
others are not begun; where one fails, so has the trial, for a mean over fewer would be of other draws.
What a trial is worth, and whether it was pruned, depends on the scores in its run folder alone, not on when they were
looked at: so a short run may be done before its pruning could stop it, and is pruned all the same.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from graphmill.base import exits
from graphmill.base.amounts import shown_clock
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.names import counted
from graphmill.base.retries import is_io_error
from graphmill.cluster.launch.asking import Asking
from graphmill.cluster.launch.local import WORKER, Watch, remembered_signals
from graphmill.cluster.launch.run import resume_run, start_run
from graphmill.cluster.launch.run_graph import Planner, RunGraph, Wording, checked_plans
from graphmill.cluster.launch.trial_watch import Follower, Scores, SearchClock, scores_of
from graphmill.record.endings import ending_of
from graphmill.record.lock import OwnedError, refuse_links_out
from graphmill.record.run_folder import RunFolder
from graphmill.record.run_paths import COMMAND_VARIABLE
from graphmill.record.trials import SearchFolder, SearchTrial, TrialEnd, counts
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.spec.columns import Measure
from graphmill.spec.experiment import Experiment
from graphmill.spec.plan import Plan
from graphmill.spec.search import SEED, Search, SearchedKey, load_trial, own_values, searched_keys

_log = logging.getLogger(__name__)

_FIRST: Final = 3  # trials: if all of these fail, so would the rest
_BY_CHANCE: Final = (exits.LOST_A_RANK, exits.IO_ERROR, exits.PORT_BUSY)  # need not happen again: tried twice
_WARMUP: Final = 5  # of a run's epochs one in so many is too early to prune
_ANY: Final = "trial-0000"  # of plans that are made to see whether they can be
_WORDING: Final = Wording("search", "trial", "", "", "", "")


@dataclass(slots=True)
class Tuning:
    """A search at work."""

    search: Search
    keys: Sequence[SearchedKey]
    base: Plan  # of the experiment as it is
    folder: SearchFolder
    planner: Planner
    program: Sequence[str]
    clock: SearchClock
    is_stopped: bool = False  # by a signal that came while a run lasted

    @property
    def measure(self) -> Measure:
        """What trials are compared by, on the validation split."""
        return self.base.kind.measures[0]

    @property
    def asking(self) -> Asking:
        """What chooses values."""
        return Asking(self.keys, self.search.seed, self.measure.higher_is_better)

    def best(self) -> SearchTrial | None:
        """The complete trial with the best score on the validation split; None: none is complete."""
        return best_of(self.folder.trials(), self.measure)

    def runs(self, trial: SearchTrial) -> list[RunFolder]:
        """The runs of a trial, one for each seed, whether they have begun or not."""
        return [RunFolder(self.folder.path / name) for name in trial.runs(self.search.seeds)]

    def test_scores(self, trial: SearchTrial) -> list[float]:
        """What the runs of a trial scored on the test split, as far as they did."""
        outcomes = [run.read_outcome() for run in self.runs(trial)]
        found = [(outcome.test or {}).get(self.measure.name) for outcome in outcomes if outcome is not None]
        return [float(score) for score in found if score is not None]

    @property
    def best_path(self) -> Path:
        """Where the experiment of the best trial is written."""
        return self.folder.path / "best.yaml"

    def write_best(self) -> SearchTrial | None:
        """Write the experiment of the best trial as a file that `graphmill train` takes; None: none is complete."""
        with self.folder.lock():  # who writes last has seen all
            trial = self.best()
            if trial is not None:
                experiment = load_trial(self.search, trial.values).model_dump(mode="json", exclude_unset=True)
                said = f"# {trial.name} of the search {self.search.name}: the best by its score on the validation split"
                text = yaml.safe_dump(experiment, sort_keys=False, allow_unicode=True)
                write_text(self.best_path, f"{said}\n{text}")
        return trial

    def describe(self) -> str:
        """How many trials ended how, and the time they took."""
        trials = self.folder.trials()
        told = ", ".join(f"{number} {state}" for state, number in counts(trials).items() if number)
        return f"{counted(len(trials), 'trial')} ({told or 'none'}) in {shown_clock(self.folder.spent_s())}"

    def elsewhere(self) -> dict[str, str]:
        """The trials that other processes are at, and which."""
        found: dict[str, str] = {}
        with self.folder.lock():  # nobody takes our look for an owner
            for trial in [trial for trial in self.folder.trials() if trial.end is None]:
                try:
                    with self.folder.claim(trial.number):
                        continue
                except OwnedError as error:
                    found[trial.name] = error.owner.describe() if error.owner else "another process"
        return found

    def loop(self, is_stop_requested: Callable[[], bool]) -> int:
        """Trials, until there are enough, the time is over, or it is stopped. Returns the exit status."""
        most = self.search.most_trials
        while True:
            with ExitStack() as held:
                with self.folder.lock():
                    trials = self.folder.trials()
                    self._refuse_hopeless(trials)
                    current = next((trial for trial in trials if trial.end is None and self._claim(trial, held)), None)
                    if self.clock.is_over or (current is None and most is not None and len(trials) >= most):
                        return exits.DONE
                    if self.is_stopped or is_stop_requested():
                        return exits.OUT_OF_TIME
                    if current is None:
                        current = self.folder.ask(self._values(trials))
                        self._claim(current, held)
                code = self._clocked(current, current.knew(trials), is_stop_requested)
            if code != exits.DONE:
                return code

    def _claim(self, trial: SearchTrial, held: ExitStack) -> bool:
        """Whether this process has the trial now, as long as `held` lasts: no other living one has it."""
        with suppress(OwnedError):
            held.enter_context(self.folder.claim(trial.number, job_id=JobEnvironment(os.environ).job_id))
            return True
        return False

    def _clocked(self, trial: SearchTrial, before: Sequence[SearchTrial], is_stop_requested: Callable[[], bool]) -> int:
        self.clock.begin(trial.number)
        try:
            return self._trial(trial, before, is_stop_requested)
        finally:
            self.clock.end()

    def _values(self, trials: Sequence[SearchTrial]) -> dict[str, Any]:
        own = own_values(self.keys, load_trial(self.search, {})) if not trials else None
        return own or self.asking.values(trials)

    def _trial(self, trial: SearchTrial, before: Sequence[SearchTrial], is_stop_requested: Callable[[], bool]) -> int:
        """One trial, to its end if nothing stops it; 0 then, also if it failed, and if only the time is over."""
        ends: list[TrialEnd] = []
        for name, seed in trial.runs(self.search.seeds).items():
            run = RunFolder(self.folder.path / name)
            if ends and (self.is_stopped or is_stop_requested() or self.clock.is_over) and not run.is_done():
                return exits.DONE  # the loop says what follows
            code, end = self._of_seed(trial, run, seed, before if not ends else ())
            if end is None:
                return code
            ends.append(end)
            if end.state != "complete":
                break
        told = self._end_of(ends)
        with self.folder.lock():
            self.folder.tell(told)
        self._say(trial, told)
        return exits.INTERRUPTED if code == exits.INTERRUPTED else exits.DONE

    def _of_seed(
        self, trial: SearchTrial, run: RunFolder, seed: int | None, rivals: Sequence[SearchTrial]
    ) -> tuple[int, TrialEnd | None]:
        """The run of one seed, which falls behind `rivals` or not. Returns its exit status, and how it ended."""
        most = self.search.most_trials
        place = f"{trial.number + 1}/{most}" if most is not None else f"{trial.number + 1}"
        values = {**trial.values, **({} if seed is None else {SEED: seed})}
        if not run.is_done():
            _log.info(f"[{place}] {trial.name}: {values_text(values)}")
        follower = Follower(run, self.measure.name, lambda *seen: self._pruned_at(run, rivals, *seen), self.clock)
        code, why = self._run(run, values, follower)
        if code in _BY_CHANCE and run.plan_path.exists() and not follower.is_stop_requested:
            code, why = self._run(run, values, follower)
        self.is_stopped = self.is_stopped or follower.is_stop_requested
        if follower.is_stop_requested and follower.pruned_at is None and code in (exits.OUT_OF_TIME, exits.INTERRUPTED):
            return code, None
        end = self._end(trial, run, rivals, code, why)
        return (exits.DONE if end is None and follower.is_over and not follower.is_stop_requested else code), end

    def _run(self, run: RunFolder, values: Mapping[str, Any], watch: Watch) -> tuple[int, str]:
        """Begin or continue it, unless it is done or pruned. Returns its exit status, and why it did not begin."""
        if run.plan_path.exists():
            if run.is_done() or watch(False):
                return exits.DONE if run.is_done() else exits.OUT_OF_TIME, ""
            return resume_run(run, program=self.program, watch=watch), ""
        try:
            plan = self.planner(load_trial(self.search, values), f"{self.search.name}/{run.path.name}")
            return start_run(plan, logs_root=self.folder.path.parent, program=self.program, watch=watch), ""
        except UserError as error:
            _log.error(f"{error}")
            return exits.BAD_REQUEST, error.message
        except OSError as error:
            if not is_io_error(error):
                raise
            _log.error(f"{error}")
            return exits.IO_ERROR, f"{error}"

    def _end(
        self, trial: SearchTrial, run: RunFolder, rivals: Sequence[SearchTrial], code: int, why: str
    ) -> TrialEnd | None:
        """How a run of the trial ended; None: it has not, and is to be continued."""
        number, name = trial.number, self.measure.name
        scores = scores_of(run, name) if run.plan_path.exists() else ()
        pruned = self._pruned_at(run, rivals, scores) if scores else None
        if pruned is not None:
            kept = tuple(score for score in scores if score[0] <= pruned)
            return TrialEnd(trial=number, state="pruned", scores=kept, why=f"at epoch {pruned}")
        outcome = run.read_outcome() if run.plan_path.exists() else None
        best = {} if outcome is None or outcome.best is None else outcome.best
        value = float(best.get(name, math.nan))
        if code == exits.DONE and not math.isnan(value):
            return TrialEnd(trial=number, state="complete", scores=scores, best=(int(best["epoch"]), value))
        if code in (exits.OUT_OF_TIME, exits.INTERRUPTED):
            return None
        if code == exits.DONE:
            why = f"{self.measure.words} on the validation split is not a number"
        said = why or (outcome.message if outcome is not None else "") or ending_of(code).text
        return TrialEnd(trial=number, state="failed", scores=scores, why=said)

    def _end_of(self, ends: Sequence[TrialEnd]) -> TrialEnd:
        """How a trial ended, by the ends of its runs: one that fails is the last."""
        first, last, seeds = ends[0], ends[-1], self.search.seeds
        if not seeds or last.state == "pruned":
            return last
        if last.state == "failed":
            return last.model_copy(update={"scores": first.scores, "why": f"seed {seeds[len(ends) - 1]}: {last.why}"})
        return first.model_copy(update={"of_seeds": tuple(end.best[1] for end in ends if end.best is not None)})

    def _pruned_at(self, run: RunFolder, rivals: Sequence[SearchTrial], scores: Scores, judged: int = 0) -> int | None:
        if not self.search.prune or not rivals:
            return None
        after = -(-run.read_plan().calendar.num_epochs // _WARMUP)
        return self.asking.prunes_at(rivals, scores, after=after, judged=judged)

    def _say(self, trial: SearchTrial, end: TrialEnd) -> None:
        found = best_of(self.folder.trials(), self.measure)
        so_far = f"; best so far: {found.name}, {found.score:.4f}" if found and found.score is not None else ""
        when = f"over {len(end.of_seeds)} seeds" if end.of_seeds else f"at epoch {end.best[0]}" if end.best else ""
        own = f", {self.measure.words} {end.score:.4f} {when}" if end.score is not None else f", {end.why}"
        _log.info(f"{trial.name}: {end.state}{own}{so_far}")

    def _refuse_hopeless(self, trials: Sequence[SearchTrial]) -> None:
        ends = [trial.end for trial in trials[:_FIRST] if trial.end is not None and trial.end.state == "failed"]
        if len(ends) == _FIRST:
            raise UserError(
                f"the first {_FIRST} trials failed, and so would others: {ends[-1].why}",
                fix=f"correct it, remove {self.folder.path}, and search again; its runs have their logs until then",
            )


def prepare(search: Search, *, logs_root: Path, planner: Planner, program: Sequence[str] = WORKER) -> Tuning:
    """Check a search before anything is written: its keys, its folder, the plan of each value alone.

    Raises a `UserError` with all that is wrong.
    """
    keys, folder = searched_keys(search), SearchFolder(logs_root / search.name)
    folder.refuse_others()
    experiment = load_trial(search, {})
    if experiment.slurm.hosts > 1:
        raise UserError(
            f"slurm.hosts is {experiment.slurm.hosts}, and `graphmill tune` has this one only", fix="set slurm.hosts=1"
        )
    base = planner(experiment, f"{search.name}/{_ANY}")
    _ = base.dataset.prepared_checksum
    ends = [(key.key, value) for key in keys for value in key.ends()] if not folder.trials() else []
    named = {f"with {key}={value}": load_trial(search, {key: value}) for key, value in ends}
    graph = RunGraph(search.name, logs_root, _WORDING, dict.fromkeys(named, ()))
    checked_plans(graph, [*named], lambda name: planner(named[name], f"{search.name}/{_ANY}"))
    limit = float("inf") if search.hours is None else search.hours * 3600
    return Tuning(search, keys, base, folder, planner, program, SearchClock(folder, limit, folder.spent_s()))


def run_search(tuning: Tuning) -> int:
    """Run trials until there are enough, or the time is over; continue what was interrupted.

    Trials that other processes are at are left to them. Returns the exit status: 0, 75 after a stop, 130 after a second
    interrupt. Raises a `UserError` if the folder holds a search for something else, or if the first trials all fail.
    """
    folder = tuning.folder
    folder.path.mkdir(parents=True, exist_ok=True)
    refuse_links_out(folder.path)
    job = os.environ.get(COMMAND_VARIABLE)
    if job is not None:
        RunFolder(Path(job)).note_runs_of_command(folder.path)
    with remembered_signals() as signals:
        with folder.lock():
            folder.begin(_identity(tuning.search, load_trial(tuning.search, {})))
        return tuning.loop(lambda: bool(signals.received))


def best_of(trials: Sequence[SearchTrial], measure: Measure) -> SearchTrial | None:
    """The complete trial with the best validation score, the first of equals; None: none is complete."""
    found = [(trial.score, trial) for trial in trials if trial.score is not None]
    choose = max if measure.higher_is_better else min
    return choose(found, key=lambda each: each[0])[1] if found else None


def values_text(values: Mapping[str, Any]) -> str:
    """Values in one line, each by the last word of its key."""
    texts = {key: f"{value:.4g}" if isinstance(value, float) else f"{value}" for key, value in values.items()}
    return ", ".join(f"{key.rpartition('.')[2]} {text}" for key, text in texts.items())


def _identity(search: Search, experiment: Experiment) -> dict[str, Any]:
    dumped = search.model_dump(mode="json")
    return {
        "experiment": experiment.model_dump(mode="json", exclude_unset=True),
        **{key: dumped[key] for key in ("space", "seed", "seeds", "prune")},
    }
