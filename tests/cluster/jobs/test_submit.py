"""`submit`, on a real Slurm."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_until

from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan


def test_a_dry_run_asks_slurm_and_changes_nothing(cluster, toy, tmp_path):
    done = cluster.graphmill("submit", toy, "--hosts", "2", "--run-id", "dry", "--dry-run", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "#SBATCH --nodes=2" in done.out
    assert f"command: sbatch --parsable {tmp_path}/logs/dry/job.sbatch" in done.out
    assert re.search(r"slurm says: Job \d+ to start at 2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d \w", done.out), done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.yaml"]


def test_a_dry_run_of_what_slurm_refuses_shows_what_was_asked(cluster, toy, tmp_path):
    words = ("submit", toy, "--site", "generic-cpu", "--cpus-per-host", "64", "--run-id", "dry", "--dry-run")
    done = cluster.graphmill(*words, cwd=tmp_path)
    assert done.code == 2
    assert "#SBATCH --cpus-per-task=64" in done.out
    assert "Requested node configuration is not available" in done.err
    told = cluster.graphmill(*words, "--json", cwd=tmp_path)
    assert told.code == 2
    assert "not available" in json.loads(told.out)["slurm_says"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.yaml"]


def test_a_run_from_submit_to_done(cluster, toy, tmp_path):
    held = ("--run-id", "one", "--sbatch-arg=--begin=now+1hour", "--json")  # until it was submitted again
    done = cluster.graphmill("submit", toy, "--hosts", "2", *held, cwd=tmp_path)
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    folder = RunFolder(tmp_path / "logs" / "one")
    assert answer["run"] == str(folder.path)
    assert [(job.job_id, job.how) for job in folder.jobs()] == [(answer["job_id"], "submit")]
    assert folder.script_path.exists()
    assert json.loads(folder.job_path.read_text())["hosts"] == 2
    assert folder.read_plan().hosts == 2

    again = cluster.graphmill("submit", toy, "--run-id", "one", cwd=tmp_path)
    assert again.code == 2
    assert f"was submitted already, as job {answer['job_id']}" in again.err
    resumed = cluster.graphmill("submit", "--resume", "one", cwd=tmp_path)
    assert resumed.code == 2
    assert f"job {answer['job_id']}" in resumed.err

    assert cluster.run("scontrol", "update", f"jobid={answer['job_id']}", "starttime=now", cwd=tmp_path).code == 0
    watched = cluster.graphmill("watch", answer["job_id"], "--interval", "1", cwd=tmp_path)
    assert watched.code == 0, watched.out
    assert "epoch 2/2" in watched.out.splitlines()[-1]
    listed = json.loads(cluster.graphmill("list", "--json", cwd=tmp_path).out)["runs"]
    assert [(run["run"], run["state"]) for run in listed] == [("one", "done")]
    assert "is done already" in cluster.graphmill("submit", "--resume", "one", cwd=tmp_path).out


@pytest.mark.parametrize(
    "options",
    [
        ["--partition", "nope"],
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (["--gres", "gpu:a100:1"], ["--constraint", "nothing"], ["--mem", "900G"])
        ),
    ],
)
def test_what_sbatch_refuses_leaves_nothing_behind(cluster, toy, tmp_path, options):
    done = cluster.graphmill("submit", toy, "--site", "generic-cpu", "--run-id", "bad", *options, cwd=tmp_path)
    assert done.code == 2, done.out
    assert "sbatch: " in done.err
    assert not any((tmp_path / "logs").glob("*"))


def test_an_sbatch_that_fails_leaves_nothing_behind(cluster, toy, tmp_path):
    path = program(tmp_path, "sbatch", 'case " $* " in *" --test-only "*) exit 0;; esac; echo nonsense; exit 0')
    done = cluster.graphmill("submit", toy, "--run-id", "bad", cwd=tmp_path, PATH=f"{path}:{cluster.environ['PATH']}")
    assert done.code == 2
    assert "'nonsense'" in done.err
    assert not any((tmp_path / "logs").glob("*"))


def test_a_job_whose_answer_got_lost_is_found_by_its_script(cluster, toy, tmp_path):
    real = "exec /usr/bin/sbatch"
    lost = 'echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1'
    body = f'case " $* " in *" --test-only "*) {real} "$@";; esac; /usr/bin/sbatch "$@" >{tmp_path}/number; {lost}'
    path = program(tmp_path, "sbatch", body)
    done = cluster.graphmill(
        "submit", toy, "--run-id", "lost", "--sbatch-arg=--hold", cwd=tmp_path,
        PATH=f"{path}:{cluster.environ['PATH']}",
    )  # fmt: skip
    number = (tmp_path / "number").read_text().strip()
    assert done.out.startswith(f"job {number}: "), done.err
    assert [job.job_id for job in RunFolder(tmp_path / "logs" / "lost").jobs()] == [number]
    assert cluster.graphmill("stop", "lost", cwd=tmp_path).code == 0


def test_what_sbatch_takes_though_hopeless_is_said(cluster, toy, tmp_path):
    options = ("--hosts", "2", "--time", "90-00:00:00")
    done = cluster.graphmill("submit", toy, "--site", "generic-cpu", "--run-id", "h", *options, cwd=tmp_path)
    assert done.code == 1, done.out
    assert "will never start" in done.err
    assert "its Slurm partition" in done.err  # PartitionTimeLimit or PartitionConfig
    assert cluster.graphmill("stop", "h", cwd=tmp_path).code == 0
    assert cluster.wait_for(tmp_path, "h", "stopped")["job_id"]


@pytest.mark.slow
def test_a_job_that_is_held_as_it_was_asked_to_be_is_no_error(cluster, toy, tmp_path):
    done = cluster.graphmill("submit", toy, "--run-id", "h", "--sbatch-arg=--hold", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "scontrol release" in done.out
    assert "never" not in done.out + done.err
    assert cluster.graphmill("stop", "h", cwd=tmp_path).code == 0
    assert cluster.wait_for(tmp_path, "h", "stopped")["job_id"]


def test_jobs_that_wait_for_others(cluster, toy, tmp_path):
    first = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    number = json.loads(first.out)["job_id"]
    second = cluster.graphmill("submit", toy, "--run-id", "b", "--after", "a", "--json", cwd=tmp_path)
    answer = json.loads(second.out)
    assert (second.code, answer["dependency"], answer["reason"]) == (0, f"afterok:{number}", "Dependency")
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0
    assert cluster.graphmill("stop", "b", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_jobs_that_wait_in_vain(cluster, toy, tmp_path):
    first = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    number = json.loads(first.out)["job_id"]
    assert cluster.graphmill("submit", toy, "--run-id", "b", "--after", "a", cwd=tmp_path).code == 0
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0
    assert cluster.wait_for(tmp_path, "a", "stopped")
    third = cluster.graphmill("submit", toy, "--run-id", "c", "--after", number, cwd=tmp_path)
    assert third.code == 2
    assert "has ended as CANCELLED" in third.err
    unknown = cluster.graphmill("submit", toy, "--run-id", "c", "--after", "987654", cwd=tmp_path)
    assert unknown.code == 2
    assert "does not know job 987654" in unknown.err
    while "will never start" not in cluster.graphmill("watch", "b", "--once", cwd=tmp_path).out:
        time.sleep(0.2)  # the scheduler looks at dependencies now and then; the test's time limit ends this
    assert cluster.graphmill("stop", "b", cwd=tmp_path).code == 0


def test_an_ended_run_is_continued_by_another_job(cluster, toy, tmp_path):
    first = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0
    folder = RunFolder(tmp_path / "logs" / "a")
    assert folder.is_asked_to_stop()
    asked = ("--resume", "--run-id", "a", "--time", "00:07:00", "--json")
    again = cluster.graphmill("submit", toy, *asked, cwd=tmp_path)
    assert again.code == 0, again.err
    assert folder.jobs()[-1].changes[0] == "time 00:10:00 → 00:07:00"
    assert "--hold" not in folder.script_path.read_text()
    assert not folder.is_asked_to_stop()
    numbers = [json.loads(done.out)["job_id"] for done in (first, again)]
    assert [job.job_id for job in folder.jobs()] == numbers
    other = cluster.graphmill("stop", "a", "--now", cwd=tmp_path)
    assert other.code == 0, other.err
    changed = cluster.graphmill(
        "submit", toy, "--resume", "--run-id", "a", "-O", "train.optimizer.lr=0.5", cwd=tmp_path
    )
    assert changed.code == 2
    assert "planned otherwise" in changed.err


@pytest.mark.slow
def test_what_slurm_is_asked_for_may_change_when_a_run_is_resumed(cluster, toy, tmp_path):
    first = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--begin=now+1hour", "--json", cwd=tmp_path)
    assert first.code == 0, first.err
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0
    folder = RunFolder(tmp_path / "logs" / "a")
    before = folder.script_path.read_text()
    asked = ("submit", "--resume", "a", "--time", "00:07:00", "--mem", "300M")
    dry = cluster.graphmill(*asked, "--dry-run", cwd=tmp_path)
    assert dry.code == 0, dry.err
    assert "time 00:10:00 → 00:07:00" in dry.out
    assert folder.script_path.read_text() == before
    again = cluster.graphmill(*asked, "--sbatch-arg=--no-kill", "--json", cwd=tmp_path)
    assert again.code == 0, again.err
    cluster.wait_for(tmp_path, "a", "done")
    assert folder.jobs()[-1].changes[0] == "time 00:10:00 → 00:07:00"
    accounted = cluster.run("scontrol", "show", "job", json.loads(again.out)["job_id"], cwd=tmp_path).out
    assert "TimeLimit=00:07:00" in accounted
    assert "300M" in accounted
    assert cluster.graphmill("verify", "a", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_other_hosts_and_ranks_may_continue_a_run(cluster, toy, tmp_path):
    first = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--begin=now+1hour", cwd=tmp_path)
    assert first.code == 0, first.err
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0
    folder = RunFolder(tmp_path / "logs" / "a")
    planned = folder.read_plan()
    asked = ("submit", "--resume", "a", "--hosts", "2", "--ranks", "2")
    dry = cluster.graphmill(*asked, "--dry-run", cwd=tmp_path)
    assert dry.code == 0, dry.err
    assert f"hosts {planned.hosts} → 2" in dry.out
    done = cluster.graphmill(*asked, "--sbatch-arg=--no-kill", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    cluster.wait_for(tmp_path, "a", "done")
    assert folder.read_plan() == planned
    (attempt,) = folder.attempts()
    assert (attempt.world.hosts, attempt.world.ranks) == (2, 2)
    assert folder.read_outcome().elastic == "ranks: 2"
    verified = cluster.graphmill("verify", "a", cwd=tmp_path)
    assert verified.code == 0, verified.out
    assert "elastic" in verified.out
    too_many = cluster.graphmill("submit", "--resume", "a", "--ranks", "100000", cwd=tmp_path)
    assert too_many.code == 0, "it is done"


@pytest.mark.slow
def test_a_run_that_train_began_goes_on_with_other_hosts_and_ranks(cluster, toy, tmp_path):
    shown = json.loads(cluster.graphmill("plan", toy, "--json", cwd=tmp_path).out)["plan"]
    begun = Plan.model_validate_json(json.dumps({**shown, "run_id": "a"}))
    folder = RunFolder.create(begun, tmp_path / "logs")
    asked = ("submit", toy, "--resume", "--run-id", "a", "--hosts", "2", "--ranks", "2")
    done = cluster.graphmill(*asked, cwd=tmp_path)
    assert done.code == 0, done.err
    cluster.wait_for(tmp_path, "a", "done")
    assert folder.read_plan() == begun
    (attempt,) = folder.attempts()
    assert (attempt.world.hosts, attempt.world.ranks) == (2, 2)
    assert folder.jobs()[-1].changes == ("name toy-n1 → toy-n2", "hosts 1 → 2")
    assert cluster.graphmill("verify", "a", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_what_a_plan_depends_on_may_not(cluster, toy, tmp_path):
    assert cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--begin=now+1hour", cwd=tmp_path).code == 0
    assert cluster.graphmill("stop", "a", "--now", cwd=tmp_path).code == 0
    script = RunFolder(tmp_path / "logs" / "a").script_path
    before = script.read_text()
    for words, says in {
        ("--launcher", "torchrun"): "slurm.launcher",
        ("--ranks", "3", "--hosts", "2"): "train.ranks",
        ("-O", "train.optimizer.lr=0.5"): "train.optimizer.lr",
        ("--mem", "lots"): "slurm.mem",
        ("--time", "10-00:00:00"): "slurm.time",
        ("-O", "slurm.memory=1G"): "slurm.memory",
    }.items():
        done = cluster.graphmill("submit", "--resume", "a", *words, cwd=tmp_path)
        assert done.code == 2, (words, done.out)
        assert says in done.err, done.err
    assert script.read_text() == before


@pytest.mark.slow
def test_a_script_means_the_same_wherever_sbatch_is_called(cluster, toy, tmp_path):
    here = tmp_path / "of 100% mine"
    here.mkdir()
    toy = toy.rename(here / "toy.yaml")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    logs_root = ("--logs-root", tmp_path / "logs")  # no % in the run folder, for srun
    asked = (*logs_root, "--dataset-root", "../data", "-O", f"slurm.python={sys.executable}")
    done = cluster.graphmill("script", toy.name, *asked, "-o", "job.sbatch", cwd=here)
    assert done.code == 0, done.err
    (tmp_path / "data").symlink_to(cluster.environ["GRAPHMILL_DATA_ROOT"])
    ran = cluster.run("sbatch", "--parsable", "--wait", here / "job.sbatch", cwd=elsewhere)
    name = f"toy-n1-{ran.out.strip()}"
    assert ran.code == 0, (here / f"{name}.out").read_text()
    assert (here / f"{name}.out").is_file()
    assert list(elsewhere.iterdir()) == []
    assert RunFolder(tmp_path / "logs" / name).is_done()


@pytest.fixture
def too_wide(tmp_path) -> tuple[str, str]:
    """A model that does not fit, and what asks for it."""
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\nclass Wide(nn.Module):\n    def __init__(self, in_channels, out_channels):\n"
        "        super().__init__()\n        self.linear = nn.Linear(in_channels, out_channels + 1)\n\n"
        "    def forward(self, x, edge_index):\n        return self.linear(x)\n"
    )
    return "-O", "model={kind: custom, target: own.Wide}"


def test_a_model_that_does_not_fit_is_refused_where_it_is_submitted(cluster, toy, tmp_path, too_wide):
    done = cluster.graphmill("submit", toy, *too_wide, "--run-id", "a", cwd=tmp_path)
    assert done.code == 2, done.out
    assert "own.Wide" in done.err
    assert not (tmp_path / "logs").exists()


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_no_part_of_a_study_or_a_dry_run(cluster, toy, tmp_path, too_wide):
    study = tmp_path / "wide.yaml"
    study.write_text(
        f"name: wide\nexperiment: {toy.name}\nset: {{model: {{kind: custom, target: own.Wide}}}}\nseeds: [1]"
    )
    for words in (("submit", toy, *too_wide, "--run-id", "a", "--dry-run"), ("study", "submit", study)):
        done = cluster.graphmill(*words, cwd=tmp_path)
        assert done.code == 2, done.out
        assert "own.Wide" in done.err
    assert not (tmp_path / "logs").exists()
    there = cluster.graphmill("submit", toy, *too_wide, "--setup-line", "true", "--dry-run", cwd=tmp_path)
    assert there.code == 0, there.err
    assert "own.Wide is not tried here" in there.err


def test_a_persons_defaults_fill_gaps_and_change_nothing_else(cluster, toy, tmp_path):
    own = {"SBATCH_PARTITION": "nope", "SBATCH_TIMELIMIT": "1", "SQUEUE_FORMAT": "%j", "SLURM_MEM_PER_NODE": "7"}
    done = cluster.graphmill("submit", toy, "--run-id", "e", "--sbatch-arg=--hold", cwd=tmp_path, **own)
    assert done.code == 2
    assert "invalid partition specified: nope" in done.err
    del own["SBATCH_PARTITION"]
    done = cluster.graphmill("submit", toy, "--run-id", "e", "--sbatch-arg=--hold", "--json", cwd=tmp_path, **own)
    answer = json.loads(done.out)
    assert answer["state"] == "PENDING"
    limit = cluster.run("/usr/bin/squeue", "-h", "-o", "%l", "-j", answer["job_id"], cwd=tmp_path).out
    assert limit == "10:00\n"
    cluster.graphmill("stop", "e", cwd=tmp_path)


def test_a_dry_run_that_slurm_refuses_shows_what_it_refused(cluster, toy, tmp_path):
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: toy.yaml\nseeds: [1, 2]\n")
    done = cluster.graphmill("study", "submit", "s.yaml", "-O", "slurm.slurm_partition=nope", "--dry-run", cwd=tmp_path)
    assert done.code == 2
    assert "invalid partition specified: nope" in done.err
    assert "#SBATCH --array=0-1" in done.out


@pytest.mark.parametrize(("seeds", "array"), [([1], "0-1"), pytest.param([1, 2], "0-3%2", marks=pytest.mark.slow)])
def test_a_study_is_an_array(cluster, toy, tmp_path, seeds, array):
    study = (
        f"name: s\nexperiment: toy.yaml\nset: {{train.epochs: 1}}\nvary: {{train.prefetch: [0, 1]}}\nseeds: {seeds}\n"
    )
    (tmp_path / "s.yaml").write_text(study)
    dry = cluster.graphmill("study", "submit", "s.yaml", "--at-once", "2", "--dry-run", cwd=tmp_path)
    assert f"#SBATCH --array={array}" in dry.out, dry.err
    assert not (tmp_path / "logs").exists()
    done = cluster.graphmill("study", "submit", "s.yaml", "--at-once", "2", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    jobs = json.loads(done.out)["jobs"]
    number = jobs[0]["job_id"].partition("_")[0]
    assert [job["job_id"] for job in jobs] == [f"{number}_{index}" for index in range(2 * len(seeds))]
    again = cluster.graphmill("study", "submit", "s.yaml", cwd=tmp_path)
    assert "nothing is left to submit" in again.out
    watched = cluster.graphmill("watch", number, "--interval", "1", cwd=tmp_path, timeout_s=240)
    assert watched.code == 0, watched.out + watched.err
    states = {run["state"] for run in json.loads(cluster.graphmill("list", "--json", cwd=tmp_path).out)["runs"]}
    assert states == {"done"}
    assert "nothing is left" in cluster.graphmill("study", "submit", "s.yaml", cwd=tmp_path).out


@pytest.mark.slow
def test_cells_on_other_hosts_stand_in_another_array(cluster, toy, tmp_path):
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: toy.yaml\nvary: {slurm.hosts: [1, 2]}\nseeds: [1, 2]\n")
    done = cluster.graphmill("study", "submit", "s.yaml", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    jobs = json.loads(done.out)["jobs"]
    assert len({job["job_id"].partition("_")[0] for job in jobs}) == 2
    assert cluster.graphmill("stop", "s", cwd=tmp_path).code == 0


@pytest.mark.slow  # four whole runs, one after the other
def test_unlike_cells_keep_to_so_many_at_a_time_together(cluster, toy, tmp_path):
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: toy.yaml\nvary: {slurm.hosts: [1, 2]}\nseeds: [1, 2]\n")
    asked = ("study", "submit", "s.yaml", "--at-once", "1")
    dry = cluster.graphmill(*asked, "--dry-run", cwd=tmp_path)
    assert dry.code == 0, dry.err
    assert "array-2.sbatch: 2 cells, after all of array-1.sbatch" in dry.out
    done = cluster.graphmill(*asked, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    jobs = json.loads(done.out)["jobs"]
    for job in jobs:
        cluster.wait_for(tmp_path, str(Path(job["run"]).relative_to(tmp_path / "logs")), "done")
    numbers = ",".join(job["job_id"] for job in jobs)

    def spans() -> list[list[str]]:
        told = cluster.run("sacct", "-XnP", "--format=Start,End", f"--jobs={numbers}", cwd=tmp_path).out
        return sorted(line.split("|") for line in told.splitlines())

    wait_until(lambda: len(spans()) == 4 and "Unknown" not in str(spans()), "the accounting to know all ends")
    ends = [end for _, end in spans()]
    assert all(start >= end for (start, _), end in zip(spans()[1:], ends, strict=False)), spans()


def test_a_chain(cluster, toy, tmp_path):
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: toy.yaml\nseeds: [1, 2, 3]\n")
    options = ["--chain", "afterany", "--sbatch-arg=--hold", "--json"]
    dry = json.loads(cluster.graphmill("study", "submit", "s.yaml", *options, "--dry-run", cwd=tmp_path).out)
    assert (len(dry["jobs"]), dry["chain"]) == (3, "afterany")
    assert not (tmp_path / "logs").exists()
    done = cluster.graphmill("study", "submit", "s.yaml", *options, cwd=tmp_path)
    jobs = json.loads(done.out)["jobs"]
    assert [job["dependency"] for job in jobs] == ["", *(f"afterany:{job['job_id']}" for job in jobs[:-1])]
    assert cluster.graphmill("stop", "s", cwd=tmp_path).code == 0


def program(folder: Path, name: str, body: str) -> Path:
    """A program on PATH; returns the folder that holds it."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    path = bin_folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return bin_folder
