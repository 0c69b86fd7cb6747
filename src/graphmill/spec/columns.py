"""Columns of metrics.csv and measures of a task: what both are, and the columns that runs of any task have.

The loop describes every epoch by the same names, whatever the task: `loss`, `time`, `num_seeds_epoch`, `val_mae` …
A column shows one of these under its own name unless `shows` says otherwise. Which columns a task has is said on its
page in `spec/kinds`.

MB in a column means MiB (1024² bytes), as in the original scripts. An empty cell means: not measured in that epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, SupportsFloat, SupportsIndex

ColumnType = Literal["text", "integer", "number", "claim"]
Cell = str | bool | SupportsIndex | SupportsFloat | None
"""What a cell may be given as; numpy scalars included. None is written as an empty cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one column of metrics.csv holds."""

    unit: str  # "" where the values have none
    kind: ColumnType
    description: str
    shows: str = ""  # the name that the loop gives it; "": the column's own


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that a task is judged by. On the validation split the loop calls it `val_<name>`."""

    name: str  # in events, outcome.json and metrics.csv
    words: str  # for a person
    higher_is_better: bool

    def is_better(self, value: float, other: float) -> bool:
        """Whether `value` beats `other`; a NaN beats nothing."""
        return value > other if self.higher_is_better else value < other


RUN_ID: Final = {"run_id": Column("", "text", "name of the run")}
POSITION: Final = {
    "sync_every": Column("steps", "integer", "k: steps of each rank between two synchronisations"),
    "world_size": Column("ranks", "integer", "number of ranks"),
    "local_steps": Column("steps", "integer", "steps of each rank so far"),
    "epoch_steps": Column("steps", "integer", "steps of each rank in this epoch"),
    "effective_global_steps": Column("steps", "integer", "steps of all ranks so far: local_steps times world_size"),
    "target_global_steps": Column("steps", "integer", "steps of all ranks that the plan asks for"),
    "syncs": Column("", "integer", "synchronisations in this epoch"),
}
"""Where the run is."""

OF_THE_RUN: Final = {
    "sync_scheme": Column("", "text", "deferred_allreduce, local_sgd or diloco"),
    "seed": Column("", "integer", "random seed of the run"),
    "num_hosts": Column("hosts", "integer", "number of machines the ranks run on"),
    "dataset": Column("", "text", "name of the prepared dataset"),
    "synthetic": Column("", "claim", "true: the data were generated, and are not real"),
    "payload": Column("", "text", "number format handed to the collective: fp32, fp16 or bf16"),
}
COSTS: Final = {
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
    "replicas_agree": Column(
        "",
        "claim",
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
    "sample_s": Column("s", "number", "spent sampling neighbourhoods in this epoch (rank 0; may overlap the step)"),
    "gather_s": Column("s", "number", "spent making batches in this epoch (rank 0; may overlap the step)"),
    "wait_s": Column("s", "number", "the step stood waiting for its batch in this epoch (rank 0)"),
    "compute_s": Column("s", "number", "spent in forward, backward and update in this epoch (rank 0)"),
}
BUSY: Final = {
    "gpu_util_avg": Column("%", "number", "mean utilisation of the GPUs of rank 0's host; empty without one"),
    "cpu_util_avg": Column("%", "number", "mean utilisation of all cores of rank 0's host"),
}
LOOP_NAMES: Final = frozenset(
    (
        *("epoch", "loss", "val_loss", "time", "seeds_per_s", "num_seeds_epoch", "num_seeds_cum"),
        *(name for shared in (RUN_ID, POSITION, OF_THE_RUN, COSTS, CLOCKS, BUSY) for name in shared),
        *(
            f"commMB_{per}_{precision}"
            for per in ("per_step", "epoch", "cum")
            for precision in ("fp16", "fp32", "fp64")
        ),
    )
)
"""Every name that the loop gives of an epoch of any task, its measures aside."""


def plain_columns(measures: Sequence[Measure], seeds_are: str) -> dict[str, Column]:
    """Columns for a task that has no layout of its own to keep: everything the loop knows, under the loop's names."""
    best = f"best_val_{measures[0].name}"
    return {
        **RUN_ID,
        "epoch": Column("", "integer", "pass over the training set that just ended, counted from 1"),
        "loss": Column("", "number", "mean training loss of the epoch, over all ranks"),
        "val_loss": Column("", "number", "mean loss on the validation split"),
        **{f"val_{each.name}": Column("", "number", f"{each.words} on the validation split") for each in measures},
        best: Column("", "number", f"best val_{measures[0].name} so far"),
        "time": Column("s", "number", "wall time of the training part of the epoch, evaluation excluded"),
        "seeds_per_s": Column(f"{seeds_are}/s", "number", f"{seeds_are} per second, over all ranks"),
        "num_seeds_epoch": Column(seeds_are, "integer", f"{seeds_are} seen in this epoch, over all ranks"),
        "num_seeds_cum": Column(seeds_are, "integer", f"{seeds_are} seen so far, over all ranks"),
        **POSITION,
        **OF_THE_RUN,
        **CLOCKS,
        **BUSY,
        **COSTS,
    }
