import json
import subprocess
import sys

import pytest

from graphmill.record.provenance import collect_provenance, git_state


def test_it_says_where_a_number_comes_from():
    provenance = collect_provenance(["graphmill", "train"], dataset_checksum="ab", synthetic=True)
    assert provenance.command == ("graphmill", "train")
    assert provenance.num_cores >= 1
    assert provenance.versions["python"].count(".") == 2
    assert "torch" in provenance.versions
    assert (provenance.dataset_checksum, provenance.synthetic) == ("ab", True)
    assert json.loads(provenance.model_dump_json())["time_utc"].endswith("+00:00")


def git(folder, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=folder, check=True, capture_output=True
    )


def test_the_state_of_a_working_tree(tmp_path):
    git(tmp_path, "init")
    assert git_state(tmp_path) is None, "no commit yet"
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "one")
    assert git_state(tmp_path).dirty is False
    assert len(git_state(tmp_path).commit) == 40
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path).dirty is True
    (tmp_path / ".git" / "index").write_bytes(b"damaged")
    assert git_state(tmp_path).dirty is None, "git cannot say"


def hostile(folder, kind, program):
    """A checkout that came with a configuration of its own."""
    git(folder, "init")
    (folder / "a").write_text("1")
    git(folder, "add", "a")
    git(folder, "commit", "-m", "one")
    if kind == "fsmonitor":
        git(folder, "config", "core.fsmonitor", program)
    elif kind == "missing objects":
        git(folder, "config", "remote.origin.url", "nobody@nowhere.invalid:x")
        git(folder, "config", "remote.origin.promisor", "true")
        git(folder, "config", "extensions.partialClone", "origin")
        git(folder, "config", "core.repositoryFormatVersion", "1")
        git(folder, "config", "core.sshCommand", program)
        git(folder, "config", "protocol.ssh.allow", "always")
        for name in git_objects(folder):
            name.unlink()
    else:
        (folder / ".git" / "more").write_text(f'[filter "x"]\n{kind} = {program}\n')
        git(folder, "config", "include.path", "more")
        (folder / ".git" / "info" / "attributes").write_text("* filter=x")
        (folder / "a").write_text("2")  # as long as before: git has to look what is in it


def git_objects(folder):
    """All but commits."""
    for path in folder.glob(".git/objects/??/*"):
        asked = ["git", "cat-file", "-t", path.parent.name + path.name]
        said = subprocess.run(asked, cwd=folder, capture_output=True, check=True)
        if said.stdout != b"commit\n":
            yield path


@pytest.mark.parametrize("kind", ["fsmonitor", "missing objects", "clean", "process"])
def test_a_checkout_that_was_handed_over_has_nothing_run(tmp_path, kind):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    (tmp_path / "checkout").mkdir()
    hostile(tmp_path / "checkout", kind, str(program))
    (tmp_path / "ran").unlink(missing_ok=True)
    state = git_state(tmp_path / "checkout")
    assert len(state.commit) == 40
    assert state.dirty is (False if kind == "fsmonitor" else None)
    assert not (tmp_path / "ran").exists()


def test_no_git_is_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_it_does_without_torch(source_environ):
    program = (
        "import sys; from graphmill.record.provenance import collect_provenance; collect_provenance([])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], env=source_environ, check=True)
