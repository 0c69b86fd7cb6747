"""Captures of ROAD as arrays: `can_id` [n], `data` [n, 8], `label` [n] in a .npz file, and perhaps `time` [n]."""

import logging
import zipfile
from pathlib import Path
from typing import Final

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.archive import refuse_inflated
from graphmill.graph.unused import tell_unused
from graphmill.tasks.intrusion.data.frames import EXTENDED, Frames

_log = logging.getLogger(__name__)
_NEEDED: Final = ("can_id", "data", "label")
_SHORT_IDS: Final = 0x800  # from here on an id has 29 bits
_LONG_IDS: Final = 1 << 29


def holds_frames(path: Path) -> bool:
    """Whether the file is an archive with these arrays."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return {f"{name}.npy" for name in _NEEDED} <= set(archive.namelist())


def read_npz(path: Path) -> Frames:
    """Read the frames of an archive, times NaN without `time`. `UserError` names what is wrong; nothing is executed."""
    try:
        with zipfile.ZipFile(path) as opened:
            refuse_inflated(path, opened.infolist())
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{path} cannot be read: {error}", fix=f"give an archive of {', '.join(_NEEDED)}") from error
    if missing := [name for name in _NEEDED if name not in arrays]:
        raise UserError(f"{path} lacks {', '.join(missing)}", fix=f"give an archive of {', '.join(_NEEDED)}")
    tell_unused(path.name, set(arrays) - {*_NEEDED, "time"})
    if "time" not in arrays:
        _log.info(f"{path.name} has no key time: latencies, alarms an hour and gaps between frames are not known")
    ids, data, label = (arrays[name] for name in _NEEDED)
    number = len(ids)
    time = arrays.get("time", np.full(number, np.nan))
    shapes = {
        "can_id": (ids, (number,)),
        "data": (data, (number, 8)),
        "label": (label, (number,)),
        "time": (time, (number,)),
    }
    for name, (array, shape) in shapes.items():
        if array.shape != shape or not np.issubdtype(array.dtype, np.number):
            raise UserError(f"{path}: {name} is {array.dtype} {array.shape}", fix=f"give numbers {shape}")
    bounds = {"can_id": (ids, 0, _LONG_IDS - 1), "data": (data, 0, 255), "label": (label, 0, 1)}
    for name, (array, least, most) in bounds.items():
        wrong = ~((array >= least) & (array <= most) & (array == np.floor(array)))
        if wrong.any():
            row = int(np.flatnonzero(wrong.reshape(number, -1).any(axis=1))[0])
            raise UserError(
                f"{path}: row {row} of {name} is {array[row]}", fix=f"give whole numbers of {least} to {most}"
            )
    identity = ids.astype(np.uint32)
    identity = np.where(identity >= _SHORT_IDS, identity | EXTENDED, identity).astype(np.uint32)
    return Frames(
        time.astype(np.float64),
        identity,
        np.ascontiguousarray(data.astype(np.uint8)),
        np.full(number, 8, np.uint8),
        label.astype(np.int8),
    )
