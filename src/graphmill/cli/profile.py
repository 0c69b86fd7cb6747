"""`profile`: where the time of a step goes, and the one thing to change."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from graphmill.api.planning import experiment_of, make_plan
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, Overrides, Ranks
from graphmill.cli.show import Cell, print_facts, print_json, print_line, print_table
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.diagnose.profile import PhaseChange, ProfileComparison, Row
    from graphmill.diagnose.rules import Finding
    from graphmill.record.phases import Profile
    from graphmill.spec.experiment import Experiment

_log = logging.getLogger(__name__)

_TIMED: Final = 30
_MOST_OPERATORS: Final = 8
_LEAST_SHARE: Final = 0.01


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=ShortFlagsCommand, epilog=short_flags_text())(profile)


def profile(
    ctx: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="EXPERIMENT|RUN",
            show_default=False,
            help="A YAML file or a recipe, to profile here; or a run or folder that has a profile already.",
        ),
    ] = None,
    *,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare", metavar="A B", show_default=False, help="Two profiles: runs, or folders of profiles."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            show_default=False,
            help=f"Steps that are timed, {_TIMED} if left out; train.profile_steps more are traced.",
        ),
    ] = None,
    ranks: Ranks = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Say where the time of a step goes, and the one thing to change.

    Runs a few steps of an experiment on this machine: first timed by graphmill's own clocks, then traced by torch's
    profiler. The traces, for TensorBoard and Perfetto, are kept in LOGS_ROOT/profiles. Of a run that was trained with
    train.profile=true, or a folder of profiles, nothing is run.

    \b
    Example:
      graphmill profile debian-packages-sage --ranks 2
      graphmill profile my.yaml --steps 100 -O train.profiler.stacks=true
      graphmill profile --compare logs/profiles/A logs/profiles/B
    """
    overrides = with_short_flags(ctx, override or [])
    if compare is not None:
        if what is not None or steps is not None or ranks is not None or overrides:
            raise UserError("--compare reads two profiles, and runs nothing", fix="give --compare A B alone")
        _show_comparison(compare, logs_root, json=json)
        return
    known = None if what is None else _known(what, logs_root)
    if known is None:
        known = _make(experiment_of(what, overrides, ranks), root, logs_root, steps)
    elif steps is not None or ranks is not None or overrides:
        raise UserError(
            f"{what} has a profile already, which --steps, --ranks and -O cannot change",
            fix="name the experiment to profile it again",
        )
    _show(known, json=json)


def _known(text: str, logs_root: Path) -> Path | None:
    """The folder of the profile that `text` names; None: it is not a run, nor the folder of a profile."""
    from graphmill.cluster.launch.trial import PROFILES
    from graphmill.record.phases import profile_paths, read_profile
    from graphmill.spec.dotted import PLAN_FILE
    from graphmill.spec.recipes import list_recipes

    for folder in (Path(text), logs_root / text, logs_root / PROFILES / text):
        found = next((path for path in profile_paths(folder) if path.is_file()), None)
        if found is not None:
            return found.parent
        if (folder / PLAN_FILE).is_file() and text not in {recipe.name for recipe in list_recipes()}:
            read_profile(folder)  # says that it has none
    return None


def _make(experiment: "Experiment", root: Path | None, logs_root: Path, steps: int | None) -> Path:
    """Profile an experiment here; the folder of the profile."""
    from graphmill.cluster.launch.trial import PROFILES, profile_here, short_plan
    from graphmill.record.phases import PHASES_FILE
    from graphmill.record.run_folder import default_run_id
    from graphmill.spec.profiler import planned_profile

    if steps is not None and steps < 2:
        raise UserError(f"--steps {steps} says nothing: the first step is left out", fix="--steps 2, or more")
    train = experiment.train
    wait = steps if steps is not None else _TIMED if train.profiler.wait == "auto" else train.profiler.wait
    # Its run may be shorter than a profile, which the plan below is not; and nothing is asked of a profile it has not.
    fields = type(train).model_fields
    update: dict[str, Any] = {key: fields[key].get_default() for key in ("profile", "profile_steps", "profiler")}
    if train.epochs is None and train.max_steps is None:
        update["epochs"] = 1
    short = experiment.model_copy(update={"train": train.model_copy(update=update)})
    run_id = default_run_id(experiment.name, logs_root / PROFILES)
    plan = make_plan(short, root, run_id, to_train=True, logs_root=logs_root)
    options = train.profiler.model_copy(update={"wait": wait})
    last_step = wait + options.warmup + train.profile_steps
    chosen = planned_profile(options, steps=train.profile_steps, last_step=last_step, device=plan.device, ends_run=True)
    to = logs_root / PROFILES / run_id
    code = profile_here(short_plan(plan, chosen), to)
    if (to / PHASES_FILE).is_file():
        return to
    if code == exits.OUT_OF_TIME:
        _log.error("stopped before the profile was complete: nothing is kept; give the same command again")
        raise typer.Exit(exits.INTERRUPTED)
    _log.error("the run ended before its profile was complete; its error is above")
    raise typer.Exit(code)


