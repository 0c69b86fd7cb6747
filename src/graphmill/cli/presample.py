"""`presample`: sample the epochs of a run beforehand."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.api.planning import experiment_of
from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, ExperimentName, Json, Overrides, Ranks, resolved_dataset_root
from graphmill.cli.progress import progress
from graphmill.cli.show import print_facts, print_json, print_line
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.sample.presampled.schedule import EpochSource, PresampledFolder
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=ShortFlagsCommand, epilog=short_flags_text())(presample)


def presample(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default=False, help="Sample so many; else all that the experiment has."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            show_default=False,
            help="Where they are written; else <dataset root>/presampled/<experiment>-<what it depends on>.",
        ),
    ] = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sampled, and write nothing.")] = False,
    json: Json = False,
) -> None:
    """Sample the epochs of a run beforehand, on any machine with CPUs, for ranks that then only read them.

    Draws are keyed, so a run that reads them (train.presampled=FOLDER) computes on the same batches, to the bit, as one
    that samples. They are of one global batch (ranks x batch size), fan-outs, seed and dataset; a run of others refuses
    them. Other ranks with the same global batch read them too, more slowly, if the model is graphsage. Epochs that are
    there are kept: a call that was interrupted, or for more epochs, goes on.

    \b
    Example:
      graphmill presample debian-packages-sage --ranks 2 --epochs 10 --output sampled
      graphmill train debian-packages-sage --ranks 2 -O train.epochs=10 -O train.presampled=sampled
      graphmill presample debian-packages-sage --ranks 2 --epochs 100 --output sampled --dry-run
    """
    from graphmill.spec.kinds.extras import Sampling
    from graphmill.tasks.stores import load as load_named

    to_sample = _to_sample(experiment_of(experiment, with_short_flags(ctx, override or []), ranks), epochs)
    dataset_root = resolved_dataset_root(root)
    plan = _plan(to_sample, dataset_root, may_prepare=not dry_run)
    sampled = plan.kind.extra(Sampling)
    if sampled is None:
        raise UserError(
            f"the task {plan.kind.name} samples no neighbourhoods: there is nothing to sample beforehand",
            fix="leave presampling out, and train",
        )
    source: EpochSource = load_named(sampled.presample)(plan)
    folder = source.folder(output or dataset_root / "presampled" / f"{to_sample.name}-{source.identity.checksum[:8]}")
    num_epochs = epochs or plan.calendar.num_epochs
    report = _foreseen(folder, source, num_epochs) if dry_run else _sampled(folder, source, num_epochs)
    if json:
        print_json(report)
    else:
        print_facts([(name.replace("_", " "), value) for name, value in report.items()], title="presampled epochs")


def _to_sample(experiment: "Experiment", epochs: int | None) -> "Experiment":
    """The experiment as it is sampled: how long the run is decides only how many epochs are."""
    train = experiment.train.sampling_anew()
    if epochs is not None or (train.epochs is None and train.max_steps is None):
        train = train.model_copy(update={"epochs": epochs or 1, "max_steps": None})
    return experiment.model_copy(update={"train": train})


def _plan(experiment: "Experiment", dataset_root: Path, *, may_prepare: bool) -> "Plan":
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    if may_prepare:
        prepare_embedded(experiment, dataset_root)
    return plan_experiment(experiment, dataset_root=dataset_root, run_id="presample")


def _facts(folder: "PresampledFolder", num_epochs: int) -> dict[str, Any]:
    return {
        "folder": str(folder.path),
        "epochs": num_epochs,
        "steps_per_epoch": folder.num_steps,
        "ranks": folder.identity.ranks,
        "batches": num_epochs * folder.num_steps * folder.identity.ranks,
    }


def _foreseen(folder: "PresampledFolder", source: "EpochSource", num_epochs: int) -> dict[str, Any]:
    from graphmill.sample.presampled.packing import packed
    from graphmill.sample.presampled.schedule import FILE_NAME, epochs_to_write, refuse_other

    if (folder.path / FILE_NAME).exists():
        refuse_other(folder.path, folder.identity)
    to_sample = len(list(epochs_to_write(folder, num_epochs)))
    first, _ = packed(source.sampler().sample(source.schedule.seeds(0, 0, 0)), folder.form)
    per_epoch = len(first) * folder.num_steps * folder.identity.ranks
    return {
        **_facts(folder, num_epochs),
        "epochs_to_sample": to_sample,
        "bytes_of_first_batch": len(first),
        "bytes_expected": to_sample * per_epoch,
    }


def _sampled(folder: "PresampledFolder", source: "EpochSource", num_epochs: int) -> dict[str, Any]:
    from graphmill.sample.presampled.schedule import epochs_to_write

    folder.begin()
    missing, num_bytes = list(epochs_to_write(folder, num_epochs)), 0
    sampler = source.sampler() if missing else None
    for epoch in missing:
        assert sampler is not None
        with _bar(f"epoch {epoch + 1} of {num_epochs}", folder.num_steps) as tell:
            num_bytes += folder.write(epoch, source.schedule, sampler, tell)
    batches = len(missing) * folder.num_steps * folder.identity.ranks
    return {
        **_facts(folder, num_epochs),
        "epochs_sampled": len(missing),
        "epochs_kept": num_epochs - len(missing),
        "bytes_written": num_bytes,
        "bytes_per_batch": num_bytes // batches if batches else None,
    }


@contextmanager
def _bar(title: str, num_steps: int) -> Iterator[Callable[[int, int], None]]:
    """A bar over the steps of an epoch on a terminal, a line elsewhere. What it yields is told steps and bytes."""
    if not sys.stderr.isatty():
        with progress(f"sampling {title}"):
            yield lambda steps, num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(f"sampling {title}", total=num_steps)
        yield lambda steps, num_bytes: shown.update(
            task, completed=steps, description=f"sampling {title}, {num_bytes / 2**20:,.0f} MiB"
        )


def show_presampled(path: Path, *, check: bool, json: bool) -> None:
    """What a folder of presampled epochs was sampled with, and which are there: for `inspect`."""
    from graphmill.sample.presampled.schedule import epochs_in, read_identity, verify_epochs

    identity, epochs = read_identity(path), epochs_in(path)
    facts = {
        "folder": str(path),
        **identity.model_dump(mode="json"),
        "epochs": len(epochs),
        "missing_epochs": sorted({*range(1 + max(epochs, default=-1))} - {*epochs}),
        "bytes": sum(file.stat().st_size for file in epochs.values()),
    }
    if check:
        with progress(f"reading {path}"):
            verify_epochs(path)
    if json:
        print_json({**facts, "checked": check})
        return
    shown = {**facts, "seed": str(identity.seed)}  # no quantity: without separators
    lists = {name: ", ".join(map(str, value)) or "none" for name, value in facts.items() if isinstance(value, list)}
    print_facts(
        [(name.replace("_", " "), value) for name, value in {**shown, **lists}.items()], title="presampled epochs"
    )
    if check:
        print_line("checksums and structure are as they should be")
