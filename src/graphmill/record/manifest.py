"""What a checkpoint's manifest says: the run's position, the files that belong to it, the proof that they are whole."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import xxhash
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from graphmill.base.files import write_json
from graphmill.base.retries import retried
from graphmill.record.documents import json_of
from graphmill.spec.early_stopping import Patience

MANIFEST = "manifest.json"


def _file_name(name: str) -> str:
    """Return the name of a file in the manifest's folder, else raise ValueError: copies read, and write, what it names.

    Others may have written it, and its checksum is no signature.
    """
    if name in ("", "..") or name != Path(name).name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file beside it")
    return name


class _Frozen(BaseModel):
    # a measure may be undefined, and null is not a number
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="strings")


class Counters(_Frozen):
    """What was exchanged since the run began, over all attempts."""

    num_syncs: int = 0
    payload_bytes: int = 0
    interface_bytes: int = 0
    num_agreed: int = 0  # syncs after which all ranks had the same parameter hash


class SavedStats(_Frozen):
    """The sums of an epoch under way that a resume continues (key `books` of a checkpoint)."""

    loss_sum: float  # of this rank in this epoch so far
    epoch_s: float  # spent on this epoch so far
    counters: Counters
    before_epoch: Counters
    spent_s: dict[str, float]  # of this epoch so far, by phase (wait_s, …); empty: between epochs


class Best(_Frozen):
    """The best evaluation on the validation split so far."""

    step: int  # steps_done of its checkpoint
    epoch: int
    values: dict[str, float]  # of each measure the best so far; all but the first perhaps of another epoch
    loss: float  # of that checkpoint, by which equals are told apart
    measures: dict[str, float] = {}  # of that checkpoint; none: it is older than this field

    def loses_tie(self, name: str, value: float, loss: float) -> bool:
        """Whether an evaluation whose measure `name` is as good has the lower loss."""
        return self.values.get(name) == value and loss < self.loss

    def facts(self) -> dict[str, float | int]:
        """Step, epoch and measures by name, as in outcome.json."""
        return {"step": self.step, "epoch": self.epoch, **(self.measures or self.values)}


class Position(_Frozen):
    """A rank's position: what a resume needs besides tensors."""

    epoch: int  # of the next step, from 0
    step: int  # within the epoch
    steps_done: int  # of each rank, in the whole run
    books: SavedStats
    best: Best | None
    patience: Patience | None  # None: the run does not stop early


class Manifest(_Frozen):
    """What a checkpoint holds, and the proof that it holds it."""

    format_version: Literal[1] = 1
    plan_hash: str
    world_size: int
    parameter_hash: str
    positions: tuple[Position, ...]  # by rank
    files: dict[Annotated[str, AfterValidator(_file_name)], str]  # name → xxh3 of the content
    keep: bool  # for good

    @property
    def steps_done(self) -> int:
        """Steps done by each rank: ranks are aligned wherever a checkpoint is taken."""
        return self.positions[0].steps_done

    def write(self, folder: Path) -> None:
        """Write it, with a checksum over everything it says."""
        write_json(folder / MANIFEST, {"content": json_of(self), "xxh3": self._checksum()})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest in `folder`.

        ValueError: it is damaged; OSError: it is absent; `UnreadableError`: neither is known.
        """
        sealed = _Sealed.model_validate_json(retried(folder / MANIFEST, Path.read_bytes))
        manifest = cls.model_validate(sealed.content)
        if manifest._checksum() != sealed.xxh3:
            raise ValueError("its content does not match its checksum")
        return manifest

    def damage(self, folder: Path, names: list[str] | None = None) -> str | None:
        """The first of the files (or of `names` among them) that is not what was written, in words; None: all are.

        Raises `UnreadableError` if a file exists and cannot be read.
        """
        for name in self.files if names is None else names:
            try:
                same = file_checksum(folder / name) == self.files.get(name)
            except OSError as error:
                return f"{name} is absent: {error.strerror}"
            if not same:
                return f"{name} does not match its checksum"
        return None

    def _checksum(self) -> str:
        return hash_text(self.model_dump_json())


class _Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: dict[str, Any]
    xxh3: str


def saved_steps(checkpoints: Path) -> int:
    """Steps of each rank in the checkpoint with the most steps, by the manifests in the folder; 0: there is none.

    Raises `UnreadableError`.
    """
    found = [0]
    for path in checkpoint_folders(checkpoints):
        with suppress(OSError, ValueError):  # damaged: reported and skipped on resume
            found.append(Manifest.read(path).steps_done)
    return max(found)


def checkpoint_folders(checkpoints: Path) -> list[Path]:
    """Everything named like a checkpoint, sorted; none if there is no folder. Raises `UnreadableError`."""
    try:
        return retried(checkpoints, lambda folder: sorted(path for path in folder.iterdir() if _is_named_so(path)))
    except OSError:
        return []


def _is_named_so(path: Path) -> bool:
    return path.name.startswith("step_")


def error_text(error: OSError | ValueError) -> str:
    """Why a manifest could not be read."""
    if isinstance(error, OSError):
        return f"{MANIFEST} is absent: {error.strerror}"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        if first["loc"] == ("format_version",):
            return f"{MANIFEST} has format {first['input']!r}, and this graphmill reads 1; use the one that wrote it"
        return f"{MANIFEST} is damaged: {first['msg']}"
    return f"{MANIFEST} is damaged: {error}"


def file_checksum(path: Path) -> str:
    """xxh3 of a file's content. Raises OSError if it is absent, else `UnreadableError`."""
    return retried(path, _checksum_of)


def _checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = xxhash.xxh3_64()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_text(text: str) -> str:
    """xxh3 of a text, to distinguish plans."""
    return xxhash.xxh3_64_hexdigest(text.encode())