def _show(folder: Path, *, json: bool) -> None:
    from graphmill.diagnose.profile import advice, notes_of, rows_of
    from graphmill.record.phases import read_profile

    profile = read_profile(folder)
    finding, notes = advice(profile), notes_of(profile)
    if json:
        rest = {"phases": rows_of(profile), "advice": _advice(finding), "notes": notes}
        print_json({"folder": folder, **rest, "profile": profile})
        return
    first = profile.ranks[0]
    ranks = f"{len(profile.ranks)} rank{'s' * (len(profile.ranks) > 1)}"
    print_line(
        f"{profile.run_id}: {profile.plan['dataset.name']}, {ranks} on {profile.plan['device']}, batches of"
        f" {profile.plan['batch_size']}; {first.num_steps} steps timed, {first.num_traced} traced"
    )
    print_table(
        ("phase", "thread", "ms a step", "median", "quartiles", "share %"),
        [_phase_cells(row) for row in rows_of(profile)],
    )
    _show_operators(profile)
    print_line("")
    for note in notes:
        print_line(f"note: {note}")
    print_line(finding.text)
    print_line(f"  the one thing to change: {(*finding.fixes, 'nothing')[0]}")
    for each in finding.fixes[1:]:
        print_line(f"  then: {each}")
    print_line("")
    print_facts(_whereabouts(profile, folder))


def _advice(finding: "Finding") -> dict[str, Any]:
    change, *then = finding.fixes or ("",)
    return {"what": finding.subject, "figure": finding.text, "change": change, "then": then}


def _phase_cells(row: "Row") -> list[Cell]:
    spread = f"{1e3 * row.low_s:.2f} to {1e3 * row.high_s:.2f}"
    thread = "behind it" if row.background else "step"
    means = [f"{1e3 * seconds:.2f}" for seconds in (row.mean_s, row.median_s)]
    return [row.phase, thread, *means, spread, f"{100 * row.share:.1f}"]


def _show_operators(profile: "Profile") -> None:
    from graphmill.diagnose.profile import dominant

    listed = [(each, share) for each, share in dominant(profile) if share >= _LEAST_SHARE][:_MOST_OPERATORS]
    if not listed:
        return
    print_line("")
    rows: list[list[Cell]] = [
        [each.name, each.phase, f"{each.calls:g}", f"{1e3 * each.self_s:.2f}", f"{100 * share:.1f}"]
        for each, share in listed
    ]
    print_table(("operator, rank 0", "phase", "calls", "ms a step", "share %"), rows)


def _whereabouts(profile: "Profile", folder: Path) -> list[tuple[str, Cell]]:
    from graphmill.record.phases import MERGED_FILE

    facts: list[tuple[str, Cell]] = [("profile", str(folder))]
    if any(rank.trace for rank in profile.ranks):
        facts += [
            ("Perfetto", f"https://ui.perfetto.dev, open {folder / MERGED_FILE}"),
            ("TensorBoard", f"pip install torch-tb-profiler; tensorboard --logdir {folder}"),
        ]
    peaks = profile.ranks[0].peaks_mib
    return [*facts, *((f"peak MiB, {name}", round(mib, 1)) for name, mib in peaks.items())]


def _show_comparison(names: tuple[str, str], logs_root: Path, *, json: bool) -> None:
    from graphmill.diagnose.profile import compare
    from graphmill.record.phases import read_profile

    folders = []
    for name in names:
        folder = _known(name, logs_root)
        if folder is None:
            raise UserError(
                f"{name!r} is no run and no folder of a profile", fix=f"name one, such as those in {logs_root}/profiles"
            )
        folders.append(folder)
    before, after = (read_profile(folder) for folder in folders)
    comparison = compare(before, after)
    if json:
        changes = [{**asdict(change), "ratio": change.ratio} for change in comparison.changes]
        print_json({"before": folders[0], "after": folders[1], **asdict(comparison), "changes": changes})
        return
    print_table(
        ("phase", "thread", "A ms", "median", "quartiles", "B ms", "median", "quartiles", "B ÷ A", ""),
        [_change_cells(change) for change in comparison.changes],
    )
    print_line("")
    _tell(comparison)


def _change_cells(change: "PhaseChange") -> list[Cell]:
    cells: list[Cell] = [change.phase, "behind it" if change.background else "step"]
    for row in (change.before, change.after):
        cells += ["", "", ""] if row is None else _phase_cells(row)[2:5]
    return [*cells, "" if change.ratio is None else f"{change.ratio:.2f}", change.verdict]


def _tell(comparison: "ProfileComparison") -> None:
    for verdict in ("faster", "slower"):
        named = [each.phase for each in comparison.changes if each.verdict == verdict and each is not comparison.step]
        if named:
            print_line(f"{verdict}: {', '.join(named)}")
    step, (before, after) = comparison.step, comparison.seeds_per_s
    print_line(f"the step is {step.verdict}; {before:,.0f} seeds/s in A, {after:,.0f} in B")
    print_line("within noise: medians that differ by no more than their steps do, or by 3 %")
    for note in comparison.notes:
        print_line(f"note: {note}")
    for difference in comparison.differences:
        print_line(f"differs: {difference}")
    if not comparison.is_same_work:
        _log.warning("a step is not the same work in both: compare the seeds per second")
