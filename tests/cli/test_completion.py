"""`graphmill completion`: a real bash asks what could stand at the cursor."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_in

ASK = """
PATH="$1:$PATH"
. "$2"
shift 2
COMP_WORDS=(graphmill "$@") COMP_CWORD=$#
_graphmill_completion graphmill
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """What `graphmill completion bash` prints."""
    path = tmp_path_factory.mktemp("completion") / "script"
    path.write_text(run_in(path.parent, "completion", "bash"))
    return path


@pytest.fixture
def completes(tmp_path: Path, script: Path, source_environ: dict[str, str]):
    """Asks bash, in a folder of its own, with `graphmill` on PATH."""
    program = tmp_path / "bin" / "graphmill"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m graphmill "$@"\n')
    program.chmod(0o755)

    def ask(*words: str, cwd: Path = tmp_path) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", ASK, "bash", str(program.parent), str(script), *words],
            capture_output=True, text=True, check=True, cwd=cwd,
            env={**source_environ, "GRAPHMILL_DATA_ROOT": str(tmp_path / "data")},
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["st"], ["stage", "study", "stop"]),
        (["study", "s"], ["submit"]),
        (["train", "cora-sage", "--rank"], ["--ranks"]),
        (["train", "cora"], ["cora-sage"]),
        (["pipeline", "run", "pipeline-h"], ["pipeline-horizon"]),
        (["study", "run", "study-cora"], ["study-cora-strong"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["baseline", "planetoid/p"], ["planetoid/pubmed"]),
        (["train", "no-such"], []),
    ],
)
def test_words_are_completed(completes, words: list[str], found: list[str]):
    assert completes(*words) == found


def test_runs_and_prepared_data_are_found(completes, tmp_path: Path):
    for run in ("one", "study/a", "study/b", "mine/deep/c"):
        (tmp_path / "logs" / run).mkdir(parents=True)
        (tmp_path / "logs" / run / "plan.json").write_text("{}")
    (tmp_path / "elsewhere" / "other").mkdir(parents=True)
    (tmp_path / "elsewhere" / "other" / "plan.json").write_text("{}")
    (tmp_path / "data" / "my-graph").mkdir(parents=True)
    (tmp_path / "data" / "my-graph" / "metadata.json").write_text("{}")
    assert completes("watch", "") == ["mine", "mine/deep", "mine/deep/c", "one", "study", "study/a", "study/b"]
    assert completes("verify", "--logs-root", "elsewhere", "") == ["other"]
    assert completes("inspect", "my") == ["my-graph"]


def test_what_a_shell_would_run_is_not_completed(completes, tmp_path: Path):
    for run in ("$(touch x)", "`touch x`", "a;touch x", "a b", "a|b", "a&b", "plain"):
        (tmp_path / "logs" / run).mkdir(parents=True)
        (tmp_path / "logs" / run / "plan.json").write_text("{}")
    assert completes("watch", "") == ["plain"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_parses(shell: str, tmp_path: Path, source_environ: dict[str, str]):
    script = tmp_path / "script"
    printed = subprocess.run(
        [sys.executable, "-m", "graphmill", "completion", shell],
        capture_output=True, text=True, check=True, env=source_environ,
    ).stdout  # fmt: skip
    assert "_GRAPHMILL_COMPLETE=" in printed
    script.write_text(printed)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(script)], check=True, env=os.environ)
