"""A run folder that was copied: nothing that it names is run by any command or function, unless it was named here.

`lures` and `lure_page` can be imported from the working folder, and leave a file where they are. What a person began
themselves works without a question.
"""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from slow_cases import with_slow

import graphmill as package
from graphmill.base.errors import UserError
from graphmill.base.python import python_m
from graphmill.record.run_folder import RunFolder, plan_text
from graphmill.runtime import trust
from graphmill.train.__main__ import main as torchruns_entry
from graphmill.train.detect import detector_of
from graphmill.train.evaluate import open_run

pytestmark = pytest.mark.distributed

LURES = """
import torch
open({marker!r}, "a").write("x")

class Net(torch.nn.Linear):
    def __init__(self, in_channels, out_channels, rate=0.0):
        super().__init__(in_channels, out_channels)

    def forward(self, x, edge_index):
        return super().forward(x)

def loss(outputs, truths):
    return torch.nn.functional.cross_entropy(outputs, truths, reduction="none")

def measure(outputs, truths):
    return float((outputs.argmax(1) == truths).float().mean())
"""
CUSTOM = {
    "model": {"kind": "custom", "target": "lures.Net", "options": {"rate": 1e-5}},
    "loss": {"kind": "custom", "target": "lures.loss"},
    "measure": {"target": "lures.measure", "higher_is_better": True},
}
BUILT_IN = {"kind": "graphsage", "hidden_channels": 4, "num_layers": 1}
TRAIN = {"epochs": 1, "batch_size": 40, "num_neighbors": [3], "threads": 1, "ranks": 1, "baselines": False}
NAMES = ("model", "loss", "measure", "kind")


def experiment(*named: str) -> str:
    train: dict = dict(TRAIN)
    if "loss" in named:
        train["loss"] = CUSTOM["loss"]
    if "measure" in named:
        train["measures"] = {"own": CUSTOM["measure"]}
    model = CUSTOM["model"] if "model" in named else BUILT_IN
    return yaml.safe_dump({"name": "mine", "dataset": {"name": "cora"}, "model": model, "train": train})


@pytest.fixture(scope="module")
def home(tmp_path_factory, environ, data_root):
    """Where a person works: their code, and runs of theirs, of a model and of all that a plan may name."""
    root = tmp_path_factory.mktemp("person")
    text = LURES.format(marker=str(root / "imported"))
    (root / "lures.py").write_text(text)
    (root / "lure_page.py").write_text(text)
    (root / "hosts.yaml").write_text("hosts: [{address: 127.0.0.1}]\n")
    for name, named in {"all": ("model", "loss", "measure"), "model": ("model",)}.items():
        (root / f"{name}.yaml").write_text(experiment(*named))
        run(root, environ, data_root, "train", f"{name}.yaml", "--run-id", name)
    return root


