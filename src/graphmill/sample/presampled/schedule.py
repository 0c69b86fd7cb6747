"""A folder of presampled epochs: `schedule.json`, which says what they depend on, and a file for each epoch.

schedule.json
epoch_00000.schedule
epoch_00001.schedule
…
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import xxhash
from pydantic import ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.config.frozen import Spec
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, Sampled, Seeds
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.presampled.epoch_file import EpochHeader, EpochReader, damaged, writing
from graphmill.sample.presampled.packing import Form
from graphmill.sample.schedule import SeedSchedule

FILE_NAME: Final = "schedule.json"
_FORMAT: Final = 1
_EPOCH_FILE: Final = re.compile(r"epoch_([0-9]{5,9})\.schedule", re.ASCII)


class ScheduleIdentity(Spec):
    """All that sampled neighbourhoods depend on. Two schedules with the same identity are bit-identical."""

    format_version: Literal[1] = _FORMAT
    data: str  # checksum of the prepared data
    num_train: int
    undirected: bool
    seed: int
    num_neighbors: tuple[int, ...]
    batch_size: int
    ranks: int
    seeds: str  # which rank has which seeds: "equal", or by owner, with the checksum of the parts
    resample: bool
    edge_ids: bool

    def batches_are_cut_from(self, other: "ScheduleIdentity") -> bool:
        """Whether its batches are other cuts of the other's global batches, which hold all draws that they need."""
        at_once = (self.batch_size * self.ranks, other.batch_size * other.ranks)
        return self.resample and at_once[0] == at_once[1] and not set(differing(self, other)) - OF_THE_CUT

    @property
    def checksum(self) -> str:
        """Checksum of the whole identity."""
        return xxhash.xxh3_64_hexdigest(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode())


KEY_OF: Final[Mapping[str, str]] = {
    "data": "the checksum of the data (dataset.name)",
    "num_train": "the number of training nodes (dataset.train_limit)",
    "undirected": "dataset.undirected",
    "seed": "train.seed",
    "num_neighbors": "train.num_neighbors",
    "batch_size": "train.batch_size",
    "ranks": "train.ranks",
    "seeds": "the assignment of seeds to ranks",
    "resample": "resampling at every hop (model.kind)",
    "edge_ids": "edge ids (dataset.edge_features)",
}
"""How a person finds what differs."""
OF_THE_CUT: Final = frozenset({"batch_size", "ranks", "seeds"})
"""What decides how a global batch is cut among ranks."""


def differing(one: ScheduleIdentity, other: ScheduleIdentity) -> list[str]:
    """Names of the fields in which two schedules differ."""
    return [name for name in KEY_OF if getattr(one, name) != getattr(other, name)]


@dataclass(frozen=True, slots=True)
class PresampledFolder:
    """The epochs in a folder, of one identity."""

    path: Path
    identity: ScheduleIdentity
    form: Form
    num_steps: int  # of an epoch

    def header(self, epoch: int) -> EpochHeader:
        """What the file of an epoch begins with."""
        return EpochHeader(epoch, self.num_steps, self.identity.ranks, self.identity.checksum, self.form)

    def file(self, epoch: int) -> Path:
        """Where an epoch is."""
        return self.path / f"epoch_{epoch:05d}.schedule"

    def has(self, epoch: int) -> bool:
        """Whether an epoch is there, whole. A file that is damaged counts as absent, and is made again."""
        if not self.file(epoch).is_file():
            return False
        try:
            EpochReader.open(self.file(epoch), self.header(epoch)).close()
        except UserError:
            return False
        return True

    def write(self, epoch: int, schedule: SeedSchedule, sampler: WholeSampler, tell: Callable[[int, int], None]) -> int:
        """Sample an epoch and write its file; bytes. `tell`: called after each step with steps and bytes so far."""
        with writing(self.file(epoch), self.header(epoch)) as writer:
            for step in range(self.num_steps):
                for rank in range(self.identity.ranks):
                    writer.add(sampler.sample(schedule.seeds(epoch, step, rank)))
                tell(step + 1, writer.file.tell())
        return self.file(epoch).stat().st_size

    def begin(self) -> None:
        """Make the folder, or go on with one of the same identity; `UserError` for another's, and for other files."""
        if (self.path / FILE_NAME).exists():
            refuse_other(self.path, self.identity)
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise UserError(f"{self.path} holds other files", fix="give an empty or new folder with --output")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be made: {error.strerror}", fix="give another --output") from None
        write_json(self.path / FILE_NAME, self.identity.model_dump(mode="json"))


def epochs_in(folder: Path) -> dict[int, Path]:
    """The files of a folder by epoch, counted from 0. Whether they are damaged is not looked at."""
    found = {file: _EPOCH_FILE.fullmatch(file.name) for file in sorted(folder.iterdir())}
    return {int(name[1]): file for file, name in found.items() if name is not None}


def verify_epochs(folder: Path) -> None:
    """Read everything and compare it with its checksums. `UserError` for a file that is damaged, or another's."""
    identity = read_identity(folder)
    for epoch, path in epochs_in(folder).items():
        header = EpochHeader.of(path)
        if (header.epoch, header.num_ranks, header.schedule) != (epoch, identity.ranks, identity.checksum):
            raise damaged(path, "its header is that of another schedule, or epoch")
        with closing(EpochReader.open(path, header)) as reader:
            reader.verify()


def is_presampled(folder: Path) -> bool:
    """Whether a folder says that it holds presampled epochs."""
    return (folder / FILE_NAME).is_file()


