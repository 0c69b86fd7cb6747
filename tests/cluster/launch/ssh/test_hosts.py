"""hosts.yaml: what it means, and what is refused."""

import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.launch.ssh.hosts import HostList, read_hosts, refuse_ranks
from graphmill.cluster.launch.ssh.session import agent_command


@pytest.fixture
def read(tmp_path: Path):
    def write_and_read(text: str) -> HostList:
        path = tmp_path / "hosts.yaml"
        path.write_text(text)
        return read_hosts(path)

    return write_and_read


def test_a_host_has_what_it_says_and_else_the_defaults(read):
    hosts = read(
        """
        defaults: {user: me, port: 2222, devices: "0,1", directory: /work, environment: {A: 1, B: x}}
        hosts:
          - node1
          - {address: 10.0.0.2, name: second, port: 22, environment: {B: y}, interface: ib0}
        """
    )
    first, second = hosts.hosts
    assert (first.name, first.user, first.port, first.python) == ("node1", "me", 2222, sys.executable)
    assert (second.name, second.address, second.port, second.interface) == ("second", "10.0.0.2", 22, "ib0")
    assert second.environment == {"A": "1", "B": "y", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert hosts.num_ranks == 4


def test_ranks_of_a_host_stand_in_for_the_devices_of_all(read):
    hosts = read("defaults: {devices: '0,1'}\nhosts: [{address: a, ranks: 1}, {address: b, devices: 3}]\n")
    assert "CUDA_VISIBLE_DEVICES" not in hosts.hosts[0].environment
    assert hosts.hosts[1].environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert hosts.num_ranks == 2


def test_where_nobody_says_the_ranks_the_experiment_does(read):
    assert read("hosts: [a, b]\n").num_ranks is None


def test_all_problems_are_told_at_once_with_their_lines(read, tmp_path):
    with pytest.raises(UserError) as raised:
        read("meet_att: x\nhosts:\n  - {address: a, prot: 3}\n  - {address: a, environment: {RANK: 1}}\n  - 7\n")
    text = str(raised.value)
    assert f"{tmp_path}/hosts.yaml:3: prot is not a known key; did you mean 'port'?" in text
    assert "hosts.yaml:4: environment.RANK is set by the launcher" in text
    assert "hosts[2] is not a host" in text
    assert "hosts.yaml:1: meet_att is not a known key" in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hosts: []\n", "hosts is not a list of hosts"),
        ("nodes: [10.0.0.1, 10.0.0.2]\nports: [22, 2222]\n", "hosts is not a list of hosts"),
        ("hosts: [a, a]\n", "is a again"),
        ("hosts: [{address: a, name: x}, {address: b, name: x}]\n", "two hosts are called x"),
        ("hosts: [{address: a, ranks: 1}, {address: b, ranks: 2}]\n", "every host starts the same number"),
        ("hosts: [{address: a, ranks: 1}, b]\n", "every host starts the same number"),
        ("hosts: [{address: a, devices: '0,1', ranks: 1}]\n", "devices lists 2 devices, but ranks is 1"),
        ("hosts: [{address: a, devices: '0,0'}]\n", "lists each device once"),
        ("hosts: [{address: a, devices: ''}]\n", "lists each device once"),
        ("hosts: [{address: -oProxyCommand=x}]\n", "address is"),
        ('hosts: [{address: "a b"}]\n', "address is"),
        ("hosts: [{address: a, user: -lroot}]\n", "user is"),
        ("hosts: [{address: a, python: -c}]\n", "python is"),
        ('hosts: [{address: a, directory: "x\\ny"}]\n', "directory is"),
        ("hosts: [{address: a, environment: {CUDA_VISIBLE_DEVICES: '0'}}]\n", "set by the launcher"),
        ("hosts: [{address: a, environment: {A-B: x}}]\n", "cannot name a variable"),
    ],
)
def test_refused(read, text: str, what: str):
    with pytest.raises(UserError) as raised:
        read(text)
    assert what in str(raised.value)


def test_an_experiment_that_asks_for_other_ranks_is_refused(read):
    hosts = read("defaults: {ranks: 2}\nhosts: [a, b]\n")
    refuse_ranks(hosts, "auto", "x")
    refuse_ranks(hosts, 4, "x")
    with pytest.raises(UserError, match=r"train.ranks=2, but .* starts 4: 2 on each of 2 hosts"):
        refuse_ranks(hosts, 2, "x")


def test_the_shell_line_is_quoted(read):
    host = read("hosts: [{address: a, directory: ~/my runs, python: $(x)}]\n").hosts[0]
    assert agent_command(host) == "cd \"$HOME\"/'my runs' && exec '$(x)' -P -m graphmill.cluster.launch.ssh.remote"
