"""No text that a person gives is ever run: with real sbatch it arrives as it is, on every rank, or is refused before.

One script per hostile string, with that string in every field that takes it; programs that write down what they are
given stand for python and apptainer, the rest is the real script on a real Slurm. `pwn N` leaves a file where the test
looks.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.script import render_script
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import Site
from graphmill.spec.job.work import Begin
from graphmill.spec.load import inline_experiment

PROGRAMS = Path(__file__).parent / "programs"
SITE = Site(name="test", scratch="SCRATCH", host_local="TMPDIR")


def _hostile() -> list[str]:
    """Each string with a number of its own in its command."""
    shapes = json.loads((Path(__file__).parent / "hostile.json").read_text(encoding="utf-8"))
    commands = [f"pwn {number}" for number in range(len(shapes))]
    return [shape.format(c=command, n=command[4:]) for shape, command in zip(shapes, commands, strict=True)]


HOSTILE = _hostile()
FEW = HOSTILE[::40]
NAMES = ("account", "array", "constraint", "dependency", "gres", "mem", "qos", "reservation", "slurm_partition", "time")
NOT_SUBMITTED = {*NAMES, "sbatch_args"}
"""Slurm's own names, grammars and options: sbatch refuses a made-up one, so what we accept is only looked at."""
TOKENS = (*NAMES, "mail_user", "interface", "job_name_prefix")
AS_FOLDERS = ("work_dir", "output_dir", "python")


@dataclass
class Case:
    """One hostile string, the fields that take it, and their values."""

    name: str
    text: str
    slurm: dict[str, Any] = field(default_factory=dict)
    begin: dict[str, Any] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def job(self) -> Job:
        return _job(self.slurm, self.begin)


def _job(section: Mapping[str, Any], begin: Mapping[str, Any], run_folders: tuple[str, ...] = ()) -> Job:
    asked = {"hosts": 2, "cpus_per_host": 1, "time": 5, "signal_before_s": 1, **section}
    experiment = inline_experiment({"name": "x", "train": {"epochs": 1}, "slurm": asked}, "the test")
    return resolve_job(experiment, SITE, run_folders=run_folders, begin=Begin(**begin))


def _values(text: str, folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """For every field what sets it to `text`, in the section and in what begins the run."""
    place = str(folder / "places" / text.lstrip("/"))
    python = f"{place}/python"
    values: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {name: ({name: text}, {}) for name in TOKENS}
    values |= {
        "comment": ({"comment": text}, {}),
        "env": ({"env": {"HOSTILE": text}}, {}),
        "env name": ({"env": {text: "1"}}, {}),
        "modules": ({"modules": [text]}, {}),
        "sbatch_args": ({"sbatch_args": [text]}, {}),
        "sbatch_args value": ({"sbatch_args": [f"--wckey={text}"]}, {}),
        "work_dir": ({"work_dir": place}, {}),
        "output_dir": ({"output_dir": place}, {}),
        "python": ({"python": python}, {}),
        "container": ({"container": {"kind": "apptainer", "image": text, "binds": [], "python": python}}, {}),
        "container.binds": ({"container": {"kind": "apptainer", "image": "i", "binds": [text]}}, {}),
        "experiment": ({}, {"experiment": text}),
        "overrides": ({}, {"overrides": [f"x={text}"]}),
        "logs_root": ({}, {"logs_root": text}),
        "dataset_root": ({}, {"dataset_root": text}),
    }
    return values


def _case(number: int, text: str, folder: Path) -> Case:
    """The string in every field that takes it."""
    case = Case(f"case{number:03}", text)
    for name, (slurm, begin) in _values(text, folder).items():
        try:
            render_script(_job(slurm, begin))
        except (UserError, ValidationError):
            continue
        case.taken.add(name)
    values = _values(text, folder)
    fits = _make_place(folder / "places" / text.lstrip("/"), folder) if "work_dir" in case.taken else False
    unbound = {"container"} if {",", ":"} & set(text) else set()  # no list of binds can hold its working folder
    for name in (
        case.taken
        - NOT_SUBMITTED
        - {"env name", "container.binds"}
        - unbound
        - (set() if fits else {*AS_FOLDERS, "container"})
    ):
        slurm, begin = values[name]
        for key, value in slurm.items():
            case.slurm[key] = [*case.slurm.get(key, []), *value] if isinstance(value, list) else value
        case.begin |= begin
    if "container" in case.slurm and "container.binds" in case.taken:
        case.slurm["container"]["binds"] = [text]
    if "env name" in case.taken:
        case.slurm["env"] = {**case.slurm.get("env", {}), text: "1"}
    case.slurm.setdefault("python", str(folder / "bin" / "python"))
    return case


def _make_place(place: Path, folder: Path) -> bool:
    """Make the folder that is called like the string, with a program in it; False where it cannot be called so."""
    if ".." in place.parts:
        return False
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "python").symlink_to(folder / "bin" / "python")
    except (OSError, ValueError):
        return False
    return True


