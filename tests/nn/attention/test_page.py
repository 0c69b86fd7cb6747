"""The script of docs/reference/attention.md runs, and its model is PyG's with the other import."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "attention.md"


def test_the_script_of_the_page(capsys):
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ours, theirs = {}, {}
    exec(compile(text, PAGE.name, "exec"), ours)  # our own page
    line = next(line for line in text.splitlines() if "from graphmill.nn.attention" in line)
    other = line.partition("#")[2].strip()
    exec(compile(text.replace(line, other), PAGE.name, "exec"), theirs)
    loops = int((ours["edge_index"][0] == ours["edge_index"][1]).sum())
    assert ours["alpha"].shape == theirs["alpha"].shape == (3000 - loops + 200, 8)
    assert torch.equal(ours["edges"], theirs["edges"])
    theirs["model"].load_state_dict(ours["model"].state_dict())
    given = [ours[name] for name in ("x", "edge_index", "edge_attr")]
    with torch.no_grad():
        torch.testing.assert_close(ours["model"].eval()(*given), theirs["model"].eval()(*given), rtol=1e-4, atol=1e-5)
    assert "torch.Size" in capsys.readouterr().out
