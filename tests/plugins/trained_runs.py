"""A run that forked ranks have trained to its end, and what it left."""

from pathlib import Path

from graphmill.record.events import Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan


def trained(zygote, plan: Plan, root: Path) -> RunFolder:
    folder = RunFolder.create(plan, root)
    assert set(zygote.wait(zygote.start(folder, resume=False))) == {0}, zygote.said(folder)
    return folder


def hashes(folder: RunFolder) -> list[str]:
    """Of the parameters after every sync."""
    return [event.parameter_hash for event in events_in(folder.events_path(0), Sync)]


def losses(folder: RunFolder) -> list[float]:
    """Of every epoch."""
    return [float(row["loss"]) for row in read_metrics(folder.metrics_path)]
