"""Load an `Experiment` from YAML and dotted overrides: everything is checked, and all problems are reported at once."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmill.base.errors import UserError
from graphmill.config.check import checked
from graphmill.config.draft import Draft
from graphmill.config.problems import Problem, refuse
from graphmill.config.yaml_text import read_document
from graphmill.runtime import trust
from graphmill.spec.experiment import Experiment
from graphmill.spec.kinds import DEFAULT_TASK, TASKS, find_kind
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.recipes import PIPELINE_KEY, STUDY_KEYS, find_recipe, is_search

DEFAULT_RECIPE = "debian-packages-sage"


def load_experiment(source: str | Path | None, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in the YAML file or recipe `source`, with `overrides` such as `train.sync.every=4` laid over it.

    None means the recipe `debian-packages-sage`.
    """
    path = find_recipe(DEFAULT_RECIPE if source is None else str(source), holds="an experiment")
    document = read_document(path, holds="an experiment")
    if PIPELINE_KEY in document.value:
        raise UserError(f"{path} holds a pipeline, not an experiment", fix=f"graphmill pipeline run {source}")
    if is_search(document.value):
        raise UserError(f"{path} holds a search, not an experiment", fix=f"graphmill tune {source}")
    if "experiment" in document.value or STUDY_KEYS & document.value.keys():
        raise UserError(f"{path} holds a study, not an experiment", fix=f"graphmill study run {source}")
    return _experiment(Draft.of(document), str(path), overrides)


def inline_experiment(value: Mapping[str, Any], source: str, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment inside another file, named `source` in messages."""
    return _experiment(Draft(copy.deepcopy(dict(value)), {}), source, overrides)


def named_or_inline(experiment: str | Mapping[str, Any], source: str, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a study or search called `source`: by the name of a recipe or file, or written in place."""
    if isinstance(experiment, str):
        return load_experiment(experiment, overrides)
    return inline_experiment(experiment, source, overrides)


def next_to(path: Path, experiment: str | dict[str, Any]) -> str | dict[str, Any]:
    """The experiment that the file `path` names: one next to that file is found from anywhere."""
    near = path.parent / experiment if isinstance(experiment, str) else None
    return str(near) if near is not None and near.is_file() else experiment


def _experiment(draft: Draft, source: str, overrides: Sequence[str]) -> Experiment:
    _as_section(draft)
    for text in overrides:
        draft.override(text)
        _as_section(draft)
    kind = _chosen_kind(draft, source)
    chosen: type[Experiment] = kind.experiment
    return checked(chosen, draft, source, others=lambda: _others(kind), chosen=f"task is {kind.name}")


def _others(kind: AnyKind) -> Mapping[str, type[Experiment]]:
    """The experiments of the other built-in tasks, by what would choose them."""
    return {f"task={name}": find_kind(name).experiment for name in TASKS if name != kind.name}


def _as_section(draft: Draft) -> None:
    """`task: traffic` is short for `task: {kind: traffic}`."""
    if isinstance(draft.value.get("task"), str):
        draft.value["task"] = {"kind": draft.value["task"]}


def _chosen_kind(draft: Draft, source: str) -> AnyKind:
    """The kind that the draft names, after the section has been given its `kind` if it lacks one."""
    where = draft.where(("task",), otherwise=source)
    names = ", ".join(TASKS)
    section = draft.value.setdefault("task", {"kind": DEFAULT_TASK})
    if not isinstance(section, Mapping):
        what = f"task is {json.dumps(section)}, but it is one of {names}, or a section with such a kind"
        refuse([*draft.problems, Problem(where, what, f"set task={DEFAULT_TASK}")], source)
    draft.value["task"] = section = {"kind": DEFAULT_TASK, **section}
    name = section["kind"]
    if not isinstance(name, str):
        refuse([*draft.problems, Problem(where, f"task.kind is {json.dumps(name)}, but it is text", names)], source)
    trust.vouch_for(trust.code_in({"task": section}))
    try:
        return find_kind(str(name))
    except UserError as error:
        refuse([*draft.problems, Problem(where, error.message, error.fix)], source)
        raise
