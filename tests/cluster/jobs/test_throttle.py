"""A study keeps to so many cells at a time, however many arrays its cells need."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from graphmill.cli.study_submit import _after
from graphmill.cluster.jobs.study import Array, throttled


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 60))
def test_no_more_run_at_a_time_than_asked_and_none_waits_for_ever(counts: list[int], at_once: int):
    throttles = throttled(counts, at_once)
    lane_of: dict[int, int] = {}
    for index, each in enumerate(throttles):
        assert each.tasks is not None
        assert each.tasks >= 1
        assert each.waits_for is None or each.waits_for < index
        lane_of[index] = index if each.waits_for is None else lane_of[each.waits_for]
    lanes = {lane: [index for index in lane_of if lane_of[index] == lane] for lane in set(lane_of.values())}
    assert len({each.waits_for for each in throttles if each.waits_for is not None}) == sum(
        each.waits_for is not None for each in throttles
    ), "one waits for each"
    running = sum(max(min(counts[index], throttles[index].tasks or 0) for index in lane) for lane in lanes.values())
    assert running <= at_once
    if sum(counts) <= at_once:
        assert all(
            each.waits_for is None and each.tasks == count for each, count in zip(throttles, counts, strict=True)
        )
    elif len(counts) == 1:
        assert throttles[0].tasks == at_once


def test_an_array_that_waits_for_another_one_waits_for_what_was_asked_too(tmp_path):
    array = Array(None, "", tmp_path, (), dependency="afterok:9", waits_for=1)
    assert _after(array, ["16", "17"]).dependency == "afterok:9,afterany:17"
    assert _after(replace(array, dependency=""), ["16", "17"]).dependency == "afterany:17"
    assert _after(replace(array, waits_for=None), []).dependency == "afterok:9"
