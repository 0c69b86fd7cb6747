"""What ranks see to before they train: the same code on all of them."""

import json
from dataclasses import replace

import pytest
from torch.distributed import HashStore
from torch.distributed.distributed_c10d import PrefixStore

from graphmill.base.errors import UserError
from graphmill.runtime.machine import host_name
from graphmill.runtime.rank import ALONE
from graphmill.train.peers import PortBusyError, choose_interface, exchange_peer_info, open_store

OF_TWO = replace(ALONE, world_size=2, num_hosts=2)


@pytest.fixture
def other_peer():
    """A store in which rank 1 has introduced itself already, with some fields of its peer changed."""

    def made(**changed: str) -> HashStore:
        store = HashStore()
        exchange_peer_info(store, ALONE, {}, "mine")
        shared = PrefixStore("graphmill.peers", store)
        shared.set("1", json.dumps({**json.loads(shared.get("0")), "hostname": "other", **changed}))
        return store

    return made


def test_ranks_of_the_same_code_meet(other_peer):
    assert exchange_peer_info(other_peer(), OF_TWO, {}, "mine") == [host_name({}), "other"]


@pytest.mark.parametrize("field", ["code", "torch", "python"])
def test_ranks_that_differ_are_refused(other_peer, field):
    with pytest.raises(UserError, match="other"):
        exchange_peer_info(other_peer(**{field: "0.0"}), OF_TWO, {}, "mine")


def test_a_rank_that_met_another_run_leaves_no_trace_there():
    """Its own rank 0 found the port taken; with this rank's info, the other run would train with it."""
    store = HashStore()
    exchange_peer_info(store, ALONE, {}, "theirs")
    keys = store.num_keys()
    with pytest.raises(PortBusyError, match="theirs"):
        exchange_peer_info(store, replace(OF_TWO, rank=1), {}, "mine")
    assert store.num_keys() == keys


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


def test_a_first_host_whose_name_means_nothing_here_is_refused_at_once(monkeypatch):
    """torch would try until the job's time limit."""
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr("graphmill.train.peers._RESOLVED_WITHIN_S", 0.0)  # where no name service answers at all
    monkeypatch.setattr("graphmill.train.peers.rendezvous", lambda *_: pytest.fail("it would wait there"))
    with pytest.raises(UserError, match=r"no-such-host\.invalid"):
        open_store(replace(OF_TWO, rank=1))
