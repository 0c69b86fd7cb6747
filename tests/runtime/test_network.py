"""Interfaces and ports of this machine, as they are."""

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.runtime.network import FIRST_PORT, NUM_PORTS, candidate_ports, interface_towards, is_free


def test_the_way_to_itself_is_loopback():
    assert interface_towards("127.0.0.1") == "lo"


def test_a_name_that_does_not_resolve_is_said():
    with pytest.raises(UserError, match="finds no way to"):
        interface_towards("no-such-host.invalid")


def test_a_port_in_use_is_not_free():
    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.listen()
        assert not is_free(listening.getsockname()[1])


def test_some_ports_are_free():
    """Which, only the system knows: a port that was let go of may be another process's at once."""
    assert any(map(is_free, range(FIRST_PORT, FIRST_PORT + NUM_PORTS)))


@given(st.integers(0, 2**40))
def test_every_port_is_tried_once(key):
    ports = list(itertools.islice(candidate_ports(key), NUM_PORTS))
    assert sorted(ports) == list(range(FIRST_PORT, FIRST_PORT + NUM_PORTS))
