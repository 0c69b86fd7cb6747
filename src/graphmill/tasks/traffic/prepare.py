"""From raw readings and a road graph to a traffic store under the dataset root."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.base.errors import UserError
from graphmill.spec.kinds.traffic import LAYOUT, TrafficPrepareOptions
from graphmill.tasks.stores import Preparation, store_path
from graphmill.tasks.traffic.generate import generate
from graphmill.tasks.traffic.read import read_traffic
from graphmill.tasks.traffic.store import TrafficStore, write_traffic

_log = logging.getLogger(__name__)

GENERATED = "synthetic/traffic"


def prepare_asked(asked: Preparation) -> TrafficStore:
    """`prepare_traffic`, as the kind names it."""
    options = asked.options
    assert isinstance(options, TrafficPrepareOptions)
    return prepare_traffic(
        asked.name,
        root=asked.root,
        from_path=asked.from_path,
        adjacency_path=Path(options.adjacency).expanduser() if options.adjacency else None,
        save_as=asked.save_as,
        unit=options.unit,
        options=options.of_generator,
        force=asked.force,
    )


def prepare_traffic(
    name: str,
    *,
    root: Path,
    from_path: Path | None = None,
    adjacency_path: Path | None = None,
    save_as: str | None = None,
    unit: str = "mph",
    options: Mapping[str, Any] | None = None,
    force: bool = False,
) -> TrafficStore:
    """Build the store `root/name` (or `root/save_as`), whole or not at all; an existing one is kept, unless `force`.

    `from_path`: LAYOUT, or a file of readings, whose road graph is then `adjacency_path`. `options` are the generator's
    (`synthetic/traffic` only). `unit` is what the readings, and so all errors, are in.
    """
    stored = save_as or name
    path = store_path(stored, root)
    if path.exists() and not force:
        store = TrafficStore.open(path)
        if from_path is not None or options:
            raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
        _log.info(f"{stored} is prepared already: {path}")
        return store
    if name == GENERATED:
        if from_path is not None:
            raise UserError(f"{name} is generated and reads nothing from {from_path}", fix="leave --from out")
        raw = _generated(stored, name, options or {})
    elif from_path is None or options:
        what = "needs --from" if from_path is None else f"is not generated and takes no {', '.join(options or {})}"
        raise UserError(f"{name} {what}", fix=f"give --from PATH, where PATH is {LAYOUT}")
    else:
        raw = read_traffic(stored, from_path, adjacency_path, unit=unit)
    return write_traffic(raw, path)


def _generated(stored: str, name: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # RawTraffic
    known = {"num_sensors", "num_steps", "interval_s", "missing_share", "seed"}
    if unknown := sorted(set(options) - known):
        raise UserError(f"{name} takes no {', '.join(unknown)}", fix=f"its options are {', '.join(sorted(known))}")
    return generate(stored, **options)
