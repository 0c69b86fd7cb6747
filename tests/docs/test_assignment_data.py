"""docs/howto/assignment-data.md as a person would follow it: every command of its blocks."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "assignment-data.md"


@pytest.mark.slow
def test_the_commands_of_the_page(graphmill):
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 6
    for line in lines:
        words = [word.replace("sizes=[64,128]", "sizes=[8,16]") for word in shlex.split(line)[1:]]
        done = graphmill(*words)
        assert done.code == 0, done.err
    assert "duplicates left out" in done.out
