"""Runs that are looked at until they end, and a run in a line of text."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from graphmill.base import exits
from graphmill.base.amounts import shown_clock
from graphmill.base.foreign import in_one_line
from graphmill.cluster.status import RunView, Watcher
from graphmill.record.endings import ENDINGS, SAVED, State

if TYPE_CHECKING:
    from graphmill.cluster.pipeline_status import PipelineWatcher


def looks(watcher: "Watcher | PipelineWatcher", interval_s: float) -> Iterator[Sequence[RunView]]:
    """Look again and again, until no run will continue without intervention; while Slurm is silent, nobody knows."""
    while True:
        views = watcher.look()
        yield views
        if not any(view.is_alive for view in views) and not watcher.queue.is_silent:
            return
        time.sleep(interval_s)


def plain_line(view: RunView) -> str:
    """One run in one line."""
    words = [view.run, *([f"job {view.job_id}"] if view.job_id else []), view.state]
    if view.elapsed_s is not None:
        words.append(clock(view.elapsed_s, view.limit_s))
    if view.hosts:
        words.append(f"on {view.hosts}")
    progress = view.progress
    if progress is not None:
        words.append(f"epoch {view.epoch_of_all}")
        words += [f"loss {progress.loss:.4f}"] if progress.loss is not None else []
        words += [f"best val {progress.measure} {progress.best:.4f}"] if progress.best is not None else []
        words += [f"{progress.seeds_per_s:,.0f} {progress.seeds_are}/s"] if progress.seeds_per_s is not None else []
        words += [f"{progress.peak_rss_mib:,.0f} MiB"] if progress.peak_rss_mib is not None else []
    words.append(f"[{view.source}]")
    if view.detail:  # last: it may be long
        words.append(f"({'will never start: ' if view.is_hopeless else ''}{view.detail})")
    return in_one_line("  ".join(words))


def clock(elapsed_s: float | None, limit_s: float | None) -> str:
    """Time used of the limit.

    >>> clock(61, 7200), clock(None, None)
    ('0:01:01 of 2:00:00', '-')
    """
    if elapsed_s is None:
        return "-"
    return shown_clock(elapsed_s) + (f" of {shown_clock(limit_s)}" if limit_s is not None else "")


def what_counts(view: RunView) -> str:
    """What must change for a new line: not the clock."""
    epoch = view.progress.epoch if view.progress else 0
    detail = "" if view.state == "running" else view.detail
    return f"{view.job_id} {view.state} {view.slurm_reason} {detail} {epoch} {view.source}"


def exit_status(states: Iterable[State]) -> int:
    """Exit status for the states of runs that are not followed any longer: 0 all done, 75 all saved, 1 any other."""
    statuses = {ENDINGS[state].exit_status if state in ENDINGS else exits.ANSWER_IS_NO for state in states}
    if statuses <= {exits.DONE}:
        return exits.DONE
    return exits.OUT_OF_TIME if statuses <= set(SAVED) else exits.ANSWER_IS_NO
