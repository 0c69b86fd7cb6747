"""What a run on a graph in parts records of what it fetched from other ranks, and what there is to say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphmill.spec.columns import Column

FETCHING: Final[Mapping[str, Column]] = {
    "remote_rows": Column("rows", "integer", "features that batches of this epoch read of other parts, over all ranks"),
    "cache_hit_rate": Column(
        "", "number", "share of remote_rows that was not fetched: held in hot caches, or fetched for an earlier batch"
    ),
    "repeated_rows": Column(
        "rows", "integer", "of remote_rows, those fetched for an earlier batch: of the same window or one before"
    ),
    "fetched_rows": Column("rows", "integer", "of remote_rows, those that came from other ranks"),
    "fetched_mib": Column(
        "MiB", "number", "measured: features that loaders received from other ranks in this epoch, over all ranks"
    ),
    "loader_mib": Column(
        "MiB", "number", "measured: all that loaders received, ids and edges included, over all ranks"
    ),
    "eval_mib": Column(
        "MiB",
        "number",
        "measured: received from other ranks by the exact evaluation after this epoch, ids, features, hidden rows,"
        " over all ranks (of samplers, where there are)",
    ),
    "fetch_s": Column("s", "number", "spent fetching in this epoch (rank 0, or its sampler; may overlap the step)"),
}
"""What a run on a graph in parts records of an epoch; of the steps of the attempt that ends it. Else empty."""
EPOCH_COLUMNS: Final = {
    "cache_hit_rate": "hit rate of caches",
    "remote_rows": "rows of other parts",
    "fetched_mib": "features fetched, MiB",
    "loader_mib": "received by loaders, MiB",
    "eval_mib": "received to evaluate, MiB",
}
"""Of the report's table of epochs."""


@dataclass(frozen=True, slots=True)
class FetchedByEpoch:
    """Means over the epochs that recorded it: all steps of an epoch in one attempt, or those of its last one."""

    num_epochs: int
    remote_rows: float
    hit_rate: float | None  # None: no batch read a row of another rank's parts
    fetched_mib: float
    loader_mib: float
    eval_mib: float | None  # of the epochs that ended with an evaluation; None: none did
    wait_share: float | None  # of the time of training, rank 0; None: it was not recorded

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "FetchedByEpoch | None":
        """Means over the rows of metrics.csv; None: no epoch of a graph in parts."""
        known = [row for row in rows if row.get("remote_rows") not in (None, "")]
        if not known:
            return None
        remote, fetched = _sum(known, "remote_rows"), _sum(known, "fetched_rows")
        train_s = _sum(known, "train_s")
        evaluated = [row for row in known if row.get("eval_mib") not in (None, "")]
        return cls(
            num_epochs=len(known),
            remote_rows=remote / len(known),
            hit_rate=1 - fetched / remote if remote else None,
            fetched_mib=_sum(known, "fetched_mib") / len(known),
            loader_mib=_sum(known, "loader_mib") / len(known),
            eval_mib=_sum(evaluated, "eval_mib") / len(evaluated) if evaluated else None,
            wait_share=_sum(known, "wait_s") / train_s if train_s else None,
        )

    def described(self) -> list[tuple[str, str]]:
        """Describe the means in words and numbers."""
        hits = "none was needed" if self.hit_rate is None else f"{100 * self.hit_rate:.1f} %"
        evaluating = "nothing was evaluated" if self.eval_mib is None else f"{self.eval_mib:,.2f} MiB per evaluation"
        wait = "not recorded" if self.wait_share is None else f"{100 * self.wait_share:.1f} % of training (rank 0)"
        return [
            ("rows of other parts", f"{self.remote_rows:,.0f} per epoch"),
            ("of these not fetched: hit rate", hits),
            ("features fetched", f"{self.fetched_mib:,.2f} MiB per epoch"),
            ("received by loaders", f"{self.loader_mib:,.2f} MiB per epoch, ids and edges included"),
            ("received to evaluate", evaluating),
            ("waiting for batches", wait),
        ]


def _sum(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return sum(float(row.get(column) or 0) for row in rows)
