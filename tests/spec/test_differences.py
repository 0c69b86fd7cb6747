"""What tells two runs apart: everything that was chosen, but for a short list that is written out here."""

import pytest

from graphmill.spec.differences import configuration, flat, plan_differences, varied_keys

NO_CHOICE = {"name", "run_id", "seed", "baselines", "dataset.path", "init_from.source", "init_from.path", "presampled"}


def test_every_choice_is_part_of_the_configuration(make_plan):
    plan = make_plan()
    own = {*NO_CHOICE, *plan.kind.repetitions}
    assert flat(plan).keys() - configuration(plan).keys() <= own | {"extends"}


def test_runs_of_another_precision_or_number_of_threads_are_no_repetitions(make_plan):
    one = make_plan("one", threads=1, seed=1)
    for key, value in (("precision", "bf16"), ("threads", 2)):
        other = make_plan("two", **{"threads": 1, "seed": 2, key: value})
        assert configuration(one) != configuration(other)
        assert [name.split(".")[-1] for name in varied_keys([one, other])] == [key]
    assert configuration(one) == configuration(make_plan("three", threads=1, seed=3))


@pytest.mark.parametrize(
    ("key", "ways"),
    [
        ("evaluate_on", ("whole_graph", "neighbourhoods")),
        ("gpu_graph_gib", (None, 8.0)),
        ("gpu_draws", ("device", "cpu")),
        ("gpu_rows", ("own", "wholegraph")),
    ],
)
def test_what_suits_a_machine_is_a_choice_but_no_other_run(make_plan, key, ways):
    """A run that goes on with less memory evaluates as it was planned to; runs that differ in it are told apart."""
    plan = make_plan()
    one, other = (plan.model_copy(update={"task": plan.task.model_copy(update={key: way})}) for way in ways)
    assert plan_differences(one, other) == []
    assert varied_keys([one, other]) == [key]
