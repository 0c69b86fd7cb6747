"""What `submit --on` sends, and what it makes of what is there."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.cli.submit_options import remote_words
from graphmill.cluster.push import _record, _state, _sums, files_to_send, refuse_changed_remotely
from graphmill.cluster.remote import Source

OWN = "import helper\nfrom package import part\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "helper.py").write_text("width = 1\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "package").mkdir()
    for name in ("__init__", "part"):
        (tmp_path / "package" / f"{name}.py").write_text(f"# {name}\n")
    (tmp_path / "toy.yaml").write_text("model: {kind: custom, target: own.Model}\n")
    (tmp_path / "other.yaml").write_text("")
    return tmp_path


ALL_OF_OWN = {"own.py", "helper.py", "package/__init__.py", "package/part.py"}


def test_an_experiment_goes_with_the_code_that_it_names_and_nothing_else(folder):
    files = files_to_send(["toy.yaml"], [], {})
    assert set(files) == {"toy.yaml", *ALL_OF_OWN}
    assert files["own.py"] == OWN.encode()


def test_a_study_goes_with_its_experiment_and_a_pipeline_with_the_models_of_its_stages(folder):
    (folder / "study.yaml").write_text("name: s\nexperiment: toy.yaml\nseeds: [1]\n")
    assert set(files_to_send(["study.yaml"], [], {})) == {"study.yaml", "toy.yaml", *ALL_OF_OWN}
    (folder / "pipe.yaml").write_text("stages:\n  - {name: a, set: {model: {kind: custom, target: 'helper.M'}}}\n")
    assert set(files_to_send(["pipe.yaml"], [], {})) == {"pipe.yaml", "helper.py"}
    (folder / "pipe.yaml").write_text("stages:\n  - {name: a, set: {train.loss.target: helper.loss}}\n")
    assert set(files_to_send(["pipe.yaml"], [], {})) == {"pipe.yaml", "helper.py"}


def test_a_site_profile_goes_with_the_experiment_that_names_it(folder):
    (folder / "site.yaml").write_text("name: mine\n")
    (folder / "toy.yaml").write_text("slurm: {site: site.yaml}\n")
    assert set(files_to_send(["toy.yaml"], [], {})) == {"toy.yaml", "site.yaml"}


@pytest.mark.parametrize(
    "override", ["model={kind: custom, target: helper.M}", "model.target=helper.M", "task=helper:KIND"]
)
def test_code_that_only_an_override_names_goes_too(folder, override):
    assert set(files_to_send(["other.yaml"], [override], {})) == {"other.yaml", "helper.py"}


def test_a_recipe_is_there_already(folder):
    assert files_to_send(["debian-packages-sage"], [], {}) == {}
    assert files_to_send(["debian-packages-sage"], ["model.target=torch_geometric.nn.GCN"], {}) == {}


def test_code_of_pythonpath_goes_where_the_experiment_goes(folder):
    (folder / "lib").mkdir()
    (folder / "lib" / "elsewhere.py").write_text("")
    files = files_to_send(["other.yaml"], ["model.target=elsewhere.M"], {"PYTHONPATH": "lib"})
    assert set(files) == {"other.yaml", "elsewhere.py"}


@pytest.mark.parametrize("name", ["../toy.yaml", "{folder}/toy.yaml"])
def test_a_file_that_would_have_no_place_there_is_refused(folder, monkeypatch, name):
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    with pytest.raises(UserError, match="outside the folder") as error:
        files_to_send([name.format(folder=folder)], [], {})
    assert error.value.fix.startswith("cd ")


@pytest.mark.parametrize(
    ("here", "sent", "state"),
    [(None, None, "new"), (None, "a", "new"), ("hello", None, "same"), ("hello", "a", "same"),
     ("other", "other", "changed"), ("other", None, "changed there"), ("other", "hello", "changed there")],
)  # fmt: skip
def test_only_what_was_sent_from_here_is_overwritten(here, sent, state):
    sums = {"hello": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    found = _state(b"hello", sums.get(here, here), sums.get(sent, sent))
    assert found == state
    if state == "changed there":
        with pytest.raises(UserError, match=r"a\.py in me@host:x .* overwritten"):
            refuse_changed_remotely({"a.py": found, "b.py": "new"}, Source("me@host", "x"))
    else:
        refuse_changed_remotely({"a.py": found}, Source("me@host", "x"))


NOT_IN_A_LINE = "/\x00\n\r\\\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e"
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NOT_IN_A_LINE), min_size=1, max_size=12)


@settings(deadline=None, max_examples=20)
@given(names=st.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_the_lines_of_sha256sum_are_read(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    names = [f"f{name}" for name in names if len(name.encode()) < 200]
    for name in names:
        (folder / name).write_bytes(name.encode())
    command = ["sha256sum", "-b", "--", *names]
    out = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout.decode()
    assert set(_sums(out)) == set(names)


@pytest.mark.parametrize("text", ["", "Welcome to host1\n", "{", "[1]", "no {json}"])
def test_a_record_that_is_none_means_that_nothing_was_sent(text):
    assert _record(text) == {}


def test_a_record_after_a_greeting():
    assert _record('Welcome\n{"a.py": "0"}\n') == {"a.py": "0"}


def test_words_of_this_machine_stay_here():
    words = ["toy.yaml", "--on=h:x", "--hosts=2", "--remote-graphmill=/opt/g", "-O", "train.seed=1", "--overwrite"]
    assert remote_words(words) == ["toy.yaml", "--hosts=2", "-O", "train.seed=1"]
