"""The one thing to change is pure: phases in, advice out, thresholds from both sides; and two profiles compared."""

import pytest
from made_profiles import BEHIND, STEP_S, operator, profile_of, rank_of, spread

from graphmill.base.errors import UserError
from graphmill.diagnose.profile import advice, compare, cores_busy, notes_of, rows_of
from graphmill.diagnose.thresholds import COPY_SHARE, OPTIMIZER_SHARE, OTHER_SHARE, THRESHOLDS
from graphmill.record.phases import OTHER

LITTLE = 0.01


@pytest.mark.parametrize(
    ("name", "limit", "subject"),
    [
        ("wait", THRESHOLDS["loader"][0], "loader"),
        ("sync", THRESHOLDS["sync"][0], "sync"),
        ("copy", COPY_SHARE, "copy"),
        ("optimizer", OPTIMIZER_SHARE, "optimizer"),
        (OTHER, OTHER_SHARE, OTHER),
    ],
)
def test_each_phase_has_its_threshold(name, limit, subject):
    assert advice(profile_of(rank_of(**{name: limit - LITTLE}))).fixes == ()
    found = advice(profile_of(rank_of(**{name: limit + LITTLE})))
    assert found.subject == subject
    assert f"{100 * (limit + LITTLE):.0f} %" in found.text
    assert found.fixes


@pytest.mark.parametrize(
    ("shares", "plan", "words"),
    [
        ({"wait": 0.5}, {"prefetch": 0}, "train.prefetch=2"),
        ({"wait": 0.0, "sample": 0.4}, {"prefetch": 0}, "train.prefetch=2"),  # made by the step's own thread
        ({"wait": 0.5, f"{BEHIND}sample": 0.6}, {}, "train.num_neighbors"),
        ({"wait": 0.5}, {"steps_per_epoch": 1}, "train.batch_size=16"),
        ({"sync": 0.5}, {"sync.every": 4}, "train.sync.every=16"),
        ({"optimizer": 0.5}, {}, "train.batch_size=128"),
        ({OTHER: 0.5}, {"budget.max_nodes": 1000}, "train.batch.max_nodes=2000"),
        ({}, {"threads": 1}, "train.threads=2"),
    ],
)
def test_what_to_type(shares, plan, words):
    assert words in advice(profile_of(rank_of(**shares), **plan)).fixes[0]


def test_ranks_that_differ_are_named():
    slow, fast = rank_of(0, sync=0.01), rank_of(1, sync=0.4)
    found = advice(profile_of(slow, fast, threads=1))
    assert found.subject == "imbalance"
    assert "rank 0 computes 99.00 ms a step" in found.text


def test_an_operator_and_its_backward_are_one():
    halves = [operator("graphmill::attention", 0.25, "forward"), operator("graphmill::attention_backward", 0.2)]
    found = advice(profile_of(rank_of(operators=halves)))
    assert found.subject == "operator"
    assert found.text.startswith("graphmill::attention took 45 % of a step: 25.00 ms in forward, 20.00 ms in backward")
    assert advice(profile_of(rank_of(operators=halves[:1]))).fixes == ()


def test_dense_products_may_be_shorter_in_bf16():
    products = [operator("aten::mm", 0.5)]
    assert "train.precision=bf16" in advice(profile_of(rank_of(operators=products))).fixes[0]
    assert "bf16" not in advice(profile_of(rank_of(operators=products), precision="bf16")).fixes[0]


def test_many_small_operators_are_calls_more_than_work():
    found = advice(profile_of(rank_of(calls=10_000.0)))
    assert (found.subject, found.fixes) == ("dispatch", ("larger batches (train.batch_size=128)",))


