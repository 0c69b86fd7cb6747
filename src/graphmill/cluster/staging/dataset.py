"""What there is to copy of a prepared dataset: its files, their sizes and checksums; of a graph in parts, a share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphmill.base.errors import UserError
from graphmill.graph.header import FILE_NAME, ArrayRecord, Header, read_header
from graphmill.record.staged import LABEL_ARRAYS, LABELS, Share, staged_name

if TYPE_CHECKING:
    from graphmill.partition.metadata import PartsMetadata


@dataclass(frozen=True, slots=True)
class Dataset:
    """A prepared dataset, as its folder is now."""

    folder: Path
    name: str
    checksum: str
    sizes: dict[str, int]  # relative path → bytes
    xxh3: dict[str, str]  # of those that metadata.json has a checksum of
    share: Share | None = None  # of what there is; None: all of it

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())

    def copy_in(self, root: Path) -> Path:
        """Path of the copy below `root`."""
        return root / staged_name(self.name, self.checksum, self.share)


def read_dataset(folder: Path, share: Share | None = None) -> Dataset:
    """What there is to copy in `folder`. `UserError` if it is not a prepared dataset, or not whole.

    `share`: of a graph in parts, what is to be copied. What else `folder` has, or lacks, does not matter then.
    """
    metadata = read_header(folder)
    if share is None and "parts_version" in metadata.kind_fields:
        _refuse_some_parts(folder)
    arrays = metadata.arrays if share is None else _arrays_of(folder, share)
    found = (
        sorted(_files(folder)) if share is None else [folder / FILE_NAME, *(folder / f"{name}.npy" for name in arrays)]
    )
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in found if file.is_file()}
    for name, record in arrays.items():
        if sizes.get(f"{name}.npy") != record.bytes:
            there = f"{sizes[f'{name}.npy']} bytes" if f"{name}.npy" in sizes else "missing"
            raise UserError(
                f"{folder}/{name}.npy: {there}, and should have {record.bytes} bytes", fix=_again(folder, metadata)
            )
    known = {f"{name}.npy": record.xxh3 for name, record in arrays.items()}
    return Dataset(folder.resolve(), metadata.name, metadata.checksum, sizes, known, share)


def _again(folder: Path, metadata: Header) -> str:
    if "parts_version" not in metadata.kind_fields:
        return "prepare the dataset again: graphmill prepare NAME --force"
    from graphmill.partition.metadata import again, read_parts_metadata

    return again(read_parts_metadata(folder), folder)


def _refuse_some_parts(folder: Path) -> None:
    """Raise a `UserError` if only some of a graph in parts is here, as all of it is to be copied."""
    from graphmill.partition.metadata import read_parts_metadata
    from graphmill.partition.parts import parts_here

    known = read_parts_metadata(folder)
    here = parts_here(folder, known)
    if not here.holds(Share(tuple(range(known.num_parts)), whole_topology=True)):
        words = [*(f"--part {part}" for part in here.parts), *(["--topology"] if here.whole_topology else [])]
        raise UserError(
            f"{folder} is a copy of some parts: not all {known.num_parts} and the whole topology are there",
            fix=f"copy what is there: {' '.join(words)}; or name the folder that has all",
        )


def _refuse_absent(folder: Path, share: Share, metadata: "PartsMetadata") -> None:
    from graphmill.partition.parts import parts_here

    here = parts_here(folder, metadata)
    missing = [f"part {part}" for part in share.parts if part not in here.parts]
    missing += ["the whole topology"] if share.whole_topology and not here.whole_topology else []
    if missing:
        raise UserError(
            f"{folder} does not hold {', '.join(missing)}",
            fix="name the folder that has all parts, on the host where the graph was partitioned",
        )


def _arrays_of(folder: Path, share: Share) -> dict[str, ArrayRecord]:
    """The arrays of a graph that the share has."""
    from graphmill.partition.metadata import files_of, is_parts, read_parts_metadata

    if share == LABELS and not is_parts(folder):
        arrays = read_header(folder).arrays
        return {name: arrays[name] for name in LABEL_ARRAYS}
    metadata = read_parts_metadata(folder)
    unknown = [part for part in share.parts if part >= metadata.num_parts]
    if unknown:
        raise UserError(
            f"{folder} has {metadata.num_parts} parts, and no part {unknown[0]}",
            fix=f"--part 0 to --part {metadata.num_parts - 1}",
        )
    _refuse_absent(folder, share, metadata)
    return {
        name: metadata.arrays[name] for name in files_of(metadata, share.parts, whole_topology=share.whole_topology)
    }


def _files(folder: Path) -> list[Path]:
    """All files but hidden ones: those are marks and leftovers."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
