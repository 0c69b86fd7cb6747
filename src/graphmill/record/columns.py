"""The columns of metrics.csv: each task has its own, in the order and under the names of the original it comes from.

The loop tells every epoch in the same *facts*, whatever the task: `loss`, `time`, `num_seeds_epoch`, `val_mae` … A
column shows one fact, under its own name unless `shows` says otherwise. So what reads runs of any task asks for facts
(`facts_of`), and what a person or a paper reads has the names they know.

MB in a column of seed 000 means MiB (1024² bytes), as it did there. An empty cell means: not measured in that epoch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, SupportsFloat, SupportsIndex

from graphmill.base.names import did_you_mean
from graphmill.spec.experiment import TaskName

Kind = Literal["text", "integer", "number", "claim"]
Cell = str | bool | SupportsIndex | SupportsFloat | None
"""What a cell may be given as; numpy scalars included. None is written as an empty cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one column of metrics.csv holds."""

    unit: str  # "" where the values have none
    kind: Kind
    description: str
    shows: str = ""  # the fact; "": that of the column's own name


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that a task is judged by. On the validation split it is the fact `val_<name>`."""

    name: str  # in events, outcome.json and facts
    words: str  # for a person
    higher_is_better: bool

    def is_better(self, value: float, other: float) -> bool:
        """Whether `value` beats `other`; a NaN beats nothing."""
        return value > other if self.higher_is_better else value < other


_AHEAD: Final = {"15min": "15 min", "30min": "30 min", "60min": "60 min", "step1": "one step"}
_ERRORS: Final = {
    "mae": ("MAE", "data unit"),
    "rmse": ("RMSE", "data unit"),
    "mape": ("MAPE", "%"),
}


def _traffic_measures() -> Iterator[Measure]:
    for name, (words, _) in _ERRORS.items():
        yield Measure(name, words, higher_is_better=False)
    for name, (words, _) in _ERRORS.items():
        for label, ahead in _AHEAD.items():
            yield Measure(f"{name}_{label}", f"{words} at {ahead}", higher_is_better=False)


MEASURES: Final[dict[TaskName, tuple[Measure, ...]]] = {
    "node_classification": (
        Measure("micro_f1", "micro-F1", higher_is_better=True),
        Measure("macro_f1", "macro-F1", higher_is_better=True),
    ),
    "traffic": tuple(_traffic_measures()),
}
"""What each task is judged by; the best checkpoint is chosen by the first."""


SEEDS_ARE: Final[dict[TaskName, str]] = {"node_classification": "seeds", "traffic": "windows"}
"""What a batch is made of, for a person."""


def _columns_of_seed_000() -> dict[str, Column]:
    """The 26 columns of the original, in its order and units."""
    columns = {
        "run_id": Column("", "text", "name of the run"),
        "sync_every": Column("steps", "integer", "k: steps of each rank between two synchronisations"),
        "epoch": Column("", "integer", "pass over the training set that just ended, counted from 1"),
        "loss": Column("nats", "number", "mean training loss of the epoch's seeds, over all ranks"),
        "microF1": Column(
            "", "number", "micro-F1 (= accuracy) on the validation split, exact neighbourhoods", "val_micro_f1"
        ),
        "macroF1": Column("", "number", "macro-F1 on the validation split, exact neighbourhoods", "val_macro_f1"),
        "best_microF1": Column("", "number", "best microF1 so far", "best_val_micro_f1"),
        "best_macroF1": Column("", "number", "best macroF1 so far", "best_val_macro_f1"),
        "local_steps": Column("steps", "integer", "steps of each rank so far"),
        "epoch_steps": Column("steps", "integer", "steps of each rank in this epoch"),
        "effective_global_steps": Column("steps", "integer", "steps of all ranks so far: local_steps times world_size"),
        "seed_nodes_epoch_global": Column(
            "nodes", "integer", "training nodes seen in this epoch, over all ranks", "num_seeds_epoch"
        ),
        "seed_nodes_cum_global": Column(
            "nodes", "integer", "training nodes seen so far, over all ranks", "num_seeds_cum"
        ),
        "target_global_steps": Column("steps", "integer", "steps of all ranks that the plan asks for"),
        "world_size": Column("ranks", "integer", "number of ranks"),
        "time": Column("s", "number", "wall time of the training part of the epoch, evaluation excluded"),
        "syncs": Column("", "integer", "synchronisations in this epoch"),
    }
    for precision in ("fp16", "fp32", "fp64"):
        text = f"modelled: parameters of the model in {precision}, what one synchronisation agrees on"
        columns[f"commMB_per_step_{precision}"] = Column("MiB", "number", text)
    for precision in ("fp16", "fp32", "fp64"):
        size = f"parameters in {precision}"
        columns[f"commMB_epoch_{precision}"] = Column("MiB", "number", f"modelled: syncs in this epoch times {size}")
        columns[f"commMB_cum_{precision}"] = Column("MiB", "number", f"modelled: syncs so far times {size}")
    return columns


