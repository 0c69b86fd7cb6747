"""Ways between hosts, over real sockets of this machine."""

import secrets
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.diagnose.hosts.folders import look_at
from graphmill.diagnose.hosts.links import TOKEN_BYTES, Endpoint, measure, serving, shifts
from graphmill.runtime.scratch import file_system

TOKEN = secrets.token_bytes(TOKEN_BYTES)
HERE = "127.0.0.1"


def test_a_way_is_measured():
    with serving(HERE, TOKEN) as port:
        link = measure(Endpoint("other", HERE, port), TOKEN)
    assert (link.to, link.error) == ("other", "")
    assert link.bytes_per_s > 0
    assert link.round_trip_s > 0
    # One clock: it was read between sending and receiving, so it is not further off than half of the way.
    assert abs(link.clock_ahead_s) <= link.clock_error_s + 1e-6  # time.time() has steps of 0.24 µs in 2026


def test_without_the_token_nothing_is_answered():
    with serving(HERE, TOKEN) as port:
        link = measure(Endpoint("other", HERE, port), secrets.token_bytes(TOKEN_BYTES))
    assert link.error
    assert link.bytes_per_s is None


def test_nobody_listens():
    with socket.socket() as closed:
        closed.bind((HERE, 0))
        link = measure(Endpoint("other", HERE, closed.getsockname()[1]), TOKEN)
    assert "refused" in link.error


@given(st.integers(2, 16))
def test_few_hosts_measure_all_pairs_once(number):
    pairs = [(host, (host + shift) % number) for shift in shifts(number) for host in range(number)]
    assert sorted(pairs) == [(a, b) for a in range(number) for b in range(number) if a != b]


@given(st.integers(17, 5000))
def test_of_many_hosts_each_sends_and_receives_once_a_round_and_rounds_are_few(number):
    assert len(shifts(number)) <= number.bit_length()
    assert all(0 < shift < number for shift in shifts(number))
    assert len(set(shifts(number))) == len(shifts(number))


def test_a_folder_is_written_to_and_left_as_it_was(tmp_path):
    seen = look_at(tmp_path)
    assert seen.error == ""
    assert seen.write_bytes_per_s > 0
    assert seen.free_bytes > 0
    assert list(tmp_path.iterdir()) == []
    assert file_system("/proc/self") == "proc"


@pytest.mark.parametrize("name", ["absent", "absent/deeper"])
def test_a_folder_that_is_not_there(tmp_path, name):
    assert "No such file" in look_at(tmp_path / name).error
