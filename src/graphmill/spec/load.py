"""From YAML and dotted overrides to an `Experiment`: everything is checked, and every problem told at once."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmill.base.errors import UserError
from graphmill.config.check import checked, not_one_of
from graphmill.config.draft import Draft
from graphmill.config.problems import Problem, refuse
from graphmill.config.yaml_text import read_document
from graphmill.spec.experiment import DEFAULT_TASK, EXPERIMENTS, Experiment
from graphmill.spec.recipes import STUDY_KEYS, find_recipe

DEFAULT_RECIPE = "debian-packages-sage"


def load_experiment(source: str | Path | None, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in the YAML file or recipe `source`, with `overrides` such as `train.sync.every=4` laid over it.

    None means the recipe `debian-packages-sage`.
    """
    path = find_recipe(DEFAULT_RECIPE if source is None else str(source), holds="an experiment")
    document = read_document(path, holds="an experiment")
    if "experiment" in document.value or STUDY_KEYS & document.value.keys():
        raise UserError(f"{path} holds a study, not an experiment", fix=f"graphmill study run {source}")
    return _experiment(Draft.of(document), str(path), overrides)


def inline_experiment(value: Mapping[str, Any], source: str, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment that stands inside another file, named `source` in messages."""
    return _experiment(Draft(copy.deepcopy(dict(value)), {}), source, overrides)


def _experiment(draft: Draft, source: str, overrides: Sequence[str]) -> Experiment:
    for text in overrides:
        draft.override(text)
    task = draft.value.get("task", DEFAULT_TASK)
    if not isinstance(task, str) or task not in EXPERIMENTS:
        where = draft.where(("task",), otherwise=source)
        refuse([*draft.problems, Problem(where, *not_one_of("task", task, list(EXPERIMENTS)))], source)
    others = {f"task={name}": model for name, model in EXPERIMENTS.items() if name != task}
    return checked(EXPERIMENTS[task], draft, source, others=others, chosen=f"task is {task}")
