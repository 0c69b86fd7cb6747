"""Variables that a job takes from where it is submitted: they reach its ranks, and no file."""

import json
import sys
from pathlib import Path

import pytest
from command_line import TOY

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.sbatch import refuse_unset
from graphmill.record.run_folder import RunFolder

SECRET = "s3cr3t-of-nobody-else"
TELL = "import os, sys; print('hears', len(os.environ['MY_TOKEN'])); sys.exit(3)"
PLAIN = ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "OPENAI_APIKEY", "PASS", "KEY2")
HARMLESS = ("TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "KEYBOARD", "OMP_NUM_THREADS", "COMPASS", "BYPASS_CACHE")


def submitted(cluster, tmp_path: Path, *words: str) -> RunFolder:
    said = cluster.graphmill("submit", "--json", "--site", "devcluster", *words, cwd=tmp_path)
    assert said.code == 0, said.err
    return RunFolder(Path(json.loads(said.out)["run"]))


@pytest.mark.slow
def test_a_secret_reaches_the_ranks_of_every_job_and_no_file(cluster, tmp_path):
    run = ("--run", "--time", "5", "--env", "MY_TOKEN", "--", sys.executable, "-c", TELL)
    refused = cluster.graphmill("submit", "--site", "devcluster", *run, cwd=tmp_path)
    assert (refused.code, "export MY_TOKEN=" in refused.err) == (2, True), refused.err
    assert not list(tmp_path.rglob("*.sbatch")), "nothing is written"
    cluster.environ["MY_TOKEN"] = SECRET
    try:
        folder = submitted(cluster, tmp_path, *run)
        cluster.wait_for(tmp_path, str(folder.path), "failed")
        del cluster.environ["MY_TOKEN"]
        again = cluster.graphmill("submit", "--resume", str(folder.path), cwd=tmp_path)
        assert (again.code, "export MY_TOKEN=" in again.err) == (2, True), again.err
        cluster.environ["MY_TOKEN"] = SECRET
        assert cluster.graphmill("submit", "--resume", str(folder.path), cwd=tmp_path).code == 0
        cluster.wait_for(tmp_path, str(folder.path), "failed")
    finally:
        cluster.environ.pop("MY_TOKEN", None)
    assert folder.log_path(0).read_text() == f"hears {len(SECRET)}\n" * 2
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not holding


def test_one_that_is_not_set_is_named_with_what_to_type(graphmill, tmp_path):
    (tmp_path / "toy.yaml").write_text(TOY)
    script = graphmill("script", "toy.yaml", "--env", "MY_TOKEN").out
    refuse_unset(script, {"MY_TOKEN": SECRET})
    with pytest.raises(UserError, match="MY_TOKEN") as refused:
        refuse_unset(script, {})
    assert "export MY_TOKEN=" in refused.value.fix


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_called_like_a_secret_is_refused_with_a_value(graphmill, tmp_path, name):
    (tmp_path / "toy.yaml").write_text(TOY)
    done = graphmill("script", "toy.yaml", "--env", f"{name}={SECRET}")
    assert (done.code, f"--env {name} " in done.err, SECRET in done.out + done.err) == (2, True, False)
    followed = graphmill("script", "toy.yaml", "--env", name)
    assert f'"${{{name}:?' in followed.out, followed.err


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_taken(graphmill, tmp_path, name):
    (tmp_path / "toy.yaml").write_text(TOY)
    assert f"export {name}=1" in graphmill("script", "toy.yaml", "--env", f"{name}=1").out


def test_what_would_keep_it_from_the_job_is_refused(graphmill, tmp_path):
    (tmp_path / "toy.yaml").write_text(TOY)
    for more in (("--sbatch-arg=--export=NONE",), ("-O", "slurm.env.A_B=1")):
        done = graphmill("script", "toy.yaml", "--env", "A_B", *more)
        assert done.code == 2, done.out