def test_idle_cores_are_not_those_that_others_use():
    assert advice(profile_of(rank_of(busy=1.0, host_busy=1.0))).subject == "compute"
    assert "train.batch_size=128" in advice(profile_of(rank_of(busy=1.0, host_busy=1.0))).fixes[0]
    crowded = profile_of(rank_of(busy=1.0, host_busy=2.0))
    found = advice(crowded)
    assert found.subject == "others"
    assert found.text.startswith("other processes kept 1.0 of 2 cores")
    assert "slurm.exclusive=true" in found.fixes[0]
    assert not any("other processes" in note for note in notes_of(crowded)), "said once"
    spare = profile_of(rank_of(busy=1.0, host_busy=2.0), num_cores=4)
    assert any("other processes kept 1.0 cores busy" in note for note in notes_of(spare))
    elsewhere = rank_of(1, busy=1.0).model_copy(update={"host": "another"})
    assert cores_busy(profile_of(rank_of(busy=1.0, host_busy=2.0), elsewhere)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("busy", "threads", "worth"), [(1.0, 4, True), (2.4, 4, True), (3.0, 4, False), (0.4, 1, False)]
)
def test_fewer_threads_are_worth_a_try_where_so_many_cores_are_idle(busy, threads, worth):
    found = advice(profile_of(rank_of(busy=busy, host_busy=busy), threads=threads, num_cores=threads))
    assert any("train.threads=trial" in fix for fix in found.fixes) == worth


def test_rows_add_up_and_what_is_behind_comes_last():
    rows = rows_of(profile_of(rank_of(wait=0.2, **{f"{BEHIND}gather": 0.6, OTHER: 0.05}), rank_of(1, wait=0.1)))
    assert [row.phase for row in rows] == ["wait", "forward", "backward", OTHER, "step", "gather"]
    assert sum(row.share for row in rows[:4]) == pytest.approx(rows[4].share) == pytest.approx(1)
    assert rows[0].share == pytest.approx(0.15), "the mean over ranks"


def test_uneven_steps_and_a_slow_profiler_are_said():
    rank = rank_of(width=0.4)
    slow = rank.model_copy(update={"traced_step": spread(2 * STEP_S), "notes": ("shapes were cut",)})
    notes = notes_of(profile_of(slow))
    assert any("60.0 to 140.0 ms" in note for note in notes)
    assert any("100 % longer" in note for note in notes)
    assert any("rank 0: shapes were cut" in note for note in notes)
    assert notes_of(profile_of(rank_of())) == []


def test_a_change_is_what_the_steps_do_not_explain():
    before, after = rank_of(forward=0.4, wait=0.1, width=0.2), rank_of(forward=0.3, wait=0.11, sync=0.1, width=0.2)
    found = {change.phase: change for change in compare(profile_of(before), profile_of(after, prefetch=4)).changes}
    assert found["forward"].verdict == "faster"
    assert found["forward"].ratio == pytest.approx(0.75)
    assert found["wait"].verdict == "within noise", "±20 % over 29 steps: medians are known to ±12 %"
    assert found["sync"].verdict == "only in the second"
    assert compare(profile_of(after), profile_of(before)).changes[0].verdict == "slower"


@pytest.mark.parametrize(("change", "verdict"), [(0.02, "within noise"), (0.05, "slower")])
def test_what_two_runs_differ_by_is_never_told_apart(change, verdict):
    before, after = rank_of(forward=0.4, width=1e-6), rank_of(forward=0.4 * (1 + change), width=1e-6)
    found = {change.phase: change.verdict for change in compare(profile_of(before), profile_of(after)).changes}
    assert found["forward"] == verdict


def test_differences_of_the_plans_are_named_and_other_work_is_marked():
    same = compare(profile_of(rank_of()), profile_of(rank_of(), prefetch=4, name="other", **{"profile.steps": 9}))
    assert (same.differences, same.is_same_work) == (("prefetch is 2 and 4",), True)
    assert same.step.verdict == "within noise"
    larger = compare(profile_of(rank_of()), profile_of(rank_of(), batch_size=128))
    assert not larger.is_same_work
    assert larger.notes == ()
    assert (
        compare(profile_of(rank_of()), profile_of(rank_of(host_busy=3.5)))
        .notes[0]
        .startswith("other processes kept 1.5 cores busy in B")
    )
    assert larger.seeds_per_s == (pytest.approx(640), pytest.approx(1280))


def test_steps_over_other_data_are_not_compared():
    with pytest.raises(UserError, match=r'dataset\.name is "toy" and "cora"'):
        compare(profile_of(rank_of()), profile_of(rank_of(), **{"dataset.name": "cora"}))
