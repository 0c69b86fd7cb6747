"""`batch-size`: how large a batch fits into memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphmill.api.planning import experiment_of
from graphmill.cli.options import DatasetRoot, ExperimentName, Json, LogsRoot, Overrides, Ranks, resolved_dataset_root
from graphmill.cli.show import Cell, print_facts, print_json, print_line, print_table
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.spec.batch import MemoryBudget
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("batch-size", cls=ShortFlagsCommand, epilog=short_flags_text())(batch_size)


def batch_size(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Find the largest batch that fits into memory, by trying whole training steps.

    Each size is tried in a process of its own: real steps on the largest batches, with the experiment's model, loss,
    precision and optimizer, and an evaluation. What is found is kept in the logs root, and taken by `train` and
    `submit` with the same options. `-O train.batch.mode=static` or `measured` needs fewer attempts, and is less exact.

    \b
    Example:
      graphmill batch-size enzymes-gin --memory-budget 2G
      graphmill train enzymes-gin -O train.batch.mode=trial --memory-budget 2G
    """
    from graphmill.estimate.batch_size import BatchSizes
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    resolved = experiment_of(experiment, with_short_flags(ctx, override or []), ranks)
    update: dict[str, Any] = {}
    if resolved.train.sizing is None:
        update["batch"] = resolved.train.batch.model_copy(
            update={"mode": "trial", "max_nodes": None, "max_edges": None}
        )
    if resolved.train.epochs is None and resolved.train.max_steps is None:
        update["epochs"] = 1  # how long the run is decides nothing here
    resolved = resolved.model_copy(update={"train": resolved.train.model_copy(update=update)})
    dataset_root = resolved_dataset_root(root)
    prepare_embedded(resolved, dataset_root)

    def plan_of(experiment: "Experiment") -> "Plan":
        return plan_experiment(experiment, dataset_root=dataset_root, run_id="batch-size")

    budget, _ = BatchSizes(logs_root).find(resolved, plan_of)
    if json:
        print_json(budget)
    else:
        _show(budget)


def _show(budget: "MemoryBudget") -> None:
    rows: list[list[Cell]] = [
        [attempt.size, attempt.max_nodes, attempt.max_edges, attempt.peak_mib, "yes" if attempt.fits else "no"]
        for attempt in budget.attempts
    ]
    if rows:
        print_table(["size", "nodes", "edges", "peak MiB", "fits"], rows)
        print_line("")
    facts: list[tuple[str, Cell]] = [
        ("a rank may use, MiB", budget.limit_mib),
        (f"largest that fits, {budget.unit}", budget.max_fit),
        (f"used: {budget.target:.0%} of it", budget.safe),
    ]
    if budget.max_nodes is not None:
        facts += [("  nodes of a batch, at most", budget.max_nodes), ("  edges of a batch, at most", budget.max_edges)]
    facts += [("predicted peak, MiB", budget.predicted_mib)]
    facts += [(f"  assumed: {name}, MiB", value) for name, value in budget.assumed.items()]
    print_facts(facts)
