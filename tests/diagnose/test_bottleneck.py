"""The verdict is pure: clocks in, what holds the run back out. Thresholds from both sides; then what files say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.measured import Clock, Measured
from graphmill.diagnose.rules import find_bottleneck
from graphmill.diagnose.thresholds import THRESHOLDS, headline, thresholds_text
from graphmill.monitor.columns import COLUMNS
from graphmill.monitor.sampler import line
from graphmill.record.events import Epoch, EventWriter, events_in
from graphmill.record.metrics import write_metrics
from graphmill.tasks.node_classification.page import KIND as NODES


def clock(rank: int = 0, *, train=100.0, compute=90.0, wait=0.0, sync=0.0, sample=0.0, gather=0.0) -> Clock:
    return Clock(rank, train, compute, wait, sync, sample, gather)


def measured(*clocks: Clock, **keys) -> Measured:
    """`keys`: of the measured run, of its plan, and named amounts of its use."""
    of_run = {"eval_s": 0.0, "warms_up": False}
    of_plan = {
        "ranks": len(clocks), "hosts": 1, "threads": 1, "sync.every": 1, "prefetch": 2, "steps_per_epoch": 10,
        "batch_size": 64, "device": "cpu",
    }  # fmt: skip
    use = {"cores": 8.0, **{key: keys[key] for key in keys if key not in of_run | of_plan}}
    run, plan = ({key: keys.get(key, usual[key]) for key in usual} for usual in (of_run, of_plan))
    return Measured(clocks=clocks, plan=plan, use=use, **run)


def bound(*clocks: Clock, **keys) -> str:
    return find_bottleneck(measured(*clocks, **keys)).verdict.subject


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
        (measured(clock(0, sync=40), clock(1, sync=40), **{"sync.every": 2}), "train.sync.every=8"),
        (measured(clock(0, sync=40), clock(1, sync=40), cores=1), "fewer ranks: 1 core cannot"),
        (measured(clock(), eval_s=90.0), "train.evaluate_every_epochs=5"),
        (measured(clock(), memory_used_mib=99.0, memory_total_mib=100.0), "train.batch_size=32"),
        (measured(clock(), ranks_cores=0.4), "larger batches (train.batch_size=128)"),
        (measured(clock(), ranks_cores=1.0), "7 of 8 cores have no thread: train.threads=8"),
    ],
)
def test_the_next_thing_to_try_comes_first(found, words):
    assert words in find_bottleneck(found).verdict.fixes[0]


def test_the_slow_rank_and_what_it_does_are_named():
    figure = find_bottleneck(measured(clock(0, compute=50), clock(1, compute=50), clock(2, compute=95))).verdict.text
    assert "rank 2 computes 95.0 s where ranks do 65.0 s on average" in figure


@pytest.mark.parametrize(("slowest", "host"), [(1, 1), (2, 2)])
def test_the_host_of_the_slow_rank_is_named(slowest, host):
    clocks = [clock(rank, compute=95 if rank == slowest else 50) for rank in range(4)]
    assert f"work on host {host} of the run" in find_bottleneck(measured(*clocks, hosts=2)).verdict.fixes[0]


def test_what_may_not_be_the_runs_own_is_said():
    caveats = " ".join(find_bottleneck(measured(clock(), ranks=4, cores=2, others_cores=1.5, warms_up=True)).caveats)
    for words in ("oversubscribed", "only rank 0's clocks", "a single epoch"):
        assert words in caveats
    spare = find_bottleneck(measured(clock(), others_cores=1.5)).caveats
    assert any("other processes kept 1.5 cores" in caveat for caveat in spare)


def test_cores_that_others_took_are_the_diagnosis_and_more_ranks_no_advice():
    found = find_bottleneck(measured(clock(), threads=2, cores=2, ranks_cores=0.1, others_cores=1.9))
    assert found.verdict.subject == "others"
    assert "compute" not in headline(found.verdict.subject)
    assert found.verdict.text.startswith("other processes kept 1.9 of 2 cores")
    assert "slurm.exclusive=true" in found.verdict.fixes[0]
    assert "more ranks" not in " ".join(found.verdict.fixes)
    assert not any("other processes" in caveat for caveat in found.caveats)


def test_shares_of_a_time_that_others_took_part_of_are_no_findings():
    crowded = {"threads": 2, "cores": 2, "others_cores": 1.9}
    assert [each.subject for each in find_bottleneck(measured(clock(0, wait=40), **crowded)).findings] == ["others"]
    full = find_bottleneck(measured(clock(), memory_used_mib=99.0, memory_total_mib=100.0, **crowded))
    assert [each.subject for each in full.findings] == ["memory", "others"]


seconds = st.floats(0, 100)


@given(st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=5), seconds)
@example([(1.1317493570937351, 25.00000001, 0.0)] * 4, 0.0)  # their mean is above each of them
def test_shares_are_shares_and_the_verdict_stands_over_its_threshold(parts, eval_s):
    clocks = [clock(r, train=a + b + c + 1, compute=a, wait=b, sync=c) for r, (a, b, c) in enumerate(parts)]
    found = find_bottleneck(measured(*clocks, eval_s=eval_s))
    assert all(0 <= share <= 1 + 1e-9 for share in found.shares.values())
    if found.verdict.subject == "compute":
        assert not found.findings
    else:
        assert found.shares[found.verdict.subject] > THRESHOLDS[found.verdict.subject][0]


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


def test_memory_is_judged_by_what_the_job_may_have(new_run):
    folder, _ = new_run(ranks=1)
    write_epochs(folder, 0, [WARM_UP, STEADY])
    (end,) = (event.time for event in events_in(folder.events_path(0)) if event.epoch == 2)
    rows = [",".join(COLUMNS)]
    for clock_s in (end - 2, end - 1):
        for subject, amounts in (
            ("host", {"memory_mib": 1000, "memory_total_mib": 64000, "busy_percent": 50}),
            ("job", {"memory_mib": 950, "memory_total_mib": 1000}),
            ("rank_0", {"memory_mib": 940, "private_mib": 940, "peak_mib": 950, "cores": 1.0}),
        ):
            rows.append(line(f"{clock_s:.3f}", subject, amounts))
    folder.monitor_dir.mkdir()
    folder.monitor_path("a").write_text("\n".join(rows) + "\n")
    assert find_bottleneck(measured_of(folder)).verdict.subject == "memory"


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
    found = find_bottleneck(measured_of(folder))
    assert found.verdict.subject == "loader"
    assert any("only rank 0's clocks" in caveat for caveat in found.caveats)


def test_a_run_without_an_epoch_is_refused(new_run):
    folder, _ = new_run(ranks=2)
    with pytest.raises(UserError, match=r"no epoch of .* was recorded"):
        measured_of(folder)


@pytest.mark.parametrize(("train", "eval_s", "is_short"), [(0.1, 0.0, True), (3.0, 1.9, True), (3.0, 2.1, False)])
def test_a_verdict_on_a_short_run_is_qualified(train, eval_s, is_short):
    verdict = find_bottleneck(measured(clock(train=train, compute=train), eval_s=eval_s))
    assert any("s of epochs were measured" in caveat for caveat in verdict.caveats) is is_short
