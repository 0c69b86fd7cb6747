"""Columns of metrics.csv and measures of a task: what both are, and the columns that runs of every task have.

One thing has one name, from the loop to the figure: the names here are those of the loop, of events, of metrics.csv, of
the merged table and of what is made from it. A row speaks of its epoch; what ends in `_cum` of the run so far. Headers
of other programs are views of these columns: see `Layout`. An empty cell means: not measured in that epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, SupportsFloat, SupportsIndex

ColumnType = Literal["text", "integer", "number", "bool"]
Cell = str | bool | SupportsIndex | SupportsFloat | None
"""What a cell may be given as; numpy scalars included. None is written as an empty cell."""


DATA_UNIT: Final = "data unit"
"""Of a measure in the unit of the prepared data, which is `unit` in their facts."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one column of metrics.csv holds."""

    unit: str  # "" if the values have none
    kind: ColumnType
    description: str


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that a task is judged by. On the validation split it is called `val_<name>`."""

    name: str  # in events, outcome.json, evaluations.csv
    words: str  # for the user
    higher_is_better: bool
    unit: str = ""
    about: str = ""  # further description of its column
    is_shown: bool = True  # in the lines that a run prints; False: recorded only

    def is_better(self, value: float, other: float) -> bool:
        """Whether `value` beats `other`; a NaN beats nothing."""
        return value > other if self.higher_is_better else value < other


@dataclass(frozen=True, slots=True)
class Baseline:
    """A method that learns little or nothing. Its score says what that of a model is worth."""

    name: str  # in evaluations.csv and outcome.json
    words: str  # for the user
    about: str  # what it predicts
    scored: Literal["start", "end"] = "start"
    """When: before the first step of every run, if it costs next to nothing; else after the last, once for all runs on
    the same data."""
    is_bound: bool = False  # no model can be better, so that none loses to it


@dataclass(frozen=True, slots=True)
class Layout:
    """A header of another program, as a view of our columns: `graphmill merge --layout NAME` writes it."""

    name: str
    columns: Mapping[str, str]  # column there → column here, in the order there
    unsaid: Mapping[str, str] = field(default_factory=dict)  # column here → its value in files of theirs, which lack it


RUN_ID: Final = {"run_id": Column("", "text", "name of the run")}
POSITION: Final = {
    "sync_every": Column("steps", "integer", "k: steps of each rank between two synchronisations"),
    "world_size": Column("ranks", "integer", "ranks at the end of the epoch; a resume may change their number"),
    "steps_done": Column("steps", "integer", "steps of each rank so far"),
    "epoch_steps": Column("steps", "integer", "steps of each rank in this epoch"),
    "global_steps": Column("steps", "integer", "steps of all ranks so far: steps_done times the ranks of the plan"),
    "target_global_steps": Column("steps", "integer", "steps of all ranks that the plan asks for"),
    "num_syncs": Column("", "integer", "synchronisations in this epoch"),
}
"""Where the run is."""

OF_THE_RUN: Final = {
    "sync_scheme": Column("", "text", "deferred_allreduce, local_sgd or diloco"),
    "seed": Column("", "integer", "random seed of the run"),
    "num_hosts": Column("hosts", "integer", "number of machines the ranks run on"),
    "dataset": Column("", "text", "name of the prepared dataset"),
    "synthetic": Column("", "bool", "true: the data were generated, and are not real"),
    "payload": Column("", "text", "number format handed to the collective: fp32, fp16 or bf16"),
}
COSTS: Final = {
    "sync_s": Column(
        "s",
        "number",
        "spent synchronising in this epoch beyond what overlapped backward, waiting for other ranks included (rank 0)",
    ),
    "eval_s": Column("s", "number", "spent evaluating after this epoch (rank 0)"),
    "num_syncs_cum": Column("", "integer", "synchronisations so far"),
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
    "replicas_agree": Column(
        "",
        "bool",
        "true: after every sync of this epoch the parameter hashes of all ranks were compared, and equal;"
        " empty: there is one rank only",
    ),
    "peak_rss_mib": Column("MiB", "number", "peak resident memory of rank 0's process so far"),
    "peak_gpu_mib": Column("MiB", "number", "peak GPU memory allocated by rank 0 so far"),
    "attempt": Column(
        "", "integer", "which start of the run wrote this row, counted from 1; a resume is a new attempt"
    ),
}
CLOCKS: Final = {
    "sample_s": Column(
        "s", "number", "spent sampling neighbourhoods in this epoch (rank 0, or its sampler; may overlap the step)"
    ),
    "gather_s": Column(
        "s", "number", "spent making batches in this epoch (rank 0, or its sampler; may overlap the step)"
    ),
    "wait_s": Column("s", "number", "the step waited for its batch in this epoch (rank 0)"),
    "compute_s": Column("s", "number", "spent in forward, backward and update in this epoch (rank 0)"),
}
BUSY: Final = {
    "gpu_util_avg": Column("%", "number", "mean utilisation of the GPUs of rank 0's host; empty without one"),
    "cpu_util_avg": Column("%", "number", "mean utilisation of all cores of rank 0's host"),
}
PRECISIONS: Final = {"fp16": 2, "fp32": 4, "fp64": 8}
"""Bytes of a parameter in each number format that communication is modelled in."""


def _modelled() -> dict[str, Column]:
    columns = {}
    for precision in PRECISIONS:
        text = f"modelled: parameters of the model in {precision}, what one synchronisation agrees on"
        columns[f"modelled_mib_per_sync_{precision}"] = Column("MiB", "number", text)
    for precision in PRECISIONS:
        size = f"parameters in {precision}"
        columns |= {
            f"modelled_mib_epoch_{precision}": Column("MiB", "number", f"modelled: num_syncs times {size}"),
            f"modelled_mib_cum_{precision}": Column("MiB", "number", f"modelled: num_syncs_cum times {size}"),
        }
    return columns


MODELLED: Final = _modelled()

COMM_MB: Final[Mapping[str, str]] = {
    name.replace("per_sync", "per_step").replace("modelled_mib_", "commMB_"): name for name in MODELLED
}
"""Modelled communication as another program calls it, and as it is called here."""


def columns_for(measures: Sequence[Measure], seeds_are: str, loss_unit: str) -> dict[str, Column]:
    """The columns of a task's metrics.csv, in order: all but those of its measures are the same for every task."""
    return {
        **RUN_ID,
        "epoch": Column("", "integer", "pass over the training set that just ended, counted from 1"),
        "loss": Column(loss_unit, "number", "mean training loss of the epoch, over all ranks"),
        "val_loss": Column(loss_unit, "number", "mean loss on the validation split"),
        **{f"val_{each.name}": _of_measure(each) for each in measures},
        **{f"best_val_{each.name}": Column(each.unit, "number", f"best val_{each.name} so far") for each in measures},
        "train_s": Column("s", "number", "wall time of the training part of the epoch, evaluation excluded"),
        "seeds_per_s": Column(f"{seeds_are}/s", "number", f"{seeds_are} per second, over all ranks"),
        "num_seeds": Column(seeds_are, "integer", f"{seeds_are} seen in this epoch, over all ranks"),
        "num_seeds_cum": Column(seeds_are, "integer", f"{seeds_are} seen so far, over all ranks"),
        **POSITION,
        **OF_THE_RUN,
        **CLOCKS,
        **BUSY,
        **MODELLED,
        **COSTS,
    }


def _of_measure(measure: Measure) -> Column:
    about = f"; {measure.about}" if measure.about else ""
    return Column(measure.unit, "number", f"{measure.words} on the validation split{about}")