_OF_THE_RUN: Final = {
    "sync_scheme": Column("", "text", "deferred_allreduce, local_sgd or diloco"),
    "seed": Column("", "integer", "random seed of the run"),
    "num_hosts": Column("hosts", "integer", "number of machines the ranks run on"),
    "dataset": Column("", "text", "name of the prepared dataset"),
    "synthetic": Column("", "claim", "true: the data were generated, and are not real"),
    "payload": Column("", "text", "number format handed to the collective: fp32, fp16 or bf16"),
}
_COSTS: Final = {
    "sync_s": Column("s", "number", "spent synchronising in this epoch, waiting for other ranks included (rank 0)"),
    "eval_s": Column("s", "number", "spent evaluating after this epoch (rank 0)"),
    "syncs_cum": Column("", "integer", "synchronisations so far"),
    "measured_mib_epoch": Column("MiB", "number", "measured: payload that a rank handed to collectives in this epoch"),
    "measured_mib_cum": Column("MiB", "number", "measured: payload that a rank handed to collectives so far"),
    "interface_mib_epoch": Column(
        "MiB",
        "number",
        "measured: received on the host's interface in the training part of this epoch: all its ranks, with headers;"
        " what crosses while it evaluates or saves a checkpoint is left out",
    ),
    "interface_mib_cum": Column(
        "MiB", "number", "measured: received on the host's interface in the training part of all epochs so far"
    ),
    "replicas_agree": Column("", "claim", "true: all ranks had bit-equal parameters after every sync of this epoch"),
    "peak_rss_mib": Column("MiB", "number", "peak resident memory of rank 0's process so far"),
    "peak_gpu_mib": Column("MiB", "number", "peak GPU memory allocated by rank 0 so far"),
    "attempt": Column(
        "", "integer", "which start of the run wrote this row, counted from 1; a resume is a new attempt"
    ),
}


def _node_classification() -> dict[str, Column]:
    return {
        **_columns_of_seed_000(),
        **_OF_THE_RUN,
        "val_loss": Column("nats", "number", "mean loss on the validation split"),
        "seeds_per_s": Column(
            "nodes/s", "number", "training nodes per second, over all ranks: seed_nodes_epoch_global ÷ time"
        ),
        "sample_s": Column("s", "number", "spent sampling neighbourhoods in this epoch (rank 0; may overlap the step)"),
        "gather_s": Column("s", "number", "spent gathering features in this epoch (rank 0; may overlap the step)"),
        "wait_s": Column("s", "number", "the step stood waiting for its mini-batch in this epoch (rank 0)"),
        "compute_s": Column("s", "number", "spent in forward, backward and update in this epoch (rank 0)"),
        **_COSTS,
    }


def _columns_of_seed_003() -> dict[str, Column]:
    """The 11 columns of the original, in its order; errors in the unit of the readings, which it did not do."""
    unit = "the readings' own unit (mph for METR-LA and PEMS-BAY)"
    return {
        "epoch": Column("", "integer", "pass over the training windows that just ended, counted from 1"),
        "train_loss": Column(
            "data unit", "number", f"mean training loss of the epoch, over all ranks: masked MAE, in {unit}", "loss"
        ),
        "val_loss": Column("data unit", "number", "mean loss on the validation split"),
        "val_mae": Column("data unit", "number", f"masked MAE on the validation split, whole horizon, in {unit}"),
        "val_rmse": Column("data unit", "number", "masked RMSE on the validation split, whole horizon"),
        "epoch_time_sec": Column(
            "s", "number", "wall time of the training part of the epoch, evaluation excluded", "time"
        ),
        "throughput_samples_per_sec": Column(
            "windows/s",
            "number",
            "training windows per second, over all ranks: samples ÷ epoch_time_sec",
            "seeds_per_s",
        ),
        "data_load_time_sec": Column("s", "number", "the step stood waiting for its batch (rank 0)", "wait_s"),
        "compute_time_sec": Column("s", "number", "spent in forward, backward and update (rank 0)", "compute_s"),
        "gpu_util_avg": Column("%", "number", "mean utilisation of the GPUs of rank 0's host; empty without one"),
        "cpu_util_avg": Column("%", "number", "mean utilisation of all cores of rank 0's host"),
    }


