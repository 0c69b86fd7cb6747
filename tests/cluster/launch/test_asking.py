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
