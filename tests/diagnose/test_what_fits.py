"""What was asked is called fitting of runs that went their whole way only."""

from types import SimpleNamespace

import pytest

from graphmill.diagnose.epilog_text import _advice


@pytest.mark.parametrize(("outcome", "fits"), [("done", True), ("out_of_time", True), ("failed", False), (None, False)])
def test_a_failed_run_fits_nothing(outcome: str | None, fits: bool):
    (line,) = _advice(SimpleNamespace(advice=[], asked={"cores": 2.0}, outcome=outcome))
    assert ("fits" in line) == fits
