"""Which evaluation is the best so far, and what is kept of it."""

from types import SimpleNamespace

from graphmill.spec.columns import Measure
from graphmill.tasks.task import Measures
from graphmill.train.evaluations import Evaluations, LatestEvaluation

KNOWN = (Measure("auc", "area", higher_is_better=True), Measure("error", "mean error", higher_is_better=False))


def test_measures_of_the_best_epoch_stand_beside_the_best_of_any():
    """The second epoch is the best by the first measure; a lower error came before, and after."""
    plan = SimpleNamespace(kind=SimpleNamespace(measures=KNOWN))
    evaluations = Evaluations(plan, None, None, None, None, None, None)
    epochs = [{"auc": 0.6, "error": 2.0}, {"auc": 0.8, "error": 3.0}, {"auc": 0.7, "error": 1.0}]
    for epoch, values in enumerate(epochs, start=1):
        improved, evaluations.best = evaluations._compared(Measures(0.5, values, 10), epoch, 4 * epoch)
        assert improved is (epoch < 3)
    best = evaluations.best
    assert best.facts() == {"step": 8, "epoch": 2, "auc": 0.8, "error": 3.0}
    assert best.values == {"auc": 0.8, "error": 1.0}
    assert best.model_copy(update={"measures": {}}).facts() == {"step": 8, "epoch": 2, **best.values}


def test_weights_of_a_step_have_the_measures_of_an_evaluation_there_and_of_no_other(make_plan):
    evaluations = Evaluations(make_plan(), None, None, None, None, None, None)
    evaluations.latest = LatestEvaluation(3, {"micro_f1": 0.5})
    assert evaluations.origin(1, 3, "hash").measures == {"micro_f1": 0.5}
    assert evaluations.origin(2, 4, "hash").measures == {}
