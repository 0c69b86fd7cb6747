"""A study: one experiment, run in several cells. Expanding it is pure.

Strong and weak ones vary the number of ranks or hosts, and nothing else:
strong: the global problem is the same in every cell: the same training set, and the same global batch, so that a rank's
batch is `global_batch` ÷ ranks and every cell does the same steps on the same seeds.
weak: a rank's work is the same in every cell: the same batch, and `train_per_rank` seeds an epoch, drawn from the
training set, so that the training set of a cell is `train_per_rank` × ranks and every cell does as many steps.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
from graphmill.spec.load import DEFAULT_RECIPE, named_or_inline, next_to
from graphmill.spec.recipes import PIPELINE_KEY, find_recipe, is_search

StudyKind = Literal["sweep", "strong", "weak", "sensitivity"]

MAX_CELLS = 1000
_MAX_NAME = 120
_RANKS, _HOSTS = ("train.ranks", "slurm.ranks_per_host"), ("slurm.hosts",)
_BATCH, _LIMIT = ("train.batch_size",), ("dataset.train_limit",)


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
    return study.model_copy(update={"experiment": next_to(path, study.experiment)})


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
    experiment = named_or_inline(study.experiment, f"study {study.name}", cell.overrides)
    _check_experiment(study, experiment)
    return experiment


def refuse_hosts_here(study: Study) -> None:
    """Raise a `UserError` if the cells are for more hosts than this one."""
    if max(study.hosts, default=1) > 1:
        listed = ", ".join(str(size) for size in study.sizes)
        raise UserError(
            f"study {study.name} is for {listed} hosts, and `study run` has this one only",
            fix="`graphmill study submit`, or give ranks instead of hosts",
        )


def _settings(study: Study) -> list[dict[str, Any]]:
    """What each cell sets besides what all share, whatever its seed."""
    if study.kind in ("strong", "weak"):
        return [_axis_cell(study, size) for size in study.sizes]
    combinations = [dict(zip(study.vary, values, strict=True)) for values in itertools.product(*study.vary.values())]
    return [*(combinations if study.vary or not study.cells else []), *study.cells]


def _refuse_experiment(value: Mapping[str, Any], source: str) -> None:
    if PIPELINE_KEY in value:
        raise UserError(f"{source} holds a pipeline, not a study", fix=f"graphmill pipeline run {source}")
    if is_search(value):
        raise UserError(f"{source} holds a search, not a study", fix=f"graphmill tune {source}")
    if "train" in value or "dataset" in value:
        raise UserError(
            f"{source} holds an experiment, not a study: it has the key {'train' if 'train' in value else 'dataset'}",
            fix=f"`graphmill train {source}`, or write a study whose `experiment` is this file",
        )


def _problems(study: Study) -> Iterator[Problem]:
    where = f"study {study.name}"
    yield from _kind_problems(study, where)
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


def _kind_problems(study: Study, where: str) -> Iterator[Problem]:
    """What is missing of the study's kind, and what belongs to another."""
    if study.kind in ("strong", "weak"):
        yield from _axis_problems(study, where)
    else:
        own = {"ranks": study.ranks, "hosts": study.hosts}
        for name in [name for name, sizes in own.items() if sizes]:
            fix = (
                f"set kind to strong or weak, or vary train.{name}" if name == "ranks" else "set kind to strong or weak"
            )
            yield Problem(where, f"{name} belongs to kinds strong and weak, but kind is {study.kind}", fix)
    if study.kind == "sensitivity" and (not study.vary or study.cells):
        what = "cells" if study.cells else "no vary"
        yield Problem(where, f"kind is sensitivity, with {what}", "give vary: {dotted key: [values]}, and no cells")
    if study.kind != "strong" and study.global_batch is not None:
        yield Problem(where, f"global_batch belongs to kind strong, but kind is {study.kind}", "remove it")
    if study.kind != "weak" and study.train_per_rank is not None:
        yield Problem(where, f"train_per_rank belongs to kind weak, but kind is {study.kind}", "remove it")


