"""What is missing is said by name, with what to type."""

import json
import subprocess
import sys

import pytest

from graphmill.base.errors import UserError
from graphmill_devcluster.configure import idle_cgroup_plugin
from graphmill_devcluster.description import Description
from graphmill_devcluster.requirements import check_requirements, missing_packages


def test_missing_programs_are_named_by_their_packages(monkeypatch, tmp_path):
    monkeypatch.setattr("graphmill_devcluster.requirements.environment", lambda base: {"PATH": str(tmp_path)})
    assert missing_packages(Description(accounting=False, ssh=False)) == [
        *("iproute2", "munge", "slurm-client", "slurmctld", "slurmd", "util-linux")
    ]
    with pytest.raises(UserError, match="slurmdbd") as error:
        check_requirements(Description())
    assert error.value.fix.startswith("apt-get install --no-install-recommends iproute2 mariadb-client-core")


def test_commands_that_need_a_cluster_say_so(source_environ, tmp_path):
    environ = {**source_environ, "XDG_STATE_HOME": str(tmp_path)}
    environ.pop("GRAPHMILL_DEVCLUSTER", None)
    words = [sys.executable, "-m", "graphmill.cli", "devcluster", "crash", "host1"]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stderr) == (2, "error: no dev cluster is up\n  → graphmill devcluster up\n")


def test_a_host_that_is_not_there():
    with pytest.raises(UserError, match="no host host9"):
        Description().host("host9")


def test_a_private_folder_must_be_a_path_below_the_root():
    for folder in ("/", "relative"):
        with pytest.raises(UserError, match="cannot be private"):
            Description(private=(folder,))


def test_a_description_is_read_back_as_it_was():
    cluster = Description(num_hosts=7, private=("/run/scratch",), enforce=("limits",))
    assert Description.model_validate_json(cluster.model_dump_json()) == cluster
    assert json.loads(cluster.model_dump_json())["num_hosts"] == 7


def test_the_cgroup_plugin_that_does_nothing():
    assert [idle_cgroup_plugin(version) for version in ((22, 5, 8), (23, 2), (23, 11, 4), (24, 11))] == [
        *("cgroup/v1", "cgroup/v1", "disabled", "disabled")
    ]


@pytest.mark.parametrize("line", ["KillWait", "KillWait 30", "KillWait=30\nSlurmUser=else", "=30"])
def test_a_line_that_is_none_of_slurm_conf_is_refused(line):
    with pytest.raises(UserError, match="no line of slurm"):
        Description(settings=(line,))
