"""Which values the next trial of a search takes, and whether one is worth its time: Optuna, told all that is known.

Both are functions of the search's seed, the trial's number and the trials before it, some of which may be running then.
Optuna's study is built anew from these each time, in memory: its storages write a trial in several steps, and forget
where its generator stood.
"""

import hashlib
import json
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from graphmill.base.errors import UserError
from graphmill.record.trials import SearchTrial
from graphmill.spec.search import SearchedKey

if TYPE_CHECKING:
    import optuna

_BEFORE_PRUNING: Final = 5  # trials that are complete
_BEFORE_IMPORTANCE: Final = 8


def require_optuna() -> None:
    """Import Optuna; `UserError` that says what to install, if it is not there."""
    if find_spec("optuna") is None:
        raise UserError(
            "graphmill tune needs Optuna, which this Python does not have",
            fix="pip install 'graphmill[tune]', or pip install optuna",
        )
    import optuna  # noqa: F401  # not first under the lock of a search, where others would wait for it


@dataclass(frozen=True, slots=True)
class Asking:
    """What a search asks Optuna."""

    keys: Sequence[SearchedKey]
    seed: int
    higher_is_better: bool

    def values(self, trials: Sequence[SearchTrial]) -> dict[str, Any]:
        """Values of the trial that follows `trials`; those without an end are running.

        Of a list one that none of them had, if there is one: by chance alone a dozen trials may never try one of five
        models.
        """
        import optuna

        digest = hashlib.sha256(f"{self.seed}:{len(trials)}".encode()).digest()
        is_running = any(trial.end is None for trial in trials)  # elsewhere: not to be tried twice
        sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(digest[:4]), multivariate=True, constant_liar=is_running
        )
        study = self._study(trials, sampler)
        study.enqueue_trial(self._untried(trials))
        asked = study.ask(self._distributions())
        return {key.key: _value(key, asked.params[key.key]) for key in self.keys}

    def prunes_at(
        self, trials: Sequence[SearchTrial], scores: Sequence[tuple[int, float]], *, after: int, judged: int = 0
    ) -> int | None:
        """The first epoch at which a trial with such scores is not worth its time; None: it is.

        `trials`: those before it. No epoch before `after` counts, nor the first `judged` scores, which were looked at.
        """
        import optuna

        study = self._study(trials, optuna.samplers.RandomSampler())
        pruner = optuna.pruners.MedianPruner(n_startup_trials=_BEFORE_PRUNING, n_warmup_steps=after)
        for length in range(judged + 1, len(scores) + 1):
            running = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING, intermediate_values=dict(scores[:length])
            )
            if pruner.prune(study, running):
                return scores[length - 1][0]
        return None

    def importances(self, trials: Sequence[SearchTrial]) -> dict[str, float]:
        """Share of each key in how far good trials are from the others, the largest first; empty: too few trials."""
        import optuna

        if sum(trial.state == "complete" for trial in trials) < _BEFORE_IMPORTANCE:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        study = self._study(trials, optuna.samplers.RandomSampler())
        with _quietly():
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {key: value for key, value in found.items() if math.isfinite(value)}

    def _untried(self, trials: Sequence[SearchTrial]) -> dict[str, str]:
        """A value that no trial had, as Optuna knows it, of each key that is a list; drawn for each key by itself."""
        untried = dict[str, str]()
        for key in self.keys:
            if isinstance(key.dimension, list):
                tried = {_param(key, trial.values[key.key]) for trial in trials}
                left = [param for value in key.dimension if (param := _param(key, value)) not in tried]
                if left:
                    untried[key.key] = random.Random(f"{self.seed}:{len(trials)}:{key.key}").choice(left)
        return untried

    def _study(self, trials: Sequence[SearchTrial], sampler: "optuna.samplers.BaseSampler") -> "optuna.Study":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
            direction="maximize" if self.higher_is_better else "minimize",
        )
        study.add_trials([self._frozen(trial) for trial in trials])
        return study

    def _frozen(self, trial: SearchTrial) -> "optuna.trial.FrozenTrial":
        import optuna

        states = optuna.trial.TrialState
        named = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}
        return optuna.trial.create_trial(
            state=named.get(trial.state, states.RUNNING),
            value=trial.score,
            params={key.key: _param(key, trial.values[key.key]) for key in self.keys},
            distributions=self._distributions(),
            intermediate_values={} if trial.end is None else dict(trial.end.scores),
        )

    def _distributions(self) -> "Mapping[str, optuna.distributions.BaseDistribution]":
        return {key.key: _distribution(key) for key in self.keys}


class _quietly(warnings.catch_warnings):  # noqa: N801  # used as a function
    """Hide that a part of Optuna is called experimental."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")


def _distribution(key: SearchedKey) -> "optuna.distributions.BaseDistribution":
    from optuna import distributions

    if isinstance(key.dimension, list):
        return distributions.CategoricalDistribution([json.dumps(value) for value in key.dimension])
    kind = distributions.IntDistribution if key.is_whole else distributions.FloatDistribution
    return kind(key.dimension.low, key.dimension.high, log=key.dimension.log)


def _param(key: SearchedKey, value: Any) -> Any:  # noqa: ANN401  # any JSON value
    return json.dumps(value) if isinstance(key.dimension, list) else value


def _value(key: SearchedKey, param: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(key.dimension, list):
        return next(value for value in key.dimension if json.dumps(value) == param)
    rounded = float(f"{param:.4g}")
    return param if key.is_whole else min(max(rounded, key.dimension.low), key.dimension.high)
