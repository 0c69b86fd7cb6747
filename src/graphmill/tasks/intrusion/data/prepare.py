"""Prepare a store under the dataset root from captures, or from generated ones."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.captures import Attack, capture_look, read_capture, road_attacks
from graphmill.tasks.intrusion.data.frames import NO_LABEL, Frames, refuse_bad_lines
from graphmill.tasks.intrusion.data.generate import captures as generated
from graphmill.tasks.intrusion.data.road import holds_frames, read_npz
from graphmill.tasks.intrusion.data.splits import fingerprint
from graphmill.tasks.intrusion.data.store import CaptureFacts, CaptureStore, Windows, write_windows
from graphmill.tasks.intrusion.data.windows import Leftover, WindowGraphs, graphs_of, joined_graphs
from graphmill.tasks.intrusion.page import CapturePrepareOptions
from graphmill.tasks.recognise import Look, best_of, named, shaped
from graphmill.tasks.stores import Preparation, store_path

_log = logging.getLogger(__name__)

GENERATED: Final = "synthetic/can"
_SECONDS: Final = 60
_SUFFIXES: Final = (".csv", ".csv.gz", ".txt", ".txt.gz", ".log", ".log.gz", ".npz")
_LOOKED_AT: Final = 20  # files of a folder
_ROAD: Final = "capture_metadata.json"


def prepare_requested(preparation: Preparation) -> CaptureStore:
    """Build the store that is asked for, whole or not at all; an existing one is kept, unless `force`."""
    options = preparation.options
    assert isinstance(options, CapturePrepareOptions)
    stored = preparation.save_as or preparation.name
    is_generated = preparation.name == GENERATED
    if is_generated and preparation.from_path is not None:
        raise UserError(
            f"{GENERATED} is generated and reads nothing from {preparation.from_path}", fix="leave --from out"
        )
    path = store_path(stored, preparation.root)
    if path.exists() and not preparation.force:
        store = CaptureStore.open(path)
        if preparation.from_path is not None or options.model_fields_set:
            raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
        _log.info(f"{stored} is prepared already: {path}")
        return store
    _refuse_misfits(preparation, options, is_generated=is_generated)
    frames: Iterator[tuple[str, Frames, str]]
    if preparation.from_path is None:
        source = f"generated, seed {options.seed or 0}"
        frames = ((name, made, "") for name, made in generated(options.seconds or _SECONDS, options.seed or 0))
    else:
        source = f"captures of {preparation.from_path.name}"
        frames = _read(preparation.from_path.expanduser(), options)
    return write_windows(_windows(frames, stored, source, options, synthetic=is_generated), path)


def holds_captures(path: Path) -> Look | None:
    """What the first files that could be one say of whether it is a capture, or a folder of them."""
    if (path / _ROAD).is_file():
        return named(f"it has {_ROAD}, a name of ROAD's")
    return best_of([_look_of(file) for file in _files(path)[:_LOOKED_AT]])


def _look_of(file: Path) -> Look | None:
    if file.suffix == ".npz":
        return shaped(f"{file.name} has the keys of frames") if holds_frames(file) else None
    found = capture_look(file)
    return None if found is None else replace(found, reason=f"{file.name}: {found.reason}")


def _refuse_misfits(preparation: Preparation, options: CapturePrepareOptions, *, is_generated: bool) -> None:
    own = {"seconds", "seed"} & options.model_fields_set
    if not is_generated and preparation.from_path is None:
        raise UserError(f"{preparation.name} needs --from", fix="give a capture, or a folder of captures")
    if not is_generated and own:
        raise UserError(
            f"{preparation.name} is not generated and takes no {', '.join(sorted(own))}", fix="leave them out"
        )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.name.endswith(_SUFFIXES) else []
    return sorted(each for each in path.rglob("*") if each.is_file() and each.name.endswith(_SUFFIXES))


def _read(path: Path, options: CapturePrepareOptions) -> Iterator[tuple[str, Frames, str]]:
    """Name, frames and problems of each capture."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give a capture, or a folder of captures")
    files = _files(path)
    if not files:
        raise UserError(f"{path} holds no capture", fix=f"captures end in {', '.join(_SUFFIXES)}")
    for file in files:
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        frames, problems = _frames_of(file, options)
        if problems:
            _log.warning(f"{name}: {problems}")
        yield name, frames, problems


def _frames_of(file: Path, options: CapturePrepareOptions) -> tuple[Frames, str]:
    if file.suffix == ".npz":
        return read_npz(file), ""
    attack: Attack | None = None
    stem = file.name.split(".")[0]
    if (file.parent / _ROAD).is_file():
        known = road_attacks(file.parent / _ROAD)
        attack = known.get(stem)
        if attack is None and stem in known and options.unlabelled == "refuse":
            raise UserError(
                f"{file}: {_ROAD} names no frame of its attack",
                fix="leave the capture out, or set -o unlabelled=benign",
            )
    frames, problems = read_capture(file, options.layout, attack)
    refuse_bad_lines(file, len(frames), problems, options)
    return frames, str(problems)


def _windows(
    captures: Iterator[tuple[str, Frames, str]],
    name: str,
    source: str,
    options: CapturePrepareOptions,
    *,
    synthetic: bool,
) -> Windows:
    facts, parts, begins = [], [], []
    for capture, given, problems in captures:
        frames = _labelled(capture, given, options)
        leftover = Leftover()
        found = list(graphs_of([frames], leftover, size=options.window, stride=options.stride))
        graphs = joined_graphs(found) if found else None
        if graphs is None or not len(graphs):
            raise UserError(
                f"{capture} has {len(frames):,} frames, and a window is {options.window}",
                fix="leave it out, or set -o window to less",
            )
        parts.append(graphs)
        begins.append(_attack_begins(frames, graphs, options.window))
        facts.append(
            CaptureFacts(
                name=capture,
                fingerprint=fingerprint(frames),
                num_frames=len(frames),
                num_attacked=int((frames.label == 1).sum()),
                num_windows=len(graphs),
                num_left=leftover.num_frames,
                problems=problems,
            )
        )
    return Windows(
        name=name,
        source=source,
        synthetic=synthetic,
        window=options.window,
        stride=options.stride,
        captures=tuple(facts),
        graphs=joined_graphs(parts),
        attack_begins=np.concatenate(begins),
    )


def _labelled(name: str, frames: Frames, options: CapturePrepareOptions) -> Frames:
    """Frames with a label for every frame. `UserError` if some have none and the options do not allow it."""
    unknown = frames.label == NO_LABEL
    if not unknown.any():
        return frames
    if options.unlabelled == "refuse":
        raise UserError(
            f"{name} does not say of {int(unknown.sum()):,} of its frames whether they are attacks",
            fix="set -o unlabelled=benign if there is no attack in it, or leave it out",
        )
    labels = np.where(unknown, 0, frames.label).astype(np.int8)
    return Frames(frames.time, frames.id, frames.payload, frames.length, labels)


def _attack_begins(frames: Frames, graphs: WindowGraphs, window: int) -> NDArray[np.float64]:
    """Time of the first frame of each window that is an attack [num_graphs]; NaN: none is."""
    attacked = np.flatnonzero(frames.label == 1)
    first = np.searchsorted(attacked, graphs.first_frames)
    found = np.full(len(graphs), np.nan)
    has = first < len(attacked)
    at = attacked[first[has]]
    inside = at < graphs.first_frames[has] + window
    found[np.flatnonzero(has)[inside]] = frames.time[at[inside]]
    return found
