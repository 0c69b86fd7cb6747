"""Prepared assignment problems, and files of them, for several tests."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from graphmill.tasks.assignment.data.prepare import prepare_requested
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.page.data import GENERATED, AssignmentPrepareOptions
from graphmill.tasks.stores import Preparation


def prepared(root: Path, *sources: Path, name: str = "mine", force: bool = False, **options: Any) -> AssignmentStore:
    """As `graphmill prepare` does it; generated where there is no source."""
    first, *more = sources or (None,)
    asked = Preparation(
        GENERATED if first is None else name,
        root,
        AssignmentPrepareOptions(**options),
        first,
        save_as=name,
        force=force,
        more_paths=tuple(more),
    )
    return prepare_requested(asked)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def as_the_seed_writes_it(path: Path, store: AssignmentStore, ids: list[int]) -> None:
    """The same layout by other code: plain vlen datasets, no compression, none of our own keys."""
    variable, text = h5py.vlen_dtype(np.float64), h5py.string_dtype("utf-8")
    with h5py.File(path, "w") as file:
        datasets = {key: file.create_dataset(key, (len(ids),), dtype=variable) for key in ("C", "u", "v")}
        pairs = h5py.vlen_dtype(np.int32)
        datasets |= {key: file.create_dataset(key, (len(ids),), dtype=pairs) for key in ("rows", "cols")}
        for key, dtype in (("cost", "f8"), ("n", "i4"), ("noise_std", "f4"), ("family", text), ("tag", text)):
            datasets[key] = file.create_dataset(key, (len(ids),), dtype=dtype)
        file.attrs["records"] = len(ids)
        for at, each in enumerate(ids):
            u, v = store.u(each), store.v(each)
            shift = (u.mean() + v.mean()) / 2  # another gauge
            columns = store.columns(each)
            values = {
                **{"C": store.cost(each).ravel(), "u": u + shift, "v": v - shift},
                **{"rows": np.flatnonzero(columns >= 0), "cols": columns[columns >= 0]},
                **{"cost": store.optimum(each), "n": len(u), "noise_std": 0.0},
                **{"family": store.family(each), "tag": store.tag(each)},
            }
            for key, value in values.items():
                datasets[key][at] = value
