"""A copy of the user's code: called by what it holds, for reading only, and nothing else is imported in its place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_user import as_second_user

from graphmill.base.errors import UserError
from graphmill.runtime.snapshot import (
    FOLDER,
    Snapshot,
    damage,
    digest_of,
    own_code,
    put_into,
    snapshot_in,
    write_snapshot,
)

FILES = {
    "0/models/__init__.py": b"",
    "0/models/net.py": b"import helper\nfrom .parts import WIDTH\nWHENCE = (__file__, helper.__file__)\n",
    "0/models/parts.py": b"WIDTH = 5\n",
    "1/helper.py": b"VALUE = 'submitted'\n",
}


@pytest.fixture
def made(tmp_path: Path) -> Snapshot:
    """The copy; the folders that it is of hold other code by now, and a module that was not copied."""
    folder = tmp_path / "logs" / ".code" / digest_of(FILES)
    write_snapshot(FILES, folder)
    for origin in ("here", "there"):
        (tmp_path / origin / "models").mkdir(parents=True)
        for name in ("models/__init__.py", "models/net.py", "helper.py", "late.py"):
            (tmp_path / origin / name).write_text("raise SystemExit('the code of now')\n")
    return Snapshot(folder.name, str(folder), (str(tmp_path / "here"), str(tmp_path / "there")))


def python(made: Snapshot, code: str, *first: str) -> subprocess.CompletedProcess[str]:
    """Run code as the ranks do: in the first folder, which is in front of `sys.path`, the second in PYTHONPATH."""
    source = str(Path(__file__).parents[2] / "src")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([made.origins[1], source])}
    put_into(environ, made)
    begin = "import os, sys; sys.path[0] = os.getcwd()\nfrom graphmill.runtime.snapshot import import_from_snapshot\n"
    words = [sys.executable, "-c", "\n".join([*first, f"{begin}import_from_snapshot(os.environ)", code])]
    return subprocess.run(words, cwd=made.origins[0], env=environ, capture_output=True, text=True, check=False)


def test_the_copy_is_imported_and_not_what_lies_there_now(made):
    done = python(made, "from models import net; print(*net.WHENCE, net.WIDTH)")
    assert done.stdout.split() == [f"{made.folder}/0/models/net.py", f"{made.folder}/1/helper.py", "5"], done.stderr
    started = "import subprocess; subprocess.run([sys.executable, '-c', 'import helper'], cwd=sys.path[1], check=True)"
    assert not python(made, f"import models.net; {started}").stderr
    assert damage(Path(made.folder)) is None, "no bytecode was written, by it or by what it starts"


def test_what_was_not_copied_is_missing_and_not_taken_from_where_it_lies(made):
    done = python(made, "import late")
    assert "ModuleNotFoundError: No module named 'late'" in done.stderr


def test_another_finder_or_an_earlier_import_is_no_way_around_it(made):
    ahead = (
        "import sys",
        "from importlib.util import spec_from_file_location",
        "class Ahead:",
        "    def find_spec(name, path=None, target=None):",
        "        if name == 'helper':",
        f"            return spec_from_file_location(name, {made.origins[0]!r} + '/helper.py')",
        "sys.meta_path.insert(0, Ahead)",
    )
    done = python(made, "print('imported')", *ahead)
    assert "helper would be imported from" in done.stderr
    assert "imported" not in done.stdout.split()
    early = (
        "import sys, types",
        "import importlib.machinery as m",
        "sys.modules['helper'] = h = types.ModuleType('h')",
    )
    done = python(made, "print('imported')", *early, "h.__spec__ = m.ModuleSpec('helper', None, origin='/other.py')")
    assert "helper would be imported from /other.py" in done.stderr


def test_a_folder_called_as_an_installed_package_hides_it_no_more_than_elsewhere(made, tmp_path):
    """As trackers leave beside the code: wandb/run-1/code.py."""
    files = {**FILES, "0/tracker/run/code.py": b""}
    folder = tmp_path / "logs" / ".code" / digest_of(files)
    write_snapshot(files, folder)
    installed = tmp_path / "site-packages" / "tracker" / "__init__.py"
    installed.parent.mkdir(parents=True)
    installed.touch()
    add = f"import sys; sys.path.append({str(tmp_path / 'site-packages')!r})"
    done = python(Snapshot(folder.name, str(folder), made.origins), "import tracker; print(tracker.__file__)", add)
    assert done.stdout.strip() == str(installed), done.stderr


def test_it_is_for_reading_and_written_once(made):
    folder = Path(made.folder)
    before = {path: path.stat().st_ino for path in folder.rglob("*.py")}
    assert {path.stat().st_mode & 0o777 for path in before} == {0o444}
    assert damage(folder) is None
    write_snapshot(FILES, folder)
    assert {path: path.stat().st_ino for path in folder.rglob("*.py")} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (lambda folder: _write(folder / "0/models/net.py", "1"), "0/models/net.py was changed"),
        (lambda folder: (folder / "1/helper.py").unlink(), "1/helper.py is missing"),
        (lambda folder: _write(folder / "0/torch.py", "1"), "0/torch.py was added"),
        (lambda folder: _write(folder / "0/helper.so", ""), "0/helper.so was added"),
        (lambda folder: _write(folder / "0/late.pyc", ""), "0/late.pyc was added"),
        (lambda folder: (folder / "0/helper").symlink_to("/"), "0/helper was added"),
        (lambda folder: _write(folder / "1/__pycache__/helper.pyc", ""), "1/__pycache__/helper.pyc was added"),
        (lambda folder: _write(folder / "files.json", "{}"), "files.json was changed"),
        (lambda folder: (folder / "files.json").unlink(), "files.json is missing"),
        (lambda folder: folder.rename(folder.with_name("other")), "it is gone"),
    ],
)
def test_a_damaged_copy_is_refused_and_restored_by_the_same_code(made, harm, what):
    folder = Path(made.folder)
    harm(folder)
    assert damage(folder) == what
    done = python(made, "import models")
    assert "cannot be used" in done.stderr
    assert what in done.stderr
    assert "the code of now" not in done.stderr
    write_snapshot(FILES, folder)
    assert damage(folder) is None


names = st.from_regex(r"[0-3]/[a-z]{1,5}\.py", fullmatch=True)


@given(st.dictionaries(names, st.binary(max_size=8)), st.dictionaries(names, st.binary(max_size=8)))
def test_the_name_says_what_it_holds(one, other):
    assert (digest_of(one) == digest_of(other)) == (one == other)
    assert digest_of(dict(reversed(one.items()))) == digest_of(one)


def test_the_environment_says_which(made):
    environ = {"GRAPHMILL_CODE": "of an outer job", "A": "1"}
    put_into(environ, made)
    assert (snapshot_in(environ), own_code(environ)) == (made, made.sha256)
    put_into(environ, None)
    assert (environ, own_code(environ)) == ({"A": "1"}, "")


def _write(path: Path, text: str) -> None:
    if path.exists():
        path.chmod(0o644)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_two_users_copy_their_code_into_one_logs_root(shared_place):
    def copied(files: dict[str, bytes]) -> None:
        write_snapshot(files, shared_place / FOLDER / digest_of(files))

    copied({"0/mine.py": b"mine = 1\n"})
    as_second_user(lambda: copied({"0/theirs.py": b"theirs = 1\n"}))
    assert len(list((shared_place / FOLDER).iterdir())) == 2


def test_no_code_is_copied_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="nothing is written through it"):
        write_snapshot(FILES, tmp_path / FOLDER / digest_of(FILES))
    assert not list((tmp_path / "elsewhere").iterdir())
