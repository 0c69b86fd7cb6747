"""Checkpoints: whole or absent, checked when read, never executed.

    checkpoints/step_0000000118/
        model.safetensors       parameters and buffers, one copy: replicas agree wherever a checkpoint is taken
        rank_<r>.safetensors    what differs between ranks: optimizer moments, the scheme's tensors
        manifest.json           written last, with the checksums of the others: without it there is no checkpoint

The folder is filled under a hidden name and renamed when its manifest is durable; it is renamed to a hidden name
before it is removed. So what stands under a plain name and is not whole was damaged by somebody else, which is said.
Which checkpoint is the latest or the best is read from manifests, never from names or times.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.base.files import fsync_file, fsync_folder, write_json
from graphmill.record.manifest import Manifest, Position, file_checksum, in_words
from graphmill.sync.group import Group

_MODEL = "model.safetensors"
_MAKING, _REMOVING, _REPLACED = ".making", ".removing", ".replaced"  # what hidden names end in


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
        making = _hidden(final, _MAKING)
        if self.group.rank == 0:
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            fsync_folder(self.folder.parent)
        self.group.barrier()
        mine = {_of_rank(self.group.rank): state.rank}
        if self.group.rank == 0:
            mine[_MODEL] = state.model
        for name, tensors in mine.items():
            _write_tensors(tensors, making / name)
            fsync_file(making / name)
        write_json(making / _position_of(self.group.rank), state.position.model_dump(mode="json"))
        self.group.barrier()
        if self.group.rank == 0:
            self._seal(making, final, parameter_hash, keep=keep)
        self.group.barrier()

    def latest(self, say: Callable[[str, str], None]) -> Manifest | None:
        """The manifest of the whole checkpoint that is furthest on; None: there is none. All ranks must call it.

        Rank 0 reads and decides. `say(name, problem)` is told of every damaged one that is passed over.
        """
        steps = self._furthest_whole(say) if self.group.rank == 0 else -1
        agreed = self.group.gather_numbers([steps])[0][0]
        return None if agreed < 0 else self._manifest(agreed)

    def load(self, steps_done: int) -> State:
        """Read a checkpoint back for this rank, checksums first."""
        manifest = self._manifest(steps_done)
        if manifest.world_size != self.group.world_size:
            raise UserError(
                f"{self._path(steps_done)} was written by {manifest.world_size} ranks, not {self.group.world_size}",
                fix=f"resume with {manifest.world_size} ranks",
            )
        own = _of_rank(self.group.rank)
        tensors = self._tensors(manifest, [_MODEL, own])
        return State(tensors[_MODEL], tensors[own], manifest.positions[self.group.rank])

    def load_model(self, steps_done: int) -> dict[str, Tensor]:
        """The parameters and buffers of a checkpoint, checksum first; for any number of ranks."""
        return self._tensors(self._manifest(steps_done), [_MODEL])[_MODEL]

    def prune(self, needed: Iterable[int]) -> None:
        """Remove checkpoints but the `needed` ones (by steps_done) and those kept for good. Rank 0 only."""
        names = {self._path(steps).name for steps in needed}
        for path in self._paths():
            if path.name not in names and not _is_kept(path):
                path.rename(_hidden(path, _REMOVING))
                shutil.rmtree(_hidden(path, _REMOVING))

    def remove_leftovers(self) -> None:
        """Remove what a killed writer left under hidden names; a checkpoint it was about to replace is put back.

        Rank 0 only, before anything is saved.
        """
        for hidden in sorted(self.folder.glob(".step_*")):
            plain = hidden.with_name(hidden.name.removeprefix(".").removesuffix(_REPLACED))
            if hidden.name.endswith(_REPLACED) and not plain.exists():
                hidden.rename(plain)
            else:
                shutil.rmtree(hidden)

    def _seal(self, making: Path, final: Path, parameter_hash: int, *, keep: bool) -> None:
        ranks = range(self.group.world_size)
        parts = [making / _position_of(rank) for rank in ranks]
        positions = tuple(Position.model_validate_json(part.read_bytes()) for part in parts)
        for part in parts:
            part.unlink()
        manifest = Manifest(
            plan_hash=self.plan_hash,
            world_size=self.group.world_size,
            parameter_hash=f"{parameter_hash:016x}",
            positions=positions,
            files={name: file_checksum(making / name) for name in [_MODEL, *map(_of_rank, ranks)]},
            keep=keep,
        )
        manifest.write(making)
        replaced = _hidden(final, _REPLACED)
        if final.exists():  # saved at this step before, in the middle of the round or by an earlier attempt
            final.rename(replaced)
        making.rename(final)
        fsync_folder(self.folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _furthest_whole(self, say: Callable[[str, str], None]) -> int:
        """Steps done of the whole checkpoint that is furthest on; -1: there is none."""
        found: list[tuple[Path, Manifest]] = []
        for path in self._paths():
            try:
                found.append((path, self._read(path)))
            except (OSError, ValueError) as error:
                say(path.name, in_words(error))
        for path, manifest in sorted(found, key=lambda pair: pair[1].steps_done, reverse=True):
            problem = manifest.damage(path)
            if problem is None:
                return manifest.steps_done
            say(path.name, problem)
        return -1

    def _manifest(self, steps_done: int) -> Manifest:
        path = self._path(steps_done)
        try:
            return self._read(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {in_words(error)}", fix=_what_is_left(path)) from None

    def _read(self, path: Path) -> Manifest:
        manifest = Manifest.read(path)
        if path.name != self._path(manifest.steps_done).name:
            raise ValueError(f"it is that of step {manifest.steps_done}")
        if manifest.plan_hash != self.plan_hash:
            raise UserError(f"{path} was written by another plan", fix="restore the plan.json that began the run")
        return manifest

    def _tensors(self, manifest: Manifest, names: list[str]) -> dict[str, dict[str, Tensor]]:
        path = self._path(manifest.steps_done)
        problem = manifest.damage(path, names)
        try:
            loaded = {} if problem else {name: load_file(path / name) for name in names}
        except SafetensorError as error:
            problem = str(error)
        if problem:
            raise UserError(f"{path} is damaged: {problem}", fix=_what_is_left(path))
        return loaded

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("step_*"))

    def _path(self, steps_done: int) -> Path:
        return self.folder / f"step_{steps_done:010d}"


def _of_rank(rank: int) -> str:
    return f"rank_{rank}.safetensors"


def _position_of(rank: int) -> str:
    return f".position_{rank}.json"


def _write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a file of tensors; a full disk is the same `OSError` as for every other file."""
    try:
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number.group(1))
        raise OSError(code, os.strerror(code), str(path)) from None


def _hidden(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}{ending}")


def _is_kept(path: Path) -> bool:
    try:
        return Manifest.read(path).keep
    except (OSError, ValueError):
        return False


def _what_is_left(path: Path) -> str:
    return f"remove {path} and go on with `graphmill train --resume {path.parent.parent}`: earlier checkpoints are used"
