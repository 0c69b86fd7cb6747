"""Prepare a traffic store under the dataset root from raw readings, with or without a graph."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from graphmill.base.errors import UserError
from graphmill.tasks.stores import Preparation, store_path
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.read import Reading, read_traffic
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.page import LAYOUT, UNITS, TrafficPrepareOptions

_log = logging.getLogger(__name__)

GENERATED = "synthetic/traffic"
_OF_GENERATOR = ("num_sensors", "num_steps", "interval_s", "missing_share", "seed")
_OF_FILES = ("adjacency", "unit", "missing", "interval_s", "start")


def prepare_requested(preparation: Preparation) -> TrafficStore:
    """`prepare_traffic`, as the kind names it."""
    assert isinstance(preparation.options, TrafficPrepareOptions)
    return prepare_traffic(
        preparation.name,
        root=preparation.root,
        from_path=preparation.from_path,
        save_as=preparation.save_as,
        options=preparation.options.model_dump(exclude_unset=True, exclude_none=True),
        force=preparation.force,
    )


def prepare_traffic(
    name: str,
    *,
    root: Path,
    from_path: Path | None = None,
    save_as: str | None = None,
    options: Mapping[str, Any] | None = None,
    force: bool = False,
) -> TrafficStore:
    """Build the store `root/name` (or `root/save_as`), whole or not at all; an existing one is kept, unless `force`.

    `from_path`: LAYOUT, or a file of readings. `options` are those of `TrafficPrepareOptions` that are given: of files,
    or of the generator (`synthetic/traffic`).
    """
    given = dict(options or {})
    stored = save_as or name
    path = store_path(stored, root)
    if path.exists() and not force:
        store = TrafficStore.open(path)
        if from_path is not None or given:
            raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
        _log.info(f"{stored} is prepared already: {path}")
        return store
    is_generated = name == GENERATED
    if is_generated and from_path is not None:
        raise UserError(f"{name} is generated and reads nothing from {from_path}", fix="leave --from out")
    if not is_generated and from_path is None:
        raise UserError(f"{name} needs --from", fix=f"give --from PATH, where PATH is {LAYOUT}")
    takes = _OF_GENERATOR if is_generated else _OF_FILES
    if unknown := sorted(set(given) - set(takes)):
        what = "is generated" if is_generated else "is not generated"
        raise UserError(f"{name} {what} and takes no {', '.join(unknown)}", fix=f"its options are {', '.join(takes)}")
    raw = generate(stored, **given) if from_path is None else read_traffic(stored, from_path, _reading(name, given))
    return write_traffic(raw, path)


def _reading(name: str, given: Mapping[str, Any]) -> Reading:
    adjacency = given.get("adjacency")
    return Reading(
        adjacency=None if adjacency is None else Path(cast("str", adjacency)).expanduser(),
        unit=given.get("unit", UNITS.get(name, "")),
        missing=given.get("missing", "zeros"),
        interval_s=given.get("interval_s"),
        start=given.get("start"),
    )
