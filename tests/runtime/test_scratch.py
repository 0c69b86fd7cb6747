"""Where a host has a disk for temporary files."""

from pathlib import Path

import pytest

from graphmill.runtime.roots import MEMORY_FILE_SYSTEMS, file_system, scratch_folder

SHM = Path("/dev/shm")


def test_the_folder_of_the_job_comes_first(tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    assert scratch_folder({"TMPDIR": str(other), "SLURM_TMPDIR": str(own)}) == own
    assert scratch_folder({"TMPDIR": str(other), "SLURM_TMPDIR": str(tmp_path / "none")}) == other


@pytest.mark.skipif(not SHM.is_dir() or file_system(SHM) not in MEMORY_FILE_SYSTEMS, reason="no file system in memory")
def test_a_folder_in_memory_is_none(tmp_path):
    assert scratch_folder({"SLURM_TMPDIR": str(SHM), "TMPDIR": str(tmp_path)}) == tmp_path
    assert scratch_folder({"TMPDIR": str(SHM)}) != SHM
