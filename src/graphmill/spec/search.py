"""A search: one experiment, and the keys whose values `graphmill tune` chooses. Pure."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field, PositiveFloat, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.check import checked, examined
from graphmill.config.draft import Draft
from graphmill.config.frozen import Spec
from graphmill.config.keys import keys_of
from graphmill.config.problems import Problem, add_problem, refuse
from graphmill.config.yaml_text import read_document
from graphmill.spec.experiment import CustomModelSpec, Experiment
from graphmill.spec.load import load_experiment, named_or_inline, next_to
from graphmill.spec.recipes import find_recipe, is_search

Value = Any
"""What a key is set to: any JSON value."""

DEFAULT_TRIALS: Final = 20
"""Where neither a number of trials nor a time is given."""
SEED: Final = "train.seed"
"""The key of a run's seed, which is not searched."""
_WIDTHS: Final = ("hidden_channels", "rnn_units", "embed_dim", "embedding_channels")
_DROPOUTS: Final = ("dropout", "input_dropout")
_MOST_DROPOUT: Final = 0.8
_DECAYS: Final = (0.0, 1e-5, 1e-4, 1e-3, 5e-3)
_WHOLE: Final = "a whole number"


class Range(Spec):
    """Numbers from `low` to `high`, both included."""

    low: int | float = Field(description="the least value")
    high: int | float = Field(description="the largest value")
    log: bool = Field(False, description="draw evenly on a log scale, as for a learning rate")


Dimension = Range | list[Any]
"""What a key may be: a range, or a list of values."""
Space = list[Any] | dict[str, Any]
"""What a file has of that."""


