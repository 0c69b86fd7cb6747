"""Checkpoints: whole or absent, checked when read, never executed.

    checkpoints/step_0000000118/
        model.safetensors       parameters and buffers, one copy: replicas agree wherever a checkpoint is taken
        rank_<r>.safetensors    what differs between ranks: optimizer moments, the scheme's tensors
        manifest.json           written last, with the checksums of the others: without it there is no checkpoint

The folder is filled under a hidden name and renamed when its manifest is durable. Which checkpoint is the latest or the best is
read from manifests, never from names or times.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.base.files import fsync_file, fsync_folder, write_json
from graphmill.sync.group import Group
from graphmill.train.ledger import Counters

_MODEL = "model.safetensors"
_MANIFEST = "manifest.json"


class Position(BaseModel):
    """Where a run stands: what a resume needs besides tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int  # of the next step, from 0
    step: int  # within the epoch
    steps_done: int  # of each rank, in the whole run
    loss_sum: float  # of this rank's seeds in this epoch so far
    epoch_time_s: float  # of this epoch so far
    counters: Counters
    counters_before_epoch: Counters
    best_step: int | None = None  # steps_done of the best checkpoint
    best_epoch: int | None = None
    best_micro_f1: float | None = None
    best_macro_f1: float | None = None


class Manifest(BaseModel):
    """What a checkpoint holds, and the proof that it holds it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = 1
    plan_hash: str
    world_size: int
    parameter_hash: str
    positions: tuple[Position, ...]  # by rank
    files: dict[str, str]  # name → xxh3 of the content
    keep: bool  # for good


@dataclass(frozen=True, slots=True)
class State:
    """What one rank saves, and gets back."""

    model: dict[str, Tensor]
    rank: dict[str, Tensor]
    position: Position


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """The checkpoints of one run, written by all ranks together."""

    folder: Path
    plan_hash: str
    group: Group

    def save(self, state: State, *, parameter_hash: int, keep: bool) -> None:
        """Write a checkpoint. All ranks must call it at the same step; when it returns, it is durable."""
        final = self._path(state.position.steps_done)
        making = final.with_name(f".{final.name}.making")
        if self.group.rank == 0:
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
        self.group.barrier()
        mine = {f"rank_{self.group.rank}.safetensors": state.rank}
        if self.group.rank == 0:
            mine[_MODEL] = state.model
        for name, tensors in mine.items():
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, making / name)
            fsync_file(making / name)
        write_json(making / f".position_{self.group.rank}.json", state.position.model_dump())
        self.group.barrier()
        if self.group.rank == 0:
            self._seal(making, final, parameter_hash, keep=keep)
        self.group.barrier()

    def latest(self) -> Manifest | None:
        """The manifest of the checkpoint that is furthest on, among those that are whole."""
        manifests = [found for found in map(self._manifest, self._paths()) if found is not None]
        return max(manifests, key=lambda manifest: manifest.positions[0].steps_done, default=None)

    def load(self, steps_done: int) -> State:
        """Read a checkpoint back for this rank, checksums first."""
        path = self._path(steps_done)
        manifest = self._manifest(path)
        if manifest is None:
            raise UserError(
                f"{path} holds no whole checkpoint", fix="name another, or start the run anew under another run id"
            )
        if manifest.plan_hash != self.plan_hash or manifest.world_size != self.group.world_size:
            raise UserError(
                f"{path} was written by another plan or by {manifest.world_size} ranks, not {self.group.world_size}",
                fix="resume with the plan.json that began the run",
            )
        own = f"rank_{self.group.rank}.safetensors"
        for name in (_MODEL, own):
            if manifest.files.get(name) != checksum(path / name):
                raise UserError(
                    f"{path / name} does not match its checksum", fix=f"remove {path}: the checkpoint before it is used"
                )
        return State(_load(path / _MODEL), _load(path / own), manifest.positions[self.group.rank])

    def prune(self, needed: Iterable[int | None]) -> None:
        """Remove checkpoints but the `needed` ones (by steps_done) and those kept for good. Rank 0 only."""
        names = {self._path(steps).name for steps in needed if steps is not None}
        for path in self._paths():
            manifest = self._manifest(path)
            if path.name not in names and (manifest is None or not manifest.keep):
                shutil.rmtree(path)

    def _seal(self, making: Path, final: Path, parameter_hash: int, *, keep: bool) -> None:
        ranks = range(self.group.world_size)
        parts = [making / f".position_{rank}.json" for rank in ranks]
        positions = tuple(Position.model_validate_json(part.read_bytes()) for part in parts)
        for part in parts:
            part.unlink()
        names = [_MODEL, *(f"rank_{rank}.safetensors" for rank in ranks)]
        manifest = Manifest(
            plan_hash=self.plan_hash,
            world_size=self.group.world_size,
            parameter_hash=f"{parameter_hash:016x}",
            positions=positions,
            files={name: checksum(making / name) for name in names},
            keep=keep,
        )
        write_json(making / _MANIFEST, manifest.model_dump(mode="json"))
        shutil.rmtree(final, ignore_errors=True)
        os.replace(making, final)  # noqa: PTH105  # Path.replace says the same, less plainly
        fsync_folder(final.parent)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("step_*"))

    def _path(self, steps_done: int) -> Path:
        return self.folder / f"step_{steps_done:010d}"

    def _manifest(self, path: Path) -> Manifest | None:
        try:
            return Manifest.model_validate_json((path / _MANIFEST).read_bytes())
        except (OSError, ValidationError):
            return None


def checksum(path: Path) -> str:
    """xxh3 of a file's content."""
    try:
        with path.open("rb") as file:
            digest = xxhash.xxh3_64()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", fix=f"remove {path.parent}") from None
    return digest.hexdigest()


def hash_text(text: str) -> str:
    """xxh3 of a text, for telling plans apart."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def _load(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise UserError(
            f"{path} is damaged: {error}", fix=f"remove {path.parent}: the checkpoint before it is used"
        ) from None
    return tensors
