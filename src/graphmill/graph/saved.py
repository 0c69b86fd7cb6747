"""Read what `torch.save` wrote without executing it, and without torch: arrays, tensors, and PyG's `Data` of them.

As in `pickled.py` only a handful of names is admitted, and these are stand-ins: the file calls nothing of torch, numpy
or PyG. Tensors are read in the zip format (torch 1.6 and newer), arrays of numpy also in the one before.
"""

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import refuse_inflated
from graphmill.graph.pickled import UNPICKLABLE, PickledArray, Restricted

_LEGACY: Final = 0x1950A86A20F9469CFC6C  # with what torch.save began a file before version 1.6
_STORAGES: Final = {
    "BoolStorage": "?",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
}
_INERT: Final = {
    "torch_geometric.data.data": ("Data", "DataEdgeAttr", "DataTensorAttr"),
    "torch_geometric.data.storage": ("GlobalStorage", "AttrType"),
}
_MOST_BYTES: Final = 8 << 30
_FIX: Final = "write the arrays with numpy.savez, and give the .npz"


class SavedObject:
    """An object of a class that is not here: its attributes, for inspection."""

    def __init__(self, *_: object) -> None:
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise TypeError(f"an object whose state is a {type(state).__name__}")
        self.state = state


def read_saved(path: Path, *, max_bytes: int) -> Any:  # noqa: ANN401  # the callers check its type
    """What is saved in `path`: containers, numbers, strings, `numpy.ndarray`, `PickledArray` and `SavedObject`.

    Raises one of `pickled.UNPICKLABLE`, or a `UserError`, if it is larger than `max_bytes`, damaged, or names anything
    else.
    """
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(f"{size} bytes, and at most {max_bytes} are read")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            refuse_inflated(path, archive.infolist())
            name = next((each for each in archive.namelist() if each.endswith("data.pkl")), None)
            if name is None:
                raise ValueError("it has no data.pkl")
            return _Saved(io.BytesIO(archive.read(name)), archive, name.removesuffix("data.pkl")).load()
    with path.open("rb") as file:
        first = Restricted(file, encoding="latin1").load()
        if first != _LEGACY:
            return first
        for _ in range(2):  # the version of the format, and of what wrote it
            Restricted(file, encoding="latin1").load()
        return Restricted(file, encoding="latin1").load()


def data_of(saved: object) -> dict[str, Any] | None:
    """What a saved `Data` of PyG holds, by name; None if it is none."""
    store = saved.state.get("_store") if isinstance(saved, SavedObject) else None
    held = store.state.get("_mapping") if isinstance(store, SavedObject) else None
    return held if isinstance(held, dict) else None


def array_of(value: object) -> NDArray[Any]:
    """An array or tensor, or a number, as an array of numbers. Raises one of `pickled.UNPICKLABLE` otherwise."""
    found = value.resolve() if isinstance(value, PickledArray) else np.asarray(value)
    if found.dtype.kind not in "iufb":
        raise TypeError(f"a {type(value).__name__} where numbers should be")
    return found


class _Saved(Restricted):
    """Tensors are arrays, copied out of the members of the archive that hold their storages."""

    def __init__(self, file: IO[bytes], archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file, encoding="latin1")
        self._archive, self._folder = archive, folder
        order = f"{folder}byteorder"
        self._order = ">" if order in archive.namelist() and archive.read(order).strip() == b"big" else "<"

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # overrides pickle's own signature
        if module == "torch" and name in _STORAGES:
            return name  # never called: it stands in a persistent id
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) in {("builtins", "set"), ("__builtin__", "set")}:
            return set
        return SavedObject if name in _INERT.get(module, ()) else super().find_class(module, name)

    def persistent_load(self, pid: Any) -> tuple[str, str, int]:  # noqa: ANN401  # overrides pickle's own signature
        kind, storage, key, _, count = pid
        if kind != "storage" or storage not in _STORAGES or not isinstance(count, int):
            raise ValueError(f"it asks for {kind} {storage}")
        return storage, str(key), count

    def _tensor(self, storage: tuple[str, str, int], offset: int, size: Any, stride: Any, *_: object) -> NDArray[Any]:  # noqa: ANN401
        kind, key, count = storage
        dtype = np.dtype(f"{self._order}{_STORAGES[kind]}" if kind != "BoolStorage" else "?")
        size, stride = tuple(map(int, size)), tuple(map(int, stride))
        last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        if min((offset, *size, *stride)) < 0 or (0 not in size and (last >= count or math.prod(size) > count)):
            raise ValueError(f"a tensor {list(size)} in a storage of {count} numbers")
        raw = self._archive.read(f"{self._folder}data/{key}")
        if len(raw) < count * dtype.itemsize:
            raise EOFError(f"{len(raw)} bytes of {count} numbers")
        flat = np.frombuffer(raw, dtype=dtype, count=count)
        if 0 in size:
            return np.empty(size, dtype=dtype.newbyteorder("="))
        steps = tuple(step * dtype.itemsize for step in stride)
        view = np.lib.stride_tricks.as_strided(flat[offset:], size, steps, writeable=False)
        return np.array(view, dtype=dtype.newbyteorder("="), order="C")


def read_saved_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays, or tensors, of a dict by their names; `UserError` if the file holds anything else."""
    found = _read(path)
    if not isinstance(found, dict):
        raise UserError(f"{path} holds a {type(found).__name__}, not a dict of arrays", fix=_FIX)
    return arrays_in(found, found.keys(), path)


def read_saved_data(path: Path) -> dict[str, Any]:
    """What a `Data` of PyG holds by name, tensors as arrays; `UserError` if the file holds anything else."""
    found = data_of(_read(path))
    if found is None:
        raise UserError(
            f"{path} holds no Data of PyG", fix="save the three Data of RandomLinkSplit, of a graph with one edge type"
        )
    return found


def arrays_in(saved: Mapping[Any, Any], names: Any, path: Path) -> dict[str, NDArray[Any]]:  # noqa: ANN401  # of names
    """Arrays of numbers under those of these names that are there."""
    arrays = {}
    for name in names:
        if saved.get(name) is None:
            continue
        try:
            arrays[str(name)] = array_of(saved[name])
        except UNPICKLABLE as error:
            raise UserError(f"{path}, key {name}: {error}", fix=_FIX) from error
    return arrays


def _read(path: Path) -> Any:  # noqa: ANN401  # the callers check its type
    try:
        return read_saved(path, max_bytes=_MOST_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", fix="give the folder that holds it with --from") from None
    except UNPICKLABLE as error:
        raise UserError(
            f"{path} cannot be read, and whatever is no array or tensor could run code: {error}", fix=_FIX
        ) from error
