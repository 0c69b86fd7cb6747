"""docs/howto/own-graphs.md as a person would follow it: the file is made, prepared and trained on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-graphs.md"


@pytest.mark.parametrize("section", ["From arrays", pytest.param("From PyG", marks=pytest.mark.slow)])
def test_from_what_one_has_to_a_classifier(section, graphmill, capfd, tmp_path):
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}")[1]
    code = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    commands = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    for line in commands.splitlines():
        done = graphmill(*line.removeprefix("graphmill ").split())
        assert done.code == 0, done.out + done.err
    assert "test accuracy" in capfd.readouterr().out, "what rank 0 prints"
