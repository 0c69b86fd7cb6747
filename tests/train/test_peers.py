"""What ranks see to before they train: that they meet, and run the same code."""

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from torch.distributed import HashStore, TCPStore
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill.runtime.machine import host_name
from graphmill.runtime.rank import ALONE
from graphmill.runtime.secret import TOKEN, Secret, new_token
from graphmill.train.peers import choose_interface, exchange_peer_info
from graphmill.train.store import PortBusyError, open_words
from graphmill.train.words import NotMetError, PeerTimeout, Words

OF_TWO = replace(ALONE, world_size=2, local_world_size=2)
MINE = Secret(b"of this run")


def words() -> Words:
    return Words(HashStore(), MINE, "all")


@pytest.fixture
def other_peer():
    """Words in which rank 1 has introduced itself already, with some fields of its peer changed."""

    def made(**changed: str) -> Words:
        said = words()
        exchange_peer_info(said, ALONE, {}, PeerTimeout(HANG_S))
        peers = said.about("peers")
        peers.put("1", json.dumps({**json.loads(peers.get("0")), "hostname": "other", **changed}))
        return said

    return made


def test_ranks_of_the_same_code_meet(other_peer):
    assert exchange_peer_info(other_peer(), OF_TWO, {}, PeerTimeout(HANG_S)) == [host_name({}), "other"]


@pytest.mark.parametrize("field", ["code", "torch", "python"])
def test_ranks_that_differ_are_refused(other_peer, field):
    with pytest.raises(UserError, match="other"):
        exchange_peer_info(other_peer(**{field: "0.0"}), OF_TWO, {}, PeerTimeout(HANG_S))


def test_ranks_that_do_not_come_are_named_with_what_to_type():
    of_four, environ = replace(OF_TWO, world_size=4, num_hosts=2), {"MASTER_ADDR": "localhost", "MASTER_PORT": "7"}
    environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    said = words()
    said.about("peers").put("2", "")
    with pytest.raises(NotMetError, match=r"not ranks 1, 3.*localhost:7.*127\.0\.0\.1|::1.*lo") as error:
        exchange_peer_info(said, of_four, environ, PeerTimeout(0.0, setting="-O train.meet_timeout_s=9"))
    assert "doctor --hosts 2" in error.value.fix
    assert "-O train.meet_timeout_s=9" in error.value.fix


def test_what_a_stranger_writes_counts_as_not_written():
    said = words()
    said.put("a", "ours")
    strangers = Words(said.store, Secret(b"a guess"), "all")
    for key in ("a", "b"):
        strangers.put(key, "theirs")
        said.store.set(f"graphmill.all/{key} as it is", "theirs")
    assert said.get("a") is said.get("b") is said.get("a as it is") is said.get("b as it is") is None
    assert said.awaited(["a"], PeerTimeout(0.0)) == {}
    assert said.put_first("a", "mine") == "mine"
    said.put("a", "ours")
    said.store.set("graphmill.all/c", said.store.get("graphmill.all/a"))
    assert said.get("c") is None, "what was signed stands under its own key alone"
    assert said.put_first("a", "late") == said.get("a") == "ours"


def test_of_the_token_nothing_is_told():
    token = new_token()
    secret = Secret.of({TOKEN: token})
    assert len({secret.derived("one"), secret.derived("other"), token}) == 3
    assert token not in repr(secret)
    assert secret.derived("one") == Secret.of({TOKEN: token}).derived("one")
    with pytest.raises(UserError, match=TOKEN):
        Secret.of({TOKEN: "short"})
    with pytest.raises(UserError, match="31 characters"):
        Secret.of({TOKEN: token[:-1]})


@pytest.mark.parametrize("name", ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"])
def test_without_a_token_each_of_what_names_a_run_tells_it_from_others(name):
    environ = {"TORCHELASTIC_RUN_ID": "7", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "7"}
    assert Secret.of(environ).derived("store") != Secret.of({**environ, name: "8"}).derived("store")
    assert Secret.of(environ).derived("store") == Secret.of({**environ, "HOSTNAME": "host2"}).derived("store")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def place(port: int, token: str) -> dict[str, str]:
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), TOKEN: token}


