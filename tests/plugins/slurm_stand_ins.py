"""Programs on PATH that stand in for Slurm's: what they are asked is written down, what they say is a test's."""

from pathlib import Path

import pytest

from graphmill.cluster.jobs import next_job
from graphmill.record.run_folder import RunFolder

# What they are asked goes to `asked`; a file of the program's name holds what it runs.
PROGRAM = """#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$0") $*" >>"$here/asked"
. "$here/$(basename "$0").says"
"""
AWAY = "echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
LINE = "{job}|PENDING|0:00|10:00|1||1795259310|N/A|N/A|normal|Dependency|{script}"


class StandIns:
    """The stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("squeue", "sbatch", "scancel", "scontrol", "sacct"):
            path = folder / name
            path.write_text(PROGRAM)
            path.chmod(0o755)
            self.says(name, "")

    def says(self, program: str, what: str) -> None:
        (self.folder / f"{program}.says").write_text(what + "\n")

    def asked(self, program: str) -> list[str]:
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split()[0] == program]

    def queue(self, folder: RunFolder, *jobs: str) -> None:
        lines = [LINE.format(job=job, script=folder.script_path) for job in jobs]
        self.says("squeue", f"cat <<'END'\n{chr(10).join(lines)}\nEND")


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """They are all that PATH has of Slurm."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(next_job._persist, "__defaults__", (0.01,))  # seconds between two tries
    return StandIns(folder)
