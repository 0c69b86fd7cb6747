"""Which of the user's files a job gets a copy of, and which copy it keeps."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.base.python import python_m
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.copy_code import refuse_unfit_request, with_code
from graphmill.cluster.jobs.own_code import find_own_code, search_path
from graphmill.cluster.jobs.sites import find_site
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, rank_command
from graphmill.cluster.jobs.study import make_arrays, plan_cells
from graphmill.cluster.jobs.submit import RunRequest, folder_for, plan_request, read_job, request_of
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.snapshot import damage, put_into
from graphmill.spec.dotted import import_named
from graphmill.spec.job.resolve import ApptainerSpec
from graphmill.spec.load import inline_experiment
from graphmill.spec.study import Study
from graphmill.tasks.node_classification.data.prepare import prepare

EXPERIMENT = {
    "name": "mine",
    "dataset": {"name": "synthetic/sbm"},
    "model": {"kind": "custom", "target": "mine.net.Net"},
    "train": {"epochs": 1, "batch_size": 60, "num_neighbors": [4], "threads": 1, "device": "cpu", "ranks": 1},
    "slurm": {"site": "devcluster", "time": 10},
}
NET = """
import os
import json.decoder
from importlib import import_module

import torch
import helper
from .parts import WIDTH


class Net(torch.nn.Linear):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        import late
        from deep.inside import thing
        import_module("dynamic")

    def forward(self, x, edge_index):
        return super().forward(x)
