"""Every help text shows an example and fits a terminal; docs/reference/cli.md pins the texts (test_reference.py)."""

import sys

import pytest

from graphmill.cli.reference import help_texts

TEXTS = dict(help_texts())

GROUPS = ["Data", "Training", "Cluster", "Results", "Tools"]
COMMANDS = [  # by what one does, and there in the order in which a person meets them
    *("datasets", "prepare", "inspect", "convert", "baseline", "partition", "presample", "stage"),
    *("recipes", "plan", "batch-size", "train", "study", "tune", "pipeline"),
    *("site", "script", "submit", "launch", "watch", "logs", "shell", "stop", "pull"),
    *("list", "verify", "evaluate", "predict", "detect"),
    *("compare", "report", "merge", "pareto", "figures", "scaling", "export"),
    *("doctor", "profile", "bottleneck", "solve", "bench", "devcluster", "schema", "completion"),
]


def test_commands_stand_in_five_groups():
    headings = [line.removesuffix(":") for line in TEXTS["graphmill"].splitlines() if line[:1].isalpha()]
    assert [heading for heading in headings if heading in GROUPS] == GROUPS


def test_the_commands_of_the_design_are_there():
    assert [path.split(" ")[1] for path in TEXTS if path.count(" ") == 1] == COMMANDS
    assert {"graphmill study run", "graphmill study list"} <= TEXTS.keys()


@pytest.mark.parametrize("path", TEXTS)
def test_help(path):
    text = TEXTS[path]
    assert "Example:" in text
    assert max(len(line) for line in text.splitlines()) <= 105


@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "inspect",
        "datasets",
        "recipes",
        "study list",
        "verify",
        "doctor",
        "merge",
        "pareto",
        "evaluate",
        "profile",
    ],
)
def test_what_prints_facts_prints_json(command):
    assert "--json" in TEXTS[f"graphmill {command}"]


def test_help_is_what_the_program_prints(graphmill):
    printed = graphmill("study", "list", "-h")
    assert printed.code == 0
    assert printed.out.split() == TEXTS["graphmill study list"].split()


def test_no_argument_shows_the_help(graphmill):
    result = graphmill()
    assert "Training:" in result.out + result.err


def test_every_command_stands_in_a_group(graphmill):
    lines = [line for line in graphmill("--help").out.splitlines() if line.startswith("  ") and line[2:3].strip()]
    assert [name for name in (line.split()[0] for line in lines) if name in COMMANDS] == COMMANDS


def test_version(graphmill):
    from graphmill import __version__

    assert graphmill("--version").out == f"graphmill {__version__}\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("resume", "train --resume"), ("sweep", "graphmill study"), ("info", "inspect"), ("serve", "predict")],
)
def test_what_others_call_otherwise_is_told(graphmill, word, meant):
    done = graphmill(word, "RUN")
    assert (done.code, meant in done.err) == (2, True), done.err


def test_a_dataset_in_place_of_an_experiment_is_told_where_it_goes(graphmill):
    done = graphmill("train", "facebook")
    assert done.code == 2
    assert "-O dataset.name=facebook" in done.err
    assert "study-" not in done.err
    assert "pipeline-" not in done.err
    assert "dataset.name=facebook" in graphmill("plan", "cora-sage", "-O", "dataset=facebook").err


@pytest.mark.parametrize("verb", ["run", "node"])
def test_an_option_of_devcluster_that_is_none_is_not_taken_for_a_program(graphmill, verb):
    done = graphmill("devcluster", verb, "--host", "2", "--", "hostname")
    assert (done.code, "No such option: --host" in done.err) == (2, True), done.err


def test_without_its_distribution_devcluster_says_what_to_install(graphmill, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphmill_devcluster", None)
    for words in (["run", "--hosts", "2", "--", "srun", "hostname"], []):
        done = graphmill("devcluster", *words)
        assert (done.code, "pip install ./tools/devcluster" in done.err) == (2, True), done.err
    assert "devcluster" in graphmill("--help").out
