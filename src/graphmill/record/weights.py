"""Weights at rest: one safetensors file that says what it holds and where it comes from. Read here without torch.

    model.safetensors   the tensors; `__metadata__` has one entry, "graphmill": a JSON object with
        format      "graphmill-weights/1"
        checksum    xxh3 over names, dtypes, shapes and values (`WeightsFile.compute_checksum`), whatever the origin
        origin      run id, task, dataset, step, epoch, plan hash, measures on the validation split, model

Any reader of safetensors reads the tensors. Files of other programs have no such entry:
their tensors can be read, too.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import replacing
from graphmill.base.json_text import parse_json
from graphmill.base.retries import refuse_endless, retried
from graphmill.record.documents import json_of
from graphmill.record.manifest import Manifest, checkpoint_folders, error_text, file_checksum
from graphmill.spec.weights import InitialWeights

WEIGHTS_FILE: Final = "model.safetensors"  # in a checkpoint
METADATA_KEY: Final = "graphmill"
FORMAT: Final = "graphmill-weights/1"
_MAX_HEADER: Final = 2**26  # bytes; safetensors refuses longer ones, too
Which = Literal["best", "last"]
Report = Callable[[str, str], None]  # (checkpoint, what is wrong with it)

_log = logging.getLogger(__name__)


def warn_of_damage(checkpoint: str, problem: str) -> None:
    """Log a checkpoint that cannot be used: a `Report`."""
    _log.warning(f"{checkpoint} is damaged and passed over: {problem}")


class Origin(BaseModel):
    """The run and the moment that weights come from."""

    # a measure may be undefined: false alarms an hour of captures without times
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="strings")

    run_id: str
    task: str
    dataset: str
    step: int  # steps of each rank
    epoch: int  # epochs completed
    plan_hash: str
    measures: dict[str, float]  # on the validation split, with these weights; empty if they were not evaluated
    model: dict[str, Any] = {}  # its options, by dotted name, as far as they say what is computed with the weights

    def __str__(self) -> str:
        return f"run {self.run_id}, step {self.step}"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor is in its file."""

    dtype: str  # as safetensors writes it: F32, I64, …
    shape: tuple[int, ...]
    begin: int  # bytes from the end of the header
    end: int


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """The header of a file of weights."""

    path: Path
    tensors: dict[str, TensorEntry]
    data_start: int  # bytes from the start of the file
    origin: Origin | None  # None: written by another program
    recorded_checksum: str | None  # None: as above

    @classmethod
    def read(cls, path: Path) -> "WeightsFile":
        """Read the header; the values are neither read nor checked. Raises `UnreadableError`."""
        try:
            header, data_start = retried(path, _header)
            origin, checksum = _origin(header.pop("__metadata__", {}))
            tensors = {name: _entry(value) for name, value in sorted(header.items())}
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", fix="name a file of weights") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not a safetensors file of weights: {error}", fix="name one that is") from None
        return cls(path, tensors, data_start, origin, checksum)

    def compute_checksum(self) -> str:
        """xxh3 of names, dtypes, shapes and values as they are in the file now. Raises `UnreadableError`."""
        return retried(self.path, self._checksum_of)

    def _checksum_of(self, path: Path) -> str:
        digest = ContentDigest()
        with path.open("rb") as file:
            for name, entry in self.tensors.items():
                file.seek(self.data_start + entry.begin)
                digest.add(name, entry.dtype, entry.shape, file.read(entry.end - entry.begin))
        return digest.hexdigest()

    def checked(self) -> str:
        """The checksum of the content; `UserError` if the file recorded another one."""
        found = self.compute_checksum()
        if self.recorded_checksum not in (None, found):
            raise UserError(
                f"{self.path} is damaged: its tensors have checksum {found}, its header says {self.recorded_checksum}",
                fix="restore the file, or name another one",
            )
        return found

    @property
    def described(self) -> str:
        """Describe the file for a message: the run and step if they are known, and the file."""
        return f"{self.origin} ({self.path})" if self.origin is not None else str(self.path)


