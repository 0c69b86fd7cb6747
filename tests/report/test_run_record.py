"""What a report reads of one run."""

from types import SimpleNamespace

import polars as pl

from graphmill.report.run_record import RunRecord


def test_every_measure_is_that_of_the_best_epoch():
    """outcome.json has of all but the measure that chose it the best of any epoch."""
    frame = pl.DataFrame({"epoch": [1, 2, 3], "val_micro_f1": [0.2, 0.5, 0.4], "val_macro_f1": [0.1, 0.2, 0.3]})
    outcome = SimpleNamespace(best={"epoch": 2, "micro_f1": 0.5, "macro_f1": 0.3})
    plan = SimpleNamespace(kind=SimpleNamespace(primary=SimpleNamespace(name="micro_f1")))
    record = RunRecord(SimpleNamespace(), plan, outcome, frame, (), None)
    assert (record.best("micro_f1"), record.best("macro_f1"), record.best("absent")) == (0.5, 0.2, None)
