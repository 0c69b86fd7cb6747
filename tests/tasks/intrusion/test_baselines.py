"""The statistic without a graph: on made-up traffic whose deviations are known, and on the real capture."""

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.baselines import Frequencies
from graphmill.tasks.intrusion.data.captures import read_capture
from graphmill.tasks.intrusion.data.frames import Frames
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from graphmill.tasks.intrusion.threshold import roc_auc


def _frames(ids, time=None):
    count = len(ids)
    time = np.arange(count) * 1e-3 if time is None else time
    data = np.zeros((count, 8), np.uint8)
    return Frames(time, np.array(ids, np.uint32), data, np.full(count, 8, np.uint8), np.zeros(count, np.int8))


def _windows(frames, size=20):
    return joined_graphs(list(graphs_of([frames], Leftover(), size=size, stride=size)))


def _cycle(count, ids=(1, 2, 3, 4)):
    return [ids[place % len(ids)] for place in range(count)]


def test_what_is_like_the_benign_scores_nothing_and_what_is_not_by_its_count():
    known = Frequencies.fit(_windows(_frames(_cycle(401))), np.ones(20, bool))
    assert known.ids.tolist() == [1, 2, 3, 4]
    assert known.score(_windows(_frames(_cycle(41)))) == pytest.approx([0, 0], abs=1e-6)
    strange = _cycle(41)
    strange[5:12] = [9] * 7  # an id that is not known, seven times: a deviation is half a frame
    assert known.score(_windows(_frames(strange))) == pytest.approx([14, 0], abs=1e-6)


def test_the_same_ids_at_another_pace():
    known = Frequencies.fit(_windows(_frames(_cycle(401))), np.ones(20, bool))
    slow = known.score(_windows(_frames(_cycle(21), np.arange(21) * 2e-3)))
    assert slow == pytest.approx([np.log(2) / 0.05])


def test_without_times_counts_alone_are_judged():
    known = Frequencies.fit(_windows(_frames(_cycle(401), np.zeros(401))), np.ones(20, bool))
    assert np.isnan(known.gap_mean).all()
    assert known.score(_windows(_frames(_cycle(41)))) == pytest.approx([0, 0], abs=1e-6)


def test_what_is_fitted_does_not_depend_on_what_is_left_out(monkeypatch):
    graphs = _windows(_frames(_cycle(401) + [7] * 200))
    is_fitted = np.arange(len(graphs)) < 19
    known = Frequencies.fit(graphs, is_fitted)
    assert known.ids.tolist() == [1, 2, 3, 4]
    whole = known.score(graphs)
    monkeypatch.setattr("graphmill.tasks.intrusion.baselines._AT_ONCE", 7)
    assert Frequencies.fit(graphs, is_fitted).count_mean == pytest.approx(known.count_mean)
    np.testing.assert_array_equal(known.score(graphs), whole)


def test_nothing_to_fit():
    with pytest.raises(UserError, match="benign"):
        Frequencies.fit(_windows(_frames(_cycle(41))), np.zeros(2, bool))


def test_a_flood_of_one_id_is_told_in_the_real_capture(shared_data):
    frames, _ = read_capture(shared_data("can/can-train-and-test/set_01/train_01/DoS-1.csv.gz"))
    graphs = joined_graphs(list(graphs_of([frames], Leftover())))
    is_attack = graphs.labels == 1
    for fitted in (np.arange(len(graphs)) >= 600, np.arange(len(graphs)) < 45):
        scores = Frequencies.fit(graphs, fitted & ~is_attack).score(graphs)
        assert roc_auc(scores[~fitted], is_attack[~fitted]) > 0.99