def run(home: Path, environ, data_root, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**environ, "GRAPHMILL_DATA_ROOT": str(data_root), "XDG_CONFIG_HOME": str(home / "config"), **more}
    command = python_m("graphmill.cli", *words)
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def copied(home, tmp_path, monkeypatch, data_root) -> Callable[[str], Path]:
    """Copies a run to where nobody has run it, and lets this process be that of another person."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing yet"))
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(data_root))
    monkeypatch.delenv(trust.TRUST_VARIABLE, raising=False)
    monkeypatch.setattr(trust, "_named", set())
    monkeypatch.setattr(trust, "_foreign", {})
    monkeypatch.syspath_prepend(str(home))
    for name in ("lures", "lure_page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (home / "imported").unlink(missing_ok=True)
    monkeypatch.chdir(home)

    def copy(name: str) -> Path:
        to = tmp_path / "logs" / "there"
        shutil.copytree(home / "logs" / ("model" if name in ("model", "kind") else "all"), to)
        if name not in ("all", "model"):
            plan = json.loads((to / "plan.json").read_text())
            leave_only(name, plan)
            (to / "plan.json").write_text(json.dumps(plan))
        return to

    return copy


def leave_only(name: str, plan: dict) -> None:
    """Of what the plan of `all`, or of `model`, names."""
    if name == "kind":
        plan["task"]["kind"] = "lure_page:KIND"
        return
    plan["task"]["model"] = {**BUILT_IN, "dropout": 0.5, "input_dropout": 0.0}
    if name == "loss":
        plan["measures"] = {}
    else:
        plan["task"]["loss"] = {"kind": "cross_entropy", "class_weights": "none", "label_smoothing": 0.0}


COMMANDS = [
    "evaluate RUN",
    "evaluate RUN --split val --weights last",
    "predict RUN --output OUT.csv",
    "predict RUN --attention OUT.csv",
    "detect RUN --input hosts.yaml",
    "train --resume RUN",
    "train --resume RUN --ranks 2",
    "train --resume RUN --dry-run",
    "train --extend RUN --epochs 2",
    "train --extend RUN --epochs 2 --dry-run",
    "launch --resume RUN --hosts hosts.yaml",
    "submit --resume RUN",
    "submit --resume RUN --dry-run",
    "bench assignment RUN",
    "inspect RUN",
    "verify RUN",
    "report RUN",
    "compare RUN",
    "merge --input-root LOGS --output OUT.csv",
    "watch RUN --once",
    "list --logs-root LOGS",
    "profile RUN",
    "bottleneck RUN",
    "export RUN --to mlflow --dry-run",
    "logs RUN",
    "train built-in.yaml --logs-root LOGS -O init_from.run=RUN --dry-run",
]
MODULES = [
    "train.worker RUN --resume",
    "train.evaluate RUN",
    "train.predict RUN --output OUT.csv",
    "train.detect RUN --input hosts.yaml",
]


def filled_in(words: str, there: Path, tmp_path: Path) -> list[str]:
    names = {"RUN": str(there), "LOGS": str(there.parent), "OUT": str(tmp_path / "out")}
    for name, value in names.items():
        words = words.replace(name, value)
    return words.split()


@pytest.mark.parametrize("named", ["all", "kind"])
@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_runs_what_a_copied_folder_names(graphmill, copied, home, tmp_path, words, named, monkeypatch):
    there = copied(named)
    monkeypatch.chdir(home)
    (home / "built-in.yaml").write_text(experiment())
    done = graphmill(*filled_in(words, there, tmp_path))
    assert "Usage:" not in done.err, "the command is typed as it should be"
    assert not (home / "imported").exists()


@pytest.mark.parametrize("words", COMMANDS[:12])
def test_what_would_run_it_is_refused_with_all_that_it_names(graphmill, copied, home, tmp_path, words, monkeypatch):
    there = copied("all")
    if "--resume" in words:
        (there / "outcome.json").unlink()
    before = sorted(str(path) for path in there.rglob("*"))
    monkeypatch.chdir(home)
    refused = graphmill(*filled_in(words, there, tmp_path))
    assert refused.code == 2
    assert "lures.Net and lures.loss and lures.measure" in refused.err
    assert "GRAPHMILL_TRUST_MODELS=lures.Net,lures.loss,lures.measure" in refused.err
    assert sorted(str(path) for path in there.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "named"),
    with_slow(
        [(words, named) for words in MODULES for named in ("all", "kind")],
        fast=[(MODULES[0], "kind")],
    ),
)
def test_no_module_that_is_started_by_hand_runs_it(copied, home, environ, data_root, tmp_path, words, named):
    there = copied(named)
    module, *rest = filled_in(words, there, tmp_path)
    environ = {**environ, "GRAPHMILL_DATA_ROOT": str(data_root), "XDG_CONFIG_HOME": str(tmp_path / "nothing yet")}
    environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    shutil.rmtree(there / "checkpoints")  # it is asked about before anything else of the folder is
    before = content_of(there)
    command = python_m(f"graphmill.{module}", *rest)
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert trust.TRUST_VARIABLE in done.stderr
    assert content_of(there) == before
    assert not (home / "imported").exists()


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FUNCTIONS = {
    "load": package.load,
    "evaluate": lambda there: open_run(RunFolder(there), "best"),
    "detect": lambda there: detector_of(RunFolder(there), "best"),
    "torchrun": lambda there: torchruns_entry([str(there), "--resume"]),
}


@pytest.mark.parametrize("named", NAMES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_runs_it(copied, home, function, named):
    there = copied(named)
    (there / "outcome.json").unlink()  # not done: torchrun would resume it
    shutil.rmtree(there / "checkpoints")  # it is asked about before anything else of the folder is
    before = content_of(there)
    if function == "torchrun":
        assert FUNCTIONS[function](there) == 2
    else:
        with pytest.raises(UserError) as refused:
            FUNCTIONS[function](there)
        target = "lure_page:KIND" if named == "kind" else CUSTOM[named]["target"]
        assert target in str(refused.value)
        assert trust.TRUST_VARIABLE in refused.value.fix
    assert {**content_of(there), str(there / ".lock"): b""} == {**before, str(there / ".lock"): b""}
    assert not (home / "imported").exists()


def test_no_plan_is_made_of_it(copied, home):
    """Whoever extends a run would write a plan that is their own, and name what it names."""
    plan = RunFolder(copied("all")).read_plan()
    with pytest.raises(UserError, match=r"lures\.Net and lures\.loss and lures\.measure"):
        plan_text(plan.model_copy(update={"run_id": "mine"}))


def test_load_of_ones_own_run_asks_nothing_and_of_a_copy_by_name(copied, home, monkeypatch):
    there = copied("model")
    with pytest.raises(UserError, match=r"trust=\['lures\.Net'\]"):
        package.load(there)
    assert package.load(there, trust="lures.Net")(*example(there)).ndim == 2
    monkeypatch.setattr(trust, "_named", set())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    assert package.load(home / "logs" / "model")(*example(there)).ndim == 2


def example(there: Path):
    import torch

    width = json.loads((there / "plan.json").read_text())["task"]["dataset"]["num_features"]
    return torch.zeros(2, width), torch.zeros(2, 0, dtype=torch.long)


@pytest.mark.slow
def test_ones_own_run_is_extended_without_a_question(home, environ, data_root):
    run(home, environ, data_root, "train", "--extend", "all", "--epochs", "2", "--run-id", "more")
    run(home, environ, data_root, "evaluate", "more")


def test_ones_own_run_is_evaluated_and_resumed_without_a_question(home, environ, data_root):
    run(home, environ, data_root, "evaluate", "all")
    (home / "logs" / "model" / "outcome.json").unlink()
    run(home, environ, data_root, "train", "--resume", "model")


@pytest.mark.parametrize("config", ["/proc/none", pytest.param("elsewhere", marks=pytest.mark.slow)])
def test_ranks_need_no_list_of_their_own(home, environ, data_root, config):
    """Those of a container or a host without a home are told by who started them; a list that fails is told once."""
    done = run(home, environ, data_root, "train", "all.yaml", "--run-id", config[-4:], XDG_CONFIG_HOME=config)
    assert ("cannot be written" in done.stderr) == (config == "/proc/none")


@pytest.mark.slow
def test_named_once_it_is_run_and_not_asked_for_again(home, environ, data_root, copied, tmp_path):
    there = str(copied("all"))
    mine = {"XDG_CONFIG_HOME": str(tmp_path / "mine")}
    names = ("lures.Net", "lures.loss", "lures.measure")
    refused = run(home, environ, data_root, "evaluate", there, *with_trust(names[:1]), code=2, **mine)
    assert "lures.loss and lures.measure" in refused.stderr, "one that is named lets no other in"
    assert not (home / "imported").exists()
    run(home, environ, data_root, "evaluate", there, **mine, GRAPHMILL_TRUST_MODELS=",".join(names))
    run(home, environ, data_root, "evaluate", there, code=2, **mine)
    run(home, environ, data_root, "evaluate", there, *with_trust(names), **mine)
    run(home, environ, data_root, "evaluate", there, **mine)


def with_trust(names) -> list[str]:
    return [word for name in names for word in ("--trust", name)]


@pytest.mark.parametrize("answer", [pytest.param("y", marks=pytest.mark.slow), "n"])
def test_on_a_terminal_it_is_asked_for_once(home, environ, data_root, copied, tmp_path, answer):
    there = copied("all")
    ours, theirs = pty.openpty()
    environ = {**environ, "GRAPHMILL_DATA_ROOT": str(data_root), "XDG_CONFIG_HOME": str(tmp_path / "mine")}
    command = python_m("graphmill.cli", "evaluate", str(there))
    os.write(ours, f"{answer}\n".encode())
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=home, env=environ, stdin=theirs, stderr=theirs, stdout=nowhere) as asked:
        code = asked.wait()
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert said.count("Run it?") == 1
    for name in ("lures.Net", "lures.loss", "lures.measure"):
        assert name in said
    assert code == (0 if answer == "y" else 2), said
    assert (home / "imported").exists() == (answer == "y")
    if answer == "y":
        run(home, environ, data_root, "evaluate", str(there), XDG_CONFIG_HOME=str(tmp_path / "mine"))
