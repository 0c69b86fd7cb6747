"""What `torch.save` wrote: dicts of arrays, as OGB's splits are, and PyG's `Data`. Nothing in a file is executed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.pickled import UNPICKLABLE
from graphmill.graph.saved import array_of, data_of, read_saved

_MOST_BYTES: Final = 8 << 30
_FIX: Final = "write the arrays with numpy.savez, and give the .npz"


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


def arrays_in(found: Mapping[Any, Any], names: Any, path: Path) -> dict[str, NDArray[Any]]:  # noqa: ANN401  # of names
    """Arrays of numbers under those of these names that are there."""
    arrays = {}
    for name in names:
        if found.get(name) is None:
            continue
        try:
            arrays[str(name)] = array_of(found[name])
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
