"""docs/howto/can-detector.md as a person would follow it, on generated captures and with an epoch instead of many."""

import gzip
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from capture_text import csv_of
from command_line import run_in

from graphmill.spec.pipeline import load_pipeline
from graphmill.tasks.intrusion.data.generate import captures
from graphmill.tasks.intrusion.data.layouts import LAYOUTS
from graphmill.tasks.intrusion.page import KIND

TEXT = (Path(__file__).parents[2] / "docs" / "howto" / "can-detector.md").read_text(encoding="utf-8")
COMMANDS = {
    part.partition("\n")[0]: [
        line
        for block in re.findall(r"^```bash\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
        for line in block.split("\n")
    ]
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)
}
FIRST = ("Prepare", "Train a classifier, and judge it", "Watch a bus")


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder with what the page has at hand: a capture with floods, the same as a log of candump, and two others."""
    folder = tmp_path_factory.mktemp("desk")
    made = dict(captures(40, 0))
    with gzip.open(folder / "DoS-1.csv.gz", "wt") as file:
        file.write(csv_of(made["dos"]))
    lines = [line.split(",") for line in csv_of(made["dos"]).splitlines()[1:]]
    (folder / "bus.log").write_text("".join(f"({time}) can0 {name}#{data}\n" for time, name, data, _ in lines))
    _, benign = next(iter(captures(700, 0)))
    calm = [line.split(",") for line in csv_of(benign).splitlines()[1:]]
    (folder / "calm.log").write_text("".join(f"({time}) can0 {name}#{data}\n" for time, name, data, _ in calm))
    (folder / "road").mkdir()
    for name in ("spoofing", "fuzzing"):
        (folder / "road" / f"{'max_speed' * (name == 'fuzzing')}{name}.csv").write_text(csv_of(made[name]))
    return folder


def follow(desk: Path, environ: dict[str, str], section: str) -> dict[str, str]:
    """What each command of a section of the page printed, by the command."""
    said = {}
    (part,) = (name for name in COMMANDS if name.startswith(section))
    for line in filter(None, COMMANDS[part]):
        command = re.sub(r"--epochs \d+", "--epochs 1", line)
        if re.search(r"pipeline (run|plan) ", line):
            command += " -O train.epochs=1"
        if not {"<", ">"} & set(command):
            said[line] = run_in(desk, *shlex.split(command)[1:])
            continue
        ours = command.replace("graphmill", f"{sys.executable} -m graphmill.cli", 1)
        done = subprocess.run(["bash", "-c", ours], cwd=desk, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said[line] = done.stdout
    return said


def test_the_tables_name_what_there_is():
    assert all(f"`{name}`" in TEXT for name in LAYOUTS)
    assert all(f"`{measure.name}`" in TEXT for measure in KIND.measures)
    assert all(f"| `{stage.name}` |" in TEXT for stage in load_pipeline("pipeline-can").stages)


@pytest.mark.slow
def test_from_a_capture_to_verdicts(source_environ, desk):
    said: dict[str, str] = {}
    for section in FIRST:
        said |= follow(desk, source_environ, section)
    assert re.search(r"\bf1 .*\n(.*\n)+.*\brates_f1 ", said["graphmill evaluate dos1-gat"])
    verdicts = [json.loads(line) for line in (desk / "verdicts.jsonl").read_text().splitlines()]
    live = said["graphmill detect dos1-gat < bus.log"].splitlines()[1:]
    assert len(verdicts) == len(live) > 200
    assert [each["is_alarm"] for each in verdicts] == ["ALARM" in line for line in live]
    assert {each["is_attack"] for each in verdicts} == {True, False}
    alarms = [each for each in verdicts if each["is_alarm"] and each["is_attack"]]
    named = sum("000" in [cause["name"] for cause in each["ids"]] for each in alarms)
    assert named >= 0.8 * len(alarms), "000 floods the bus"
    assert any(each["missing"] for each in alarms)


@pytest.mark.slow
def test_captures_that_were_not_trained_on(source_environ, desk, capfd):
    follow(desk, source_environ, "When a statistic")
    assert capfd.readouterr().out.count("id counts and inter-arrival times: F1") == 2, "what rank 0 of each run prints"


@pytest.mark.slow
def test_the_pipeline(source_environ, desk):
    if not (desk / "data" / "dos1").exists():  # the test before made it
        follow(desk, source_environ, "Prepare")
    said = follow(desk, source_environ, "The pipeline")
    listed = said["graphmill pipeline list pipeline-can"].splitlines()[1:]
    assert [line.split()[1] for line in listed] == ["done"] * 5
    assert (desk / "report.html").stat().st_size > 10_000
