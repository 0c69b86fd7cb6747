"""What `bottleneck` judges by, read from a run folder: events of every rank, metrics.csv, monitors, provenance."""

from collections.abc import Sequence

from graphmill.base.errors import UserError
from graphmill.diagnose.measured import Clock, Measured
from graphmill.monitor.summary import HostSummary, MonitorSummary, read_monitors, summarise
from graphmill.record.events import Epoch, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.differences import flat

_CLOCKS = ("train_s", "compute_s", "wait_s", "sync_s", "sample_s", "gather_s")
_Epochs = dict[int, Epoch]
"""Epoch → its event; of an epoch that was repeated after a resume, the last one."""


def measured_of(folder: RunFolder) -> Measured:
    """What is known of a run, or a `UserError` if no epoch of it was recorded."""
    plan, world = folder.read_plan(), folder.world()
    by_rank = [_epochs(folder, rank) for rank in range(world.ranks)]
    if world.ranks != plan.ranks:  # epochs of all of them: earlier attempts may have had fewer
        by_rank = [{epoch: found[epoch] for epoch in _in_all(by_rank)} for found in by_rank]
    counted = _counted(by_rank[0])
    clocks = [_clock(rank, epochs, counted) for rank, epochs in enumerate(by_rank)]
    known = tuple(clock for clock in clocks if clock is not None)
    eval_s = sum(by_rank[0][epoch].clocks.get("eval_s", 0.0) for epoch in counted)
    if len(known) < world.ranks:  # a rank's events are missing
        clock, eval_s, counted = _from_metrics(folder)
        known = (clock,)
    monitors = _monitors(folder, by_rank[0], counted)
    busiest = max(monitors.hosts, key=lambda host: host.ranks_cores_avg or 0.0, default=None)
    fullest = max(monitors.hosts, key=lambda host: host.ranks_peak_mib or 0.0, default=None)
    provenance = folder.read_provenance()
    use = {
        "cores": provenance.num_cores if provenance else None,
        "ranks_cores": busiest.ranks_cores_avg if busiest else None,
        "others_cores": _others(busiest),
        "memory_used_mib": fullest.ranks_peak_mib if fullest else None,
        "memory_total_mib": _memory(fullest),
        "gpu_busy_percent": monitors.gpu_util_avg,
    }
    known_use = {name: float(amount) for name, amount in use.items() if amount is not None}
    choices = flat(plan) | {"ranks": world.ranks, "hosts": world.hosts_with_ranks, "threads": world.threads}
    return Measured(known, eval_s, warms_up=counted == [1], plan=choices, use=known_use)


def _epochs(folder: RunFolder, rank: int) -> _Epochs:
    path = folder.events_path(rank)
    if not path.exists():
        return {}
    return {event.epoch: event for event in events_in(path) if isinstance(event, Epoch)}


def _in_all(by_rank: Sequence[_Epochs]) -> list[int]:
    return sorted(set.intersection(*(set(epochs) for epochs in by_rank)))


def _counted(epochs: _Epochs) -> list[int]:
    """Epochs that count: all but the first, which warms up; the first if it is the only one."""
    return sorted(epochs)[1:] or sorted(epochs)


def _clock(rank: int, epochs: _Epochs, counted: Sequence[int]) -> Clock | None:
    timed = [epochs[epoch] for epoch in counted if epoch in epochs]
    if not timed or len(timed) < len(counted):
        return None
    train_s = sum(event.train_s or 0.0 for event in timed)
    return Clock(rank, train_s, **{name: sum(event.clocks.get(name, 0.0) for event in timed) for name in _CLOCKS[1:]})


def _from_metrics(folder: RunFolder) -> tuple[Clock, float, list[int]]:
    rows = read_metrics(folder.metrics_path, is_growing=True) if folder.metrics_path.exists() else []
    kept = rows[1:] or rows
    if not kept:
        raise UserError(
            f"no epoch of {folder.path} was recorded, so there is nothing to judge by",
            fix=f"let it run for two epochs at least: graphmill train --resume {folder.path}",
        )
    sums = {name: sum(float(row.get(name) or 0) for row in kept) for name in ("train_s", "eval_s", *_CLOCKS[1:])}
    eval_s = sums.pop("eval_s")
    return Clock(0, sums.pop("train_s"), **sums), eval_s, [int(row["epoch"]) for row in kept]


def _monitors(folder: RunFolder, epochs: _Epochs, counted: Sequence[int]) -> MonitorSummary:
    """Summary of the monitors, from the end of the epoch before the first counted one to the end of the last."""
    rows = read_monitors(folder.monitor_dir)
    if not counted or counted[0] not in epochs:
        return summarise(rows)
    first, last = epochs[counted[0]], epochs[counted[-1]]
    begin = first.time - (first.train_s or 0.0) - first.clocks.get("eval_s", 0.0)
    return summarise(rows, begin=begin, end=last.time)


def _others(host: HostSummary | None) -> float | None:
    if host is None or host.host.cores_avg is None or host.ranks_cores_avg is None:
        return None
    return max(0.0, host.host.cores_avg - host.ranks_cores_avg)


def _memory(host: HostSummary | None) -> float | None:
    if host is None:
        return None
    limit = host.job.memory_total_mib if host.job else None
    return limit or host.host.memory_total_mib
