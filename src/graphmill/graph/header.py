"""metadata.json of prepared data of any task: one header for all, and the kind's own part after it.

The header has what staging, `verify`, `datasets` and a launch over SSH need, whatever was prepared; only the task that
opens the data reads the rest. Nothing here imports numpy.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast

import xxhash
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.json_text import parse_json

FILE_NAME: Final = "metadata.json"
_MAX_BYTES: Final = 2**24
_NOT_CONTENT: Final = {"kind", "created_by", "checksum"}  # fields that the checksum does not cover
_VERSIONS: Final = {"format_version": "prepare NAME --force", "parts_version": "partition NAME --force"}


Expected = dict[str, tuple[str, tuple[int, ...]]]
"""dtype and shape of every array, by name."""


class ArrayRecord(BaseModel):
    """What metadata.json knows about one file."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    dtype: str
    shape: tuple[int, ...]
    bytes: int = Field(ge=0, description="size of the whole file")
    xxh3: str = Field(pattern="^[0-9a-f]{32}$", description="xxh3-128 of the whole file")


def _inside(name: str) -> str:
    """Return a path that stays in the folder, else raise ValueError: copies read, and write, what it names."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} leads out of the folder")
    return name


class Header(BaseModel):
    """What all prepared data say about themselves, whatever their task. A task's own class adds its own part."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    came_later: ClassVar[tuple[str, ...]] = ()
    """Fields that are left out where they have their default: checksums of earlier stores were computed without."""

    kind: str = Field(description="the task that prepared it, as task.kind says it")
    name: str
    checksum: str = Field("", description="xxh3-128 of all the rest except kind and created_by, the files' included")
    synthetic: bool
    arrays: dict[Annotated[str, AfterValidator(_inside)], ArrayRecord] = Field(
        description="by name; the file is <name>.npy"
    )
    created_by: str = Field(default_factory=lambda: f"graphmill {graphmill.__version__}")

    @model_serializer(mode="wrap")
    def _without_what_is_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise without fields that were added to the format later and have their defaults."""
        known: dict[str, Any] = handler(self)
        for name in self.came_later:
            if getattr(self, name) == type(self).model_fields[name].default:
                known.pop(name, None)
        return known

    @property
    def kind_fields(self) -> Mapping[str, Any]:
        """The kind's own part, as it is in the file; empty if a task's own class has read it."""
        return self.model_extra or {}

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(record.bytes for record in self.arrays.values())

    def expected_arrays(self) -> Expected | None:
        """What the arrays must be, by a task's own part; None: it does not say."""
        return None

    def disagreement(self) -> str | None:
        """What does not fit together, or is not what the task writes; None: all fits. Own parts may add to it."""
        expected = self.expected_arrays()
        found = {name: (record.dtype, record.shape) for name, record in self.arrays.items()}
        return None if expected in (None, found) else f"arrays are {found}, and should be {expected}"

    def content_checksum(self) -> str:
        """Checksum that `checksum` must be equal to."""
        content = self.model_dump(mode="json", exclude=_NOT_CONTENT)
        return xxhash.xxh3_128(json.dumps(content, sort_keys=True).encode()).hexdigest()


M = TypeVar("M", bound=Header)


def seal(metadata: M) -> M:
    """Return a copy of the metadata with its checksum filled in."""
    return metadata.model_copy(update={"checksum": metadata.content_checksum()})


def write_metadata(folder: Path, metadata: Header) -> None:
    """Write metadata.json, the header first."""
    text = json.dumps(metadata.model_dump(mode="json"), indent=2, allow_nan=False)
    write_text(folder / FILE_NAME, text + "\n")


def read_header(folder: Path) -> Header:
    """The header of the prepared data in `folder`, checked against its own checksum. `UserError` if it is not one."""
    return _checked(folder / FILE_NAME, Header)


def read_metadata(folder: Path, model: type[M], kind: str) -> M:
    """The header and the own part of data of the task `kind`; other data are refused with their task's name."""
    path = folder / FILE_NAME
    raw = _read_json(path)
    if raw["kind"] != kind:
        raise UserError(
            f"{folder} holds data of the task {raw['kind']}, and the task is {kind}",
            fix=f"set task.kind={raw['kind']}, or name other data: `graphmill datasets` lists what is prepared",
        )
    return _checked(path, model)


def is_prepared(folder: Path) -> bool:
    """Whether there are prepared data, whole or damaged."""
    return (folder / FILE_NAME).is_file()


def prepared_in(root: Path) -> Iterator[tuple[Path, Header]]:
    """All prepared data below `root` whose header is whole, by path; no parts, and nothing that killed writers left."""
    for path in sorted(root.glob(f"**/{FILE_NAME}")):
        if any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        try:
            header = read_header(path.parent)
        except UserError:
            continue  # not ours, or damaged: `inspect` says how
        if "parts_version" not in header.kind_fields:  # else a dataset once more, split
            yield path.parent, header


def damaged(path: Path, problem: str) -> UserError:
    """The error of a file of prepared data that is not what was written there."""
    return UserError(f"{path}: {problem}", fix="prepare the dataset again: graphmill prepare NAME --force")


def _checked(path: Path, model: type[M]) -> M:
    raw = _read_json(path)
    for name in model.model_fields.keys() & _VERSIONS.keys():
        if raw.get(name) != (wanted := model.model_fields[name].default):
            raise UserError(
                f"{path}: {name.replace('_', ' ')} {raw.get(name)!r}, and this graphmill reads {wanted}",
                fix=f"use the graphmill that wrote it, or make the data again: graphmill {_VERSIONS[name]}",
            )
    try:
        metadata = model.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise damaged(path, problems) from None
    if metadata.checksum != metadata.content_checksum():
        raise damaged(path, f"its checksum is {metadata.content_checksum()}, and it says {metadata.checksum!r}")
    if problem := metadata.disagreement():
        raise damaged(path, problem)
    return metadata


def _read_json(path: Path) -> dict[str, Any]:
    try:
        num_bytes = path.stat().st_size
        if num_bytes > _MAX_BYTES:
            raise damaged(path, f"{num_bytes} bytes are too many for metadata (at most {_MAX_BYTES})")
        raw = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path.parent} holds no prepared data: it has no {FILE_NAME}",
            fix="prepare the dataset: graphmill prepare NAME (graphmill datasets lists the names)",
        ) from None
    except (OSError, ValueError) as error:
        raise damaged(path, f"it cannot be read as JSON: {error}") from error
    if not isinstance(raw, dict):
        raise damaged(path, f"it holds a {type(raw).__name__}, not an object")
    if "kind" not in raw:
        raise damaged(path, "it does not name the task that prepared it (kind)")
    return cast("dict[str, Any]", raw)
