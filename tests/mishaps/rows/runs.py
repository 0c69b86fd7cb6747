"""Run folders that lost a file, hold another's, or cannot be read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphmill.record.checksums import renew_checksums
from graphmill.record.run_folder import RunFolder
from rows.mishap import Mishap

RUN = Path("logs/one")
Change = Callable[[Path], object]


def changed(change: Change) -> Change:
    """Change the finished run `logs/one`."""
    return lambda folder: change(folder / RUN)


def lost(name: str) -> Change:
    return changed(lambda run: (run / name).unlink())


def cut(name: str) -> Change:
    return changed(lambda run: (run / name).write_bytes((run / name).read_bytes()[:20]))


def holds(name: str, content: bytes) -> Change:
    return changed(lambda run: (run / name).write_bytes(content))


def flip(pattern: str) -> Change:
    def make(run: Path) -> None:
        found = sorted(run.glob(pattern))
        assert found
        for path in found:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            path.write_bytes(content)

    return make


def flipped(pattern: str) -> Change:
    return changed(flip(pattern))


def monitored(change: Change) -> Change:
    """Change the run, whose end saw a monitor's file: the monitor itself first writes after a second, or after it."""

    def make(run: Path) -> None:
        (run / "monitor" / "head.csv").parent.mkdir(exist_ok=True)
        (run / "monitor" / "head.csv").write_text("time,subject\n1.0,host\n")
        renew_checksums(RunFolder(run), ["monitor/head.csv"])
        change(run)

    return changed(make)


def edited(name: str, **values: Any) -> Change:
    def edit(run: Path) -> None:
        (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **values}))

    return changed(edit)


def unfinished(change: Change = lambda run: None) -> Change:
    def make(run: Path) -> None:
        (run / "outcome.json").unlink()
        change(run)

    return changed(make)


def unreadable(name: str) -> Change:
    """A file that opens and cannot be read, for root as well."""

    def make(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to("/proc/self/mem")

    return changed(make)


def of(command: str, name: str, make: Change, *says: str, **more: Any) -> Mishap:
    more = {"slow": command.startswith(("evaluate", "predict")), **more}
    return Mishap(f"run, {command.split()[0]}: {name}", command, says, make, needs_run=True, **more)


ONE = "logs/one"
ROWS = [
    of(f"verify {ONE}", "no plan", lost("plan.json"), "plan.json", status=1),
    of(f"verify {ONE}", "half a plan", cut("plan.json"), "plan.json", status=1),
    of(f"verify {ONE}", "no metrics", lost("metrics.csv"), "metrics.csv", status=1),
    of(f"verify {ONE}", "half of the metrics", cut("metrics.csv"), "metrics.csv", status=1),
    of(f"verify {ONE}", "metrics of another", holds("metrics.csv", b"a,b\n1,2\n"), "metrics.csv", status=1),
    of(f"verify {ONE}", "no events", lost("events/rank_0.jsonl"), "rank_0.jsonl", status=1),
    of(f"verify {ONE}", "no outcome", lost("outcome.json"), "outcome", status=1),
    of(f"verify {ONE}", "an outcome that is none", holds("outcome.json", b"[]"), "outcome.json", status=1),
    of(f"verify {ONE}", "no attempts", lost("attempts.jsonl"), "attempts.jsonl", status=1),
    of(f"verify {ONE}", "no provenance", lost("provenance.json"), "provenance.json", status=1),
    of(f"verify {ONE}", "no evaluations", lost("evaluations.csv"), "evaluations.csv", status=1),
    of(f"verify {ONE}", "weights with a bit turned", flipped("checkpoints/*/model.safetensors"), "model.safetensors",
       status=1),
    of(f"verify {ONE}", "the monitor's file is gone", monitored(lambda run: shutil.rmtree(run / "monitor")), "monitor",
       status=1),
    of(f"verify {ONE}", "a bit of the monitor's file", monitored(flip("monitor/head.csv")), "monitor", status=1),
    of(f"verify {ONE}", "the plan of more epochs", edited("plan.json", seed=9), "plan.json", status=1),
    of(f"evaluate {ONE}", "no checkpoint", changed(lambda run: shutil.rmtree(run / "checkpoints")), "checkpoint"),
    of(f"evaluate {ONE}", "all checkpoints damaged", flipped("checkpoints/*/model.safetensors"), "model.safetensors"),
    of(f"evaluate {ONE}", "a pickle in place of weights",
       changed(lambda run: [path.write_bytes(b"\x80\x04N.") for path in run.glob("checkpoints/*/model.safetensors")]),
       "model.safetensors"),
    of(f"evaluate {ONE} --split all", "a split that is none", changed(lambda run: None), "all", "val"),
    of(f"evaluate {ONE} --dataset nowhere", "other data that are not there", changed(lambda run: None), "nowhere"),
    of(f"predict {ONE} -o p.xlsx", "a spreadsheet is asked for", changed(lambda run: None), "p.xlsx", ".parquet"),
    of(f"predict {ONE} -o toy.yaml/p.csv", "a file is in the way", changed(lambda run: None), "toy.yaml"),
    of(f"train --resume {ONE}", "it is done", changed(lambda run: None), "done already", "--extend", status=0),
    of(f"train --resume {ONE} -O train.seed=3", "another plan", unfinished(), "overrides", "without"),
    of(f"train --resume {ONE}", "half a plan", unfinished(lambda run: (run / "plan.json").write_text("{")),
       "plan.json"),
    of(f"train --extend {ONE} --epochs 1", "fewer epochs", changed(lambda run: None), "1", "2"),
    of("train toy.yaml --run-id one", "its name is taken", changed(lambda run: None), "one", "--resume"),
    of(f"watch {ONE} --once", "half a plan", cut("plan.json"), "plan.json", status=1),
    of(f"inspect {ONE}", "half an outcome", cut("outcome.json"), "outcome.json"),
    of("list", "half a plan", cut("plan.json"), "one", "plan.json", status=0),
    of("merge", "no metrics", lost("metrics.csv"), "metrics.csv"),
    of("merge", "metrics of another program", holds("metrics.csv", b"a,b\n1,2\n"), "metrics.csv"),
    of(f"compare {ONE}", "half an outcome", cut("outcome.json"), "outcome.json"),
    of(f"report {ONE} -o r.html", "half a plan", cut("plan.json"), "plan.json"),
    of("figures --predictions p.parquet", "predictions that are none",
       lambda folder: (folder / "p.parquet").write_bytes(b"PAR1"), "p.parquet"),
    of(f"logs {ONE} --rank 7", "a rank that it has not", changed(lambda run: None), "7"),
    of(f"stop {ONE}", "it is done", changed(lambda run: None), "one"),
]  # fmt: skip
