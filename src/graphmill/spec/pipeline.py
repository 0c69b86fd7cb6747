"""A pipeline: an ordered study, whose stages are runs of their own that may begin with the weights of earlier ones.

Reading a file and making the experiments of its stages is pure, but for the files that are read.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.config.check import examined
from graphmill.config.draft import Draft
from graphmill.config.frozen import Spec
from graphmill.config.problems import KeyPath, Problem, dotted, refuse
from graphmill.config.yaml_text import read_document
from graphmill.spec.experiment import Experiment
from graphmill.spec.kinds import find_kind
from graphmill.spec.load import DEFAULT_RECIPE, inline_experiment, load_experiment
from graphmill.spec.plan import refuse_unused_sources
from graphmill.spec.recipes import find_recipe

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Which = Literal["best", "last"]


class SourceSpec(Spec):
    """Weights that a stage begins with, or uses: of an earlier stage, of another run, or of a file."""

    stage: str = Field("", description="an earlier stage of the pipeline")
    run: str = Field("", description="a run folder")
    file: str = Field("", description="a safetensors file of weights")
    weights: Which = Field("best", description="with stage or run: of which checkpoint")
    include: tuple[str, ...] = Field((), description="only tensors whose name matches one of these patterns")
    exclude: tuple[str, ...] = Field((), description="no tensors whose name matches one of these patterns")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("stage", "run", "file") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"takes one of stage, run and file, but {found} is given")
        if self.file and "weights" in self.model_fields_set:
            raise ValueError("weights is for stage or run; a file has one set of weights")
        return self


class StageSpec(Spec):
    """One stage, as written."""

    name: str = Field(pattern=NAME, description="of the stage, and of its run folder below that of the pipeline")
    set: dict[str, Any] = Field({}, description="dotted keys of the experiment that this stage sets")
    init_from: SourceSpec | None = Field(None, description="the weights that it begins with; random ones if left out")
    sources: dict[str, SourceSpec] = Field(
        {},
        description="weights that the task uses while it trains, by name, such as teacher or scorer",
    )

    def needs(self) -> list[str]:
        """Names of the stages whose weights this one takes, without duplicates."""
        return list(dict.fromkeys(source.stage for source in self.all_sources().values() if source.stage))

    def needs_for_sources(self) -> list[str]:
        """Names of the stages whose weights this stage's task uses while it trains."""
        return list(dict.fromkeys(source.stage for source in self.sources.values() if source.stage))

    def all_sources(self) -> dict[str, SourceSpec]:
        """All sources by their key in the file."""
        first = {} if self.init_from is None else {"init_from": self.init_from}
        return first | {f"sources.{name}": source for name, source in self.sources.items()}


class PipelineFile(Spec):
    """A pipeline file, as written; its stages are checked one by one."""

    name: str = Field(pattern=NAME, description="folder of the pipeline's runs in the logs root")
    experiment: str | dict[str, Any] = Field(
        DEFAULT_RECIPE,
        description="a recipe, a YAML file (also relative to the pipeline's own), or an experiment in place",
    )
    set: dict[str, Any] = Field({}, description="dotted keys that all stages share, laid over the experiment")
    evaluate_on: Literal["own", "all"] = Field(
        "own", description="all: the best weights of every stage are evaluated on the data of every stage, too"
    )
    stages: list[dict[str, Any]] = Field(description="in order; each with the keys name, set, init_from, sources")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline whose stages are known to fit together."""

    name: str
    experiment: str | dict[str, Any]
    shared: tuple[str, ...]  # overrides of all stages
    evaluate_on: Literal["own", "all"]
    stages: tuple[StageSpec, ...]  # at least one; each takes weights of earlier ones only
    laid_over: tuple[str, ...] = ()  # overrides of all stages that win over those of a stage: of the command line

    def stage(self, name: str) -> StageSpec:
        """The stage called `name`; `UserError` if there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = did_you_mean(name, [stage.name for stage in self.stages])
        raise UserError(f"pipeline {self.name} has no stage {name!r}; {known}", fix="name one of its stages")

    def run_id(self, stage: StageSpec) -> str:
        """Id of the stage's run: its folder below the logs root."""
        return f"{self.name}/{stage.name}"


