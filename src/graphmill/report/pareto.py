"""Accuracy, or error, against communication: which points no other point beats on both.

Points are pooled over the runs of one dataset; datasets are never pooled. pareto_all and pareto_frontier hold a point
per epoch and run; pareto_runs has one per run, pareto_summary mean and standard deviation over the seeds of each
scheme.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.record.columns import current_name, is_lower_better
from graphmill.record.csv_frames import without_formulas
from graphmill.report.configurations import CONFIGURATION, varied_columns
from graphmill.report.table import (
    MERGED_METRICS,
    Metrics,
    OfDataset,
    check_number_columns,
    datasets_of,
    load_tables,
    named,
)

DEFAULT_COMM = "modelled_mib_cum_fp32"
MEASURED_COMM = "measured_mib_cum"

RUN = ("run_id", "sync_scheme", "payload", "sync_every", "world_size", "seed")
"""What distinguishes two runs of one dataset: the original kept a whole sweep under one run_id."""

GROUP = ("sync_scheme", "payload", "sync_every", "world_size", CONFIGURATION)
"""Runs that agree in these are repetitions with other seeds."""


@dataclass(frozen=True, slots=True)
class ParetoFiles:
    """What `pareto` wrote for one dataset."""

    dataset: str | None
    all_points: Path
    frontier: Path
    runs: Path
    summary: Path
    num_points: int
    num_frontier: int
    notes: tuple[str, ...]  # for the user: what the averages hide


def pareto(
    metrics: Path = MERGED_METRICS,
    *,
    output_dir: Path = Path("results"),
    comm_column: str | None = None,
    acc_column: str | None = None,
    runs: str = "*",
    task: str | None = None,
) -> list[ParetoFiles]:
    """Minimise `comm_column`; maximise `acc_column`, or minimise it if it is an error. Four CSVs per dataset.

    A column that is None is chosen by the task of the runs. `runs` is a glob on run_id; `task`: see `load_tables`.
    """
    tables = load_tables(metrics, runs=runs, task=task, columns=(comm_column, acc_column))
    parts = datasets_of(tables)
    alone = [part.name or "a dataset without a name" for _, part in parts if part.is_of_one_rank]
    if len(alone) == len(parts):
        raise UserError(
            f"all runs of {named(tables)} are of one rank, which communicates nothing: there is no frontier",
            fix="`graphmill compare` compares runs of one rank",
        )
    columns = {path: chosen_columns(table, comm_column, acc_column) for path, table in tables}
    found = [_write_dataset(part, path, output_dir, *columns[path]) for path, part in parts if not part.is_of_one_rank]
    left_out = tuple(f"{name} is left out: its runs are of one rank, which communicates nothing" for name in alone)
    return [replace(found[0], notes=(*found[0].notes, *left_out)), *found[1:]]


def is_of_one_run(part: OfDataset) -> bool:
    """Whether there is nothing to compare."""
    return part.frame.select(RUN).n_unique() == 1


def chosen_columns(table: Metrics | OfDataset, comm: str | None, acc: str | None) -> tuple[str, str]:
    """Cost and measure as asked for, by other programs' names too; else modelled communication and the best measure.

    Communication is the measured one if no row models it, as in tables of other programs.
    """
    chosen = [current_name(name) if name is not None else None for name in (comm, acc)]
    check_number_columns(table, chosen)
    is_modelled = table.frame[DEFAULT_COMM].count() > 0
    return chosen[0] or (DEFAULT_COMM if is_modelled else MEASURED_COMM), chosen[1] or table.kind.best_column


def points(frame: pl.DataFrame, comm: str, acc: str, *, lower: bool = False) -> pl.DataFrame:
    """Every row that has both numbers, cheapest first, of equally cheap ones the best first. `lower` is better."""
    usable = frame.filter(pl.col(comm).is_finite(), pl.col(acc).is_finite())  # null is not finite
    order = [comm, acc, "sync_every", "epoch", *RUN]
    return usable.sort(order, descending=[name == acc and not lower for name in order])


def frontier(points: pl.DataFrame, acc: str, *, lower: bool = False) -> pl.DataFrame:
    """The sorted points that beat every cheaper or equally cheap one; of equal points the first."""
    if lower:
        best_before = pl.col(acc).cum_min().shift(1)
        return points.filter(best_before.is_null() | (pl.col(acc) < best_before))
    best_before = pl.col(acc).cum_max().shift(1)
    return points.filter(best_before.is_null() | (pl.col(acc) > best_before))


def final_points(points: pl.DataFrame) -> pl.DataFrame:
    """One point per run: its last epoch."""
    last = points.sort("epoch").group_by(RUN, maintain_order=True).last()
    return last.select(points.columns).sort(*GROUP, "seed", "run_id")


def summary(finals: pl.DataFrame, comm: str, acc: str) -> pl.DataFrame:
    """Mean and sample standard deviation (null for one run) over the runs of each group; what varies is a column."""
    return (
        finals.group_by(*GROUP, *varied_columns(finals))
        .agg(
            pl.len().alias("n"),
            pl.col(comm).mean().alias(f"{comm}_mean"),
            pl.col(comm).std().alias(f"{comm}_sd"),
            pl.col(acc).mean().alias(f"{acc}_mean"),
            pl.col(acc).std().alias(f"{acc}_sd"),
        )
        .sort(GROUP)
    )


def same_seed_notes(finals: pl.DataFrame) -> tuple[str, ...]:
    """Report runs of one group that share a seed: they are not independent repetitions."""
    doubled = finals.group_by(*GROUP, "seed").agg(pl.col("run_id").sort()).filter(pl.col("run_id").list.len() > 1)
    return tuple(
        f"{len(row['run_id'])} runs of {row['sync_scheme']}, k = {row['sync_every']}, {_ranks(row['world_size'])} share"
        f" the seed {row['seed']} ({', '.join(row['run_id'][:3])}), and are averaged as if they did not;"
        " --runs 'PATTERN' chooses among them"
        for row in doubled.sort(*GROUP, "seed").to_dicts()
    )


def _ranks(number: int | None) -> str:
    return "changing ranks" if number is None else f"{number} ranks"


def usable_points(part: OfDataset, metrics: Path, comm: str, acc: str) -> pl.DataFrame:
    """`points`, or a `UserError` if the file holds none."""
    usable = points(part.frame, comm, acc, lower=is_lower_better(part.kind, acc))
    if usable.is_empty():
        of_dataset = f" of {part.name}" if part.name else ""
        usual = chosen_columns(part, None, None)
        raise UserError(
            f"{metrics} has no row{of_dataset} with both {comm} and {acc}, each a finite number",
            fix="train until an epoch has both, or choose other columns (--comm-column, --acc-column)"
            if usual == (comm, acc)
            else "choose other columns, for example --comm-column {} --acc-column {}".format(*usual),
        )
    return usable


def column_tag(comm_column: str) -> str:
    """What the names of files call the communication: fp32 for the column modelled_mib_cum_fp32.

    >>> [column_tag(name) for name in ("modelled_mib_cum_fp16", "measured_mib_cum", "interface_mib_cum", "time")]
    ['fp16', 'measured', 'interface', 'time']
    """
    return comm_column.removeprefix("modelled_mib_cum_").removesuffix("_mib_cum")


def _write_dataset(part: OfDataset, metrics: Path, folder: Path, comm: str, acc: str) -> ParetoFiles:
    all_points = usable_points(part, metrics, comm, acc)
    best = frontier(all_points, acc, lower=is_lower_better(part.kind, acc))
    finals = final_points(all_points)
    tag = column_tag(comm)
    of_tag = "" if comm == DEFAULT_COMM else f"_{tag}"  # a second communication column must not overwrite the first
    files = ParetoFiles(
        dataset=part.name,
        all_points=folder / f"pareto_all_{tag}{part.suffix}.csv",
        frontier=folder / f"pareto_frontier_{tag}{part.suffix}.csv",
        runs=folder / f"pareto_runs{of_tag}{part.suffix}.csv",
        summary=folder / f"pareto_summary{of_tag}{part.suffix}.csv",
        num_points=all_points.height,
        num_frontier=best.height,
        notes=(*_of_one_run(part, metrics), *same_seed_notes(finals)),
    )
    varied = varied_columns(part.frame)
    _write_csv(files.all_points, all_points.select("sync_every", "epoch", comm, acc, *varied))
    _write_csv(files.frontier, best.select("sync_every", "epoch", comm, acc, *varied))
    _write_csv(files.runs, finals.select("dataset", *RUN, "epoch", comm, acc, *varied))
    name = pl.lit(part.name, dtype=pl.String).alias("dataset")
    _write_csv(files.summary, summary(finals, comm, acc).select(name, pl.all().exclude(CONFIGURATION)))
    return files


def _of_one_run(part: OfDataset, metrics: Path) -> tuple[str, ...]:
    if not is_of_one_run(part):
        return ()
    where = part.name or metrics
    return (f"{where}: one run, so this is a frontier of its epochs: train another train.sync.every or scheme",)


def _write_csv(path: Path, frame: pl.DataFrame) -> None:
    text = without_formulas(frame).write_csv(float_precision=6)
    write_text(path, text)  # polars' own errors of a full disk have no errno
