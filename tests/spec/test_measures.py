"""What a run is judged by: measures of the user's own beside those of the task, and which of them comes first."""

import pytest

from graphmill.base.errors import UserError
from graphmill.record.columns import is_lower_better, kind_of_header
from graphmill.spec.kinds import find_kind
from graphmill.spec.measures import judged_kind, refuse_unfit_measures

MCC = {"target": "strange_losses.mcc", "higher_is_better": True}
BRIER = {"target": "strange_losses.brier", "higher_is_better": False}


def test_a_run_has_the_columns_of_its_own_measures(make_plan):
    plan = make_plan(measures={"mcc": MCC, "brier": BRIER}, best_by="brier")
    assert plan.kind.primary.name == "brier"
    assert not plan.kind.primary.higher_is_better
    own = {"val_mcc", "best_val_mcc", "val_brier", "best_val_brier"}
    assert plan.kind.columns.keys() - find_kind("node_classification").columns.keys() == own
    assert is_lower_better(plan.kind, "best_val_brier")
    assert not is_lower_better(plan.kind, "val_mcc")


def test_a_plan_without_any_is_judged_as_its_task(make_plan):
    assert make_plan().kind is find_kind("node_classification")


def test_a_measure_of_the_task_may_choose_the_best(make_plan):
    kind = make_plan(best_by="macro_f1").kind
    assert kind.primary.name == "macro_f1"
    assert set(kind.columns) == set(find_kind("node_classification").columns)


def test_runs_that_were_judged_differently_are_compared_by_the_tasks_own_measure(make_plan):
    one, other = make_plan(measures={"mcc": MCC}, best_by="mcc"), make_plan(measures={"brier": BRIER})
    assert judged_kind("node_classification", [one, one]).primary.name == "mcc"
    together = judged_kind("node_classification", [one, other])
    assert together.primary.name == "micro_f1"
    assert {"mcc", "brier"} <= {measure.name for measure in together.measures}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"measures": {"micro_f1": MCC}}, r"train\.measures\.micro_f1 has a name that is taken"),
        ({"measures": {"loss": MCC}}, r"train\.measures\.loss has a name that is taken"),
        ({"measures": {"epoch": MCC}}, r"train\.measures\.epoch has a name that is taken"),
        ({"measures": {"my mcc": MCC}}, r"train\.measures\.my mcc names a column"),
        ({"best_by": "macro_f2"}, r"train\.best_by is 'macro_f2'.*\n.*micro_f1, macro_f1"),
        ({"measures": {"mcc": MCC}, "best_by": "mmc"}, r"'mmc'.*\n.*macro_f1_all_classes, mcc"),
    ],
)
def test_what_clashes_is_refused(make_plan, train, message):
    with pytest.raises(UserError, match=message):
        make_plan(**train)


def test_a_task_that_computes_none_says_so(make_plan):
    from dataclasses import replace

    kind = replace(find_kind("traffic"), takes_measures=False)
    with pytest.raises(UserError, match=r"train\.measures has mcc, but the task traffic takes none"):
        refuse_unfit_measures(kind, make_plan(measures={"mcc": MCC}).measures, None)


@pytest.mark.parametrize("best_by", [None, "mcc", "macro_f1"])
def test_a_header_names_the_measures_and_the_first_of_them(make_plan, best_by):
    written = make_plan(measures={"mcc": MCC, "brier": BRIER}, best_by=best_by).kind
    read = kind_of_header(tuple(written.columns))
    assert [measure.name for measure in read.measures] == [measure.name for measure in written.measures]


def test_a_header_of_no_task_is_of_no_task():
    columns = find_kind("node_classification").columns
    assert kind_of_header((*columns, "val_mcc")) is None
    assert kind_of_header((*columns, "something")) is None
