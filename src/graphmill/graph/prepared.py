"""Prepared data of any task, opened: a folder of arrays that their metadata declare and vouch for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from graphmill.graph.arrays import check_arrays, check_checksums, map_array
from graphmill.graph.header import Header, read_metadata, seal, write_metadata
from graphmill.graph.write import new_store, write_all


@dataclass(frozen=True, slots=True)
class PreparedStore:
    """Each access to an array maps its file again, which is cheap; keep what you read often."""

    path: Path
    metadata: Header

    kind: ClassVar[str]
    """The task, as its page calls itself."""
    own_part: ClassVar[type[Header]]
    """The class of `metadata`; its `expected_arrays` say what there is."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the folder `path` after checking metadata and the sizes, dtypes and shapes of all files.

        Contents are read only of files that changed since they were prepared: `verify` reads all.
        """
        metadata = read_metadata(path, cls.own_part, cls.kind)
        check_arrays(path, metadata.arrays)
        return cls(path, metadata)

    @classmethod
    def write(cls, path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Header) -> Self:
        """Write the folder `path`, whole or not at all; an existing store is replaced.

        `metadata`: without records of the arrays, which are made here.
        """
        with new_store(path) as folder:
            sealed = seal(metadata.model_copy(update={"arrays": write_all(folder, arrays)}))
            write_metadata(folder, sealed)
        return cls(path, sealed)

    def verify(self) -> None:
        """Read everything and compare checksums. `UserError` names the first breach."""
        check_checksums(self.path, self.metadata.arrays)

    def array(self, name: str) -> NDArray[Any]:
        """An array of the store, mapped."""
        return map_array(self.path / f"{name}.npy", self.metadata.arrays[name])
