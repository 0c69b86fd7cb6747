"""Slurm's host lists without scontrol: what they name, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.slurm.hostlist import expand_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("nid[001-003,007],login1", ["nid001", "nid002", "nid003", "nid007", "login1"]),
        ("c[1-2]-r[08-10]", ["c1-r08", "c1-r09", "c1-r10", "c2-r08", "c2-r09", "c2-r10"]),
        ("b,a,c[2,1]", ["b", "a", "c2", "c1"]),
        ("rack[9-11]gpu", ["rack9gpu", "rack10gpu", "rack11gpu"]),
        ("a.b-c.org,x_1", ["a.b-c.org", "x_1"]),
    ],
)
def test_known_lists(text, names):
    assert expand_hostlist(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[", "n]", "n[a-b]", "n[3-1]", "a,,b", "a,", ",a", "n[1-999999999]", "a b"])
def test_other_texts_are_refused(text):
    with pytest.raises(UserError, match="not a list of hosts"):
        expand_hostlist(text)


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 30)), min_size=1, max_size=5), st.integers(1, 4))
def test_written_and_read(ranges, width):
    text = ",".join(f"h[{first:0{width}d}-{first + more:0{width}d}]" for first, more in ranges)
    names = [f"h{number:0{width}d}" for first, more in ranges for number in range(first, first + more + 1)]
    assert expand_hostlist(text) == names