class ContentDigest:
    """The checksum of weights: tensors in the order of their names, whatever their order in a file."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_64()

    def add(self, name: str, dtype: str, shape: Iterable[int], content: bytes | memoryview) -> None:
        """Add a tensor; names must come in ascending order."""
        self._digest.update(json.dumps([name, dtype, list(shape)]).encode())
        self._digest.update(content)

    def hexdigest(self) -> str:
        """The hash as 16 hex digits."""
        return self._digest.hexdigest()


def metadata_of(origin: Origin, checksum: str) -> dict[str, str]:
    """`__metadata__` of a file of weights; one key, because safetensors writes several in no fixed order."""
    content = {"format": FORMAT, "checksum": checksum, "origin": json_of(origin)}
    return {METADATA_KEY: json.dumps(content, sort_keys=True, allow_nan=False)}


def read_checkpoint(path: Path, plan_hash: str) -> Manifest:
    """The manifest of the checkpoint in `path`. ValueError, OSError: it is damaged, or cannot be read."""
    manifest = Manifest.read(path)
    if path.name != checkpoint_name(manifest.steps_done):
        raise ValueError(f"it is that of step {manifest.steps_done}")
    if manifest.plan_hash != plan_hash:
        raise UserError(f"{path} was written by another plan", fix="restore the plan.json that began the run")
    return manifest


def furthest_whole(checkpoints: Path, plan_hash: str, report: Report) -> Manifest | None:
    """The manifest of the checkpoint with the most steps that is whole, every file checked; None: there is none.

    Raises `UnreadableError` if a file exists and cannot be read.

    `report(name, problem)` is called for every damaged one that was skipped.
    """
    found: list[tuple[Path, Manifest]] = []
    for path in checkpoint_folders(checkpoints):
        try:
            found.append((path, read_checkpoint(path, plan_hash)))
        except (OSError, ValueError) as error:
            report(path.name, error_text(error))
    for path, manifest in sorted(found, key=lambda pair: pair[1].steps_done, reverse=True):
        problem = manifest.damage(path)
        if problem is None:
            return manifest
        report(path.name, problem)
    return None


def checkpoint_name(steps_done: int) -> str:
    """The folder of a checkpoint: `step_` and the steps of each rank."""
    return f"step_{steps_done:010d}"


def run_weights(run: Path, checkpoints: Path, plan_hash: str, which: Which, report: Report) -> Path:
    """The file with the best, or the last, weights of a run; checked against its manifest."""
    last = furthest_whole(checkpoints, plan_hash, report)
    if last is None:
        raise UserError(f"{run} holds no whole checkpoint", fix=f"graphmill train --resume {run}")
    best = last.positions[0].best
    if which == "last":
        return checkpoints / checkpoint_name(last.steps_done) / WEIGHTS_FILE
    if best is None:
        raise UserError(
            f"{run} has not been evaluated yet, so no checkpoint is the best",
            fix=f"take the last weights (--weights last), or continue it with `graphmill train --resume {run}`",
        )
    folder = checkpoints / checkpoint_name(best.step)
    try:
        problem = read_checkpoint(folder, plan_hash).damage(folder, [WEIGHTS_FILE])
    except (OSError, ValueError) as error:
        problem = error_text(error)
    if problem:
        raise UserError(
            f"{folder} is damaged: {problem}",
            fix=f"take the last weights (--weights last), or remove {folder} and `graphmill train --resume {run}`",
        )
    return folder / WEIGHTS_FILE


def copy_initial_weights(initial: InitialWeights, target: Path) -> None:
    """Copy the weights that a plan begins with into its run folder; `UserError` if the source has changed since."""
    source = Path(initial.path)
    found = WeightsFile.read(source).checked()
    if found != initial.checksum:
        raise _changed(source, found, initial.checksum)
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
        if file_checksum(source) != file_checksum(temporary):
            raise _changed(source, "another", initial.checksum)


def _changed(source: Path, checksum: str, planned: str) -> UserError:
    return UserError(
        f"{source} has changed since the run was planned:"
        f" its weights have checksum {checksum}, the plan says {planned}",
        fix="plan the run again, or restore the weights",
    )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    refuse_endless(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _MAX_HEADER):
            raise ValueError("its first 8 bytes are not the length of a header")
        header: dict[str, Any] = parse_json(file.read(length))
    ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
    if 8 + length + max(ends, default=0) != size:
        raise ValueError(f"it has {size} bytes, its header says {8 + length + max(ends, default=0)}")
    return header, 8 + length


def _entry(value: dict[str, Any]) -> TensorEntry:
    begin, end = value["data_offsets"]
    return TensorEntry(str(value["dtype"]), tuple(int(n) for n in value["shape"]), int(begin), int(end))


def _origin(metadata: dict[str, str]) -> tuple[Origin | None, str | None]:
    if METADATA_KEY not in metadata:
        return None, None
    content = parse_json(metadata[METADATA_KEY])
    if content["format"] != FORMAT:
        raise ValueError(
            f"its format is {content['format']!r}, and this graphmill reads {FORMAT!r}; use the one that wrote it"
        )
    try:
        return Origin.model_validate(content["origin"]), str(content["checksum"])
    except ValidationError as error:
        raise ValueError(f"its origin is damaged: {error.errors(include_url=False)[0]['msg']}") from None
