"""Batches of a graph in parts are those of the graph stored whole, to the bit, for its seeds: blocks, features, labels.

Real ranks, each of which reads its own parts only; every policy, both topologies, both ways to hand out seeds.
"""

from itertools import product

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("ranks", "num_parts", "epochs", "ways"),
    [
        (2, 4, 2, "few"),
        *(pytest.param(*cell, 3, "all", marks=pytest.mark.slow) for cell in product((1, 2, 4), (1, 2, 4))),
    ],
)
def test_batches_are_those_of_the_whole_graph(told_by_ranks, ranks, num_parts, epochs, ways):
    for rank, cells in enumerate(told_by_ranks("batches.py", ranks, num_parts, epochs, ways)):
        assert len(cells) == ((2 * (7 + 3) + 2 * 3) * 4 if ways == "all" else (2 * (4 + 3) + 2 * 3) * 2)
        broken = {words: cell["differences"] for words, cell in cells.items() if cell["differences"]}
        assert not broken, f"rank {rank}"
        ahead = {words: cell["counted"] for words, cell in cells.items() if "lookahead" in words}
        assert all(of["remote, reused, fetched, bytes"] == of["replayed"] for of in ahead.values()), ahead
        is_local = ranks == 1 or num_parts == 1
        of_one = {w: c for w, c in cells.items() if "replicated" in w and "lookahead" not in w}
        wanted = {words: 0 if is_local else cell["steps"] + 1 for words, cell in of_one.items()}
        assert {w: c["swaps of an epoch"] for w, c in of_one.items()} == wanted, "a collective a batch, if any"
        asks = {words: cell for words, cell in cells.items() if cell["remote_rows"]}
        assert bool(asks) == (ranks > 1 and num_parts > 1), "each rank reads its own parts only"
        for words, cell in asks.items():
            assert cell["fetched_rows"] == cell["remote_rows"] or ", none," not in words
            assert cell["fetched_rows"] < cell["remote_rows"] or ", none," in words, words
            assert bool(cell["repeated_rows"]) == ("lookahead" in words), "only a window fetches for several batches"
            if "lookahead" in words:
                assert cell["repeated_rows"] + cell["fetched_rows"] == cell["remote_rows"], "nothing else is held"
                without = asks[words.replace(" with a budget", "")]
                assert cell["fetched_rows"] < without["fetched_rows"] or "budget" not in words, words