class Search(Spec):
    """A search file, as written."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="folder of the search's runs in the logs root"
    )
    experiment: str | dict[str, Any] = Field(
        description="a recipe, a YAML file (also relative to the search's own), or an experiment in place"
    )
    set: dict[str, Any] = Field({}, description="dotted keys that all trials share, laid over the experiment")
    space: dict[str, Space] = Field(
        {},
        description="dotted key: a list of values, or {low, high} of a range, with `log: true` for a log scale;"
        " without it what `graphmill tune EXPERIMENT` searches",
    )
    trials: PositiveInt | None = Field(
        None, description=f"trials in all, of a run for each seed; null, and no hours: {DEFAULT_TRIALS}"
    )
    hours: PositiveFloat | None = Field(
        None, description="of searching, over interruptions, of all processes together; null: no limit"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="of the choice of values; a run's own is train.seed")
    seeds: list[int] = Field(
        [],
        description="every trial is trained once with each of these seeds (train.seed), and its score is the mean;"
        " empty: once, with the experiment's own",
    )
    prune: bool = Field(
        True,
        description="stop a trial whose validation score, after a fifth of its epochs, is worse than the median of"
        " those before it at the same epoch; with several seeds by the first, and the others are not begun",
    )

    @property
    def most_trials(self) -> int | None:
        """Trials after which the search ends; None: only time ends it."""
        return DEFAULT_TRIALS if self.trials is None and self.hours is None else self.trials


@dataclass(frozen=True, slots=True)
class SearchedKey:
    """One key of the space, with all that its values are drawn by."""

    key: str
    dimension: Dimension
    is_whole: bool  # a range of whole numbers

    def holds(self, value: Value) -> bool:
        """Whether `value` may be drawn."""
        if isinstance(self.dimension, list):
            return _text(value) in map(_text, self.dimension)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.dimension.low <= value <= self.dimension.high

    def ends(self) -> list[Value]:
        """Values that stand for all: those of a list, or both ends of a range."""
        return self.dimension if isinstance(self.dimension, list) else [self.dimension.low, self.dimension.high]

    def __str__(self) -> str:
        if isinstance(self.dimension, list):
            return ", ".join(map(_text, self.dimension))
        scale = ", log scale" if self.dimension.log else ""
        return f"{self.dimension.low:g} to {self.dimension.high:g}{scale}"


def load_search(
    source: str | Path, overrides: Sequence[str] = (), changes: Mapping[str, Value] | None = None
) -> Search:
    """The search in a YAML file or recipe; of an experiment there: one over its default space.

    `overrides`: laid over the experiment, as by `-O`. `changes`: keys of the search that the command line gives.
    """
    path = find_recipe(str(source), holds="an experiment")
    document = read_document(path, holds="an experiment or a search")
    given = {key: value for key, value in (changes or {}).items() if value is not None}
    if is_search(document.value):
        draft = Draft.of(document)
        draft.value.update(given)
        search = checked(Search, draft, str(path))
        search = search.model_copy(update={"experiment": next_to(path, search.experiment)})
    else:
        name = load_experiment(source, overrides).name
        value = {"name": f"tune-{name}", "experiment": str(source), **given}
        search = checked(Search, Draft(value, {}), "the options")
    return _with_space(_with_overrides(search, overrides))


def load_trial(search: Search, values: Mapping[str, Value]) -> Experiment:
    """The experiment that a trial with such values runs."""
    return named_or_inline(search.experiment, f"search {search.name}", trial_overrides(search, values))


def trial_overrides(search: Search, values: Mapping[str, Value]) -> list[str]:
    """What is laid over the experiment for a trial with such values, as by `-O`."""
    return [f"{key}={_text(value)}" for key, value in {**search.set, **values}.items()]


def searched_keys(search: Search) -> list[SearchedKey]:
    """The keys of the space; `UserError` with all that is wrong with them. No data are opened."""
    source = f"search {search.name}"
    known = {key.dotted: key.takes.startswith(_WHOLE) for key in keys_of(type(load_trial(search, {})))}
    keys: list[SearchedKey] = []
    problems: list[Problem] = []
    for key, given in search.space.items():
        dimension: Dimension | None = given if isinstance(given, list) else None
        if isinstance(given, dict):
            dimension, found = examined(Range, Draft(dict(given), {}), f"{source}, space.{key}")
            problems += found
        if dimension is not None:
            is_whole = isinstance(dimension, Range) and known.get(key, _is_whole(dimension))
            keys.append(SearchedKey(key, dimension, is_whole))
            problems += _problems(search, keys[-1])
    problems += _seed_problems(search)
    refuse(problems, source)
    shared = SearchedKey(SEED, search.seeds, is_whole=True)
    for searched in (*keys, shared):
        try:
            for value in searched.ends():
                load_trial(search, {searched.key: value})
        except UserError as error:
            add_problem(problems, source, error)
    refuse(problems, source)
    return keys


def own_values(keys: Sequence[SearchedKey], experiment: Experiment) -> dict[str, Value] | None:
    """What the experiment itself has of the searched keys; None: some of it cannot be drawn."""
    dumped = experiment.model_dump(mode="json")
    own = {key.key: _at(dumped, key.key) for key in keys}
    return own if all(key.holds(own[key.key]) for key in keys) else None


def default_space(experiment: Experiment) -> dict[str, Space]:
    """What is searched where nobody says: rate, decay, dropout, width and depth, as far as the experiment has them.

    The depth of a model that samples is given by its fan-outs, and stays.
    """
    train, model = experiment.train, experiment.model
    rate, decay = train.optimizer.lr, train.optimizer.weight_decay
    others = [each for each in _DECAYS if (each if decay is None else not math.isclose(each, decay))]  # null: near 0
    space: dict[str, Space] = {
        "train.optimizer.lr": {"low": _rounded(rate / 10), "high": _rounded(rate * 10), "log": True},
        "train.optimizer.weight_decay": [decay, *others],
    }
    options = isinstance(model, CustomModelSpec)
    section = model.options if isinstance(model, CustomModelSpec) else model.model_dump()
    for name, value in section.items():
        space |= _default_dimension(f"model.{'options.' if options else ''}{name}", name, value, train)
    width = getattr(experiment, "embedding_channels", None)
    return space | _default_dimension("embedding_channels", "embedding_channels", width, train)


def _default_dimension(key: str, name: str, value: Value, train: Spec) -> dict[str, Space]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return {}
    if name in _DROPOUTS:
        return {key: {"low": 0.0, "high": max(_MOST_DROPOUT, value)}}
    if name in _WIDTHS and value > 1:
        return {key: [int(value) // 2, int(value), int(value) * 2]}
    if name == "num_layers" and not hasattr(train, "num_neighbors"):
        return {key: [layers for layers in (int(value) - 1, int(value), int(value) + 1) if layers]}
    return {}


def _with_space(search: Search) -> Search:
    return search if search.space else search.model_copy(update={"space": default_space(load_trial(search, {}))})


def _with_overrides(search: Search, overrides: Sequence[str]) -> Search:
    """Overrides as if the file set them; those that clash with its own keys are refused there."""
    draft = Draft({}, {})
    for text in overrides:
        draft.override(text)
    refuse(draft.problems, "the options")
    given = {
        text.partition("=")[0].strip(): draft.at(tuple(text.partition("=")[0].strip().split("."))) for text in overrides
    }
    twice = [
        Problem(f"-O {key}", f"search {search.name} sets it, too", "give it once") for key in given if key in search.set
    ]
    refuse(twice, "the options")
    return search.model_copy(update={"set": {**search.set, **given}})


def _problems(search: Search, searched: SearchedKey) -> Iterator[Problem]:
    where, key, dimension = f"search {search.name}", searched.key, searched.dimension
    if key in search.set:
        yield Problem(where, f"{key} is both set and searched", "keep one of the two")
    if key == SEED:
        yield Problem(where, "train.seed is searched, and the best of many seeds is luck", "remove it from the space")
    if isinstance(dimension, list):
        if len(set(map(_text, dimension))) < max(2, len(dimension)):
            yield Problem(where, f"space.{key} is {_text(dimension)}", "give two values or more, each once")
        return
    if dimension.low >= dimension.high:
        yield Problem(where, f"space.{key}.low is {dimension.low:g}, and high is {dimension.high:g}", "give low < high")
    if dimension.log and dimension.low <= 0:
        yield Problem(where, f"space.{key}.low is {dimension.low:g}, with log: true", "give low > 0, or log: false")
    if searched.is_whole and not _is_whole(dimension):
        yield Problem(where, f"{key} takes {_WHOLE}, and the range {searched} has others", "give whole numbers")


def _seed_problems(search: Search) -> Iterator[Problem]:
    where = f"search {search.name}"
    if search.seeds and SEED in search.set:
        yield Problem(where, "seeds and train.seed both choose the seed", "keep one of the two")
    if len(set(search.seeds)) < len(search.seeds):
        yield Problem(where, "seeds holds a seed twice", "give each seed once")


def _is_whole(dimension: Dimension) -> bool:
    return isinstance(dimension, Range) and isinstance(dimension.low, int) and isinstance(dimension.high, int)


def _at(value: Value, key: str) -> Value:
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _text(value: Value) -> str:
    return json.dumps(value)