def _make_programs(folder: Path) -> None:
    (folder / "bin").mkdir()
    source = (PROGRAMS / "stand_in.py").read_text(encoding="utf-8")
    programs = {
        "python": f"#!{sys.executable} -S\n{source}",
        "apptainer": f"#!{sys.executable} -S\n{source}",
        "pwn": f'#!/bin/sh\n: > "{folder}/canaries/$1"\n',
        "module": "#!/bin/sh\n",
    }
    (folder / "canaries").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)


@pytest.mark.parametrize(
    "texts", [pytest.param(FEW, id="few"), pytest.param(HOSTILE, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(3600)
def test_real_sbatch_takes_every_text_literally_or_it_is_refused(
    texts: list[str], tmp_path: Path, submit_all: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    _make_programs(tmp_path)
    cases = [_case(number, text, tmp_path) for number, text in enumerate(texts)]
    for case in cases:
        (tmp_path / f"{case.name}.sbatch").write_text(render_script(case.job()), encoding="utf-8")
    monkeypatch.setenv("PROGRAMS", str(PROGRAMS))
    monkeypatch.setenv("REAL_PYTHON", sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    answers = submit_all(tmp_path)
    assert list((tmp_path / "canaries").iterdir()) == []
    _write_table(cases, tmp_path / "table.txt")
    failures = []
    for case in cases:
        try:
            _check(case, answers[case.name], tmp_path)
        except (AssertionError, KeyError, OSError) as error:
            failures.append(f"{case.name} {case.text!a}: {error!r}")
    assert failures == []


def _check(case: Case, answer: dict[str, Any], folder: Path) -> None:
    """What arrived is what was given: in Slurm's record of the job, in the batch script's calls, and on every rank."""
    told = f"{case.name} {case.text!a}: {answer}"
    assert answer["code"] == 0, told
    slurm, begin, job = case.slurm, case.begin, answer["job"]
    assert (job["job_state"], job["name"], job["array_job_id"]) == ("COMPLETED", case.job().name, 0), told
    assert job["comment"] == slurm.get("comment", ""), told
    if "sbatch_args value" in case.taken:
        assert job["wckey"].lower() == case.text.lower(), told  # Slurm keeps these in small letters
    seen = {path.stem: json.loads(path.read_text()) for path in (folder / "record" / case.name).glob("*.json")}
    words = [bytes.fromhex(word) for word in seen["driver"]["words"]]
    given = [
        f"--{key.replace('_', '-')}={begin[key]}" for key in ("experiment", "logs_root", "dataset_root") if key in begin
    ]
    given += [f"--override={text}" for text in begin.get("overrides", ())]
    for word in given:
        assert word.encode() in words, told
    assert bytes.fromhex(seen["driver"]["called"]) == slurm["python"].encode(), told
    container = slurm.get("container")
    for rank in (0, 1):
        here = seen[f"rank-{rank}"]
        assert bytes.fromhex(here["hostile"]) == (case.text.encode() if "env" in case.taken else b""), told
        assert bytes.fromhex(here["cwd"]) == slurm.get("work_dir", str(folder)).encode(), told
        assert bytes.fromhex(here["called"]) == (container or slurm)["python"].encode(), told
        if container is not None:
            passed = [bytes.fromhex(word) for word in seen[f"apptainer-{rank}"]["words"]]
            assert container["image"].encode() in passed, told
            binds = [bind if ":" in bind else f"{bind}:{bind}" for bind in container["binds"]]
            assert all(f"--bind={bind}".encode() in passed for bind in binds), told
    run = Path(os.fsdecode((folder / "record" / case.name / "run").read_bytes()))
    assert all((run / f"rank_{rank}.log").read_text() == "a rank was here\n" for rank in (0, 1)), told
    if "output_dir" in slurm:
        assert (Path(slurm["output_dir"]) / f"slurm-{answer['said']}.out").is_file(), told


def _write_table(cases: list[Case], path: Path) -> None:
    """Field by field: how many strings arrived as they are, and how many were refused."""
    lines = [f"{'field':20} {'literal':>8} {'refused':>8}"]
    for name in _values("x", path.parent):
        taken = sum(name in case.taken for case in cases)
        note = "  (looked at, not submitted)" if name in NOT_SUBMITTED and taken else ""
        lines.append(f"{name:20} {taken:8} {len(cases) - taken:8}{note}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
