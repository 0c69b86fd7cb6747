"""What a run on parts fetched, in words; and nothing of other runs."""

import pytest

from graphmill.spec.fetching import FetchedByEpoch


def row(remote, fetched, wait_s=1.0, train_s=4.0, eval_mib=None):
    return {
        "remote_rows": remote, "fetched_rows": fetched, "fetched_mib": fetched / 10, "loader_mib": fetched / 5,
        "wait_s": wait_s, "train_s": train_s, "eval_mib": eval_mib,
    }  # fmt: skip


def test_rates_are_of_sums_not_means_of_rates():
    found = FetchedByEpoch.of([row(100, 50, 1, 10, eval_mib=6), row(300, 50, 0, 30), row(200, 50, 0, 0, eval_mib="")])
    assert (found.num_epochs, found.remote_rows, found.hit_rate) == (3, 200, 0.75)
    assert (found.fetched_mib, found.loader_mib) == (5, 10)
    assert found.eval_mib == 6, "of the epochs that ended with an evaluation"
    assert found.wait_share == pytest.approx(1 / 40)
    assert ("of these not fetched: hit rate", "75.0 %") in found.described()


@pytest.mark.parametrize("empty", [None, ""])
def test_runs_on_a_whole_graph_say_nothing(empty):
    assert FetchedByEpoch.of([]) is None
    assert FetchedByEpoch.of([{"remote_rows": empty, "train_s": 2.0}, {"train_s": 2.0}]) is None


def test_one_rank_reads_all_parts_and_needs_nothing():
    found = FetchedByEpoch.of([row(0, 0)])
    assert found.hit_rate is None
    assert ("of these not fetched: hit rate", "none was needed") in found.described()
