"""What only plans leaves the disk byte for byte as it was, also where no data are prepared; and so works without."""

import hashlib
import json
from pathlib import Path

import pytest

RECIPES = ("debian-packages-sage", "reddit-sage", "traffic-metr-la")
DRY = {
    "plan": ("plan",),
    "train": ("train", "--dry-run"),
    "script": ("script",),
    "submit": ("submit", "--dry-run"),
}


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty-path")))


def fingerprint(root: Path) -> str:
    """Of every name, size, time and byte below a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        state = path.lstat()
        digest.update(f"{path.relative_to(root)} {state.st_mode} {state.st_mtime_ns}\n".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("verb", DRY)
def test_a_dry_run_leaves_the_disk_as_it_was(graphmill, tmp_path, monkeypatch, recipe, verb):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    before = fingerprint(tmp_path)
    command, *flags = DRY[verb]
    done = graphmill(command, recipe, *flags)
    assert done.code == 0, done.err
    if verb != "script":  # which needs no plan
        assert "sizes from the catalogue; not prepared here" in done.err
    assert fingerprint(tmp_path) == before


def test_a_study_that_is_only_shown_leaves_the_disk_as_it_was(graphmill, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    before = fingerprint(tmp_path)
    done = graphmill("study", "run", "study-demo", "--dry-run")
    assert done.code == 0, done.err
    assert graphmill("study", "submit", "study-debian-schemes", "--dry-run").code in (0, 2)  # 2: there is no sbatch
    assert fingerprint(tmp_path) == before


def test_a_pipeline_that_is_only_shown_leaves_the_disk_as_it_was(graphmill, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    before = fingerprint(tmp_path)
    words = ("--dry-run", "--json", "--site", "devcluster", "--time-limit", "5")
    done = graphmill("pipeline", "submit", "pipeline-neighbours", *words)
    assert done.code == 0, done.err
    jobs = json.loads(done.out)["jobs"]
    assert [(job["stages"], job["time_s"]) for job in jobs] == [(["few"], 300), (["many"], 300)], "nothing is measured"
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize(
    ("verb", "says"), [("train", "graphmill prepare reddit"), ("submit", "sbatch is not on PATH here")]
)
def test_a_run_without_its_data_or_slurm_is_refused_before_anything_is_written(
    graphmill, tmp_path, monkeypatch, verb, says
):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    done = graphmill(verb, "reddit-sage")
    assert done.code == 2
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_prepare_that_no_task_knows_names_the_nearest(graphmill, tmp_path):
    done = graphmill("prepare", "synthetic/sbm", "-o", "num_node=100", "--dataset-root", "root")
    assert done.code == 2
    assert "num_nodes" in done.err
    refused = graphmill("prepare", "synthetic/traffic", "--random-split", "--dataset-root", "root")
    assert refused.code == 2
    assert "random_split is not a known key" in refused.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_id", ["../../evil", "taken", "files", "taken/inner", "a/b/c/d", "", "a b"])
def test_a_dry_run_refuses_a_place_that_the_run_is_refused(graphmill, toy, tmp_path, run_id):
    (tmp_path / "logs" / "taken").mkdir(parents=True)
    (tmp_path / "logs" / "taken" / "plan.json").write_text("{}")
    (tmp_path / "logs" / "files").mkdir()
    (tmp_path / "logs" / "files" / "notes.txt").write_text("mine")
    before = fingerprint(tmp_path)
    real, dry = (graphmill("train", toy, "--run-id", run_id, *more) for more in ((), ("--dry-run",)))
    assert (dry.code, dry.err) == (2, real.err)
    assert real.code == 2
    assert fingerprint(tmp_path) == before
