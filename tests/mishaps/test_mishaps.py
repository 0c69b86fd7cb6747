"""Whatever a person gets wrong is told in a sentence that says what clashes and what to type, and leaves nothing."""

import os
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import TOY, run_in
from rows import ROWS
from rows.mishap import Mishap


def everything(folder: Path) -> dict[str, int]:
    """Names and sizes of all that lies below a folder."""
    return {
        str(path.relative_to(folder)): path.lstat().st_size for path in sorted(folder.rglob("*")) if not path.is_dir()
    }


@pytest.fixture(scope="session")
def finished(tmp_path_factory, _toy_root) -> Path:
    """A run that is done, of the toy, with its rank a real process."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "toy.yaml").write_text(TOY)
    run_in(folder, "train", "toy.yaml", "--run-id", "one", "--dataset-root", str(_toy_root))
    return folder


def judge(mishap: Mishap, done: SimpleNamespace) -> None:
    said = done.err + done.out
    assert done.code == mishap.status, said
    assert said.count("Traceback") == mishap.users_traceback
    assert "bug in graphmill" not in said
    for word in mishap.says:
        assert word in said, f"not said: {word}\n{said}"
    if done.code == 2:
        assert "\nerror: " in f"\n{done.err}" or "Usage: " in done.err, said
        assert "\n  → " in done.err or "Usage: " in done.err, f"it does not say what to type: {said}"


@pytest.mark.parametrize(
    "mishap",
    [pytest.param(row, id=row.id, marks=[pytest.mark.slow] if row.slow else []) for row in ROWS],
)
def test_it_is_told_and_leaves_nothing(request, graphmill, toy, source_environ, monkeypatch, capfd, tmp_path, mishap):
    if mishap.needs_run:
        shutil.copytree(request.getfixturevalue("finished") / "logs", tmp_path / "logs")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), source_environ["PYTHONPATH"])))
    if "submit" in mishap.words:  # a session inside a dev cluster has one, whose jobs would stay behind
        monkeypatch.setenv("PATH", str(tmp_path / "no-sbatch"))
    mishap.make(tmp_path)
    before = everything(tmp_path)
    done = graphmill(*shlex.split(mishap.words))
    done.err += "".join(capfd.readouterr())  # of the processes that it starts
    judge(mishap, done)
    after = everything(tmp_path)
    left = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    assert not {name for name in left if name.split("/")[0] not in mishap.leaves}


def test_two_hundred_mishaps_of_different_names():
    names = [row.id for row in ROWS]
    assert len(set(names)) == len(names)
    assert len(names) >= 200
