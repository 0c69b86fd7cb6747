"""Exact inference over parts gives the logits of the graph stored whole, to the bit, in blocks of any size.

With small blocks the rows of hidden layers are on a disk, with large ones in memory.
"""

import pytest

pytestmark = pytest.mark.distributed

SLOW = ((2, 2, 20_000), (2, 2, 9000), (1, 4, 20_000), (2, 4, 16 << 20))


@pytest.mark.parametrize(
    ("ranks", "num_parts", "block_bytes", "ways"),
    [
        (2, 2, 20_000, "few"),
        *(pytest.param(*each, "all", marks=pytest.mark.slow) for each in SLOW),
    ],
)
def test_logits_are_those_of_the_whole_graph(told_by_ranks, ranks, num_parts, block_bytes, ways):
    told = told_by_ranks("exact.py", ranks, num_parts, block_bytes, ways)
    for way, first in told[0]["same"].items():
        cells = [of["same"][way] for of in told]
        assert [cell["equal"] for cell in cells] == [cell["mine"] for cell in cells], way
        assert sum(cell["mine"] for cell in cells) == first["all"], way
        assert {cell["blocks"] for cell in cells} == {first["blocks"]}, "all ranks ask equally often whether to stop"
        assert (first["blocks"] == 3) == (block_bytes == 16 << 20), way
    received = told[0]["received"]
    assert all(of["received"] == received for of in told)
    assert (received["must"] > 0) == (ranks > 1)
    repeated = 1.1 if block_bytes == 16 << 20 else 2  # a row that several blocks read comes for each of them
    assert received["must"] <= received["said"] <= repeated * received["must"], "and ids of features, and counts"
    said = [of["without room"] for of in told]
    assert all("do not fit on the disk" in words for words in said) == (block_bytes < 16 << 20), said
