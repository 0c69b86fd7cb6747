"""The control plane starts in a blink and never loads torch (invariant 9)."""

import ast
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "polars", "matplotlib", "pandas", "pydantic", "rich", "yaml", "psutil")


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


@pytest.mark.parametrize(
    "module",
    [
        "graphmill.base.files",
        "graphmill.spec.load",
        "graphmill.spec.study",
        "graphmill.runtime.checks",
        "graphmill.record.run_folder",
        "graphmill.record.provenance",
        "graphmill.cluster.launch.study",
        "graphmill.verify.run",
        "graphmill.report.merge",
        "graphmill.report.pareto",
        "graphmill.report.figures",
        "graphmill.tasks.planning",
        "graphmill.tasks.node_classification.access",
        "graphmill.sample.hot.lookahead",
        "graphmill.partition.parts",
    ],
)
def test_the_control_plane_does_without_torch(source_environ, module):
    python(f"import sys, {module}; assert 'torch' not in sys.modules", source_environ)


def test_planning_and_submitting_do_without_torch(toy, source_environ):
    program = (
        "import sys, graphmill.cli as cli; sys.argv = ['graphmill', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    assert python(program, source_environ, "plan", str(toy)).stderr == "False\n"
    assert python(program, source_environ, "train", str(toy), "--dry-run").stderr == "False\n"
    assert python(
        program, source_environ, "presample", str(toy), "--output", str(toy.parent / "sampled")
    ).stderr.endswith("False\n")
