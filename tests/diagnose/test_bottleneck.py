"""The verdict is pure: clocks in, what holds the run back out. Thresholds from both sides; then what files say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.diagnose.bottleneck import Clock, Measured, find_bottleneck
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.thresholds import THRESHOLDS, headline, thresholds_text
from graphmill.record.events import Epoch, EventWriter
from graphmill.record.metrics import write_metrics
from graphmill.tasks.node_classification.page import KIND as NODES


def clock(rank: int = 0, *, train=100.0, compute=90.0, wait=0.0, sync=0.0, sample=0.0, gather=0.0) -> Clock:
    return Clock(rank, train, compute, wait, sync, sample, gather)


def measured(*clocks: Clock, **keys) -> Measured:
    usual = {
        "eval_s": 0.0, "warms_up": False, "num_ranks": len(clocks), "ranks_per_host": len(clocks), "threads": 1,
        "sync_every": 1, "prefetch": 2, "batch_size": 64, "cores_per_host": 8,
    }  # fmt: skip
    return Measured(clocks=clocks, **{**usual, **keys})


def bound(*clocks: Clock, **keys) -> str:
    return find_bottleneck(measured(*clocks, **keys)).bound


@pytest.mark.parametrize(
    ("clocks", "keys", "expected"),
    [
        ([clock()], {}, "compute"),
        ([clock(wait=14)], {}, "compute"),
        ([clock(wait=16)], {}, "loader"),
        ([clock(0, sync=24), clock(1, sync=24)], {}, "compute"),
        ([clock(0, sync=26), clock(1, sync=40)], {}, "sync"),
        ([clock(0, sync=40), clock(1, sync=3)], {}, "compute"),  # rank 1 waits for nobody
        ([clock(0, compute=50, sync=45), clock(1, compute=94, sync=1)], {}, "imbalance"),
        ([clock(0, compute=80, sync=15), clock(1, compute=94, sync=1)], {}, "compute"),
        ([clock()], {"eval_s": 50.0}, "evaluation"),
        ([clock()], {"eval_s": 40.0}, "compute"),
        ([clock(wait=50)], {"memory_used_mib": 910.0, "memory_total_mib": 1000.0}, "memory"),
        ([clock(wait=50)], {"memory_used_mib": 890.0, "memory_total_mib": 1000.0}, "loader"),
        ([clock(0, wait=20, sync=40), clock(1, wait=20, sync=40)], {}, "sync"),
    ],
)
def test_the_largest_over_its_threshold_wins(clocks, keys, expected):
    assert bound(*clocks, **keys) == expected


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (measured(clock(wait=40), prefetch=0), "train.prefetch=2"),
        (measured(clock(wait=40, sample=30, gather=5)), "train.num_neighbors"),
        (measured(clock(wait=40, sample=5, gather=30)), "staging.to=host_local"),
        (measured(clock(0, sync=40), clock(1, sync=40), sync_every=2), "train.sync.every=8"),
        (measured(clock(0, sync=40), clock(1, sync=40), cores_per_host=1), "fewer ranks: 1 core cannot"),
        (measured(clock(), eval_s=90.0), "train.evaluate_every_epochs=5"),
        (measured(clock(), memory_used_mib=99.0, memory_total_mib=100.0), "train.batch_size=32"),
        (measured(clock(), ranks_cores=0.4), "larger batches (train.batch_size=128)"),
        (measured(clock(), ranks_cores=1.0), "7 of 8 cores have no thread: train.threads=8"),
    ],
)
def test_the_next_thing_to_try_comes_first(found, words):
    assert words in find_bottleneck(found).suggestions[0]


def test_the_slow_rank_and_what_it_does_are_named():
    figure = find_bottleneck(measured(clock(0, compute=50), clock(1, compute=50), clock(2, compute=95))).figure
    assert "rank 2 computes 95.0 s where ranks do 65.0 s on average" in figure


def test_what_may_not_be_the_runs_own_is_said():
    caveats = " ".join(
        find_bottleneck(
            measured(clock(), num_ranks=4, ranks_per_host=4, cores_per_host=2, others_cores=1.5, warms_up=True)
        ).caveats
    )
    for words in ("oversubscribed", "only rank 0's clocks", "a single epoch"):
        assert words in caveats
    spare = find_bottleneck(measured(clock(), others_cores=1.5)).caveats
    assert any("other processes kept 1.5 cores" in caveat for caveat in spare)


def test_cores_that_others_took_are_the_diagnosis_and_more_ranks_no_advice():
    verdict = find_bottleneck(measured(clock(), threads=2, cores_per_host=2, ranks_cores=0.1, others_cores=1.9))
    assert verdict.bound == "others"
    assert "compute" not in headline(verdict.bound)
    assert verdict.figure.startswith("other processes kept 1.9 of 2 cores")
    assert "slurm.exclusive=true" in verdict.suggestions[0]
    assert "more ranks" not in " ".join(verdict.suggestions)
    assert not any("other processes" in caveat for caveat in verdict.caveats)


def test_shares_of_a_time_that_others_took_part_of_are_no_findings():
    crowded = {"threads": 2, "cores_per_host": 2, "others_cores": 1.9}
    assert [each.bound for each in find_bottleneck(measured(clock(0, wait=40), **crowded)).findings] == ["others"]
    full = find_bottleneck(measured(clock(), memory_used_mib=99.0, memory_total_mib=100.0, **crowded))
    assert [each.bound for each in full.findings] == ["memory", "others"]


seconds = st.floats(0, 100)


@given(st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=5), seconds)
@example([(1.1317493570937351, 25.00000001, 0.0)] * 4, 0.0)  # their mean is above each of them
def test_shares_are_shares_and_the_verdict_stands_over_its_threshold(parts, eval_s):
    clocks = [clock(r, train=a + b + c + 1, compute=a, wait=b, sync=c) for r, (a, b, c) in enumerate(parts)]
    verdict = find_bottleneck(measured(*clocks, eval_s=eval_s))
    assert all(0 <= share <= 1 + 1e-9 for share in verdict.shares.values())
    if verdict.bound == "compute":
        assert not verdict.findings
    else:
        assert verdict.shares[verdict.bound] > THRESHOLDS[verdict.bound][0]


def test_all_thresholds_are_told():
    for name, (threshold, _) in THRESHOLDS.items():
        assert f"{name}" in thresholds_text()
        assert f"> {100 * threshold:.0f} %" in thresholds_text()


def epoch_event(number: int, clocks: dict[str, float]) -> Epoch:
    others = {name: seconds for name, seconds in clocks.items() if name != "train_s"}
    return Epoch(
        epoch=number, steps_done=number, loss=1.0, num_seeds=1, train_s=clocks.get("train_s", 1.0), clocks=others
    )


def write_epochs(folder, rank: int, epochs: list[dict]) -> None:
    with EventWriter(folder.events_path(rank), rank=rank) as events:
        for number, clocks in enumerate(epochs, start=1):
            events.write(epoch_event(number, clocks))


WARM_UP = {"train_s": 99.0, "compute_s": 1.0, "wait_s": 98.0, "sync_s": 0.0}
STEADY = {"train_s": 10.0, "compute_s": 9.0, "wait_s": 0.5, "sync_s": 0.2, "eval_s": 1.0}


def test_every_rank_is_read_and_the_first_epoch_left_out(new_run):
    folder, _ = new_run(ranks=2)
    write_epochs(folder, 0, [WARM_UP, STEADY, STEADY])
    write_epochs(folder, 1, [WARM_UP, {**STEADY, "compute_s": 5.0}, {**STEADY, "compute_s": 4.0}])
    found = measured_of(folder)
    assert [each.compute_s for each in found.clocks] == [18.0, 9.0]
    assert (found.eval_s, found.warms_up, found.clocks[0].train_s) == (2.0, False, 20.0)


def test_an_epoch_that_was_done_again_counts_once(new_run):
    folder, _ = new_run(ranks=1)
    write_epochs(folder, 0, [WARM_UP, {**STEADY, "compute_s": 1.0}])
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(epoch_event(2, STEADY))
    assert measured_of(folder).clocks[0].compute_s == 9.0


def test_without_clocks_in_the_events_rank_0s_metrics_are_read(new_run):
    folder, _ = new_run(ranks=2)
    rows = [
        {"epoch": 1, "train_s": 99, "wait_s": 90},
        {"epoch": 2, "train_s": 10, "wait_s": 6, "compute_s": 3, "eval_s": 1},
    ]
    write_metrics(folder.metrics_path, rows, NODES.columns)
    verdict = find_bottleneck(measured_of(folder))
    assert verdict.bound == "loader"
    assert any("only rank 0's clocks" in caveat for caveat in verdict.caveats)


def test_a_run_without_an_epoch_is_refused(new_run):
    folder, _ = new_run(ranks=2)
    with pytest.raises(UserError, match=r"no epoch of .* was recorded"):
        measured_of(folder)


@pytest.mark.parametrize(("train", "eval_s", "is_short"), [(0.1, 0.0, True), (3.0, 1.9, True), (3.0, 2.1, False)])
def test_a_verdict_on_a_short_run_is_qualified(train, eval_s, is_short):
    verdict = find_bottleneck(measured(clock(train=train, compute=train), eval_s=eval_s))
    assert any("s of epochs were measured" in caveat for caveat in verdict.caveats) is is_short