def _check_experiment(study: Study, experiment: Experiment) -> None:
    """Refuse what would make the cells of a strong or weak study differ in more than their size."""
    train = experiment.train
    if study.kind in ("strong", "weak") and study.axis == "ranks" and not isinstance(train.threads, int):
        raise UserError(
            f"train.threads is {train.threads}: a rank would have fewer cores in a larger cell, and the cells of a"
            f" {study.kind} study are to differ in the number of ranks alone",
            fix="add set: {train.threads: 1} to the study",
        )
    if study.kind in ("strong", "weak") and train.max_steps is not None:
        raise UserError(
            "train.max_steps counts steps over all ranks, so that a larger cell would do fewer",
            fix="add set: {train.max_steps: null, train.epochs: 3} to the study",
        )
    if study.kind != "sweep" and train.epochs is not None and train.epochs < 2:
        raise UserError(
            "train.epochs is 1, and the first epoch is warm-up, kept apart from the others",
            fix="add set: {train.epochs: 3} to the study, or more",
        )


def _axis_cell(study: Study, size: int) -> dict[str, Any]:
    ranks = size * study.ranks_per_host if study.axis == "hosts" else size
    settings: dict[str, Any] = {"name": f"{study.axis}-{size}", "train.ranks": ranks}
    if study.axis == "hosts":
        settings["slurm.hosts"] = size
    if study.global_batch is not None:
        settings["train.batch_size"] = study.global_batch // ranks
    if study.train_per_rank is not None:
        settings["dataset.train_limit"] = study.train_per_rank * ranks
    return settings


def _axis_problems(study: Study, where: str) -> Iterator[Problem]:
    if bool(study.ranks) == bool(study.hosts):
        what = "both ranks and hosts" if study.ranks else "neither ranks nor hosts"
        yield Problem(where, f"kind is {study.kind}, with {what}", "give one of them, such as ranks: [1, 2, 4]")
    elif len(set(study.sizes)) < max(2, len(study.sizes)):
        what = "holds a number twice" if len(study.sizes) > 1 else "holds one number, and nothing to compare it with"
        yield Problem(where, f"{study.axis} {what}", f"give several, such as {study.axis}: [1, 2, 4]")
    if study.ranks_per_host != 1 and not study.hosts:
        yield Problem(where, "ranks_per_host is for the axis hosts, but there is none", "remove it, or give hosts")
    if study.vary or study.cells:
        more = "vary" if study.vary else "cells"
        yield Problem(
            where,
            f"kind is {study.kind}, with {more}: its cells differ in size alone",
            "make a study of each, or a sweep",
        )
    yield from _amount_problems(study, where)
    taken = (*_RANKS, *(_HOSTS if study.hosts else ()), *(_BATCH if study.kind == "strong" else _LIMIT))
    for key in [key for key in taken if key in study.set]:
        yield Problem(where, f"set.{key}: a {study.kind} study gives it to every cell", "remove it")


def _amount_problems(study: Study, where: str) -> Iterator[Problem]:
    ranks = [size * (study.ranks_per_host if study.hosts else 1) for size in study.sizes]
    if study.kind == "weak" and study.train_per_rank is None:
        what = "kind is weak, but train_per_rank does not say how many training nodes or windows a rank has"
        yield Problem(where, what, "give it, such as train_per_rank: 8192")
    if study.kind == "strong" and study.global_batch is None:
        what = "kind is strong, but global_batch does not say how many seeds a step has over all ranks"
        yield Problem(where, what, "give it, such as global_batch: 1024")
    uneven = _uneven(study.global_batch, ranks)
    if uneven:
        what = f"global_batch {study.global_batch} does not divide among {', '.join(map(str, uneven))} ranks"
        yield Problem(where, what, "give a multiple of all numbers of ranks, such as a power of two")


def _uneven(batch: int | None, ranks: Sequence[int]) -> list[int]:
    return [] if batch is None else [number for number in ranks if batch % number]
