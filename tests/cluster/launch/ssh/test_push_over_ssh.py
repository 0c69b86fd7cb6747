"""`submit --on` with a real rsync to a real sshd; what submits there is a stand-in, which prints how it was called."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = """#!/bin/sh
if [ "$1" = --version ]; then echo "graphmill 9.9"; exit 0; fi
pwd; for word; do printf '<%s>\\n' "$word"; done; cat toy.yaml helper.py; exit 7
"""


@pytest.fixture
def there(tmp_path) -> Path:
    """The hosts see our files, so the folder there is one of them."""
    return tmp_path / "there" / "a folder; $(touch pwned)"


@pytest.fixture
def submit(hosts, tmp_path, source_environ, there):
    here = tmp_path / "laptop"
    here.mkdir()
    (here / "toy.yaml").write_text("model: {kind: custom, target: helper.M}\n")
    (here / "helper.py").write_text("width = 1\n")
    program = tmp_path / "stand in"
    program.write_text(STAND_IN)
    program.chmod(0o755)

    def run(*words: str, folder: Path = there, graphmill: str = str(program)) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "graphmill.cli", "submit", "toy.yaml", "--on", f"host1:{folder}"]
        command += ["--ssh-config", str(hosts.ssh_config), "--remote-graphmill", graphmill, *words]
        return subprocess.run(
            hosts.here(*command), env=source_environ, capture_output=True, text=True, cwd=here, check=False
        )

    run.here = here
    return run


def test_the_words_arrive_as_they_were_written(submit, there, tmp_path):
    """But that each option is joined to its value."""
    words = ["--hosts", "2", "-O", "name=it's $HOME; `x`", "--comment", 'a "b" \\c', "--run-id", "one"]
    done = submit(*words)
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    begin = lines.index(str(there))
    expected = ["submit", "toy.yaml", "--hosts=2", "-O", words[3], f"--comment={words[5]}", "--run-id=one"]
    assert lines[begin + 1 : begin + 8] == [f"<{word}>" for word in expected]
    assert "width = 1" in done.stdout
    assert "has graphmill 9.9" in done.stderr
    assert json.loads((there / ".graphmill-sent.json").read_text()).keys() == {"toy.yaml", "helper.py"}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.slow
def test_a_dry_run_sends_nothing_and_asks_there_once_all_is_sent(submit, there):
    dry = submit("--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "nothing was sent" in dry.stderr
    assert not there.exists()
    submit()
    assert "<--dry-run>" in submit("--dry-run").stdout


@pytest.mark.slow
def test_what_was_changed_there_is_not_overwritten(submit, there):
    submit()
    (submit.here / "helper.py").write_text("width = 2\n")
    assert "width = 2" in submit().stdout, "it was sent from here"
    (there / "helper.py").write_text("width = 3\n")
    refused = submit()
    assert refused.returncode == 2
    assert "helper.py" in refused.stderr
    assert (there / "helper.py").read_text() == "width = 3\n"
    (there / "mine.txt").write_text("kept")
    assert "width = 2" in submit("--overwrite").stdout
    assert (there / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("where", "said", "fix"),
    [
        ({"graphmill": "no-such-program"}, "no-such-program is not found on host1", "--remote-graphmill"),
        ({"folder": Path("/proc/nothing")}, "/proc/nothing", ""),
    ],
)
def test_what_cannot_be_done_there_is_told(submit, where, said, fix):
    done = submit(**where)
    assert done.returncode == 2
    assert said in done.stderr
    assert fix in done.stderr
    assert "Traceback" not in done.stderr