"""
FILES = {
    "mine/__init__.py": "",
    "mine/net.py": NET,
    "mine/parts.py": "WIDTH = 1\n",
    "mine/unused/more.py": "",
    "mine/.hidden/no.py": "",
    "mine/venv/pyvenv.cfg": "",
    "mine/venv/lib.py": "",
    "mine/logs/run/plan.json": "{}",
    "mine/logs/run/no.py": "",
    "mine/words.txt": "",
    "deep/inside.py": "try:\n    import absent\nexcept ImportError:\n    thing = 1\n",
    "late.py": "",
    "dynamic.py": "import late  # again\n",
    "unused.py": "",
    "helper.py": "raise SystemExit('of the working folder, which comes last')\n",
    "random.py": "raise SystemExit('not the one of Python')\n",
    "elsewhere/helper.py": "import random\nimport second\n",
    "elsewhere/second.py": "",
}
COVERED = ["deep/inside.py", "dynamic.py", "late.py", "mine/__init__.py", "mine/net.py", "mine/parts.py"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    return root


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The folder that commands are given in; `elsewhere` is in PYTHONPATH."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "mine" / ".#net.py").symlink_to("nobody@nowhere")  # an editor's lock
    (tmp_path / "mine" / "gone.py").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, ("elsewhere", os.environ.get("PYTHONPATH")))))
    return tmp_path


@pytest.fixture
def asked(home, data):
    """Makes a request."""

    def ask(run_id: str = "a", **sections) -> RunRequest:
        experiment = inline_experiment({**EXPERIMENT, **sections}, "the test", [])
        logs = home / "logs"
        folder = folder_for(run_id, logs)
        return plan_request(experiment, find_site("devcluster"), dataset_root=data, folder=folder, logs_root=logs)

    return ask


def with_copy(request: RunRequest, copies: bool | None = None) -> RunRequest:
    (found,) = with_code([request], copies=copies, environ=os.environ)
    return found


def submitted(request: RunRequest) -> RunFolder:
    """As `submit` leaves it, without a job."""
    RunFolder.create(request.plan, request.logs_root)
    request.write()
    return request.folder


def test_what_a_plan_leads_to_is_covered(asked, home):
    request = asked()
    own = find_own_code([request.plan], search_path(request.job, os.environ))
    assert own is not None
    assert own.origins == (str(home / "elsewhere"), str(home))
    files = sorted(own.files)
    here = [f"1/{name}" for name in (*COVERED, "mine/unused/more.py")]
    assert files == sorted([*here, "0/helper.py", "0/second.py"])
    assert own.files["1/mine/net.py"] == NET.encode()


def test_of_two_folders_the_first_is_imported_from_and_copied(asked, home):
    request = asked()
    own = find_own_code([request.plan], search_path(request.job, os.environ))
    assert own is not None
    assert own.files["0/helper.py"] == FILES["elsewhere/helper.py"].encode()
    job = request.job.model_copy(update={"work_dir": str(home / "elsewhere"), "env": {"PYTHONPATH": str(home)}})
    other = find_own_code([request.plan], search_path(job, os.environ))
    assert other is not None
    assert other.origins == (str(home),)
    assert other.files["0/helper.py"] == FILES["helper.py"].encode()
    assert own.snapshot(home).sha256 != other.snapshot(home).sha256


def test_installed_packages_are_not_copied(asked, home):
    request = asked()
    search = search_path(request.job, os.environ)
    (home / "mine-1.dist-info").mkdir()
    assert find_own_code([request.plan], search) is None
    pyg = asked(model={"kind": "custom", "target": "torch.nn.Linear"})
    assert find_own_code([pyg.plan], search) is None


def test_of_a_container_only_the_working_folder_is_copied(asked, home):
    request = asked()
    job = request.job.model_copy(update={"container": ApptainerSpec(kind="apptainer", image="a.sif")})
    assert search_path(job, {"PYTHONPATH": f"/opt/in-the-image:{home}/sub"}) == [f"{home}/sub", str(home)]
    request = with_copy(replace(request, job=job))
    assert request.job.code is not None
    arguments = parse_arguments(driver_words(request))
    assert arguments.code == request.job.code
    here = JobHere("1", 1, home)
    command = rank_command(arguments, request.folder.path, here, Rendezvous("host1", 29500), 1)
    assert f"--bind={request.job.code.folder}:{request.job.code.folder}:ro" in command


def driver_words(request: RunRequest) -> list[str]:
    """What the script execs, as bash reads it."""
    line = request.script.partition("exec ")[2]
    told = f"python=python3; set -- {line.replace(chr(92) + chr(10), ' ')}\nprintf '%s\\0' \"$@\""
    said = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True).stdout
    return said.split("\0")[4:-1]


def test_the_same_code_is_one_copy_that_the_job_names(asked, home):
    first = with_copy(asked("a"))
    assert first.job.code is not None
    assert not (home / "logs").exists()
    assert parse_arguments(driver_words(first)).code == first.job.code
    second = with_copy(asked("study/b"))
    assert second.job.code == first.job.code
    for request in (first, second):
        assert read_job(submitted(request)).code == request.job.code
    (copy,) = (home / "logs" / ".code").iterdir()
    assert (str(copy), damage(copy)) == (first.job.code.folder, None)


def test_nothing_is_copied_where_none_is_wanted_or_there_is_none(asked):
    request = asked()
    for other in (with_copy(request, copies=False), with_copy(asked(model={"kind": "graphsage", "num_layers": 1}))):
        assert (other.job.code, other.own_code) == (None, None)
        assert "--code" not in other.script


def test_a_run_that_is_continued_keeps_its_copy(asked, home, caplog):
    before = with_copy(asked())
    folder = submitted(before)
    assert with_copy(request_of(folder)).script == before.script
    caplog.clear()
    (home / "late.py").write_text("# edited\n")
    for request in (request_of(folder), asked()):
        kept = with_copy(request)
        assert (kept.job.code, kept.own_code, kept.changes) == (before.job.code, None, ())
        assert "--code-snapshot" in caplog.text
    anew = with_copy(request_of(folder), copies=True)
    assert anew.job.code is not None
    assert anew.job.code.sha256 != before.job.code.sha256
    assert anew.changes == (f"code {before.job.code.sha256[:12]} → {anew.job.code.sha256[:12]}",)
    none = with_copy(request_of(folder), copies=False)
    assert (none.job.code, none.changes) == (None, (f"code {before.job.code.sha256[:12]} → none",))


def test_a_run_without_a_copy_gets_none_unless_asked_for(asked):
    folder = submitted(with_copy(asked(), copies=False))
    assert with_copy(request_of(folder)).job.code is None
    assert with_copy(request_of(folder), copies=True).job.code is not None


def test_a_run_whose_copy_is_damaged_is_not_continued_with_other_code(asked, home):
    folder = submitted(with_copy(asked()))
    code = read_job(folder).code
    (Path(code.folder) / "1" / "late.py").unlink()
    with_copy(request_of(folder)).write()  # the code is as it was
    assert damage(Path(code.folder)) is None
    (Path(code.folder) / "1" / "late.py").unlink()
    (home / "late.py").write_text("# edited\n")
    with pytest.raises(UserError, match=r"late.py is missing\n.*--code-snapshot"):
        with_copy(request_of(folder))
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    put_into(environ, code)
    rank = python_m("graphmill.train.worker", str(folder.path))
    done = subprocess.run(rank, env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "late.py is missing" in done.stderr


def test_what_is_tried_is_the_copy(asked, home):
    (home / "mine" / "parts.py").write_text(
        "from pathlib import Path\nWIDTH = len((Path(__file__).parent / 'words.txt').read_text())\n"
    )
    with pytest.raises(UserError, match=r"parts\.py, line 2: FileNotFoundError.*words\.txt(.|\n)*--no-code-snapshot"):
        refuse_unfit_request(with_copy(asked()))
    refuse_unfit_request(with_copy(asked(), copies=False))


@pytest.mark.slow
def test_a_copy_is_fit_but_for_a_module_whose_name_is_computed(asked, home):
    refuse_unfit_request(with_copy(asked()))
    (home / "mine" / "parts.py").write_text("import importlib\nimportlib.import_module('unu' + 'sed')\n")
    with pytest.raises(UserError, match=r"No module named 'unused'.*\n.*--no-code-snapshot"):
        refuse_unfit_request(with_copy(asked()))


def test_code_in_a_copy_is_imported_and_in_a_run_folder_it_is_not(asked, home, monkeypatch):
    (home / "copied.py").touch()
    request = with_copy(asked(model={"kind": "custom", "target": "copied.Net"}))
    folder = submitted(request)
    monkeypatch.syspath_prepend(f"{request.job.code.folder}/0")
    assert import_named("model.target", "copied.Net", "copied", fix="").__file__.startswith(request.job.code.folder)
    monkeypatch.delitem(sys.modules, "copied")
    (folder.path / "copied.py").touch()
    monkeypatch.syspath_prepend(str(folder.path))
    with pytest.raises(UserError, match="inside the run folder"):
        import_named("model.target", "copied.Net", "copied", fix="")


def test_the_cells_of_a_study_share_one_copy_and_begun_ones_keep_theirs(home, data):
    untried = {**EXPERIMENT, "slurm": {**EXPERIMENT["slurm"], "setup_lines": ["true"]}}
    cells = {"name": "three", "experiment": untried, "vary": {"train.seed": [0, 1, 2]}}
    study = Study.model_validate(cells)

    def planned():
        logs = home / "logs"
        return plan_cells(study, logs_root=logs, dataset_root=data, overrides=(), find_site=find_site)

    plans = planned()
    assert len({plan.request.job.code for plan in plans}) == 1
    assert len(make_arrays(plans, study=study, logs_root=home / "logs", at_once=None)) == 1
    submitted(plans[0].request)
    (home / "late.py").write_text("# edited\n")
    again = planned()
    assert again[0].request.job.code == plans[0].request.job.code
    assert again[1].request.job.code == again[2].request.job.code != plans[0].request.job.code
    assert len(make_arrays(again, study=study, logs_root=home / "logs", at_once=None)) == 2
