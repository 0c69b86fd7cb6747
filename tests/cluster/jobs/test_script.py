import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.script import (
    bash_line,
    bash_word,
    render_script,
    sbatch_value,
    script_name,
    slurm_file_name,
)
from graphmill.cluster.jobs.sites import site_folders
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import Site, load_site
from graphmill.spec.job.work import Begin
from graphmill.spec.load import inline_experiment

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
LINES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Cf", "Cn", "Co")), max_size=40)
SYNC_ABLATION = Begin(
    experiment="debian-packages-sage",
    overrides=("train.epochs=null", "train.max_steps=4000", "train.sync.every=1"),
    logs_root="/home/me/project/logs",
)
GOLDENS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "perlmutter": (
        "perlmutter",
        {
            "account": "m1234", "hosts": 2, "job_name_prefix": "reddit-strong", "mail_user": "you@org.edu",
            "mail_type": ["END", "FAIL"], "setup_lines": ["module load pytorch"],
        },
        {"staging": {"to": "scratch"}},
    ),
    "pitzer": (
        "pitzer",
        {
            "account": "PAS1266", "gres": "gpu:v100:1", "cpus_per_host": 8, "mem": "85G", "time": "02:00:00",
            "modules": ["cuda/12.4.1"], "setup_lines": ["source activate gnn-rapids"],
            "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        },
        {"staging": {"to": "host_local", "on_failure": "use_shared"}},
    ),
    "generic-cpu": (
        "generic-cpu",
        {"hosts": 2, "slurm_partition": "debug", "launcher": "torchrun", "port": 29500, "on_time_limit": "resubmit"},
        {},
    ),
    "devcluster": ("devcluster", {"hosts": 2, "ranks_per_host": 2, "gpus_per_host": 2, "exclusive": True}, {}),
    "apptainer": (
        "generic-cpu",
        {"container": {"kind": "apptainer", "image": "env/project.sif", "binds": ["/data:/data:ro"]}, "time": 90},
        {},
    ),
    "shifter": ("generic-cpu", {"container": {"kind": "shifter", "image": "docker:me/project:1"}}, {}),
    "podman-hpc": (
        "generic-cpu",
        {"container": {"kind": "podman-hpc", "image": "project:1", "binds": ["/data"]}, "gpus_per_host": 0},
        {},
    ),
    "pyxis": ("generic-cpu", {"container": {"kind": "pyxis", "image": "docker://pytorch/pytorch:latest"}}, {}),
}  # fmt: skip


def _job(name: str) -> Job:
    site, slurm, rest = GOLDENS[name]
    value = {"name": "cora", "train": {"max_steps": 4000}, "slurm": slurm, **rest}
    experiment = inline_experiment(value, "the test")
    profile = load_site(site, folders=site_folders()[-1:])
    return resolve_job(experiment, profile, begin=SYNC_ABLATION, called_in="/home/me/project")


def _own(*, run_folders: tuple[str, ...] = (), **section: Any) -> str:
    experiment = inline_experiment({"train": {"epochs": 1}, "slurm": section}, "the test")
    return render_script(resolve_job(experiment, Site(name="own"), run_folders=run_folders))


@pytest.mark.parametrize("name", GOLDENS)
def test_the_script_stays_as_it_is(name: str, golden: Callable[[str, str], None]):
    text = render_script(_job(name))
    golden(f"scripts/{name}.sbatch", text)
    assert text == render_script(Job.model_validate_json(_job(name).model_dump_json()))


@pytest.mark.parametrize("name", GOLDENS)
def test_shellcheck_has_nothing_to_say(name: str):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        ["shellcheck", "-"], input=render_script(_job(name)), capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_options_are_sorted_and_no_line_is_too_long():
    for name in GOLDENS:
        lines = render_script(_job(name)).splitlines()
        options = [line for line in lines if line.startswith("#SBATCH")]
        assert options == sorted(options)
        assert all(len(line) <= 120 for line in lines), max(lines, key=len)


def test_sbatch_accepts_the_scripts(tmp_path: Path, submit_all: Callable[..., dict[str, Any]]):
    """A dev cluster as large as theirs, but without their names: it has no features and one partition."""
    not_here = ("--constraint", "--partition")
    for name in GOLDENS:
        lines = render_script(_job(name)).splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(tuple(f"#SBATCH {option}" for option in not_here))]
        (tmp_path / f"{name}.sbatch").write_text("".join(kept))
    answers = submit_all(tmp_path, "--test-only", cluster=("--cpus", "128", "--gpus", "4", "--memory-mib", "240000"))
    assert {name: answer["error"] for name, answer in answers.items() if answer["code"]} == {}
    assert all("to start at" in answer["error"] for answer in answers.values())


def test_the_file_is_called_as_the_sync_ablation_scripts_call_it():
    assert script_name(_job("perlmutter")) == "reddit-strong_n2.sbatch"


def test_a_run_that_exists_is_named_in_the_script():
    text = _own(run_folders=("logs/it's a run",))
    assert text.endswith("  'logs/it'\"'\"'s a run'\n")
    assert '#SBATCH --output="logs/it\'s a run/slurm-%j.out"\n' in text


