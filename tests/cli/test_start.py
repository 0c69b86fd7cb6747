"""The control plane starts in a blink and never loads torch (invariant 9). A command imports what it needs."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from command_line import run_in

from graphmill.cli.app import COMMANDS

HEAVY = ("torch", "numpy", "polars", "matplotlib", "pandas", "pydantic", "rich", "yaml", "psutil")
MORE = (
    "torch_geometric",
    "sklearn",
    "scipy",
    "pyarrow",
    "jinja2",
    "PIL",
    "h5py",
    "networkx",
    "sympy",
    "mlflow",
    "wandb",
)

FIGURES = "polars numpy matplotlib PIL jinja2"
PLANNED = "yaml numpy psutil"
SUBMITTED = "yaml numpy psutil jinja2"
TABLE = [
    # command, what it may import of HEAVY and MORE besides pydantic (which typer imports), modules of ours at most
    ("datasets", "", 100),
    ("prepare synthetic/sbm --as other -o num_nodes=40 -o num_edges=90", "yaml numpy polars", 165),
    ("inspect tiny", "numpy", 145),
    ("inspect one", "", 130),
    ("convert tiny --to h5 --output x.h5", "", 80),
    ("partition tiny --method random --num-parts 2 --fanouts 2", "numpy psutil", 160),
    ("presample tiny.yaml --output sampled", PLANNED, 170),
    ("stage tiny --to staged", "", 90),
    ("recipes", "yaml", 30),
    ("plan tiny.yaml", PLANNED, 170),
    ("train tiny.yaml --dry-run", PLANNED, 175),
    ("study run grid.yaml --dry-run", PLANNED, 140),
    ("study list grid.yaml", "yaml", 115),
    ("tune tiny.yaml --dry-run", "yaml", 100),
    ("pipeline run chain.yaml --dry-run", SUBMITTED, 205),
    ("pipeline list chain.yaml", PLANNED, 180),
    ("site list", "yaml", 40),
    ("script tiny.yaml --hosts 1 --time 60", "yaml jinja2", 100),
    ("submit tiny.yaml --hosts 1 --time 60 --dry-run", SUBMITTED, 205),
    ("launch tiny.yaml --hosts hosts.yaml --dry-run", PLANNED, 145),
    ("watch one --once", "", 140),
    ("logs one", "", 95),
    ("shell one", "", 90),
    ("stop one", "", 90),
    ("pull nohost.invalid:x", "", 85),
    ("list", "", 135),
    ("verify one", "", 135),
    ("compare", "yaml", 130),
    ("compare --by train.batch_size", "yaml polars", 150),
    ("merge", "polars", 130),
    ("pareto", "polars", 130),
    ("figures", FIGURES, 145),
    ("scaling logs", "yaml polars jinja2", 160),
    ("export one --to tensorboard --dry-run", "numpy", 160),
    ("bottleneck one", "", 115),
    ("solve costs.csv", "numpy polars", 60),
    ("bench", "", 30),
    ("devcluster --help", "", 30),
    ("schema", "yaml", 90),
    ("completion bash", "", 25),
]
SLOW_TABLE = [  # what computes does so in other processes
    ("report one", f"{FIGURES} yaml", 210),
    ("doctor", "psutil", 40),
    ("train tiny.yaml", PLANNED, 180),
    ("batch-size tiny.yaml --memory-budget 2G -O train.batch.max=8", PLANNED, 155),
    ("baseline tiny", PLANNED, 145),
    ("evaluate one", "", 85),
    ("predict one --output p.csv", "", 85),
    ("profile tiny.yaml --steps 8", PLANNED, 185),
]
REFUSED = {"convert", "launch", "logs", "shell", "stop", "pull", "pareto", "scaling"}  # there is no such thing here
BECOMES_ANOTHER = {"detect"}  # which is not to be asked when it ends
NEVER = {"torch._dynamo", "torch_geometric", "sklearn", "scipy", "pandas", "matplotlib", "networkx", "sympy"}

PROGRAM = (
    "import sys, graphmill.cli as cli; sys.argv = ['graphmill', *sys.argv[1:]]\n"
    "try: cli.main()\n"
    "finally: print('loaded', *sys.modules, file=sys.stderr)"
)


def python(program: str, environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environ, capture_output=True, text=True, check=True
    )


def test_importing_the_commands_loads_nothing_heavy(source_environ):
    program = f"import sys, graphmill.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(program, source_environ).stdout == "[]\n"


def test_help_loads_nothing_heavy(source_environ):
    program = (
        "import sys, graphmill.cli as cli; sys.argv = ['graphmill', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    assert python(program, source_environ, "--help").stderr == "[]\n"
    # typer itself loads pydantic before it parses the options of a single command
    assert python(program, source_environ, "train", "--help").stderr in ("[]\n", "['pydantic']\n")


def test_a_command_loads_no_other_command_and_no_other_task(toy, source_environ):
    program = (
        "is_of_others = lambda name: name.startswith('graphmill.cli.s') or name.endswith('.page')\n"
        "import sys, graphmill.cli as cli; sys.argv = ['graphmill', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "finally: print([name for name in sys.modules if is_of_others(name)], file=sys.stderr)"
    )
    loaded = python(program, source_environ, "plan", str(toy)).stderr
    own = ["graphmill.cli.show", "graphmill.tasks.node_classification.page"]
    assert sorted(ast.literal_eval(loaded)) == own


CONTROL_PLANE = (
    "graphmill.base.files",
    "graphmill.spec.load",
    "graphmill.spec.study",
    "graphmill.runtime.checks",
    "graphmill.record.run_folder",
    "graphmill.record.provenance",
    "graphmill.cluster.launch.study",
    "graphmill.cluster.launch.tune",
    "graphmill.verify.run",
    "graphmill.report.merge",
    "graphmill.report.pareto",
    "graphmill.report.figures",
    "graphmill.tasks.planning",
    "graphmill.tasks.node_classification.access",
    "graphmill.sample.hot.lookahead",
    "graphmill.partition.parts",
)


def test_the_control_plane_does_without_torch(source_environ):
    """Told by the name of the first module after which torch is there."""
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    program += "    assert 'torch' not in sys.modules, name"
    python(program, source_environ, *CONTROL_PLANE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a prepared graph, a run, and files of an experiment, a study, a pipeline and hosts."""
    folder = tmp_path_factory.mktemp("place")
    experiment = {"dataset": {"name": "tiny"}, "train": {"epochs": 1, "threads": 1, "baselines": False}}
    (folder / "tiny.yaml").write_text(json.dumps(experiment))
    (folder / "costs.csv").write_text("4,1,3\n2,0,5\n3,2,2\n")
    (folder / "hosts.yaml").write_text(json.dumps({"hosts": [{"address": "nohost.invalid"}]}))
    some = {"name": "grid", "experiment": "tiny.yaml", "cells": [{"name": "a"}, {"name": "b", "train.batch_size": 50}]}
    (folder / "grid.yaml").write_text(json.dumps(some))
    stages = [{"name": "few", "set": {"train.num_neighbors": [2, 2]}}, {"name": "many", "init_from": {"stage": "few"}}]
    whole = {"name": "chain", "experiment": "tiny.yaml", "evaluate_on": "all", "stages": stages}
    (folder / "chain.yaml").write_text(json.dumps(whole))
    run_in(folder, "prepare", "synthetic/sbm", "--as", "tiny", "-o", "num_nodes=400", "-o", "num_edges=3000")
    run_in(folder, "train", "tiny.yaml", "--run-id", "one")
    return folder


