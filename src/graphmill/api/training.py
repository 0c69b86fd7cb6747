"""`graphmill.train`: a run that begins, continues or is extended on this machine."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.api.planning import Overrides, experiment_of, make_plan, overrides_of, root_of
from graphmill.base.arguments import items_of, path_of
from graphmill.base.errors import UserError
from graphmill.base.messages import messages_shown

if TYPE_CHECKING:
    from graphmill.api.planning import Asked
    from graphmill.api.run import Run
    from graphmill.record.run_folder import RunFolder
    from graphmill.spec.plan import Plan
    from graphmill.spec.world import World

Agree = Callable[["RunFolder"], None]
"""Raises a `UserError` unless the person agrees to run the code that a run names."""


@dataclass(frozen=True, slots=True)
class ToTrain:
    """What is to be trained: every choice made, nothing written but perhaps an empty folder for the run."""

    folder: "RunFolder"
    plan: "Plan"
    logs_root: Path
    world: "World | None" = None  # the processes that continue a run; None: it begins
    is_tried: bool = False  # whether a user-defined model is known to fit

    def with_own_folder(self) -> "ToTrain":
        """Request under a default id of which this process has made the folder, once nothing else can refuse it."""
        from graphmill.cluster.launch.check_model import refuse_unfit_model
        from graphmill.record.run_folder import RunFolder, with_own_folder
        from graphmill.runtime.rank import refuse_several_tasks

        refuse_several_tasks(os.environ)
        refuse_unfit_model(self.plan)
        plan = with_own_folder(self.plan, self.logs_root)
        return replace(self, folder=RunFolder(self.logs_root / plan.run_id), plan=plan, is_tried=True)

    def start(self) -> int:
        """Start the ranks, and wait for all. Returns the exit status of the run's ending."""
        from graphmill.cluster.launch.run import resume_run, start_run

        if self.world is None:
            return start_run(self.plan, logs_root=self.logs_root, is_tried=self.is_tried)
        return resume_run(self.folder, world=self.world)


@messages_shown()
def train(
    experiment: "Asked" = None,
    overrides: Overrides = (),
    *,
    ranks: int | None = None,
    resume: bool = False,
    extend: bool = False,
    run_id: str | None = None,
    dataset_root: str | os.PathLike[str] | None = None,
    logs_root: str | os.PathLike[str] = "logs",
    trust: str | Iterable[str] = (),
    **values: Any,  # noqa: ANN401  # whatever a key takes
) -> "Run":
    """Train on this machine, as `graphmill train`: the ranks are processes of their own. Returns when they have ended.

    In a notebook a bar below the cell shows how far it is. Interrupting the call (Ctrl-C, the kernel's stop button)
    finishes the step and saves a checkpoint; a second interrupt ends the run at once.

    Args:
        experiment: as of `graphmill.plan`; with `resume` or `extend` a run folder, or the id of a run.
        overrides: as of `graphmill.plan`; with `extend` only `{"train.epochs": N}`, of the whole run.
        ranks: processes to start; with `resume` also others than planned.
        resume: continue an interrupted run.
        extend: more epochs for a run that is done, in a new run.
        run_id: the name of the run; else the experiment's name and the time.
        dataset_root: where prepared data are; else $GRAPHMILL_DATA_ROOT, ….
        logs_root: where run folders are.
        trust: dotted paths of code of the run that may be run although you have not run it on this machine.
        values: as of `graphmill.plan`.

    Returns:
        The run, with all its steps done.

    Raises:
        UserError: the request cannot be met; nothing was written.
        EndedError: it began and is not done: it failed, or was interrupted. `exit_status` is that of the command.

    Example:
        run = graphmill.train("cora-sage", {"train.sync.every": 4}, ranks=2, epochs=5)
        run.summary["test"]
    """
    from graphmill.api.run import ended
    from graphmill.api.shown import followed

    found = to_train(
        experiment,
        overrides_of(overrides, values),
        agreeing(trust),
        ranks=ranks,
        resume=resume,
        extend=extend,
        root=root_of(dataset_root),
        logs_root=path_of("logs_root", logs_root),
        run_id=None if run_id is None else str(run_id),
    )
    sys.stdout.flush()  # rank 0 writes where this process does
    with followed(found.folder):
        code = found.start()
    return ended(found.folder, code)


