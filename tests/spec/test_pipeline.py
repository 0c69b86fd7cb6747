from dataclasses import replace
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.load import load_experiment
from graphmill.spec.pipeline import chosen_stages, load_pipeline, load_stage, source_section, without
from graphmill.spec.study import load_study

TWO = """\
name: two
experiment: cora-sage
set: {train.ranks: 1}
stages:
  - name: few
    set: {train.num_neighbors: [2, 2], train.epochs: 1}
  - name: all
    set: {train.epochs: 2}
    init_from: {stage: few}
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return path

    return write


def test_stages_are_overrides_of_one_experiment(written):
    pipeline = load_pipeline(written(TWO))
    few, all_ = pipeline.stages
    assert (pipeline.run_id(few), pipeline.run_id(all_)) == ("two/few", "two/all")
    assert (few.needs(), all_.needs()) == ([], ["few"])
    first, second = (load_stage(pipeline, stage, None) for stage in pipeline.stages)
    assert (first.train.num_neighbors, first.train.epochs, first.train.ranks) == ((2, 2), 1, 1)
    assert second.train.epochs == 2
    assert first.model == second.model


def test_what_is_laid_over_a_pipeline_wins_over_a_stage(written):
    """A key of the file, or all keys of a section, give way to one of the command line."""
    pipeline = replace(load_pipeline(written(TWO)), laid_over=("train.epochs=5", "model={hidden_channels: 7}"))
    found = [load_stage(pipeline, stage, None) for stage in pipeline.stages]
    assert [(one.train.epochs, one.model.hidden_channels, one.train.ranks) for one in found] == [(5, 7, 1)] * 2
    assert found[0].train.num_neighbors == (2, 2)
    with pytest.raises(UserError, match="did you mean 'epochs'"):
        load_stage(replace(pipeline, laid_over=("train.epohcs=5",)), pipeline.stages[0], None)


def test_weights_of_a_stage_are_those_of_its_run(written):
    pipeline = load_pipeline(written(TWO))
    section = source_section(pipeline, pipeline.stages[1].init_from, Path("/logs"))
    assert section == {"run": "/logs/two/few", "weights": "best", "include": [], "exclude": []}


def test_an_experiment_beside_the_file_is_found(written, tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\ntrain: {epochs: 7}\n")
    pipeline = load_pipeline(written("name: p\nexperiment: mine.yaml\nstages: [{name: a}]\n"))
    assert load_stage(pipeline, pipeline.stages[0], None).train.epochs == 7


def test_named_sources_are_kept(written):
    text = """\
name: p
stages:
  - {name: a}
  - {name: b}
  - name: c
    init_from: {stage: b, weights: last, exclude: [head.*]}
    sources: {teacher: {stage: a}, scorer: {file: scorer.safetensors}}
"""
    pipeline = load_pipeline(written(text))
    stage = pipeline.stages[2]
    assert (stage.needs(), stage.needs_for_sources()) == (["b", "a"], ["a"])
    assert stage.init_from.weights == "last"
    assert stage.sources["scorer"].file == "scorer.safetensors"
    with pytest.raises(UserError, match="teacher, scorer"):
        load_stage(pipeline, stage, None)


def test_stages_are_chosen_in_the_order_of_the_pipeline(written):
    pipeline = load_pipeline(written(TWO))
    assert [stage.name for stage in chosen_stages(pipeline, ["all", "few"])] == ["few", "all"]
    assert [stage.name for stage in chosen_stages(pipeline, [])] == ["few", "all"]
    with pytest.raises(UserError, match="did you mean 'few'"):
        chosen_stages(pipeline, ["fewer"])


@pytest.mark.parametrize(
    ("stages", "parts"),
    [
        ("[{name: a, init_from: {stage: b}}, {name: b}]", ["init_from.stage is b", "later"]),
        ("[{name: a, init_from: {stage: a}}]", ["init_from.stage", "itself"]),
        ("[{name: first}, {name: b, init_from: {stage: frist}}]", ["frist", "did you mean 'first'"]),
        ("[{name: a}, {name: a}]", ["2 stages are called a"]),
        ("[{name: a, int_from: {run: x}}]", ["int_from", "did you mean 'init_from'"]),
        ("[{name: a, init_from: {run: x, weigths: best}}]", ["weigths", "did you mean 'weights'"]),
        ("[{name: a, init_from: {run: x, file: y}}]", ["run and file"]),
        ("[{name: a, init_from: {}}]", ["stage, run and file"]),
        ("[{name: a, init_from: {file: x, weights: last}}]", ["weights", "file"]),
        ("[{name: a, sources: {teacher: {stage: b}}}]", ["sources.teacher.stage", "b"]),
        ("[{name: a/b}]", ["name"]),
        ("[{set: {}}]", ["name is missing"]),
        ("[]", ["stages is empty"]),
        ("[{name: a, set: {init_from.run: x}}]", ["init_from.run is in set"]),
        ("[{name: a, set: {train.epochs: 2}}]\nset: {train.epochs: 1}", ["train.epochs"]),
        ("[{name: a, set: {train: {epochs: 2}}}]\nset: {train.epochs: 1}", ["train", "train.epochs"]),
        ("[3]", ["stages"]),
    ],
)
def test_refusals(written, stages, parts):
    with pytest.raises(UserError) as error:
        load_pipeline(written(f"name: p\nstages: {stages}\n"))
    assert all(part in error.value.message for part in parts), error.value.message


def test_all_problems_at_once_each_with_its_line(written):
    text = """\
name: p
evaluate_onn: all
stages:
  - name: a
    sett: {}
  - name: b
    init_from: {stage: nowhere}
"""
    path = written(text)
    with pytest.raises(UserError) as error:
        load_pipeline(path)
    message = error.value.message
    assert all(part in message for part in (f"{path}:2", "evaluate_on", f"{path}:5", "sett", "'set'")), message


def test_what_is_wrong_in_an_experiment_names_the_stage_and_its_key(written):
    pipeline = load_pipeline(written("name: p\nexperiment: {}\nstages: [{name: a, set: {train.epochz: 1}}]\n"))
    with pytest.raises(UserError, match=r"train\.epochs"):
        load_stage(pipeline, pipeline.stages[0], None)


def test_other_files_are_refused():
    for recipe in ("cora-sage", "study-demo"):
        with pytest.raises(UserError, match="stages"):
            load_pipeline(recipe)
    for load in (load_experiment, load_study):
        with pytest.raises(UserError, match="holds a pipeline"):
            load("pipeline-neighbours")


THREE = (
    TWO
    + """\
  - name: more
    set: {train.epochs: 3}
    init_from: {stage: all}
"""
)


def test_without_a_stage_others_begin_with_what_it_would_begin_with(written):
    pipeline = load_pipeline(written(THREE))
    left = without(pipeline, {"all"})
    assert [stage.name for stage in left.stages] == ["few", "more"]
    assert left.stage("more").init_from == pipeline.stage("all").init_from
    first = without(pipeline, {"few", "all"})
    assert [(stage.name, stage.init_from) for stage in first.stages] == [("more", None)]
    assert without(pipeline, set()) == pipeline


def test_a_stage_that_others_learn_from_is_not_left_out(written):
    text = THREE.replace("init_from: {stage: all}", "sources: {teacher: {stage: all}}")
    with pytest.raises(UserError, match="more of pipeline two uses weights of all"):
        without(load_pipeline(written(text)), {"all"})
