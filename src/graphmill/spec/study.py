"""A study: one experiment, run in several cells. Expanding it is pure. What each kind asks for: `study_kinds`."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.check import checked
from graphmill.config.draft import Draft
from graphmill.config.frozen import Spec
from graphmill.config.problems import Problem, refuse
from graphmill.config.yaml_text import read_document
from graphmill.spec.experiment import Experiment
from graphmill.spec.load import DEFAULT_RECIPE, inline_experiment, load_experiment
from graphmill.spec.recipes import PIPELINE_KEY, find_recipe
from graphmill.spec.study_kinds import StudyKind, axis_cells, check_experiment, kind_problems

MAX_CELLS = 1000
_MAX_NAME = 120


class Study(Spec):
    """A study file, as written."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="folder of the study's runs in the logs root"
    )
    kind: StudyKind = Field(
        "sweep",
        description="strong: the same work on more ranks; weak: work that grows with the ranks; "
        "sensitivity: every combination of `vary`, to see which key matters; sweep: any cells",
    )
    experiment: str | dict[str, Any] = Field(
        DEFAULT_RECIPE,
        description="a recipe, a YAML file (also relative to the study's own), or an experiment in place",
    )
    set: dict[str, Any] = Field({}, description="dotted keys that all cells share, laid over the experiment")
    vary: dict[str, list[Any]] = Field({}, description="dotted key: values; every combination is a cell")
    cells: list[dict[str, Any]] = Field([], description="further cells by hand: dotted key: value, and perhaps a name")
    ranks: list[PositiveInt] = Field([], description="strong, weak: a cell for each number of ranks, on one host")
    hosts: list[PositiveInt] = Field([], description="strong, weak: a cell for each number of hosts, instead of ranks")
    ranks_per_host: PositiveInt = Field(1, description="with hosts")
    global_batch: PositiveInt | None = Field(
        None, description="strong: seeds per step over all ranks; train.batch_size of a cell is this ÷ ranks"
    )
    train_per_rank: PositiveInt | None = Field(
        None, description="weak: training nodes or windows per rank; dataset.train_limit of a cell is that times ranks"
    )
    seeds: list[int] = Field([], description="every cell is run once with each of these seeds")
    repeats: PositiveInt | None = Field(
        None, description="every cell is run with the seeds 1, 2, … up to this number; or `seeds`"
    )

    @property
    def all_seeds(self) -> list[int]:
        """The seeds that every cell is run with; empty: the experiment's own."""
        return list(range(1, self.repeats + 1)) if self.repeats else self.seeds

    @property
    def axis(self) -> Literal["ranks", "hosts"]:
        """What grows in a strong or weak study."""
        return "hosts" if self.hosts else "ranks"

    @property
    def sizes(self) -> list[int]:
        """Ranks or hosts of a strong or weak study, rising."""
        return sorted(self.hosts or self.ranks)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a study."""

    name: str  # of its folder
    overrides: tuple[str, ...]


def load_study(source: str | Path) -> Study:
    """The study in the YAML file or recipe `source`. An experiment next to the study's file is found from anywhere."""
    path = find_recipe(str(source), holds="a study")
    document = read_document(path, holds="a study")
    _refuse_experiment(document.value, str(path))
    study = checked(Study, Draft.of(document), str(path))
    beside = path.parent / study.experiment if isinstance(study.experiment, str) else None
    if beside is not None and beside.is_file():
        study = study.model_copy(update={"experiment": str(beside)})
    return study


def expand(study: Study) -> list[Cell]:
    """All cells of a study, in order: combinations of `vary`, then `cells`; each with every seed.

    The cells of a sweep are repeated one by one; of other kinds, whose times are compared, all cells, then all again.
    """
    problems = list(_problems(study))
    refuse(problems, f"study {study.name}")
    shared = [_override(key, value) for key, value in study.set.items()]
    labels = _labels([*study.vary, *(key for cell in study.cells for key in cell if key != "name")])
    seeds: list[int | None] = [*study.all_seeds] or [None]
    pairs = [(settings, seed) for settings in _settings(study) for seed in seeds]
    if study.kind != "sweep":  # in rounds: a machine that slows down in between slows all sizes down alike
        pairs = [(settings, seed) for seed in seeds for settings in _settings(study)]
    cells = [_cell(settings, seed, shared, labels) for settings, seed in pairs]
    _refuse_twins(cells, study)
    return cells