def identity_to_read(folder: Path, wanted: ScheduleIdentity) -> ScheduleIdentity:
    """What a folder was sampled with, if a run that wants `wanted` can read it: for its ranks, or cut for others.

    Else a `UserError` with both values.
    """
    found = read_identity(folder)
    if not wanted.batches_are_cut_from(found):
        refuse_other(folder, wanted, found)
    return found


def refuse_other(folder: Path, wanted: ScheduleIdentity, known: ScheduleIdentity | None = None) -> None:
    """Raise a `UserError` with both values unless the folder is of this identity. `known`: its own, if it was read."""
    known = read_identity(folder) if known is None else known
    names = differing(known, wanted)
    if not names:
        return
    several = ", ".join(
        f"{KEY_OF[name]} is {_text(getattr(wanted, name))} here and {_text(getattr(known, name))} there"
        for name in names
    )
    raise UserError(
        f"{folder} was presampled for another run: {several}{_why_not_cut(wanted, known, names)}",
        fix="presample for this run: graphmill presample with the same options and another --output",
    )


def _why_not_cut(wanted: ScheduleIdentity, known: ScheduleIdentity, names: list[str]) -> str:
    """Where only the cut of global batches differs: why they cannot be cut for these ranks."""
    if set(names) - OF_THE_CUT:
        return ""
    at_once = [each.batch_size * each.ranks for each in (wanted, known)]
    if at_once[0] != at_once[1]:
        return f"; a global batch has {at_once[0]} seeds here and {at_once[1]} there, and only the same can be cut anew"
    return "; without resampling at every hop (graphsage has it) draws depend on what else is in a rank's batch"


def read_identity(folder: Path) -> ScheduleIdentity:
    """Identity of a folder's epochs. `UserError` if it is not a folder of presampled epochs."""
    path = folder / FILE_NAME
    try:
        return ScheduleIdentity.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UserError(
            f"{folder} holds no presampled schedule: {FILE_NAME} is missing",
            fix=f"graphmill presample EXPERIMENT --output {folder}",
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"is damaged: {first['msg']}"
        if first["loc"] == ("format_version",):
            problem = f"has format {first['input']!r}, and this graphmill reads {_FORMAT}"
        raise UserError(f"{path} {problem}", fix="presample again, into another --output") from None


@dataclass(frozen=True, slots=True)
class EpochSource:
    """How the epochs of a plan are sampled, as a kind says it (`Sampling.presample`)."""

    identity: ScheduleIdentity
    form: Form
    num_steps: int
    schedule: SeedSchedule
    sampler: Callable[[], WholeSampler]  # made when it is needed: it reads the whole topology

    def folder(self, path: Path) -> PresampledFolder:
        """The folder `path` as this plan's."""
        return PresampledFolder(path, self.identity, self.form, self.num_steps)


@dataclass(slots=True)
class PresampledReader:
    """Reads what is in a folder; the file of the latest epoch stays open."""

    folder: PresampledFolder
    _open: EpochReader | None = field(default=None, init=False, repr=False)

    def read(self, epoch: int, step: int, rank: int) -> Sampled:
        """What was sampled for a rank; `UserError` if the epoch is not there, or is damaged."""
        if self._open is None or self._open.header.epoch != epoch:
            if self._open is not None:
                self._open.close()
            self._open = self._opened(epoch)
        return self._open.read(step, rank)

    def _opened(self, epoch: int) -> EpochReader:
        path = self.folder.file(epoch)
        try:
            return EpochReader.open(path, self.folder.header(epoch))
        except FileNotFoundError:
            raise missing(self.folder.path, [epoch]) from None


@dataclass(slots=True)
class PresampledSampler:
    """What `WholeSampler` samples, read from a folder: bit-identical, for the seeds of one rank."""

    folder: PresampledFolder
    rank: int
    _reader: PresampledReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._reader = PresampledReader(self.folder)

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of this rank's seeds of an epoch and a step."""
        if isinstance(seeds, EvaluationSeeds):
            raise TypeError("an evaluation is not presampled")
        found = self._reader.read(seeds.epoch, seeds.step, self.rank)
        if not np.array_equal(found.seeds.ids, seeds.ids):
            raise other_seeds(self.folder, seeds, self.rank)
        return found


def other_seeds(folder: PresampledFolder, seeds: Seeds, rank: int) -> UserError:
    """The error of a rank whose seeds were not sampled."""
    return UserError(
        f"{folder.file(seeds.epoch)}: other seeds at step {seeds.step}, rank {rank}",
        fix="presample again, into another --output",
    )


def missing(folder: Path, epochs: list[int]) -> UserError:
    """The error of a run that wants epochs that are not there."""
    others = f" and {len(epochs) - 1} more" if len(epochs) > 1 else ""
    return UserError(
        f"{folder} does not hold epoch {epochs[0]}{others}, which the run trains",
        fix=f"graphmill presample with the run's options and --output {folder}: what is there is kept",
    )


def refuse_missing(folder: PresampledFolder, num_epochs: int) -> None:
    """Raise a `UserError` unless the first `num_epochs` epochs are there."""
    absent = [epoch for epoch in range(num_epochs) if not folder.file(epoch).is_file()]
    if absent:
        raise missing(folder.path, absent)


def _text(value: Any) -> str:  # noqa: ANN401  # whatever an identity holds
    return str(list(value) if isinstance(value, tuple) else value)


def epochs_to_write(folder: PresampledFolder, num_epochs: int) -> Iterator[int]:
    """Epochs below `num_epochs` that are not in the folder, in order."""
    return (epoch for epoch in range(num_epochs) if not folder.has(epoch))
