"""`detect --calibrate`: a threshold by a benign capture, for a wanted number of false alarms in an hour."""

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.live import LiveWindows
from graphmill.train.detect import _calibrated


def largest_id(graphs):
    """A made-up model: the largest id of a window is its score."""
    ends = np.cumsum(graphs.num_nodes)
    return graphs.node_ids[ends - 1].astype(float)


def weigh(graphs):
    raise AssertionError("nothing is an alarm while a threshold is looked for")


def detector():
    return LiveWindows(largest_id, weigh, None, size=10, stride=10)


def capture(tmp_path, *, label=""):
    """A hundred windows of 36 s, an hour in all; the largest id of window n is 1 + 7 n modulo 101."""
    lines = [
        f"({place * 3.6:.6f}) can0 {1 + place // 10 * 7 % 101 if place % 10 == 5 else 0:03X}#00{label}"
        for place in range(1001)
    ]
    path = tmp_path / "calm.log"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(("per_hour", "threshold"), [(6.0, 96.5), (50.0, 55.5)])
def test_the_threshold_has_the_wanted_alarms_on_benign_traffic(tmp_path, caplog, per_hour, threshold):
    with caplog.at_level("INFO"):
        found = _calibrated(detector(), capture(tmp_path), "auto", per_hour)
    scores = 1 + np.arange(100) * 7 % 101
    assert found == threshold
    # Windows cover nine tenths of the hour: their ten frames, without the time to the next window.
    assert (scores >= found).sum() == int(per_hour * 0.9)
    assert f"{int(per_hour * 0.9)} alarms of 100 windows" in caplog.text


def test_a_capture_with_attacks_calibrates_nothing(tmp_path):
    with pytest.raises(UserError, match="100 of 100 windows"):
        _calibrated(detector(), capture(tmp_path, label=" 1"), "auto", 6.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--calibrate", "calm.log"], "--false-alarms-per-hour"),
        (["--false-alarms-per-hour", "6"], "--calibrate CAPTURE"),
        (["--calibrate", "calm.log", "--false-alarms-per-hour", "6", "--threshold", "1"], "both set the threshold"),
        (["--calibrate", "calm.log", "--false-alarms-per-hour", "0"], "above 0"),
    ],
)
def test_options_that_do_not_go_together(graphmill, options, says):
    done = graphmill("detect", "a-run", *options)
    assert done.code == 2
    assert says in done.err
