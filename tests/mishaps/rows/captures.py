"""Captures of CAN buses, as tools leave them and as people hand them over, and what is asked of detectors."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rows.mishap import Mishap

HEADER = "timestamp,arbitration_id,data_field,attack"
CSV = [f"{place / 100},{place % 7:03X},{place % 251:02X}00,{int(place % 90 < 10)}" for place in range(900)]
LOG = [f"({place / 100}) can0 {place % 7:03X}#{place % 251:02X}" for place in range(900)]
MADE = ("root",)
DONE: dict[str, Any] = {"status": 0, "leaves": MADE}


def text(name: str, *lines: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))

    return make


def both(*makers: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [make(folder) for make in makers]


def cut(folder: Path) -> None:
    (folder / "a.csv.gz").write_bytes(gzip.compress("\n".join(CSV).encode())[:-40])


def arrays(**changes: Any) -> Callable[[Path], object]:
    given = {"can_id": np.arange(300) % 9, "data": np.zeros((300, 8), np.uint8), "label": np.zeros(300, np.int8)}
    return lambda folder: np.savez(folder / "a.npz", **{**given, **changes})


def prepared(folder: Path) -> None:
    from graphmill.tasks.intrusion.data.prepare import prepare_requested
    from graphmill.tasks.intrusion.page import CapturePrepareOptions
    from graphmill.tasks.stores import Preparation

    text("a.csv", HEADER, *CSV)(folder)
    prepare_requested(
        Preparation("mine", folder, CapturePrepareOptions(window=10, stride=10), from_path=folder / "a.csv")
    )


def copies(folder: Path) -> None:
    from graphmill.tasks.intrusion.data.prepare import prepare_requested
    from graphmill.tasks.intrusion.page import CapturePrepareOptions
    from graphmill.tasks.stores import Preparation

    both(text("two/a.csv", HEADER, *CSV), text("two/b.csv", HEADER, *CSV))(folder)
    prepare_requested(
        Preparation("mine", folder, CapturePrepareOptions(window=10, stride=10), from_path=folder / "two")
    )


def of(file: str, name: str, make: Callable[[Path], object], *says: str, options: str = "", **more: Any) -> Mishap:
    words = f"prepare mine --from {file} --dataset-root root {options}"
    return Mishap(f"capture {file}: {name}", words, says, make, **more)


def asked(name: str, options: str, *says: str, make: Callable[[Path], object] = prepared, **more: Any) -> Mishap:
    words = f"plan can-gat -O dataset.name=mine --dataset-root . {options}"
    return Mishap(f"detector: {name}", words, says, make, **more)


def piped(name: str, options: str, *says: str) -> Mishap:
    return Mishap(f"pipeline of stages: {name}", f"pipeline run pipeline-can --dry-run {options}", says, prepared)


TASK = "--task intrusion"
ROWS = [
    of("a.csv", "a header alone", text("a.csv", HEADER), "no frame"),
    of("a.csv", "empty", text("a.csv"), "no frame", options=TASK),
    of("a.csv", "empty, and no task is named", text("a.csv"), "--task"),
    of("a.csv", "another header", text("a.csv", "a,b", *CSV), "another number of fields: 1, first in line 1", **DONE),
    of("a.csv", "fewer frames than a window", text("a.csv", HEADER, *CSV[:50]), "50", "-o window"),
    of("a.csv", "ids that are words", text("a.csv", HEADER, *(line.replace(",00", ",x") for line in CSV)), "line 1",
       "car-hacking"),
    of("a.csv", "another layout", text("a.csv", HEADER, *CSV), "candump", "line 2", options="-o layout=candump"),
    of("a.csv", "a layout that is none", text("a.csv", HEADER, *CSV), "cvs", "car-hacking", options="-o layout=cvs"),
    of("a.csv", "a window of one frame", text("a.csv", HEADER, *CSV), "window", "2", options="-o window=1"),
    of("a.csv", "no stride", text("a.csv", HEADER, *CSV), "stride", options="-o stride=0"),
    of("a.csv", "an option that nobody knows", text("a.csv", HEADER, *CSV), "windw", "window", options="-o windw=9"),
    of("a.csv", "an option of a generator", text("a.csv", HEADER, *CSV), "seconds", options="-o seconds=9"),
    of("a.csv", "a random split", text("a.csv", HEADER, *CSV), "random_split", options="--random-split"),
    of("a.csv.gz", "cut short", cut, "a.csv.gz", "whole capture"),
    of("a.log", "without labels", text("a.log", *LOG), "900", "unlabelled=benign"),
    of("a.log", "a word for labels", text("a.log", *LOG), "benign", options="-o unlabelled=bening"),
    of("a.log", "junk", lambda f: (f / "a.log").write_bytes(bytes(range(256)) * 99), "line 1", options=TASK),
    of("logs", "notes beside a capture", both(text("logs/a.csv", HEADER, *CSV), text("logs/notes.txt", "hello")),
       "notes.txt", "leave it out"),
    of("logs", "no file", lambda f: (f / "logs").mkdir(), "no capture", options=TASK),
    of("a.npz", "no labels", lambda f: np.savez(f / "a.npz", can_id=[1], data=np.zeros((1, 8))), "label", options=TASK),
    of("a.npz", "a byte of 300", arrays(data=np.full((300, 8), 300)), "300", "255"),
    of("a.npz", "payloads of 4 bytes", arrays(data=np.zeros((300, 4))), "(300, 4)"),
    of("a.npz", "cut short", lambda f: (arrays()(f), (f / "a.npz").write_bytes(b"PK\x03\x04")), "a.npz", options=TASK),
    of("a.csv", "good, and plain", text("a.csv", HEADER, *CSV), "intrusion", **DONE),
    of("a.csv", "some bad lines", text("a.csv", HEADER, *CSV, "1,2"), "another number of fields: 1", **DONE),
    Mishap("capture: a name nearly right", "prepare synthetic/cann --dataset-root root", ("synthetic/can'",)),
    Mishap("capture: a generated one from a file", "prepare synthetic/can --from a.csv --dataset-root root",
           ("generated", "--from"), text("a.csv", HEADER, *CSV)),
    Mishap("detector: another name", "plan can-gat -O dataset.name=mime --dataset-root .", ("'mine'",), prepared),
    asked("no attack to choose a threshold by", "-O dataset.train_share=0.71 -O dataset.val_share=0.05",
          "dataset.blocks=20", "task.threshold"),
    asked("more blocks than windows", "-O dataset.blocks=5000", "val, test", "dataset.blocks"),
    asked("shares of more than all", "-O dataset.train_share=0.9 -O dataset.val_share=0.3", "0.9", "0.3"),
    asked("a capture that is not there", "-O dataset.test_captures=[b*]", "b*", "a.csv"),
    asked("a copy of what is trained on", "-O dataset.test_captures=[b.csv]", "same frames", "a.csv", make=copies),
    asked("an autoencoder of attacks", "-O model.kind=vgae", "dataset.train_on=benign"),
    asked("a classifier of benign windows", "-O dataset.train_on=benign", "dataset.train_on=all"),
    asked("a scale that is none", "-O model.scale=medium", "large", "small"),
    asked("a teacher of another sort", "-O 'train.distill={teacher: {kind: vgae}}'", "vgae", "gat"),
    asked("weights that are not there", "-O 'train.distill={}' -O sources.teacher.run=nowhere", "nowhere"),
    asked("a word for a threshold", "-O task.threshold=high", "task.threshold", "number"),
    *[
        Mishap(f"detector: trained without {name}", f"train can-gat -O dataset.name=mine --dataset-root . {options}",
               (f"sources.{name}",), prepared)
        for name, options in (
            ("scorer", "-O train.curriculum.score=scorer"),
            ("teacher", "-O train.distill.alpha=0.5"),
            ("gat", "-O 'model={kind: fusion}' -O dataset.train_on=validation"),
        )
    ],
    piped("a dataset that is not prepared", "-O dataset.name=mime --dataset-root .", "'mine'"),
    piped("a key that nobody knows", "-O dataset.nmae=mine --dataset-root .", "dataset.name"),
    piped("a key of another model", "-O dataset.name=mine -O model.scale=small --dataset-root .",
          "fusion", "model.scale"),
    piped("a stage that is none", "--stages autoencodr", "'autoencoder'"),
    Mishap("detector: no capture", "detect one --inptu a.log", ("--input",), needs_run=True),
    Mishap("detector: weights that are none", "detect one --weights bset", ("--weights best",), needs_run=True),
]  # fmt: skip
