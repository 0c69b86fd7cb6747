"""TensorBoard: one file of events for each run, `<folder>/<run id>/events.out.tfevents.<began>.graphmill.<identity>`.

The bytes follow from the run alone. Exported again, they are compared with what is there: equal is left alone; where
the file is a beginning of them, as while a run grows, the rest is appended; else (tags have changed: the run was
resumed, or has ended) the file is replaced, and a TensorBoard that is open may have to be restarted to show it. So
nothing is doubled. Params are in the HPARAMS tab, tags in the TEXT tab. Written without torch or TensorFlow.
"""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from graphmill.base.errors import UserError
from graphmill.base.files import replacing
from graphmill.report.export.tracker import Change, Target, TrackerRun

_MARK: Final = "tfevents"  # TensorBoard reads every file with this in its name


def open_target(target: Target) -> "EventFiles":
    """The files below the folder `target.place`."""
    return EventFiles(Path(target.place or "tensorboard"))


@dataclass(frozen=True, slots=True)
class EventFiles:
    """TensorBoard's `--logdir`."""

    folder: Path

    def planned(self, run: TrackerRun) -> Change:
        """Compare what is there with what would be."""
        path, new = self._path(run), _content(run)
        strange = sorted({other.name for other in path.parent.glob(f"*{_MARK}*")} - {path.name})
        if strange:
            raise UserError(
                f"{path.parent} holds {strange[0]}, which is of another run: TensorBoard would show both as one",
                fix="remove that file, or give another --output",
            )
        old = path.read_bytes() if path.exists() else None
        if old is None:
            return Change(run.name, "new", len(run.points), str(path))
        if old == new:
            return Change(run.name, "unchanged", 0, str(path))
        if new.startswith(old):
            return Change(run.name, "added to", _num_scalars(new) - _num_scalars(old), str(path))
        return Change(run.name, "written anew", len(run.points), str(path))

    def write(self, run: TrackerRun) -> None:
        """Append what is new, or replace the file."""
        path, change, new = self._path(run), self.planned(run), _content(run)
        if change.how == "unchanged":
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if change.how != "added to":
            with replacing(path) as temporary:
                temporary.write_bytes(new)
            return
        with path.open("ab") as file:
            file.write(new[file.tell() :])
            file.flush()
            os.fsync(file.fileno())

    def _path(self, run: TrackerRun) -> Path:
        return self.folder / run.name / f"events.out.{_MARK}.{int(run.began)}.graphmill.{run.identity}"


def _content(run: TrackerRun) -> bytes:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for event in _events(run):
        writer.write(event.SerializeToString(deterministic=True))
    return file.getvalue()


def _num_scalars(content: bytes) -> int:
    """How many points there are: each is a record of its own, and what stands before them is the same."""
    count, at = 0, 0
    while at + 8 <= len(content):  # TFRecord: length, checksum of it, data, checksum of them
        at += 8 + 4 + int.from_bytes(content[at : at + 8], "little") + 4
        count += at <= len(content)
    return count


def _events(run: TrackerRun) -> Iterator[Event]:
    """What stays the same first: params, then tags; then the points, as they were recorded."""
    yield Event(wall_time=run.began, file_version="brain.Event:2")
    yield Event(wall_time=run.began, summary=hparams_pb(_params(run), trial_id=run.name, start_time_secs=run.began))
    yield Event(wall_time=run.began, summary=Summary(value=[_text("tags", run)]))
    for point in run.points:
        value = Summary.Value(tag=point.name, simple_value=point.value)
        yield Event(wall_time=point.time, step=point.step, summary=Summary(value=[value]))


def _params(run: TrackerRun) -> dict[str, bool | int | float | str]:
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in run.params.items()
    }


def _text(name: str, run: TrackerRun) -> Summary.Value:
    rows = "".join(f"| {key} | {value} |\n" for key, value in run.tags.items())
    tensor = make_tensor_proto(f"| tag | value |\n|---|---|\n{rows}".encode())
    return Summary.Value(tag=name, tensor=tensor, metadata=create_summary_metadata(name, ""))