def load_pipeline(source: str | Path) -> Pipeline:
    """The pipeline in the YAML file or recipe `source`, or one `UserError` with all of its problems."""
    path = find_recipe(str(source), holds="a pipeline")
    document = read_document(path, holds="a pipeline")
    if "stages" not in document.value and ({"train", "dataset", "vary", "cells"} & document.value.keys()):
        raise UserError(
            f"{path} holds no pipeline: it has no key stages", fix="`graphmill train`, or `graphmill study`"
        )
    pipeline = checked_pipeline(Draft.of(document), str(path))
    beside = path.parent / pipeline.experiment if isinstance(pipeline.experiment, str) else None
    if beside is None or not beside.is_file():
        return pipeline
    return Pipeline(pipeline.name, str(beside), pipeline.shared, pipeline.evaluate_on, pipeline.stages)


def checked_pipeline(draft: Draft, source: str) -> Pipeline:
    """The pipeline that `draft` describes, or one `UserError` with all of its problems. `source`: for messages."""
    file, problems = examined(PipelineFile, draft, source)
    stages, of_stages = _stages(draft, source)
    problems += of_stages
    known = [stage for stage in stages if stage is not None]
    problems += _problems(known, draft, source, is_whole=len(known) == len(stages))
    refuse(problems, source)
    assert file is not None  # else there is a problem
    shared = tuple(_override(key, value) for key, value in file.set.items())
    return Pipeline(file.name, file.experiment, shared, file.evaluate_on, tuple(known))


def load_stage(
    pipeline: Pipeline,
    stage: StageSpec,
    logs_root: Path | None,
    further: Sequence[str] = (),
    *,
    missing: Collection[str] = (),
) -> Experiment:
    """The experiment that one stage runs. Weights of stages are those of their runs below `logs_root`.

    `further`: overrides that are laid over all others.

    To plan a stage before those that it needs are done, which are then `missing`: if one of them gives the weights that
    it begins with, these are random; if one of them is among its `sources`, it has none at all. Without a `logs_root`
    both are so. `UserError` if something in it is wrong, or its task does not use its sources.
    """
    overrides = [*pipeline.shared, *(_override(key, value) for key, value in stage.set.items())]
    overrides = [text for text in overrides if not _is_replaced(text, pipeline.laid_over)]
    overrides += [*pipeline.laid_over, *further]
    if stage.init_from is not None and stage.init_from.stage not in missing and logs_root is not None:
        overrides.append(_override("init_from", source_section(pipeline, stage.init_from, logs_root)))
    if stage.sources and not set(stage.needs_for_sources()) & set(missing) and logs_root is not None:
        sections = {name: source_section(pipeline, each, logs_root) for name, each in stage.sources.items()}
        overrides.append(_override("sources", sections))
    if isinstance(pipeline.experiment, str):
        experiment = load_experiment(pipeline.experiment, overrides)
    else:
        where = f"pipeline {pipeline.name}, stage {stage.name}"
        experiment = inline_experiment(pipeline.experiment, where, overrides)
    refuse_unused_sources(find_kind(experiment.task.kind), stage.sources)  # even if they are not known yet
    return experiment


def source_section(pipeline: Pipeline, source: SourceSpec, logs_root: Path) -> dict[str, Any]:
    """A source as an experiment's section `init_from` says it."""
    given: dict[str, Any] = {"include": list(source.include), "exclude": list(source.exclude)}
    if source.file:
        return {"file": source.file, **given}
    run = str(logs_root / pipeline.run_id(pipeline.stage(source.stage))) if source.stage else source.run
    return {"run": run, "weights": source.weights, **given}


def chosen_stages(pipeline: Pipeline, names: tuple[str, ...] | list[str]) -> list[StageSpec]:
    """The stages called `names`, in the pipeline's order; all for no names."""
    chosen = {pipeline.stage(name).name for name in names}
    return [stage for stage in pipeline.stages if not names or stage.name in chosen]


def without(pipeline: Pipeline, names: Collection[str]) -> Pipeline:
    """The pipeline without some stages. What would begin with their weights begins with what they would begin with.

    `UserError` if a stage that is left learns from one that is not.
    """
    left = [stage for stage in pipeline.stages if stage.name not in names]
    for stage in left:
        lost = [name for name in stage.needs_for_sources() if name in names]
        if lost:
            raise UserError(
                f"stage {stage.name} of pipeline {pipeline.name} uses weights of {', '.join(lost)}, which is left out",
                fix=f"leave {stage.name} out as well, by --stages, or prepare the data of {', '.join(lost)}",
            )
    return replace(pipeline, stages=tuple(_begun_earlier(pipeline, stage, names) for stage in left))


