"""A task outside the package, as docs/howto/own-task.md shows it: one page, its data, its ranks; no line elsewhere."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from command_line import run_in
from rounding import drift
from safetensors.numpy import load_file

from graphmill.cluster.launch.evaluation_sets import read_evaluations as read_all_evaluations
from graphmill.record.evaluations import read_evaluations
from graphmill.record.find_weights import weights_of
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile

pytestmark = pytest.mark.distributed
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-task.md"
SOURCE = Path(__file__).parents[2] / "src"
KIND = "rides.page:KIND"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and the experiment of the document."""
    home = tmp_path_factory.mktemp("own")
    text = PAGE.read_text(encoding="utf-8")
    for path, code in re.findall(r"^```python\n# (rides/\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_text(code)
    (home / "rides" / "__init__.py").touch()
    (experiment,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (home / "rides.yaml").write_text(experiment)
    return home


@pytest.fixture(scope="module")
def person(home: Path) -> Iterator[SimpleNamespace]:
    """Types commands in that folder: in this process, or those that are `start`ed as one of their own."""
    paths = os.pathsep.join(filter(None, (str(home), str(SOURCE), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONPATH": paths, "GRAPHMILL_DATA_ROOT": str(home / "data")}

    def start(*words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "graphmill.cli", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=home, env=environ, text=True, start_new_session=True, **pipes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        patch.syspath_prepend(str(home))
        types = partial(run_in, home)
        types("prepare", "rides", "--task", KIND, "-o", "num_rides=600")
        yield SimpleNamespace(start=start, types=types, home=home)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rides"]:
        del sys.modules[name]


TAUGHT = '''
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from graphmill.spec.kinds.extras import Sources
from rides import page
from rides.task import Rides

NAME = "rides.taught:KIND"


class TaughtTaskSpec(page.RidesTaskSpec):
    kind: str = NAME


class TaughtExperiment(page.RidesExperiment):
    task: TaughtTaskSpec = TaughtTaskSpec()


def resolve(experiment, dataset):
    return page.resolve(experiment, dataset).model_copy(update={"kind": NAME})


class Taught(Rides):
    """Learns what its teacher says, where it has one."""

    teacher = None

    def use_sources(self, sources):
        (given,) = sources.values()
        self.teacher = nn.Linear(self.task_plan.dataset.num_features, 1, bias=self.task_plan.model.bias)
        given.load_all_into(self.teacher)
        told = {"names": list(sources), "checksum": given.checksum(), "run_id": given.origin.run_id}
        Path("taught.json").write_text(json.dumps(told))

    def loss_sum(self, batch):
        if self.teacher is None:
            return super().loss_sum(batch)
        with torch.no_grad():
            said = self.teacher(batch.x)[:, 0]
        return (self.model(batch.x)[:, 0] - said).abs().sum()


changed = {"name": NAME, "experiment": TaughtExperiment, "resolve": resolve, "task": "rides.taught:Taught"}
KIND = replace(page.KIND, **changed, extras=(Sources(("teacher", "scorer")),))
'''
PIPELINE = """
name: school
experiment: {task: {kind: "rides.taught:KIND"}, train: {epochs: 3, batch_size: 40, ranks: 1}}
stages:
  - {name: teacher}
  - {name: pupil, set: {train.seed: 5}, sources: {teacher: {stage: teacher, weights: best}}}
"""


STRICT = TAUGHT.replace("rides.taught", "rides.strict").replace("if self.teacher is None", "if False")  # needs it
CLASS = """
name: class
experiment: {train: {epochs: 3, batch_size: 40, ranks: 1}}
stages:
  - {name: teacher, set: {task.kind: "rides.page:KIND"}}
  - {name: pupil, set: {task.kind: "rides.strict:KIND"}, sources: {teacher: {stage: teacher}}}
  - name: later
    set: {task.kind: "rides.strict:KIND"}
    init_from: {stage: pupil}
    sources: {teacher: {stage: teacher}}
"""


WATCHED = '''
from dataclasses import replace

import torch
from torch import nn

from graphmill.base.errors import UserError
from graphmill.tasks.task import Verdict
from graphmill.spec.kinds.extras import Sources
from rides import page
from rides.task import Rides

NAME = "rides.watched:KIND"


class WatchedTaskSpec(page.RidesTaskSpec):
    kind: str = NAME


class WatchedExperiment(page.RidesExperiment):
    task: WatchedTaskSpec = WatchedTaskSpec()


def resolve(experiment, dataset):
    return page.resolve(experiment, dataset).model_copy(update={"kind": NAME})


class Watcher:
    """A line is a ride: its numbers, and how long it took; the score is how far from that the model is."""

    def __init__(self, model):
        self.model, self.threshold, self.count = model, None, 0

    def verdicts(self, arriving, source, *, layout, threshold):
        for line in arriving:
            try:
                *x, y = map(float, line.split(b","))
            except ValueError as error:
                raise UserError(f"{source}, line {self.count + 1}: {error}", fix="give numbers") from error
            score = abs(float(self.model(torch.tensor(x)).detach()) - y)
            self.count += 1  # before it is told: Ctrl-C may come as soon as it is
            yield Verdict(self.count - 1, 0.0, 1.0, score, score >= threshold, None, {"columns": [("x0", 1.0)]})

    def notes(self):
        yield f"{self.count} rides"


class Watched(Rides):
    @staticmethod
    def detector(plan, weights):
        model = nn.Linear(plan.task.dataset.num_features, 1, bias=plan.task.model.bias)
        weights.load_all_into(model)
        return Watcher(model.eval())


changed = {"name": NAME, "experiment": WatchedExperiment, "resolve": resolve, "task": "rides.watched:Watched"}
KIND = replace(page.KIND, **changed)
'''


def weights(run: Path) -> dict[str, bytes]:
    last = max((run / "checkpoints").glob("step_*"))
    return {name: array.tobytes() for name, array in load_file(last / "model.safetensors").items()}


@pytest.fixture(scope="module")
def trained(person) -> Path:
    """Runs of 1 and 2 ranks over the same global batches."""
    for ranks in (1, 2):
        words = ("--ranks", str(ranks), "-O", f"train.batch_size={40 // ranks}", "--run-id", f"ranks-{ranks}")
        person.types("train", "rides.yaml", *words)
    return person.home / "logs"


def off(error: float, rows: list[dict[str, str]]) -> float:
    """How far another order of the sums over a global batch of 40 rides may take an error."""
    return drift(error, terms=40, updates=int(rows[-1]["steps_done"]))


def test_any_number_of_ranks_learns_the_same(trained: Path):
    alone, shared = (read_metrics(trained / f"ranks-{ranks}" / "metrics.csv") for ranks in (1, 2))
    assert len(alone) == len(shared) == 20
    for one, other in zip(alone, shared, strict=True):
        for name in ("loss", "val_mae"):
            assert abs(float(other[name]) - float(one[name])) <= off(float(one[name]), alone)
    assert float(alone[-1]["val_mae"]) < float(alone[0]["val_mae"])


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_bit(person, trained: Path):
    """Killed between two checkpoints of an epoch. How often they are written changes no weight."""
    words = ("--ranks", "2", "-O", "train.batch_size=20", "-O", "train.checkpoint.every_steps=7", "--run-id", "killed")
    process = person.start("train", "rides.yaml", *words)
    metrics = trained / "killed" / "metrics.csv"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") > 3):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was killed before its end"
    person.types("train", "--resume", "logs/killed")
    assert weights(trained / "killed") == weights(trained / "ranks-2")
    assert read_evaluations(RunFolder(trained / "killed")) == read_evaluations(RunFolder(trained / "ranks-2"))
    person.types("verify", "logs/killed")


def test_its_own_evaluation_sets_are_recorded_by_name(person, trained: Path):
    rows = read_evaluations(RunFolder(trained / "ranks-2"))
    maes = {(row.epoch, row.set): row.value for row in rows if row.measure == "mae"}
    names = ("val_first_half", "val_second_half")
    assert {name for _, name in maes} == {"val", "test", *names}
    last = read_metrics(trained / "ranks-2" / "metrics.csv")[-1]
    assert maes[20, "val"] == float(last["val_mae"]) == pytest.approx(fmean(maes[20, name] for name in names))

    words = ("--input-root", "logs", "--glob", "ranks-*/metrics.csv", "--layout", "long")
    merged = person.home / json.loads(person.types("merge", *words, "--json"))[0]["csv"]
    with merged.open(newline="") as file:
        long = list(csv.DictReader(file))
    assert {row["run_id"] for row in long} == {"ranks-1", "ranks-2"}
    own = [row for row in long if row["run_id"] == "ranks-2"]
    assert {(int(row["epoch"]), row["set"]): float(row["value"]) for row in own if row["measure"] == "mae"} == maes


def test_it_is_planned_verified_watched_and_evaluated(person, trained: Path):
    plan = json.loads(person.types("plan", "rides.yaml", "--json"))
    assert (plan["plan"]["task"]["kind"], plan["modelled"]["num_parameters"]) == (KIND, 4)
    person.types("verify", "logs/ranks-2")
    (view,) = json.loads(person.types("watch", "logs/ranks-2", "--once", "--json"))["runs"]
    assert view["state"] == "done"
    rows = read_metrics(trained / "ranks-2" / "metrics.csv")
    last = rows[-1]
    seen = view["progress"]
    assert seen["loss"] == float(last["loss"])
    assert seen["seeds_per_s"] == float(last["seeds_per_s"])
    best = min(float(row["val_mae"]) for row in rows)
    assert (seen["measure"], seen["best"], seen["seeds_are"]) == ("MAE", best, "rides")
    assert "mae" in person.types("evaluate", "logs/ranks-2", "--json")


@pytest.mark.slow
def test_its_runs_are_merged_compared_and_drawn(person, trained: Path):
    person.types("merge", "--input-root", "logs", "--glob", "ranks-*/metrics.csv")
    words = ("--task", KIND)
    compared = person.types("compare", "logs/ranks-1", "logs/ranks-2", "--by", "train.ranks,train.batch_size", "--json")
    (table,) = json.loads(compared)["tables"]
    one, two = table["rows"]
    assert (table["measure"], one["values"]["ranks"], two["values"]["ranks"]) == ("MAE", 1, 2)
    val = {"one": one["val"]["mean"], "two": two["val"]["mean"]}
    assert abs(val["two"] - val["one"]) <= off(val["one"], read_metrics(trained / "ranks-1" / "metrics.csv"))
    assert two["test"] is not None
    (files,) = json.loads(person.types("pareto", *words, "--json"))
    header, *frontier = (person.home / files["frontier"]).read_text().splitlines()
    assert header == "sync_every,epoch,modelled_mib_cum_fp32,best_val_mae,plan.batch_size"
    errors = [float(line.split(",")[3]) for line in frontier]
    assert errors == sorted(errors, reverse=True), "an error is to be small"
    drawn = json.loads(person.types("figures", *words, "--no-compile", "--json"))
    assert all((person.home / image).stat().st_size > 0 for image in drawn["images"])
    assert "package.module:KIND" in person.types("pareto", code=2), "a table does not say whose it is"


def test_its_data_are_inspected_without_its_code(person, home: Path):
    (home / "elsewhere").mkdir()
    command = [sys.executable, "-m", "graphmill.cli", "inspect", str(home / "data" / "rides"), "--check"]
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    shown = subprocess.run(
        command, env=environ, cwd=home / "elsewhere", stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert KIND in shown
    listed = json.loads(person.types("datasets", "--json"))["datasets"]
    assert {row["name"]: row["task"] for row in listed if row["prepared"]} == {"rides": KIND}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "rides.yaml", "-O", "task.kind=rides.pag:KIND"), "rides.pag"),
        (("plan", "rides.yaml", "-O", "task.kind=rides.page:KINDS"), "rides.page:KINDS"),
        (("plan", "rides.yaml", "-O", "task.kind=rides.page:NAME"), "not a graphmill.spec.kinds.kind.Kind"),
        (("plan", "rides.yaml", "-O", "model.bia=true"), "bias"),
        (("prepare", "rides", "--task", KIND, "-o", "num_ride=5"), "num_rides"),
        (("plan", "rides.yaml", "-O", "dataset.name=others"), f"--task {KIND}"),
    ],
)
def test_what_is_wrong_says_what_to_type(person, words, said):
    assert said in person.types(*words, code=2)


def test_a_teachers_weights_arrive_with_where_they_come_from(person):
    home = person.home
    (home / "rides" / "taught.py").write_text(TAUGHT)
    (home / "school.yaml").write_text(PIPELINE)
    person.types("pipeline", "run", "school.yaml")
    teacher, pupil = (RunFolder(home / "logs" / "school" / name) for name in ("teacher", "pupil"))
    best = weights_of(teacher, "best", lambda *_: pytest.fail("damaged")).checked()
    told = json.loads((home / "taught.json").read_text())
    assert told == {"names": ["teacher"], "checksum": best, "run_id": "school/teacher"}
    asked = json.loads(pupil.plan_path.read_text())["sources"]["teacher"]
    assert (asked["checksum"], asked["source"]) == (best, str(teacher.path.absolute()))
    assert WeightsFile.read(pupil.source_path("teacher")).checked() == best, "its own copy"
    losses = [float(row["val_loss"]) for row in read_metrics(pupil.metrics_path)]
    assert losses[-1] < losses[0], "it comes nearer to its teacher"
    changed = PIPELINE.replace("weights: best", "weights: last, exclude: [bias]")
    (home / "school.yaml").write_text(changed)
    assert "sources.teacher.exclude" in person.types("pipeline", "run", "school.yaml", code=2)
    refused = person.types("train", "rides.yaml", "-O", f"sources.teacher.run={teacher.path}", code=2)
    assert "teacher" in refused
    assert KIND in refused


@pytest.mark.slow
def test_stages_that_teach_are_evaluated_on_the_data_of_all(person):
    home = person.home
    (home / "rides" / "taught.py").write_text(TAUGHT)
    (home / "judged.yaml").write_text(PIPELINE.replace("name: school", "name: judged\nevaluate_on: all"))
    person.types("pipeline", "run", "judged.yaml")
    teacher = RunFolder(home / "logs" / "judged" / "teacher")
    rows = read_all_evaluations(home / "logs" / "judged" / "evaluations.csv")
    sets = ("val_first_half", "val_second_half")
    expected = {f"{stage}{own}" for stage in ("teacher", "pupil") for own in ("", *(f"/{name}" for name in sets))}
    assert {row.set for row in rows if row.stage == "pupil"} == expected
    in_run = {(row.epoch, row.set): row.value for row in read_evaluations(teacher) if row.measure == "mae"}
    own = [row for row in rows if (row.stage, row.measure) == ("teacher", "mae") and row.set.startswith("teacher/")]
    assert [in_run[row.epoch, row.set.removeprefix("teacher/")] for row in own] == [row.value for row in own]


@pytest.mark.slow
def test_a_stage_is_measured_with_its_teacher_or_not_at_all(person):
    home = person.home
    (home / "rides" / "strict.py").write_text(STRICT)
    (home / "class.yaml").write_text(CLASS)
    words = ("pipeline", "plan", "class.yaml", "--time-limit", "10")
    first = json.loads(person.types(*words, "--json"))
    assert [stage["trial"] is None for stage in first["stages"]] == [False, True, True]
    assert first["stages"][1]["cost"]["why"] == "its task uses weights of teacher, which is not done"
    jobs = [([part["stage"] for part in job["parts"]], job["time_s"]) for job in first["jobs"]]
    assert jobs[1:] == [(["pupil"], 600), (["later"], 600)]
    person.types("pipeline", "run", "class.yaml", "--stages", "teacher")
    done, pupil, later = json.loads(person.types(*words, "--json"))["stages"]
    assert done["cost"] is None
    assert pupil["cost"]["work_s"]["high"] > 0
    assert (pupil["is_recorded"], later["is_recorded"]) == (False, True), "the same work, whatever it begins with"
    assert len(list((home / "logs" / ".estimates").iterdir())) == 2
    assert "earlier" in person.types(*words)


@pytest.fixture(scope="module")
def watching(person) -> SimpleNamespace:
    """Starts `detect` of a run of a task that judges streams: a process, since it replaces the one that it is in."""
    (person.home / "rides" / "watched.py").write_text(WATCHED)
    person.types("train", "rides.yaml", "-O", "task.kind=rides.watched:KIND", "--run-id", "watched")

    def start(*words: str) -> subprocess.Popen:
        return person.start("detect", "watched", "--threshold", "100", *words)

    def detects(*words: str, code: int = 0) -> str:
        process = person.start("detect", *words)
        said, remarks = process.communicate()
        assert process.returncode == code, remarks
        return remarks if code else said

    return SimpleNamespace(start=start, home=person.home, detects=detects)


def told(process: subprocess.Popen, line: str) -> dict:
    """The verdict on a line: nothing further is written before it is there."""
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.slow
def test_a_stream_is_judged_as_it_comes(watching):
    with watching.start("--json") as process:
        first, second = told(process, "1,2,3,18"), told(process, "1,2,3,1000")
        process.stdin.close()
        assert process.stdout.read() == ""
        remarks = process.stderr.read()
    assert process.returncode == 0
    assert (first["window"], first["is_alarm"], second["window"], second["is_alarm"]) == (0, False, 1, True)
    assert second["columns"] == [{"name": "x0", "share": 1.0}]
    assert "2 rides" in remarks


@pytest.mark.slow
def test_ctrl_c_and_a_reader_that_leaves_end_it_without_a_traceback(watching):
    with watching.start("--json") as process:
        told(process, "1,2,3,18")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 130
        remarks = process.stderr.read()
        assert "1 rides" in remarks
        assert "Traceback" not in remarks
    with watching.start("--json") as process:
        told(process, "1,2,3,18")
        process.stdout.close()
        process.stdin.write("1,2,3,18\n" * 10)
        process.stdin.close()
        assert process.wait() == 0
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_what_cannot_be_detected_is_refused(watching, trained: Path):
    assert "rides.page:KIND" in watching.detects(str(trained / "ranks-1"), "--input", "absent", code=2)
    assert "absent" in watching.detects("watched", "--input", "absent", "--threshold", "1", code=2)
    assert "--threshold" in watching.detects("watched", "--input", "rides.yaml", code=2)
    assert "nan" in watching.detects("watched", "--input", "rides.yaml", "--threshold", "nan", code=2)
    said = watching.detects("watched", "--input", "rides.yaml", "--threshold", "1", code=2)
    assert "rides.yaml, line 1" in said
    (watching.home / "rides.csv").write_text("1,2,3,18\n1,2,3,1000\n")
    lines = watching.detects("watched", "--input", "rides.csv", "--threshold", "100").splitlines()
    assert [line.split()[4] for line in lines[1:]] == ["-", "ALARM"]
