"""Checkpoints: whole or absent, checked when read, never executed.

    checkpoints/step_0000000118/
        model.safetensors       the weights: portable, with their origin (`record.weights`); one copy, for replicas
                                agree wherever a checkpoint is taken
        rank_<r>.safetensors    resume state, which may differ between ranks: optimizer moments, the scheme's tensors
        manifest.json           positions of the ranks; written last, with the checksums of the others: without it there
                                is no checkpoint

The folder is filled under a hidden name and renamed when its manifest is durable; it is renamed to a hidden name
before it is removed. So a checkpoint under a plain name that is not whole was damaged from outside, and is reported.
Which checkpoint is the latest or the best is read from manifests, never from names or times.

A checkpoint is taken after a sync, so weights and the outer step's tensors are the same on all ranks, and no gradient
is under way. For another number of ranks what may differ by rank is averaged: moments of optimizers that updated alone
(local SGD). Where ranks are alike, as after an all-reduce of gradients, the mean in float64 is exactly what each had.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.files import fsync_file, fsync_folder, write_json
from graphmill.base.retries import insist, is_there, make_folder, remove_file, remove_folder, retried
from graphmill.nn.weights import Weights, read_tensors, write_tensors
from graphmill.record.documents import json_of
from graphmill.record.manifest import Manifest, Position, checkpoint_folders, error_text, file_checksum
from graphmill.record.weights import WEIGHTS_FILE, checkpoint_name, furthest_whole, read_checkpoint
from graphmill.sync.group import Group

_MAKING, _REMOVING, _REPLACED = ".making", ".removing", ".replaced"  # suffixes of hidden names


def merged(states: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One state for all: the mean of tensors; of counts, which differ by steps without seeds, the largest."""
    totals: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    num_states = 0
    for state in states:
        num_states += 1
        for name, tensor in state.items():
            dtypes[name] = tensor.dtype
            if name not in totals:
                totals[name] = tensor.clone() if _is_count(tensor) else tensor.double()
            elif _is_count(tensor):
                totals[name] = torch.maximum(totals[name], tensor)
            else:
                totals[name] += tensor
    return {
        name: total if _is_count(total) else (total / num_states).to(dtypes[name]) for name, total in totals.items()
    }


def position_of(positions: Sequence[Position], rank: int) -> Position:
    """Position of `rank` where others wrote `positions` [num_writers]: rank 0 takes over what all had summed up."""
    first = positions[0]
    loss_sum = math.fsum(position.books.loss_sum for position in positions) if rank == 0 else 0.0
    return first.model_copy(update={"books": first.books.model_copy(update={"loss_sum": loss_sum})})


def _is_count(tensor: Tensor) -> bool:
    return tensor.dim() == 0 or not tensor.is_floating_point()