@pytest.mark.parametrize("field", ["experiment", "logs_root", "dataset_root"])
def test_a_name_that_the_driver_would_take_for_the_end_of_options_is_refused(field: str):
    experiment = inline_experiment({"train": {"epochs": 1}, "slurm": {}}, "the test")
    begin = Begin(**{"experiment": "cora", field: "--"})
    with pytest.raises(UserError, match="is called --, which ends options") as refused:
        render_script(resolve_job(experiment, Site(name="own"), begin=begin))
    assert "./--" in refused.value.fix
    begin = Begin(**{"experiment": "cora", field: "./--"})
    words = render_script(resolve_job(experiment, Site(name="own"), begin=begin)).split()
    assert f"--{field.replace('_', '-')}=./--" in words


def test_an_array_picks_its_run_by_its_index():
    text = _own(run_folders=("logs/a", "logs/b 2"), array="0-1%1")
    assert "runs=(\n  logs/a\n  'logs/b 2'\n)\nrun=${runs[$SLURM_ARRAY_TASK_ID]}\n" in text
    assert "#SBATCH --output=logs/slurm-%A_%a.out\n" in text


def test_other_options_of_sbatch_are_passed_on():
    text = _own(sbatch_args=["--licenses=a@b:1,c", "--spread-job", "--begin=now+1hour", "--prefer=a|b"])
    for line in ("--licenses=a@b:1,c", "--spread-job", "--begin=now+1hour", '--prefer="a|b"'):
        assert f"#SBATCH {line}\n" in text


def test_a_requeued_job_may_be_refused_by_the_script_only():
    assert "#SBATCH --requeue\n" in _own()
    assert "#SBATCH --no-requeue\n" in _own(on_time_limit="resubmit")
    assert "--on-time-limit=resubmit " in _own(on_time_limit="resubmit")


@given(st.lists(WORDS, min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_bash_reads_every_word_back(texts: list[str]):
    for locale in ("C", "C.UTF-8"):
        script = "printf '%s\\0' " + " ".join(bash_word(text, field="x") for text in texts)
        assert "\n" not in script
        assert "\r" not in script
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, check=True, env={**os.environ, "LC_ALL": locale}
        )
        assert done.stdout.decode().split("\0")[:-1] == texts


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_process_can_be_handed_is_refused(text: str):
    with pytest.raises(UserError, match=r"slurm\.env"):
        bash_word(text, field="slurm.env.A")
    with pytest.raises(UserError, match="--comment"):
        sbatch_value(text, field="--comment")


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\tb", "a\x7fb", "a\u2028b", "a\u202eb", "x" * 1025])
def test_an_sbatch_line_takes_one_printable_line(text: str):
    with pytest.raises(UserError, match="--comment"):
        sbatch_value(text, field="--comment")


@given(LINES)
def test_sbatch_reads_every_value_back(text: str):
    if text.isprintable():
        assert _read_by_sbatch(f"--comment={sbatch_value(text, field='x')} --next") == [f"--comment={text}", "--next"]


def _read_by_sbatch(line: str) -> list[str]:
    """The rules of `_get_argument` in Slurm's src/sbatch/opt.c; the injection test asks the real one."""
    words: list[str] = []
    rest = line.lstrip(" ")
    while rest and not rest.startswith("#"):
        word, quote, escaped, used = "", "", False, len(rest)
        for index, character in enumerate(rest):
            if escaped:
                word, escaped = word + character, False
            elif character == "\\":
                escaped = True
            elif quote:
                word, quote = (word, "") if character == quote else (word + character, quote)
            elif character in "\"'":
                quote = character
            elif character == " ":
                used = index
                break
            else:
                word += character
        words.append(word)
        rest = rest[used:].lstrip(" ")
    return words


def test_percent_signs_in_a_folder_are_no_pattern():
    assert slurm_file_name("a%j/b", "slurm-%j.out", field="x") == "a%%j/b/slurm-%j.out"
    with pytest.raises(UserError, match="no backslash"):
        slurm_file_name("a\\b", "slurm-%j.out", field="slurm.output_dir")


@pytest.mark.parametrize("line", ["module load pytorch", "source ~/venv/bin/activate", "ulimit -n 4096", "./setup.sh"])
def test_a_plain_setup_line_stands_as_it_is(line: str):
    assert bash_line(line) == line


@pytest.mark.parametrize(
    "line",
    ["echo '", 'echo "', "cat <<EOF", "if true; then", "f() {", "case x in", "x=(", "echo \\", "for x in a", "# x"],
)
def test_a_broken_setup_line_ends_with_itself(line: str):
    """An open quote, here-document or block cannot swallow what stands after it."""
    script = f"{bash_line(line)}\necho AFTER\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["AFTER"]
    assert subprocess.run(["bash", "-n", "-c", script], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("line", ["export A=1", "A=1; B=$A", 'export A="$HOME"', "alias x=y && true"])
def test_a_setup_line_acts_on_the_script(line: str):
    done = subprocess.run(
        ["bash", "-c", f'{bash_line(line)}\necho "A=${{A-}}"'], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("A=")
    assert "A" not in line or "alias" in line or done.stdout != "A=\n"


def test_the_script_says_who_must_start_it(tmp_path: Path):
    path = tmp_path / "job.sbatch"
    path.write_text(_own())
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    done = subprocess.run(["bash", path], capture_output=True, text=True, check=False, env=environ)
    assert "submit this script with sbatch" in done.stderr
    assert done.returncode != 0
