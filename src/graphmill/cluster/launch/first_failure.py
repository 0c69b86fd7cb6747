"""How a run ended: which rank failed first, what that makes of the whole, and how it is told and written down."""

import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record.events import read_events
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import Outcome, RunFolder, Status, said_where_it_fails

NOT_READY: Final = "stopped before the ranks were ready"
STOPPED_AT_ONCE: Final = "stopped at once on a second interrupt"
INTERRUPTED: Final = 128 + signal.SIGINT
_LOST_A_PEER: Final = re.compile(
    r"by peer|[Bb]roken pipe|remote (process|worker|rank)|ncclRemoteError|[Ss]ocket closed"
)
_STOPPED_HARD: Final = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
_STATUS: Final[Mapping[int, Status]] = {
    exits.OUT_OF_TIME: "out_of_time",
    exits.LOST_A_RANK: "lost",
    INTERRUPTED: "interrupted",
}
# The run's status is that of the rank that failed first.
_PASSED_ON: Final = (exits.BAD_REQUEST, exits.PORT_BUSY, exits.LOST_A_RANK)


def first_failure(
    folder: RunFolder,
    ended: Sequence[RankExit],
    started: float,
    killed: float,
    *,
    ahead_s: Mapping[int, float] | None = None,
) -> RankExit | None:
    """The rank whose failure came first: by its own word where it left one, else by the time of its death.

    A rank that only says that it lost another one was not first, though it may say so before the other is quite dead.
    `started`, `killed`: Unix times (s) of this attempt, and of the moment when the launcher ended the rest.
    `ahead_s`: by rank, how far the clock of its events is ahead of ours.
    """
    failed = [rank for rank in ended if rank.failed and rank.time < killed]
    return min(failed, key=lambda rank: order_of_failure(folder, rank, started, ahead_s or {}), default=None)


def order_of_failure(
    folder: RunFolder, rank: RankExit, started: float, ahead_s: Mapping[int, float]
) -> tuple[bool, float]:
    """Whether the rank only lost another one, and when it failed (Unix time by our clock, s): the least was first."""
    path = folder.events_path(rank.rank)
    try:
        events = read_events(path) if path.exists() else []
    except UserError:  # a damaged file says nothing about the order
        events = []
    ahead = ahead_s.get(rank.rank, 0.0)
    lost_a_peer = rank.code == exits.LOST_A_RANK
    errors = [event for event in events if event["kind"] == "error" and event["time"] - ahead >= started]
    if not errors:
        return lost_a_peer, rank.time
    says_so = _LOST_A_PEER.search(str(errors[0].get("message"))) is not None
    return lost_a_peer or says_so, min(rank.time, errors[0]["time"] - ahead)


def exit_status(
    ended: Sequence[RankExit], first: RankExit | None, *, asked_to_stop: bool, num_interrupts: int = 0
) -> int:
    """What the ranks' ends add up to: the exit status of the run."""
    codes = {rank.code for rank in ended}
    if codes <= {exits.DONE, exits.OUT_OF_TIME}:
        return exits.OUT_OF_TIME if exits.OUT_OF_TIME in codes else exits.DONE
    stopped = asked_to_stop and (first is None or first.code in _STOPPED_HARD)
    if stopped and num_interrupts > 1:
        return INTERRUPTED
    if stopped:  # asked to stop before a rank could listen: nothing is lost
        return exits.OUT_OF_TIME
    return first.code if first is not None and first.code in _PASSED_ON else exits.ANSWER_IS_NO


def failure_report(first: RankExit, num_ranks: int, said: Sequence[str], *, log: str | None, resume: str) -> str:
    """What a person reads about the first failure. `said`: the rank's last lines; `log`: where all of them are."""
    read = f"read {log}, mend it, then " if log else ""
    what = f"error: rank {first.rank} of {num_ranks} failed first: {first.in_words()}"
    return "\n".join([what, *(f"  | {line}" for line in said), f"  → {read}continue with `{resume}`", ""])


def note_outcome(
    folder: RunFolder, result: int, first: RankExit | None, started: float, *, message: str | None = None
) -> None:
    """Say how the run ended where rank 0 could not, or did not know of the others' end. Call it after the report."""
    known = folder.read_outcome()
    knows_all = first is None or first.rank == 0 or result == exits.OUT_OF_TIME
    told_by_rank_0 = known is not None and known.exit_code == result and knows_all
    if result == exits.DONE or (told_by_rank_0 and message is None):
        return
    epochs, steps = _progress(folder)
    outcome = Outcome(
        status=_STATUS.get(result, "failed"),
        exit_code=result,
        epochs=epochs,
        steps_per_rank=steps,
        test=None if known is None else known.test,
        best=None if known is None else known.best,
        wall_s=time.time() - started,
        message=_reason(folder, result, first) if message is None else message,
    )
    with said_where_it_fails():
        folder.write_outcome(outcome)


def _reason(folder: RunFolder, result: int, first: RankExit | None) -> str:
    if result == exits.OUT_OF_TIME:
        return NOT_READY
    if result == INTERRUPTED or first is None:
        return STOPPED_AT_ONCE
    if result == exits.LOST_A_RANK:  # that rank lives, and says whom it misses
        return _last_error(folder, first.rank) or f"rank {first.rank} heard nothing of another"
    return f"rank {first.rank} failed first: {first.in_words()}"


def _last_error(folder: RunFolder, rank: int) -> str:
    try:
        errors = [event for event in read_events(folder.events_path(rank)) if event["kind"] == "error"]
    except (OSError, UserError):
        return ""
    return str(errors[-1].get("message", "")) if errors else ""


def _progress(folder: RunFolder) -> tuple[int, int]:
    """Epochs and steps of each rank that the metrics tell of."""
    try:
        rows = read_metrics(folder.metrics_path, is_growing=True) if folder.metrics_path.exists() else []
        return len(rows), int(rows[-1]["local_steps"]) if rows else 0
    except (UserError, KeyError, ValueError):  # a damaged table: `graphmill verify` says what is wrong with it
        return 0, 0