def _begun_earlier(pipeline: Pipeline, stage: StageSpec, names: Collection[str]) -> StageSpec:
    source = stage.init_from
    while source is not None and source.stage in names:
        source = pipeline.stage(source.stage).init_from
    return stage if source is stage.init_from else stage.model_copy(update={"init_from": source})


def _stages(draft: Draft, source: str) -> tuple[list[StageSpec | None], list[Problem]]:
    """Each stage, or None if something is wrong with it; and what that is."""
    written = draft.value.get("stages")
    stages: list[StageSpec | None] = []
    problems: list[Problem] = []
    for index, item in enumerate(written if isinstance(written, list) else []):
        if not isinstance(item, Mapping):
            continue  # reported by the file's own check
        where = draft.where(("stages", index), otherwise=source)
        part = Draft(dict(item), _below(draft, ("stages", index)))
        stage, found = examined(StageSpec, part, where)
        stages.append(stage)
        named = f"stages[{index}]" if stage is None else f"stage {stage.name}"
        problems += [Problem(problem.where, f"{named}: {problem.what}", problem.fix) for problem in found]
    return stages, problems


def _below(draft: Draft, path: KeyPath) -> dict[KeyPath, str]:
    return {key[len(path) :]: origin for key, origin in draft.origins.items() if key[: len(path)] == path}


def _problems(stages: list[StageSpec], draft: Draft, source: str, *, is_whole: bool) -> Iterator[Problem]:
    written = draft.value.get("stages")
    if isinstance(written, list) and not written:
        where = draft.where(("stages",), otherwise=source)
        yield Problem(where, "stages is empty", "list at least one stage: - {name: first, set: {train.epochs: 1}}")
    names = [stage.name for stage in stages]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(source, f"{names.count(name)} stages are called {name}", "give each stage a name of its own")
    shared = draft.value.get("set")
    shared_keys = list(shared) if isinstance(shared, Mapping) else []
    for index, stage in enumerate(stages):
        where = draft.where(("stages", index), otherwise=source) if is_whole else source
        yield from _problems_of_keys(stage, shared_keys, where)
        yield from _problems_of_sources(stage, names, index, where, is_whole=is_whole)


def _problems_of_keys(stage: StageSpec, shared: list[str], where: str) -> Iterator[Problem]:
    for key in [*shared, *stage.set]:
        section = key.partition(".")[0]
        if section in ("init_from", "sources"):
            yield Problem(where, f"stage {stage.name}: {key} is in set", f"write {section} next to set, not in it")
    for key in stage.set:
        doubled = [other for other in shared if _overlap(key, other)]
        if doubled:
            what = f"stage {stage.name}: {key} is set for this stage, and {doubled[0]} for all"
            yield Problem(where, what, "keep one of the two")
    if "name" in stage.set:
        yield Problem(where, f"stage {stage.name}: name is in set", "runs are named after their stages: remove it")


def _problems_of_sources(
    stage: StageSpec, names: list[str], index: int, where: str, *, is_whole: bool
) -> Iterator[Problem]:
    for key, source in stage.all_sources().items():
        at = dotted((key, "stage"))
        if not source.stage or source.stage in names[:index]:
            continue
        if source.stage == stage.name:
            what = f"stage {stage.name}: {at} is the stage itself"
            yield Problem(where, what, "name an earlier stage, or leave it out for random weights")
        elif source.stage in names:
            what = f"stage {stage.name}: {at} is {source.stage}, which comes later"
            yield Problem(where, what, f"list {source.stage} before {stage.name}, or name an earlier stage")
        elif is_whole:  # else the stage may be one that is wrong otherwise
            known = did_you_mean(source.stage, names[:index]) if index else "there is no earlier stage"
            yield Problem(
                where, f"stage {stage.name}: {at} is {source.stage}, which is not a stage; {known}", "change it"
            )


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _is_replaced(override: str, later: Sequence[str]) -> bool:
    """Whether one of `later` sets the same key, or the whole section that it is in."""
    key = override.partition("=")[0]
    others = [text.partition("=")[0].strip().replace("-", "_") for text in later]
    return any(key == other or key.startswith(f"{other}.") for other in others)


def _override(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"
