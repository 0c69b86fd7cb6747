"""What is profiled: chosen by the planner, refused where a run is too short or has no CUDA."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.profiler import ProfilerSpec, planned_profile


@pytest.mark.parametrize(("last_step", "wait"), [(1000, 20), (27, 20), (26, 19), (8, 1)])
def test_auto_is_as_many_steps_as_a_short_run_has(last_step, wait):
    found = planned_profile(ProfilerSpec(), steps=5, last_step=last_step, device="cpu")
    assert (found.wait, found.last_step) == (wait, wait + 7)


@pytest.mark.parametrize(("wait", "last_step"), [("auto", 7), (4, 10)])
def test_a_run_that_is_too_short_is_refused_with_the_numbers(wait, last_step):
    with pytest.raises(UserError, match=rf"\+ 2 \+ 5 steps .* the run has {last_step}"):
        planned_profile(ProfilerSpec(wait=wait), steps=5, last_step=last_step, device="cpu")


def test_a_memory_snapshot_wants_cuda():
    asked = ProfilerSpec(memory_snapshot=True)
    with pytest.raises(UserError, match=r"train\.profiler\.memory_snapshot .* cpu"):
        planned_profile(asked, steps=5, last_step=100, device="cpu")
    assert planned_profile(asked, steps=5, last_step=100, device="cuda").memory_snapshot


def test_options_reach_the_plan(make_plan):
    train = {"epochs": 20, "profile": True, "profile_steps": 3, "profiler": {"shapes": True, "max_mib": 8}}
    plan = make_plan(ranks=1, **train)
    assert plan.profile is not None
    assert (plan.profile.steps, plan.profile.shapes, plan.profile.max_mib, plan.profile.ends_run) == (3, True, 8, False)
    assert make_plan(ranks=1).profile is None