@pytest.mark.parametrize(
    ("command", "may", "most"),
    [
        *(pytest.param(*row, id=row[0]) for row in TABLE),
        *(pytest.param(*row, id=row[0], marks=pytest.mark.slow) for row in SLOW_TABLE),
    ],
)
def test_a_command_imports_what_it_needs(place, source_environ, command, may, most):
    done = in_place(place, source_environ, PROGRAM, command)
    assert done.returncode == (2 if command.split()[0] in REFUSED else 0), done.stderr
    loaded = set(done.stderr.splitlines()[-1].removeprefix("loaded ").split())
    assert loaded & {*HEAVY, *MORE} <= {*may.split(), "pydantic"}
    assert sum(name.startswith("graphmill.") for name in loaded) <= most


def test_every_command_is_in_the_table():
    assert {command.split()[0] for command, _, _ in [*TABLE, *SLOW_TABLE]} | BECOMES_ANOTHER == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *("train tiny.yaml --ranks 2", "study run grid.yaml", "pipeline run chain.yaml"),
        *("evaluate one", "predict one --output p.csv", "baseline tiny"),
    ],
)
def test_all_processes_of_a_command_import_torch_once(place, source_environ, command):
    """However many runs, and evaluations between them, it has; each process writes what it imports."""
    environ = {**source_environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = in_place(place, environ, "from graphmill.cli import main; main()", command)
    assert done.returncode == 0, done.stderr
    imported = Counter(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert imported["torch"] == 1
    assert not NEVER & set(imported)


def in_place(place, environ, program, command) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", program, *command.split()]
    return subprocess.run(words, env=environ, cwd=place, capture_output=True, text=True, check=False)