def _traffic() -> dict[str, Column]:
    seed_000 = _columns_of_seed_000()
    errors = {
        f"val_{name}_{label}": Column(
            unit, "number", f"masked {words} of the forecasts {ahead} ahead, validation split; empty where none is made"
        )
        for name, (words, unit) in _ERRORS.items()
        for label, ahead in _AHEAD.items()
    }
    shared = ("run_id", "sync_every", "world_size", "local_steps", "epoch_steps")
    return {
        **_columns_of_seed_003(),
        **{name: seed_000[name] for name in shared},
        **_OF_THE_RUN,
        "effective_global_steps": seed_000["effective_global_steps"],
        "target_global_steps": seed_000["target_global_steps"],
        "samples_epoch_global": Column(
            "windows", "integer", "training windows seen in this epoch, over all ranks", "num_seeds_epoch"
        ),
        "samples_cum_global": Column(
            "windows", "integer", "training windows seen so far, over all ranks", "num_seeds_cum"
        ),
        "syncs": seed_000["syncs"],
        "gather_s": Column("s", "number", "spent making batches in this epoch (rank 0; may overlap the step)"),
        **_COSTS,
        "best_val_mae": Column("data unit", "number", "best val_mae so far"),
        "val_mape": Column("%", "number", "masked MAPE on the validation split, whole horizon"),
        **errors,
    }


SEED_000_COLUMNS: Final = tuple(_columns_of_seed_000())
SEED_003_COLUMNS: Final = tuple(_columns_of_seed_003())
COLUMNS_OF: Final[dict[TaskName, dict[str, Column]]] = {
    "node_classification": _node_classification(),
    "traffic": _traffic(),
}
COLUMNS: Final = COLUMNS_OF["node_classification"]
ANY_COLUMN: Final = {name: column for columns in COLUMNS_OF.values() for name, column in columns.items()}
"""Every column of every task; one name holds one kind of value, whatever the task."""

_FACTS: Final = {
    *(column.shows or name for name, column in ANY_COLUMN.items()),
    *(f"{when}_{measure.name}" for of in MEASURES.values() for measure in of for when in ("val", "best_val")),
}


def cells_of(task: TaskName, facts: Mapping[str, Cell]) -> dict[str, Cell]:
    """The row of a task's metrics.csv that shows `facts`; those that it has no column for are left out."""
    for name in facts.keys() - _FACTS:
        raise ValueError(f"no column shows a fact {name!r}; {did_you_mean(name, _FACTS)}")
    return {name: facts.get(column.shows or name) for name, column in COLUMNS_OF[task].items()}


def facts_of(task: TaskName, row: Mapping[str, str]) -> dict[str, str]:
    """The facts that a row of a task's metrics.csv shows, by name; columns that it lacks are left out."""
    return {column.shows or name: row[name] for name, column in COLUMNS_OF[task].items() if name in row}


def is_lower_better(name: str) -> bool:
    """Whether less is better of a column or a fact: a loss, or a measure that is an error; best ones included.

    >>> [is_lower_better(name) for name in ("best_microF1", "val_mae", "best_val_mae", "train_loss", "seeds_per_s")]
    [False, True, True, True, False]
    """
    column = ANY_COLUMN.get(name)
    fact = ((column.shows if column else "") or name).removeprefix("best_")
    errors = {f"val_{measure.name}" for of in MEASURES.values() for measure in of if not measure.higher_is_better}
    return fact in errors or fact in ("loss", "val_loss")


def task_of(header: Iterable[str]) -> TaskName | None:
    """Whose columns a header has, all and in order; None: nobody's that is known here."""
    names = tuple(header)
    return next((task for task, columns in COLUMNS_OF.items() if tuple(columns) == names), None)


def columns_markdown(task: TaskName) -> str:
    """The table of docs/reference/columns.md: name, unit, description, in the file's order."""
    lines = [
        "| column | unit | what it holds |",
        "|---|---|---|",
        *(f"| `{name}` | {column.unit} | {column.description} |" for name, column in COLUMNS_OF[task].items()),
    ]
    return "\n".join(lines) + "\n"
