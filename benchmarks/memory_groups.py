"""Control groups of memory (version 1) for processes that are measured, below the group of this process."""

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup/memory")
_ENDS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """What its processes have is charged to it: their own pages, and those of files that they were first to read."""

    path: Path

    @property
    def enter(self) -> list[str]:
        """Words before a command that runs in the group."""
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.path)]

    @property
    def peak_mib(self) -> float:
        """Most that was charged."""
        return int((self.path / "memory.max_usage_in_bytes").read_text()) / 2**20

    @property
    def times_at_limit(self) -> int:
        """How often pages had to be reclaimed before more could be charged."""
        return int((self.path / "memory.failcnt").read_text())


def supported() -> bool:
    """Whether groups can be made here: version 1, and root."""
    own = _own()
    return own is not None and own.is_dir()


@contextmanager
def groups(names: Sequence[str], limit_mib: float | None = None) -> Iterator[list[MemoryGroup]]:
    """One for each name, without swap; gone afterwards. Their processes must have ended."""
    own = _own()
    assert own is not None, "only version 1 is known here"
    made: list[MemoryGroup] = []
    try:
        for name in names:
            (own / name).mkdir()
            made.append(MemoryGroup(own / name))
            (own / name / "memory.swappiness").write_text("0")
            if limit_mib is not None:
                (own / name / "memory.limit_in_bytes").write_text(str(int(limit_mib * 2**20)))
        yield made
    finally:
        for group in made:
            _remove(group.path)


def _remove(path: Path) -> None:
    """What a rank started, as the monitor, may end after it."""
    give_up = time.monotonic() + _ENDS_WITHIN_S
    while True:
        try:
            return path.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > give_up:
                raise
        time.sleep(0.1)


def _own() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / path.lstrip("/")
    return None