def to_train(
    experiment: "Asked",
    overrides: Sequence[str],
    agree: Agree,
    *,
    ranks: int | None,
    resume: bool,
    extend: bool,
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
    prepare: bool = True,
) -> ToTrain:
    """The run that is asked for: a new one, one that continues, or one that extends another.

    `prepare`: it is to begin: make the data of a new run, if they come with the package, and its folder, if the run has
    no name.
    """
    from graphmill.record.run_folder import RunFolder, default_run_id

    if not (resume or extend):
        loaded = experiment_of(experiment, overrides, ranks)
        name = default_run_id(loaded.name, logs_root) if run_id is None else run_id
        plan = make_plan(loaded, root, name, to_train=prepare, logs_root=logs_root)
        new = ToTrain(RunFolder.place_for(name, logs_root), plan, logs_root)
        return new.with_own_folder() if prepare and run_id is None else new
    named = None if experiment is None else str(path_of("experiment", experiment))
    if not extend:
        return _to_continue(named, overrides, agree, ranks=ranks, root=root, logs_root=logs_root, run_id=run_id)
    if resume:
        raise UserError("--resume continues a run, --extend begins one", fix="give one of them")
    if root is not None:
        raise UserError("an extended run reads the data of its plan", fix="leave --dataset-root out")
    with_ranks = [*overrides, *([] if ranks is None else [f"train.ranks={ranks}"])]
    extended = _to_extend(named, with_ranks, agree, logs_root=logs_root, run_id=run_id)
    return extended.with_own_folder() if prepare and run_id is None else extended


def _to_continue(
    named: str | None,
    overrides: Sequence[str],
    agree: Agree,
    *,
    ranks: int | None,
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
) -> ToTrain:
    """A run as it was planned; if the request is given again, it is compared with that plan.

    `ranks` is no part of the comparison: it says how many continue.
    """
    from graphmill.cluster.launch.run import world_here
    from graphmill.record.find_run import run_to_resume
    from graphmill.record.run_folder import refuse_other_plan

    folder, is_run = run_to_resume(named, run_id, logs_root, changes=bool(overrides), verb="train")
    if is_run:
        agree(folder)
    planned = folder.read_plan()
    if not is_run and (named is not None or overrides):
        loaded = experiment_of(named, overrides, None if ranks is None else planned.ranks)
        refuse_other_plan(folder, planned, make_plan(loaded, root, planned.run_id, logs_root=logs_root))
    return ToTrain(folder, planned, logs_root, world_here(folder, ranks))


def _to_extend(
    named: str | None, overrides: Sequence[str], agree: Agree, *, logs_root: Path, run_id: str | None
) -> ToTrain:
    """A run that continues one that is done; nothing but its number of epochs is another."""
    from graphmill.record.extend import plan_extension
    from graphmill.record.find_run import find_run
    from graphmill.record.run_folder import RunFolder, default_run_id

    given = {key.strip(): value for key, _, value in (text.partition("=") for text in overrides)}
    epochs = given.pop("train.epochs", "")
    if given.get("train.max_steps") == "null":  # what --epochs implies
        del given["train.max_steps"]
    if named is None:
        raise UserError("--extend does not say which run", fix="graphmill train --extend logs/RUN --epochs N")
    if given:
        raise UserError(
            f"an extended run continues as it was planned, and {', '.join(given)} would change that",
            fix=f"leave it out; or begin a new run with the weights of this one: -O init_from.run={named}",
        )
    if not epochs.isdecimal():
        raise UserError(f"--extend needs --epochs: of the whole run, not {epochs or 'nothing'}", fix="--epochs 40")
    folder = find_run(named, logs_root)
    agree(folder)
    name = default_run_id(folder.read_plan().name, logs_root) if run_id is None else run_id
    plan = plan_extension(folder, epochs=int(epochs), run_id=name)
    return ToTrain(RunFolder.place_for(name, logs_root), plan, logs_root)


def agreeing(trust: str | Iterable[str]) -> Agree:
    """What a call from Python agrees to: what the person ran on this machine, and what `trust` names."""
    from graphmill.runtime.trust import agree

    trusted = [trust] if isinstance(trust, str) else [str(each) for each in items_of("trust", trust)]
    return lambda folder: agree(folder.plan_path, folder.code(), trusted)