def load_cell(study: Study, cell: Cell) -> Experiment:
    """The experiment that one cell runs."""
    if isinstance(study.experiment, str):
        experiment = load_experiment(study.experiment, cell.overrides)
    else:
        experiment = inline_experiment(study.experiment, f"study {study.name}", cell.overrides)
    check_experiment(study, experiment)
    return experiment


def _settings(study: Study) -> list[dict[str, Any]]:
    """What each cell sets besides what all share, whatever its seed."""
    if study.kind in ("strong", "weak"):
        return axis_cells(study)
    combinations = [dict(zip(study.vary, values, strict=True)) for values in itertools.product(*study.vary.values())]
    return [*(combinations if study.vary or not study.cells else []), *study.cells]


def _refuse_experiment(value: Mapping[str, Any], source: str) -> None:
    if PIPELINE_KEY in value:
        raise UserError(f"{source} holds a pipeline, not a study", fix=f"graphmill pipeline run {source}")
    if "train" in value or "dataset" in value:
        raise UserError(
            f"{source} holds an experiment, not a study: it has the key {'train' if 'train' in value else 'dataset'}",
            fix=f"`graphmill train {source}`, or write a study whose `experiment` is this file",
        )


def _problems(study: Study) -> Iterator[Problem]:
    where = f"study {study.name}"
    yield from kind_problems(study, where)
    if "name" in study.vary:
        yield Problem(where, "vary.name varies nothing: runs are named after their cells", "remove it")
    for key, values in study.vary.items():
        if not values:
            yield Problem(where, f"vary.{key} has no values", f"give values, or remove {key}")
        if len({json.dumps(value) for value in values}) < len(values):
            yield Problem(where, f"vary.{key} holds a value twice", "give each value once")
    for key in [key for key in study.vary if key in study.set]:
        yield Problem(where, f"{key} is both set and varied", "keep one of the two")
    for key in [key for cell in study.cells for key in cell if key in study.set]:
        yield Problem(where, f"{key} is both set for all cells and given by one", "keep one of the two")
    if study.seeds and study.repeats:
        yield Problem(where, "seeds and repeats both choose the seeds", "keep one of the two")
    if study.all_seeds and any("train.seed" in keys for keys in (study.set, study.vary, *study.cells)):
        yield Problem(where, "seeds and train.seed both choose the seed", "keep one of the two")
    if len(set(study.seeds)) < len(study.seeds):
        yield Problem(where, "seeds holds a seed twice", "give each seed once")
    count = math.prod(len(values) for values in study.vary.values()) * max(1, len(study.all_seeds))
    if count > MAX_CELLS:
        yield Problem(where, f"{count} cells are more than {MAX_CELLS}", "vary fewer values, or make several studies")


def _cell(settings: dict[str, Any], seed: int | None, shared: list[str], labels: dict[str, str]) -> Cell:
    keys = {key: value for key, value in settings.items() if key != "name"}
    named = settings.get("name")
    parts = [str(named)] if named else [f"{labels[key]}-{_text(value)}" for key, value in keys.items()]
    overrides = [*shared, *(_override(key, value) for key, value in keys.items())]
    if seed is not None:
        parts.append(f"seed-{seed}")
        overrides.append(_override("train.seed", seed))
    return Cell(_folder_name("__".join(parts) or "only"), tuple(overrides))


def _override(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"


def _labels(keys: list[str]) -> dict[str, str]:
    """The shortest tail of each dotted key that no other key shares: `train.sync.every` → `every`."""
    unique = list(dict.fromkeys(keys))
    labels = {}
    for key in unique:
        words = key.split(".")
        tails = [".".join(words[-length:]) for length in range(1, len(words) + 1)]
        others = [other for other in unique if other != key]
        labels[key] = next(
            (tail for tail in tails if not any(f".{other}".endswith(f".{tail}") for other in others)), key
        )
    return labels


def _text(value: object) -> str:
    if isinstance(value, list):
        return "x".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def _folder_name(text: str) -> str:
    """`text` with only what a run id may hold; shortened by a digest if it is long."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "cell"
    if len(name) <= _MAX_NAME and name == text:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}-{digest}"


def _refuse_twins(cells: list[Cell], study: Study) -> None:
    names = [cell.name for cell in cells]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise UserError(
            f"study {study.name} has several cells named {twins[0]}",
            fix="make their settings differ, or give each cell in `cells` a name of its own",
        )
