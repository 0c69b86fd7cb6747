"""docs/howto/assignment-solver.md as a person would follow it: every block, in order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "assignment-solver.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_every_command_and_every_line_of_python(graphmill, tmp_path):
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert [line.split()[1] for line in commands] == ["solve", "prepare", "train", "bench"]
    (tmp_path / "costs.csv").write_text(blocks("text")[0], encoding="utf-8")
    for line in commands[:3]:
        done = graphmill(*line.split()[1:])
        assert done.code == 0, done.err
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks("python")), encoding="utf-8")
    ran = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("{'128 to 255': '")
    measured = graphmill(*commands[3].split()[1:])
    assert measured.code == 0, measured.err
    assert "vs_best_trivial" in measured.out
    assert (
        (tmp_path / "potentials.csv").read_text(encoding="utf-8").startswith("dataset,size,family,density,scipy_time")
    )
