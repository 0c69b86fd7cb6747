import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.spec.packing import (
    MINUTE_S,
    Interval,
    JobLimits,
    Shape,
    StageCost,
    Unmeasured,
    least_time_s,
    pack,
    whole_job,
)

TINY_S = 1e-6


def cost(name="a", *, work=100.0, start=10.0, piece=1.0, save=1.0, memory=500.0, needs=(), shape=None) -> StageCost:
    work_s, memory_mib = Interval(work * 0.8, work), Interval(memory * 0.9, memory)
    return StageCost(name, shape or Shape(), start, work_s, piece, save, memory_mib, needs)


def seconds(most: float):
    return st.floats(0, most, allow_nan=False)


@st.composite
def pipelines(draw):
    shapes = st.sampled_from([Shape(), Shape(hosts=2)])
    stages = []
    for index in range(draw(st.integers(1, 6))):
        names = [stage.name for stage in stages]
        needs = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2))) if names else ()
        low, extra = draw(seconds(20_000)), draw(seconds(2000))
        memory = draw(seconds(9000))
        stages.append(
            StageCost(
                f"s{index}",
                draw(shapes),
                draw(seconds(90)),
                Interval(low, low + extra),
                draw(seconds(60)),
                draw(seconds(30)),
                Interval(memory, memory + draw(seconds(500))),
                needs,
            )
        )
    return stages


limits = st.builds(JobLimits, st.integers(60, 7200).map(float), st.none() | st.floats(1000, 8000, allow_nan=False))


@given(pipelines(), limits)
def test_every_stage_is_covered_once_and_in_order(stages, limits):
    packing = pack(stages, limits)
    misfits = {misfit.stage for misfit in packing.misfits}
    parts = [part for job in packing.jobs for part in job.parts]
    grouped = [(name, list(group)) for name, group in itertools.groupby(parts, lambda part: part.stage)]
    assert [name for name, _ in grouped] == [stage.name for stage in stages if stage.name not in misfits]
    for (_, group), stage in zip(grouped, (stage for stage in stages if stage.name not in misfits), strict=True):
        assert group[0].begin_s == 0
        assert group[-1].end_s == stage.work_s.high
        assert [part.is_last for part in group] == [False] * (len(group) - 1) + [True]
        assert all(one.end_s == other.begin_s for one, other in itertools.pairwise(group))
        assert not set(stage.needs) & misfits


@given(pipelines(), limits)
def test_no_job_is_above_the_limits_or_asks_for_more_than_it_needs(stages, limits):
    by_name = {stage.name: stage for stage in stages}
    for job in pack(stages, limits).jobs:
        inside = [by_name[part.stage] for part in job.parts]
        for part, stage in zip(job.parts, inside, strict=True):
            assert part.takes_s == pytest.approx(stage.start_s + part.end_s - part.begin_s + stage.end_s, abs=TINY_S)
        assert job.takes_s <= job.time_s + TINY_S
        assert job.time_s <= limits.time_s
        assert job.time_s % MINUTE_S == 0
        assert job.time_s - job.takes_s < MINUTE_S + TINY_S
        assert {stage.shape for stage in inside} == {job.shape}
        peak = max(stage.memory_mib.high for stage in inside)
        assert job.memory_mib <= peak + 1
        assert job.memory_mib >= peak or (limits.memory_mib is not None and job.memory_mib <= limits.memory_mib)


@given(pipelines(), limits)
def test_no_two_neighbouring_jobs_would_fit_in_one(stages, limits):
    for one, other in itertools.pairwise(pack(stages, limits).jobs):
        if one.shape == other.shape and other.parts[0].begin_s == 0:
            assert one.takes_s + other.takes_s > limits.whole_minutes_s - TINY_S


@given(pipelines(), limits)
def test_it_is_pure(stages, limits):
    assert pack(stages, limits) == pack(stages, limits)


def test_small_stages_share_a_job_which_asks_for_the_larger_memory():
    (job,) = pack([cost("a", work=20), cost("b", work=30, memory=700, needs=("a",))], JobLimits(600)).jobs
    assert [part.stage for part in job.parts] == ["a", "b"]
    assert (job.time_s, job.memory_mib) == (120, 700)