@dataclass(frozen=True, slots=True)
class ResumeState:
    """What one rank needs besides the weights to continue exactly; it is of use to this run alone."""

    tensors: dict[str, Tensor]  # of the optimizer and the scheme
    position: Position


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """The checkpoints of one run, written by all ranks together."""

    folder: Path
    plan_hash: str
    group: Group

    def save(self, weights: Weights, state: ResumeState, *, parameter_hash: int, keep: bool) -> None:
        """Write a checkpoint. All ranks must call it at the same step; when it returns, it is durable."""
        final = self._path(state.position.steps_done)
        making = _hidden(final, _MAKING)
        if self.group.rank == 0:
            remove_folder(making)
            make_folder(making)
            insist(lambda: fsync_folder(self.folder.parent))
        self.group.barrier()
        _write_durably(making / _of_rank(self.group.rank), partial(write_tensors, state.tensors))
        if self.group.rank == 0:
            _write_durably(making / WEIGHTS_FILE, weights.write)
        write_json(making / _position_of(self.group.rank), json_of(state.position))
        self.group.barrier()
        if self.group.rank == 0:
            self._seal(making, final, parameter_hash, keep=keep)
        self.group.barrier()

    def latest(self, report: Callable[[str, str], None]) -> Manifest | None:
        """The manifest of the whole checkpoint with the most steps; None: there is none. All ranks must call it.

        Rank 0 reads and decides. `report(name, problem)` is called for every damaged one that is skipped.
        """
        furthest = furthest_whole(self.folder, self.plan_hash, report) if self.group.rank == 0 else None
        steps = -1 if furthest is None else furthest.steps_done
        agreed = self.group.gather_numbers([steps])[0][0]
        return None if agreed < 0 else self._manifest(agreed)

    def load(self, steps_done: int, *, are_alike: bool = False) -> ResumeState:
        """Read back what this rank needs besides the weights, checksums first.

        If another number of ranks wrote it, all get what those had in common (see `train.recut`). `are_alike`: after a
        sync the tensors of all ranks are the same, so those of one are read.
        """
        manifest = self._manifest(steps_done)
        if manifest.world_size == self.group.world_size:
            return ResumeState(self._tensors(manifest, self.group.rank), manifest.positions[self.group.rank])
        writers = range(1 if are_alike else manifest.world_size)
        tensors = merged(self._tensors(manifest, writer) for writer in writers)
        return ResumeState(tensors, position_of(manifest.positions, self.group.rank))

    def _tensors(self, manifest: Manifest, writer: int) -> dict[str, Tensor]:
        path, name = self._path(manifest.steps_done), _of_rank(writer)
        problem = manifest.damage(path, [name])
        try:
            tensors = {} if problem else retried(path / name, read_tensors)
        except (OSError, SafetensorError) as error:
            problem = str(error)
        if problem:
            raise _damaged(path, problem)
        return tensors

    def load_weights(self, steps_done: int) -> Weights:
        """The weights of a checkpoint, checksum first; for any number of ranks."""
        path = self._path(steps_done)
        problem = self._manifest(steps_done).damage(path, [WEIGHTS_FILE])
        if problem:
            raise _damaged(path, problem)
        try:
            return Weights.read(path / WEIGHTS_FILE)
        except UserError as error:
            raise _damaged(path, error.message) from None

    def prune(self, needed: Iterable[int]) -> None:
        """Remove checkpoints except the `needed` ones (by steps_done) and those kept for good. Rank 0 only.

        A checkpoint that cannot be read or parsed is never removed.
        """
        names = {self._path(steps).name for steps in needed}
        for path in self._paths():
            if path.name not in names and _may_go(path):
                _rename(path, _hidden(path, _REMOVING))
                remove_folder(_hidden(path, _REMOVING))

    def remove_leftovers(self) -> None:
        """Remove what a killed writer left under hidden names; a checkpoint it was about to replace is put back.

        Rank 0 only, before anything is saved. Under any other hidden name it is not ours, and stays.
        """
        for hidden in insist(lambda: sorted(self.folder.glob(".step_*"))):
            if not hidden.name.endswith((_MAKING, _REMOVING, _REPLACED)):
                continue
            plain = hidden.with_name(hidden.name.removeprefix(".").removesuffix(_REPLACED))
            if hidden.name.endswith(_REPLACED) and not is_there(plain):
                _rename(hidden, plain)
            else:
                remove_folder(hidden)

    def _seal(self, making: Path, final: Path, parameter_hash: int, *, keep: bool) -> None:
        ranks = range(self.group.world_size)
        parts = [making / _position_of(rank) for rank in ranks]
        positions = tuple(Position.model_validate_json(retried(part, Path.read_bytes)) for part in parts)
        for part in parts:
            remove_file(part)
        manifest = Manifest(
            plan_hash=self.plan_hash,
            world_size=self.group.world_size,
            parameter_hash=f"{parameter_hash:016x}",
            positions=positions,
            files={name: file_checksum(making / name) for name in [WEIGHTS_FILE, *map(_of_rank, ranks)]},
            keep=keep,
        )
        manifest.write(making)
        replaced = _hidden(final, _REPLACED)
        if is_there(final):  # saved at this step before, in the middle of the round or by an earlier attempt
            _rename(final, replaced)
        _rename(making, final)
        insist(lambda: fsync_folder(self.folder))
        remove_folder(replaced)

    def _manifest(self, steps_done: int) -> Manifest:
        path = self._path(steps_done)
        try:
            return read_checkpoint(path, self.plan_hash)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {error_text(error)}", fix=_what_is_left(path)) from None

    def _paths(self) -> list[Path]:
        return checkpoint_folders(self.folder)

    def _path(self, steps_done: int) -> Path:
        return self.folder / checkpoint_name(steps_done)


def _write_durably(path: Path, write: Callable[[Path], None]) -> None:
    """`write(path)`, again from the start after an I/O error."""

    def act() -> None:
        write(path)
        fsync_file(path)

    insist(act)


def _rename(path: Path, target: Path) -> None:
    """Rename a folder, which a server may have done where its answer was lost."""

    def act() -> None:
        if path.exists() or not target.exists():
            path.rename(target)

    insist(act)


def _of_rank(rank: int) -> str:
    return f"rank_{rank}.safetensors"


def _position_of(rank: int) -> str:
    return f".position_{rank}.json"


def _hidden(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}{ending}")


def _may_go(path: Path) -> bool:
    try:
        return not Manifest.read(path).keep
    except (OSError, ValueError, UnreadableError):
        return False


def _damaged(path: Path, problem: str) -> UserError:
    return UserError(f"{path} is damaged: {problem}", fix=_what_is_left(path))


def _what_is_left(path: Path) -> str:
    return (
        f"remove {path} and continue with `graphmill train --resume {path.parent.parent}`: earlier checkpoints are used"
    )
