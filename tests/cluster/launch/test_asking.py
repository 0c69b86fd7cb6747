"""What Optuna is told of a search's trials, and what it answers."""

import random

import pytest

from graphmill.cluster.launch.asking import Asking
from graphmill.record.trials import SearchTrial, TrialEnd
from graphmill.spec.search import Range, SearchedKey

pytest.importorskip("optuna")

KEYS = [
    SearchedKey("train.optimizer.lr", Range(low=1e-4, high=1.0, log=True), is_whole=False),
    SearchedKey("model.hidden_channels", [16, 32, 64], is_whole=False),
]
ASKING = Asking(KEYS, seed=0, higher_is_better=True)


def trials(number: int) -> list[SearchTrial]:
    """As many as that, complete, of random values and scores."""
    draws = random.Random(3)
    values = [
        {"train.optimizer.lr": 10 ** draws.uniform(-4, 0), "model.hidden_channels": draws.choice([16, 32, 64])}
        for _ in range(number)
    ]
    return [
        SearchTrial(each, values[each], TrialEnd(trial=each, state="complete", best=(3, draws.random())))
        for each in range(number)
    ]


def test_of_several_seeds_the_mean_is_told():
    """Whatever the first seed's own score is."""
    alone = trials(14)
    several = [
        SearchTrial(
            trial.number,
            trial.values,
            trial.end.model_copy(update={"of_seeds": (trial.score - 0.5, trial.score + 0.5), "best": (3, 0.5)}),
        )
        for trial in alone
    ]
    assert ASKING.values(several) == ASKING.values(alone)
    turned = [
        SearchTrial(trial.number, trial.values, trial.end.model_copy(update={"of_seeds": (1 - trial.score,)}))
        for trial in alone
    ]
    assert ASKING.values(turned) != ASKING.values(alone)


def test_what_runs_elsewhere_is_not_tried_again():
    """What has failed might be: nothing is known of it."""
    ended = trials(14)
    failed = [SearchTrial(14, ended[0].values, TrialEnd(trial=14, state="failed"))]
    asked = ASKING.values([*ended, *failed])
    running = [SearchTrial(14, asked, None)]
    assert ASKING.values([*ended, SearchTrial(14, asked, failed[0].end)]) == asked
    assert ASKING.values([*ended, *running]) != asked
    assert ASKING.values([*ended, *running]) == ASKING.values([*ended, *running])
    assert ASKING.importances([*ended, *running]) == ASKING.importances(ended)


def test_trials_that_run_elsewhere_prune_none():
    scores = [(epoch, 0.0) for epoch in range(1, 6)]
    of_seven = [
        SearchTrial(trial.number, trial.values, trial.end.model_copy(update={"scores": ((1, 0.5), (2, 0.6), (3, 0.7))}))
        for trial in trials(7)
    ]
    unknown = [SearchTrial(trial.number, trial.values, None) for trial in of_seven[4:]]
    assert ASKING.prunes_at(of_seven, scores, after=2) == 2
    assert ASKING.prunes_at([*of_seven[:4], *unknown], scores, after=2) is None


def test_each_listed_value_is_tried_before_one_is_tried_again():
    """Also while those before it run, and whatever was tried first."""
    listed = [{"kind": kind} for kind in ("a", "b", "c", "d", "e")]
    keys = [SearchedKey("model", listed, is_whole=False), SearchedKey("decay", [0.0, 0.1], is_whole=False)]
    asking = Asking(keys, seed=0, higher_is_better=True)
    tried = [SearchTrial(0, {"model": listed[3], "decay": 0.1}, None)]
    for number in range(1, 5):
        tried.append(SearchTrial(number, asking.values(tried), None))
    assert sorted(trial.values["model"]["kind"] for trial in tried) == ["a", "b", "c", "d", "e"]
    assert tried[1].values["decay"] == 0.0
    assert asking.values([*tried, SearchTrial(5, tried[0].values, None)])["model"] in listed


def test_untried_values_of_two_keys_do_not_go_together():
    """Else one of them could not be told from the other by the trials that there are."""
    keys = [SearchedKey(name, [1, 2, 3, 4, 5, 6], is_whole=False) for name in ("width", "depth")]
    asking, tried = Asking(keys, seed=0, higher_is_better=True), list[SearchTrial]()
    for number in range(6):
        tried.append(SearchTrial(number, asking.values(tried), None))
    pairs = [(trial.values["width"], trial.values["depth"]) for trial in tried]
    assert sorted(width for width, _ in pairs) == sorted(depth for _, depth in pairs) == [1, 2, 3, 4, 5, 6]
    assert any(width != depth for width, depth in pairs)
