import json
import subprocess
import sys

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


def test_no_git_is_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_it_does_without_torch(source_environ):
    program = (
        "import sys; from graphmill.record.provenance import collect_provenance; collect_provenance([])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], env=source_environ, check=True)
