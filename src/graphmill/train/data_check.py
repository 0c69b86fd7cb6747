"""Checksums of the data that a host reads, compared in the background of the first steps.

What is mapped is not read at a start: that would take longer than many runs. So a byte that changed without its file's
time would be trained on. The first process of each host therefore reads all that the host's processes read, once in a
run, in a thread that gives way to everything else. A copy that was staged was verified when it was made.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import json_text, remove_leftovers, write_text
from graphmill.graph.arrays import check_checksum
from graphmill.graph.header import ArrayRecord, is_prepared, read_header
from graphmill.partition.metadata import again, files_of, is_parts, read_parts_metadata
from graphmill.partition.placement import share_of_plan
from graphmill.record.run_folder import best_effort_write
from graphmill.record.staged import LABEL_ARRAYS, Share
from graphmill.runtime.machine import host_name
from graphmill.train.assemble import RankContext, plan_over_data

_log = logging.getLogger(__name__)

_WAITED_FOR: Final = 256 << 20  # bytes that are left at the end of a run; of more it is said that they were not read
_LOWEST: Final = 19  # of a thread's priorities


@dataclass(slots=True)
class DataCheck:
    """Files of prepared data; nothing is read before `begin`."""

    folder: Path
    records: Mapping[str, ArrayRecord]
    note: Path | None  # of the run: that this host's files were compared; None: nothing is to be read
    text: str  # of the note
    _error: UserError | None = field(default=None, init=False)
    _num_read: int = field(default=0, init=False)  # files
    _thread: threading.Thread | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)  # the run: nothing is written into its folder any more
    _noting: threading.Lock = field(default_factory=threading.Lock, init=False)

    def begin(self) -> None:
        """Read in the background, unless an earlier attempt has."""
        if self.note is not None:
            with suppress(OSError):  # the disk of the run folder fails: whoever writes to it next says so
                remove_leftovers(self.note)
        if self.note is not None and not _says(self.note, self.text):
            self._thread = threading.Thread(target=self._read, name="data check", daemon=True)
            self._thread.start()

    def refuse_damaged(self) -> None:
        """Raise the `UserError` of a file that is not what was prepared, once it was found."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait at the end of a run for what is left if it is little, and say so if it is much."""
        if self._thread is not None:
            left = sum(record.bytes for record in [*self.records.values()][self._num_read :])
            if left <= _WAITED_FOR:
                self._thread.join()
            elif self._thread.is_alive():
                with self._noting:
                    self._is_over = True
                _log.warning(
                    f"the run was over before the checksums of {left >> 20:,} MiB of {self.folder} were compared"
                    f" → graphmill inspect {self.folder} --check"
                )
        self.refuse_damaged()

    def _read(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # Linux: of this thread alone
        try:
            for name, record in self.records.items():
                check_checksum(self.folder / f"{name}.npy", record)
                self._num_read += 1
        except UserError as error:
            self._error = self._with_fix(error)
            return
        assert self.note is not None
        with self._noting, best_effort_write():
            if not self._is_over:
                write_text(self.note, self.text)

    def _with_fix(self, error: UserError) -> UserError:
        if not is_parts(self.folder):
            return error
        return UserError(error.message, fix=again(read_parts_metadata(self.folder), self.folder))


@contextmanager
def checked_data(context: RankContext) -> Iterator[DataCheck]:
    """Check of this process's data, begun if it is the first of its host and they are not a staged copy."""
    plan, path = plan_over_data(context)
    is_first = context.process.local_rank == 0 and path == str(context.plan.dataset.path)
    folder = Path(path)
    if not is_first or not is_prepared(folder):
        yield DataCheck(folder, {}, None, "")
        return
    header, host = read_header(folder), context.process.rank // context.world.processes_per_host
    names = _names_of(folder, list(header.arrays), share_of_plan(plan, host, context.world))
    said = json_text({"data": path, "checksum": header.checksum, "files": names})
    note = context.folder.checked_path(host_name(os.environ))
    check = DataCheck(folder, {name: header.arrays[name] for name in names}, note, said)
    check.begin()
    yield check


def _names_of(folder: Path, names: list[str], share: Share | None) -> list[str]:
    """The files that the processes of this host read, of all."""
    if share is None:
        return names
    if is_parts(folder):
        return files_of(read_parts_metadata(folder), share.parts, whole_topology=share.whole_topology)
    return list(LABEL_ARRAYS)


def _says(note: Path, text: str) -> bool:
    try:
        return note.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False