def test_a_long_stage_spans_jobs_and_pays_its_start_in_each():
    jobs = pack([cost(work=1000)], JobLimits(300)).jobs
    assert [job.parts[0].end_s - job.parts[0].begin_s for job in jobs] == [289, 289, 289, 133]
    assert [job.time_s for job in jobs] == [300, 300, 300, 180]


def test_a_part_is_not_all_start_up():
    one, other = pack([cost("a", work=280), cost("b", work=200, needs=("a",))], JobLimits(300)).jobs
    assert [part.stage for part in one.parts] == ["a"]
    assert [part.stage for part in other.parts] == ["b"]


def test_a_room_that_start_up_would_fill_is_left():
    """13 s are left after the start of b, which takes 20 s: more start-up than work."""
    stages = [cost("a", work=255), cost("b", work=200, start=20, needs=("a",))]
    jobs = pack(stages, JobLimits(300)).jobs
    assert [[part.stage for part in job.parts] for job in jobs] == [["a"], ["b"]]
    longer = pack([cost("a", work=245), stages[1]], JobLimits(300)).jobs
    assert [[part.stage for part in job.parts] for job in longer] == [["a", "b"], ["b"]]


def test_what_does_not_fit_says_why_and_takes_its_dependants_along():
    stages = [
        cost("long", work=500, piece=400),
        cost("large", memory=9000),
        cost("after", needs=("large",)),
        cost("fits"),
    ]
    packing = pack(stages, JobLimits(300, 4000))
    assert [part.stage for job in packing.jobs for part in job.parts] == ["fits"]
    why = {misfit.stage: misfit.why for misfit in packing.misfits}
    assert list(why) == ["long", "large", "after"]
    assert "300 s" in why["long"]
    assert "8100 MiB" in why["large"]
    assert "4000 MiB" in why["large"]
    assert "large" in why["after"]


def test_a_limit_below_a_minute_fits_nothing():
    packing = pack([cost()], JobLimits(59))
    assert (packing.jobs, len(packing.misfits)) == ((), 1)


def test_a_stage_of_which_nothing_is_predicted_may_take_all_of_a_job():
    job = whole_job("a", Shape(), JobLimits(150.0, 1000.5))
    assert (job.time_s, job.memory_mib, job.hands_over) == (120, 1000, False)
    assert whole_job("a", Shape(), JobLimits(150.0)).memory_mib == 0


def test_a_stage_that_is_not_measured_stands_between_those_that_are():
    def unmeasured(name: str, *needs: str) -> Unmeasured:
        return Unmeasured(name, Shape(), needs, "its teacher is not done")

    stages = [cost("teacher"), unmeasured("pupil", "teacher"), cost("after"), cost("last")]
    jobs = pack(stages, JobLimits(600)).jobs
    assert [[part.stage for part in job.parts] for job in jobs] == [["teacher"], ["pupil"], ["after", "last"]]
    assert (jobs[1].time_s, jobs[1].hands_over) == (600, False)
    none = pack([cost("teacher", piece=700, work=900), unmeasured("pupil", "teacher")], JobLimits(600))
    assert (none.jobs, [misfit.stage for misfit in none.misfits]) == ((), ["teacher", "pupil"])
    assert [misfit.stage for misfit in pack([unmeasured("alone")], JobLimits(59)).misfits] == ["alone"]


def test_an_attempt_is_worth_a_start_a_piece_of_work_and_its_end():
    assert least_time_s(cost(work=100, start=10, piece=4, save=3)) == pytest.approx(17)
    assert least_time_s(cost(work=2, start=10, piece=4, save=3)) == pytest.approx(15)


def test_memory_that_may_suffice_is_tried():
    (job,) = pack([cost(memory=1000)], JobLimits(600, memory_mib=950)).jobs  # it is predicted to take 900 to 1000
    assert job.memory_mib == 950
    (misfit,) = pack([cost(memory=1000)], JobLimits(600, memory_mib=850)).misfits
    assert "850" in misfit.why