def test_a_rank_that_met_another_run_leaves_no_trace_there():
    """Its own rank 0 found the port taken; with this rank's info, the other run would train with it."""
    port = free_port()
    theirs = open_words(OF_TWO, place(port, new_token()), "theirs", PeerTimeout(HANG_S))
    seen = TCPStore("127.0.0.1", port, is_master=False)
    keys = seen.num_keys()
    mine = place(port, new_token())
    with pytest.raises(PortBusyError, match=f"{port} is in use"):
        open_words(OF_TWO, mine, "mine", PeerTimeout(HANG_S))
    with pytest.raises(PortBusyError, match="theirs"):
        open_words(replace(OF_TWO, rank=1), mine, "mine", PeerTimeout(HANG_S))
    assert seen.num_keys() == keys
    assert theirs.get("host") == "theirs"


def test_a_rank_0_that_does_not_come_is_not_waited_for_without_end():
    environ = place(free_port(), new_token())
    with pytest.raises(NotMetError, match=f"127.0.0.1:{environ['MASTER_PORT']}.*refused") as error:
        open_words(replace(OF_TWO, rank=1), environ, "mine", PeerTimeout(0.2))
    assert "logs" in error.value.fix


def test_the_store_of_a_run_on_one_host_listens_on_loopback_alone():
    environ = {**place(free_port(), new_token()), "MASTER_ADDR": "localhost"}
    held = open_words(OF_TWO, environ, "mine", PeerTimeout(HANG_S))
    own = subprocess.run(["hostname", "--all-ip-addresses"], capture_output=True, text=True, check=True).stdout.split()
    for address in {"127.0.0.2", *own}:  # 127.0.0.2 is no other host's either, but another address
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, int(environ["MASTER_PORT"])), timeout=HANG_S)
    assert held.get("host") == "mine"


@pytest.mark.parametrize(("rank", "towards"), [(0, "b"), (1, "b"), (2, "a"), (3, "a")])
def test_the_interface_is_that_towards_another_host(monkeypatch, rank, towards):
    monkeypatch.setattr("graphmill.train.peers.interface_towards", lambda name: f"towards {name}")
    of_four = replace(ALONE, rank=rank, world_size=4, num_hosts=2)
    assert choose_interface(["a", "a", "b", "b"], of_four, {}) == f"towards {towards}"
    assert choose_interface(["a"] * 4, of_four, {}) is None
    assert choose_interface(["a", "a", "b", "b"], of_four, {"GLOO_SOCKET_IFNAME": "eth7,lo"}) is None
    assert choose_interface(["a", "a", "b", "b"], of_four, {"NCCL_SOCKET_IFNAME": "^docker"}) is None


def test_an_interface_that_is_not_there_is_refused():
    """gloo's own error speaks of an address, and reads as if another rank were lost."""
    of_four = replace(ALONE, world_size=4, num_hosts=2)
    with pytest.raises(UserError, match=r"has no network interface ib9; it has .*lo") as error:
        choose_interface(["a", "a", "b", "b"], of_four, {"GLOO_SOCKET_IFNAME": "ib9"})
    assert "slurm.interface" in error.value.fix


def test_a_first_host_whose_name_means_nothing_here_is_told():
    """At once where the name service does not know it; torch would try until the job's time limit."""
    environ = {**place(29500, new_token()), "MASTER_ADDR": "no-such-host.invalid"}
    with pytest.raises(UserError, match=r"no-such-host\.invalid"):
        open_words(replace(OF_TWO, rank=1), environ, "mine", PeerTimeout(0.1))


FEW_FILES = """
import os, resource, sys
from dataclasses import replace
from graphmill.runtime.rank import ALONE
from graphmill.train.peers import refuse_few_files
for hard in map(int, sys.argv[1:]):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        refuse_few_files(replace(ALONE, world_size=300))
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sys.exit()
    os.wait()
"""


def test_the_limit_of_open_files_is_raised_or_told_before_ranks_meet():
    """300 ranks have more connections to rank 0 than the usual soft limit of files."""
    command = [sys.executable, "-c", FEW_FILES, "2000", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2000\n"
    assert done.stderr.count("1264 open files") == 1
    assert "allows 1000" in done.stderr
