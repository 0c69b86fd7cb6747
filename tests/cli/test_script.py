"""`graphmill script`, as a person calls it."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from graphmill.cli.app import commands
from graphmill.cli.job_options import JobOptions, yaml_text
from graphmill.config.yaml_text import parse_value
from graphmill.spec.load import load_experiment

SYNC_ABLATION = """script --site perlmutter --nodes-list 1 2 4 8 --allocation m1234 --mail-user you@org.edu
 --mail-type END,FAIL --job-name-prefix reddit-strong --output-dir {} --setup-line SETUP --qos regular
 --constraint gpu --time 00:30:00 --gpus-per-node 4 --cpus-per-task 32 --rdzv-port 29500 --project-dir /work/dir
 --python-bin python3 --env OMP_NUM_THREADS=8 --env A=b=c
 -- --max_steps 4000 --batch_size 1024 --num_neighbors 25 10 --sync_every 1 --sync_scheme deferred_allreduce"""


def _run(*words: str):
    return CliRunner().invoke(commands(words), list(words))


def test_the_command_of_the_sync_ablation_scripts_writes_one_script_for_each_number_of_hosts(tmp_path: Path):
    words = [word.replace("SETUP", "module load pytorch") for word in SYNC_ABLATION.format(tmp_path / "slurm").split()]
    done = _run(*words)
    assert done.exit_code == 0, done.output
    names = [f"reddit-strong_n{count}.sbatch" for count in (1, 2, 4, 8)]
    assert sorted(path.name for path in (tmp_path / "slurm").iterdir()) == names
    assert done.stdout.splitlines() == [f"sbatch {tmp_path / 'slurm' / name}" for name in names]
    text = (tmp_path / "slurm" / names[2]).read_text()
    for line in (
        "#SBATCH --account=m1234", "#SBATCH --nodes=4", "#SBATCH --job-name=reddit-strong-n4",
        "#SBATCH --mail-type=END,FAIL", "#SBATCH --cpus-per-task=8", "#SBATCH --ntasks-per-node=4", "cd /work/dir",
        "module load pytorch", "export A=b=c", "export OMP_NUM_THREADS=8", "  --override=train.max_steps=4000 \\",
        "  --override='train.num_neighbors=[25, 10]' \\", "  --override=train.epochs=null \\",
        '  --run-id="reddit-strong-n4-$SLURM_JOB_ID" \\',
    ):  # fmt: skip
        assert f"{line}\n" in text, line
    assert " --port=29500 " in text


def test_one_script_is_printed_or_written(tmp_path: Path):
    printed = _run("script", "--hosts", "2", "--epochs", "3")
    assert printed.stdout.startswith("#!/bin/bash\n")
    assert "--override=train.epochs=3\n" in printed.stdout
    path = tmp_path / "deep" / "job.sbatch"
    assert _run("script", "--hosts", "2", "--epochs", "3", "-o", str(path)).stdout == ""
    assert path.read_text() == printed.stdout


def test_a_script_does_not_depend_on_where_it_was_written_or_is_submitted(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("train: {epochs: 1}")
    lines = [line.strip(" \\") for line in _run("script", "my.yaml", "--dataset-root", "data").stdout.splitlines()]
    for line in (
        f"cd {tmp_path}", f"#SBATCH --output={tmp_path}/experiment-n1-%j.out", f"--experiment={tmp_path}/my.yaml",
        f"--logs-root={tmp_path}/logs", f"--dataset-root={tmp_path}/data",
    ):  # fmt: skip
        assert line in lines, line


def test_of_another_machine_only_its_working_folder_is_named():
    words = ("script", "cora-sage", "-O", "slurm.work_dir=/far/away", "-O", "slurm.output_dir=out")
    lines = [line.strip(" \\") for line in _run(*words).stdout.splitlines()]
    for line in ("cd /far/away", "#SBATCH --output=/far/away/out/slurm-%j.out", "--logs-root=/far/away/logs"):
        assert line in lines, line
    assert "--experiment=cora-sage" in lines


def test_the_last_word_on_training_may_stand_anywhere():
    before = _run("script", "-O", "train.epochs=7", "--", "--sync_every", "4")
    after = _run("script", "--sync_every", "4", "--", "-O", "train.epochs=7")
    for done in (before, after):
        assert "--override=train.epochs=7" in done.stdout.split()
        assert "--override=train.sync.every=4" in done.stdout.split()


def test_what_only_the_job_needs_is_not_handed_to_training():
    done = _run("script", "-O", "slurm.comment=hi", "-O", "train.ranks=4", "-O", "slurm.hosts=2")
    assert "#SBATCH --comment=hi\n" in done.stdout
    assert "#SBATCH --ntasks-per-node=2\n" in done.stdout
    assert "slurm.comment" not in done.stdout
    assert "--ranks-per-host=2 " in done.stdout
    assert "train.ranks" not in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes-list"], "holds no numbers of hosts"),
        (["--nodes-list", "0"], "holds no numbers of hosts"),
        (["--nodes-list", "2", "2"], "names a number twice"),
        (["--site", "perlmuter"], "did you mean 'perlmutter'"),
        (["--site", "perlmutter"], "takes no job without one"),
        (["--site", "devcluster", "--nodes-list", "4", "8"], "has 4 such hosts"),
        (["--env", "1A"], "sets no variable"),
        (["--env", "A-B=1"], "sets no variable"),
        (["--env", "A=1", "--env", "A=2"], "contradicts"),
        (["--sbatch-arg", "--wrap=x"], "does not go with a script"),
        (["--launcher", "mpirun"], "one of srun, torchrun"),
        (["--mail-type", "SOMETIMES"], "SOMETIMES"),
        (["--", "--run-id", "x"], "this script makes its own"),
        (["--", "--resume"], "this script makes its own"),
        (["--", "--maxsteps", "4"], "did you mean '--max_steps'"),
        (["a.yaml", "--", "b.yaml"], "two experiments are named"),
        (["-o", "/proc/nowhere/x"], "cannot be written"),
    ],
)
def test_wrong_requests_end_with_2_and_a_sentence(words: list[str], says: str):
    done = _run("script", *words)
    assert done.exit_code == 2, done.output
    assert says in done.output


def test_a_request_that_fails_for_one_number_of_hosts_writes_no_script(tmp_path: Path):
    _run("script", "--site", "devcluster", "--nodes-list", "4", "8", "--output-dir", str(tmp_path / "slurm"))
    assert not (tmp_path / "slurm").exists()


def test_what_the_memory_costs_is_said_beside_the_script():
    words = "script --site pitzer --account P --gres gpu:v100:1 --cpus-per-host 8 --mem 85G"
    done = _run(*words.split())
    assert "take 12 CPUs on pitzer" in done.stderr
    assert "pitzer (" not in done.stdout


@pytest.mark.parametrize(
    "text", ["no", "1", "", " a ", 'a"b', "a\\b", "a\nb\x00c\x7f\u2028", "é🙂", "{a: b}", "# x", "%j"]
)
def test_yaml_takes_every_text_literally(text: str):
    assert parse_value(yaml_text(text), source="x") == text


def test_options_stand_for_keys_of_the_experiment():
    options = JobOptions(
        hosts=2, account="on", time="30", exclusive=True, env=["A=1", "B=x y"], module=["cuda"], apptainer="a b.sif",
        staging="scratch", port=2000, qos=None, setup_line=[],
    )  # fmt: skip
    asked = load_experiment(None, options.overrides())
    slurm = asked.slurm
    assert (slurm.hosts, slurm.account, slurm.time, slurm.exclusive, slurm.port) == (2, "on", "30", True, 2000)
    assert (slurm.env, slurm.modules) == ({"A": "1", "B": "x y"}, ("cuda",))
    assert (slurm.container.kind, asked.staging.to) == ("apptainer", "scratch")


def test_a_value_that_looks_like_an_option_stays_a_value():
    words = ["--sbatch-arg", "--licenses=a", "--comment", "--", "--exclusive", "x", "--comment"]
    joined = typer.main.get_command(commands(["script"])).commands["script"].joined(words)
    assert joined == ["--sbatch-arg=--licenses=a", "--comment=--", "--exclusive", "x", "--comment"]
    done = _run("script", "--comment", "--max_steps", "--sbatch-arg", "--licenses=a@b")
    assert "#SBATCH --comment=--max_steps\n" in done.stdout
    assert "#SBATCH --licenses=a@b\n" in done.stdout
