"""docs/howto/link-prediction.md as a person would follow it."""

import re
import subprocess
import sys
from pathlib import Path

import polars
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "link-prediction.md"


def followed(blocks: str, graphmill, folder: Path) -> None:
    for language, text in re.findall(r"^```(python|bash)\n(.*?)^```", blocks, re.MULTILINE | re.DOTALL):
        if language == "python":
            subprocess.run([sys.executable, "-c", text], cwd=folder, check=True)
            continue
        for line in text.splitlines():
            more = ("-O", "train.baselines=false") if line.startswith("graphmill train") else ()
            done = graphmill(*line.removeprefix("graphmill ").split(), *more)
            assert done.code == 0, f"{line}\n{done.out}{done.err}"


@pytest.fixture
def sections() -> list[str]:
    return PAGE.read_text(encoding="utf-8").split("\n## ")


def test_from_a_generated_graph_to_likely_links(sections, graphmill, tmp_path):
    followed(sections[0], graphmill, tmp_path)
    test, likely = (polars.read_parquet(tmp_path / name) for name in ("test.parquet", "likely.parquet"))
    assert {"source", "target", "score", "rank"} <= set(test.columns)
    assert (test["rank"] >= 1).all()
    assert likely.group_by("source").len()["len"].max() == 5


@pytest.mark.slow
def test_from_arrays_to_a_model(sections, graphmill, capfd, tmp_path):
    followed(sections[1], graphmill, tmp_path)
    assert "test MRR" in capfd.readouterr().out, "what rank 0 prints"


@pytest.mark.slow
def test_a_graph_in_parts(sections, graphmill, tmp_path):
    (prepare,) = [line for line in sections[0].splitlines() if line.startswith("graphmill prepare")]
    (in_parts,) = [section for section in sections if section.startswith("A graph larger than a host")]
    followed(f"```bash\n{prepare}\n```\n{in_parts}", graphmill, tmp_path)
    test = polars.read_parquet(tmp_path / "test.parquet")
    assert {"source", "target", "score", "rank"} <= set(test.columns)
    rows = polars.read_csv(tmp_path / "logs" / "links-2" / "metrics.csv")
    assert (rows["remote_rows"] == 0).all(), "the ranks of a host share its parts"
