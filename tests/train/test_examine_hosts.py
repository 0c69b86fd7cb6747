"""What `doctor --hosts` runs on each host, as ranks of this machine."""

import json
import secrets
import socket
import subprocess
import sys

import pytest
from waiting import HANG_S

from graphmill.diagnose.job_hosts import JOB_SCRIPT
from graphmill.runtime.roots import file_system
from graphmill.runtime.secret import TOKEN
from graphmill.train.examine_hosts import look_at

pytestmark = pytest.mark.distributed


def examined(environ, folder, number: int) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": "0"}
    shared |= {"LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": str(number), TOKEN: secrets.token_hex(16)}
    words = [sys.executable, "-m", "graphmill.train.examine_hosts", str(folder), "localhost,no.such.host.invalid"]
    ranks = [subprocess.Popen(words, env={**environ, **shared, "RANK": str(rank)}) for rank in range(number)]
    assert [rank.wait(HANG_S) for rank in ranks] == [0] * number
    return [json.loads((folder / f"host_{rank}.json").read_text()) for rank in range(number)]


@pytest.mark.slow
def test_hosts_meet_sum_and_compare_clocks(source_environ, tmp_path):
    (tmp_path / JOB_SCRIPT).touch()
    for rank, found in enumerate(examined(source_environ, tmp_path, 2)):
        assert (found["rank"], found["error"], found["sees_files"]) == (rank, "", True)
        assert found["unknown_names"] == ["no.such.host.invalid"]
        assert [each["num_bytes"] for each in found["all_reduces"]] == [4 << 10, 16 << 20]
        assert all(each["seconds"] > 0 for each in found["all_reduces"])
        assert abs(found["clock"]["ahead_s"]) <= found["clock"]["error_s"] + 1e-6  # one clock


@pytest.mark.slow
def test_one_host_has_nobody_to_meet_and_sees_no_file_that_is_not_there(source_environ, tmp_path):
    (found,) = examined(source_environ, tmp_path, 1)
    assert (found["error"], found["sees_files"], found["clock"]) == ("", False, None)


def test_a_folder_is_written_to_and_left_as_it_was(tmp_path):
    seen = look_at(tmp_path)
    assert seen.error == ""
    assert seen.free_bytes > 0
    assert list(tmp_path.iterdir()) == []
    assert file_system("/proc/self") == "proc"


@pytest.mark.parametrize("name", ["absent", "absent/deeper"])
def test_a_folder_that_is_not_there(tmp_path, name):
    assert "No such file" in look_at(tmp_path / name).error
