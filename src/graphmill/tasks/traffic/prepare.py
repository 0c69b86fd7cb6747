"""From raw readings and a road graph to a traffic store under the dataset root."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.prepare import store_path
from graphmill.tasks.traffic.generate import generate
from graphmill.tasks.traffic.read import read_traffic
from graphmill.tasks.traffic.store import TrafficStore, is_traffic_store, write_traffic

GENERATED = "synthetic/traffic"
KNOWN: Final[dict[str, int | None]] = {"metr-la": 207, "pems-bay": 325, GENERATED: None}
"""Names that are traffic without saying so, and how many sensors they have; None: as asked."""
LAYOUT = (
    "a folder with one file of readings (metr-la.h5, pems-bay.h5, .npz or wide .csv) and one of the road graph"
    " (adj_mx.pkl, distances_*.csv beside graph_sensor_ids.txt, or .npz); or an .npz file that holds both"
)


def prepare_traffic(
    name: str,
    *,
    root: Path,
    from_path: Path | None = None,
    adjacency_path: Path | None = None,
    unit: str = "mph",
    options: Mapping[str, Any] | None = None,
    force: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> TrafficStore:
    """Build the store `root/name`, whole or not at all; one that is there is kept, unless `force`.

    `from_path`: LAYOUT, or a file of readings, whose road graph is then `adjacency_path`. `options` are the generator's
    (`synthetic/traffic` only). `unit` is what the readings, and so all errors, are in.
    """
    path = store_path(name, root)
    if path.exists() and not force:
        store = TrafficStore.open(path)
        if from_path is not None or options:
            raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
        say(f"{name} is prepared already: {path}")
        return store
    if name == GENERATED:
        if from_path is not None:
            raise UserError(f"{name} is generated and reads nothing from {from_path}", fix="leave --from out")
        raw = _generated(name, options or {})
    elif from_path is None or options:
        what = "needs --from" if from_path is None else f"is not generated and takes no {', '.join(options or {})}"
        raise UserError(f"{name} {what}", fix=f"give --from PATH, where PATH is {LAYOUT}")
    else:
        raw = read_traffic(name, from_path, adjacency_path, unit=unit, say=say)
    return write_traffic(raw, path)


def _generated(name: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # RawTraffic
    known = {"num_sensors", "num_steps", "interval_s", "missing_share", "seed"}
    if unknown := sorted(set(options) - known):
        raise UserError(f"{name} takes no {', '.join(unknown)}", fix=f"its options are {', '.join(sorted(known))}")
    return generate(name, **options)


def open_traffic(name: str, root: Path) -> TrafficStore:
    """The prepared dataset `name` under `root`, or the store at the path `name`."""
    as_path = Path(name).expanduser()
    if name.startswith(("/", "./", "../", "~")):
        return TrafficStore.open(as_path)
    path = store_path(name, root)
    if not (path / "metadata.json").exists() and (as_path / "metadata.json").exists():
        return TrafficStore.open(as_path)
    if not (path / "metadata.json").exists():
        source = "" if name == GENERATED else " --from PATH"
        raise UserError(
            f"{name} is not prepared under {root}",
            fix=f"graphmill prepare {name} --task traffic{source} --dataset-root {root}",
        )
    return TrafficStore.open(path)


def prepared_traffic(root: Path) -> list[TrafficStore]:
    """Every traffic store under `root` that opens, by path. Folders of killed writers are not looked at."""
    stores = []
    for metadata in sorted(root.glob("**/metadata.json")):
        folder = metadata.parent
        if any(part.startswith(".") for part in metadata.relative_to(root).parts) or not is_traffic_store(folder):
            continue
        try:
            stores.append(TrafficStore.open(folder))
        except UserError:
            continue  # damaged: `inspect` says how
    return stores
