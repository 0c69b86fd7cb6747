"""`datasets`, `prepare`, `inspect`: the graphs at rest."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, resolved_dataset_root
from graphmill.cli.show import print_facts, print_json, print_line, print_table


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(datasets)
    app.command()(prepare)
    app.command()(inspect)


def datasets(root: DatasetRoot = None, json: Json = False) -> None:
    """List the datasets, known and prepared.

    \b
    Example:
      graphmill datasets
      graphmill datasets --json --dataset-root /scratch/data
    """
    from graphmill.tasks.node_classification.prepare import known_datasets, prepared_datasets
    from graphmill.tasks.traffic.prepare import KNOWN, LAYOUT, prepared_traffic

    folder = resolved_dataset_root(root)
    prepared = {store.path.relative_to(folder).as_posix(): store.metadata for store in prepared_datasets(folder)}
    known = {dataset.name: dataset for dataset in known_datasets()}
    rows = [
        {
            "name": name,
            "prepared": name in prepared,
            "origin": known[name].origin if name in known else "own",
            "nodes": prepared[name].num_nodes if name in prepared else known[name].num_nodes,
            "edges": prepared[name].num_edges if name in prepared else known[name].num_edges,
            "classes": prepared[name].num_classes if name in prepared else known[name].num_classes,
            "synthetic": prepared[name].synthetic if name in prepared else known[name].origin == "generated",
            "from": known[name].layout if name in known else "",
        }
        for name in [*known, *sorted(prepared.keys() - known.keys())]
    ]
    traffic = {store.path.relative_to(folder).as_posix(): store.metadata for store in prepared_traffic(folder)}
    rows += [
        {
            "name": name,
            "prepared": name in traffic,
            "origin": "traffic" if name in KNOWN else "own traffic",
            "nodes": traffic[name].num_sensors if name in traffic else KNOWN[name],
            "edges": traffic[name].num_edges if name in traffic else None,
            "classes": None,
            "synthetic": traffic[name].synthetic if name in traffic else name.startswith("synthetic/"),
            "from": "" if name.startswith("synthetic/") else LAYOUT,
        }
        for name in [*KNOWN, *sorted(traffic.keys() - KNOWN.keys())]
    ]
    if json:
        print_json({"dataset_root": str(folder), "datasets": rows})
        return
    shown = ("name", "prepared", "origin", "nodes", "edges", "classes", "synthetic")
    print_table(shown, [[row[name] for name in shown] for row in rows], title=f"Datasets (prepared ones in {folder})")


def prepare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `graphmill datasets` lists, or your own.")],
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", show_default=False, help="Read the raw data here instead of downloading."
        ),
    ] = None,
    save_as: Annotated[
        str | None, typer.Option("--as", metavar="NAME", show_default=False, help="Store it under another name.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", show_default=False, help="An option of a generator. Repeatable."
        ),
    ] = None,
    feature_dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", show_default=False, help="Store dense features as float32, float16 or bfloat16."),
    ] = None,
    random_split: Annotated[
        bool, typer.Option("--random-split", help="Draw 60/20/20 in place of the dataset's own split.")
    ] = False,
    split_seed: Annotated[int, typer.Option(metavar="N", help="Seed of a drawn split.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Build it again where it is prepared already.")] = False,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            show_default=False,
            help="node_classification or traffic; else seen by the name or the files.",
        ),
    ] = None,
    adjacency: Annotated[
        Path | None,
        typer.Option(metavar="PATH", show_default=False, help="Traffic: the road graph, where --from is readings."),
    ] = None,
    unit: Annotated[str, typer.Option(metavar="UNIT", help="Traffic: what the readings are in.")] = "mph",
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Turn a raw dataset into a store.

    A store is a folder of memory-mapped arrays with checksums, shared by the ranks of a host.

    \b
    Example:
      graphmill prepare debian-packages
      graphmill prepare planetoid/cora
      graphmill prepare ogbn-products --from ~/ogb/products
      graphmill prepare mine --from graph.npz --random-split
      graphmill prepare synthetic/sbm --as sbm-100k -o num_nodes=100000 -o num_edges=2000000
      graphmill prepare metr-la --from ~/metr-la/metr-la.h5 --adjacency ~/metr-la/adj_mx.pkl
    """
    if _is_traffic(name, task, source):
        others = {"--as": save_as, "--feature-dtype": feature_dtype, "--random-split": random_split or None}
        if given := [flag for flag, value in others.items() if value is not None]:
            raise UserError(f"{' and '.join(given)} are for graphs, and {name} is traffic", fix="leave them out")
        _prepare_traffic(name, source, adjacency, unit, _options(option or []), root, force=force, json=json)
        return
    if adjacency is not None:
        raise UserError(f"--adjacency is for traffic, and {name} is a graph", fix="add --task traffic, or leave it out")
    from graphmill.tasks.node_classification.prepare import prepare as build

    dtypes = ("float32", "float16", "bfloat16")
    if feature_dtype is not None and feature_dtype not in dtypes:
        raise UserError(f"--feature-dtype {feature_dtype} is none of {', '.join(dtypes)}", fix="give one of them")
    options = _options(option or [])
    with _progress(f"preparing {save_as or name}") as say:
        store = build(
            name,
            root=resolved_dataset_root(root),
            from_path=source,
            save_as=save_as,
            options=options,
            feature_dtype=feature_dtype,  # type: ignore[arg-type]  # checked above
            random_split=random_split,
            split_seed=split_seed,
            force=force,
            say=say,
        )
    if json:
        print_json({"path": str(store.path), **store.metadata.model_dump(mode="json")})
    else:
        print_facts(_store_facts(store), title=f"prepared {store.metadata.name}")


def _is_traffic(name: str, task: str | None, source: Path | None) -> bool:
    """By --task; else by a known name; else by what --from looks like."""
    from graphmill.tasks.traffic.prepare import KNOWN

    if task not in (None, "node_classification", "traffic"):
        raise UserError(f"--task {task} is no task", fix="give node_classification or traffic")
    if task is not None:
        return task == "traffic"
    if name in KNOWN or source is None:
        return name in KNOWN
    from graphmill.tasks.traffic.read import holds_readings

    return holds_readings(source)


def _prepare_traffic(
    name: str,
    source: Path | None,
    adjacency: Path | None,
    unit: str,
    options: dict[str, Any],
    root: Path | None,
    *,
    force: bool,
    json: bool,
) -> None:
    from graphmill.tasks.traffic.prepare import prepare_traffic

    folder = resolved_dataset_root(root)
    with _progress(f"preparing {name}") as say:
        store = prepare_traffic(
            name,
            root=folder,
            from_path=source,
            adjacency_path=adjacency,
            unit=unit,
            options=options,
            force=force,
            say=say,
        )
    if json:
        print_json({"path": str(store.path), **store.metadata.model_dump(mode="json")})
    else:
        print_facts(_traffic_facts(store), title=f"prepared {store.metadata.name}")


def inspect(
    target: Annotated[
        str,
        typer.Argument(metavar="STORE|RUN", help="A dataset's name, a GraphStore folder, a run id or a run folder."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Also read everything and compare checksums.")] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Show what is in a prepared dataset or in a run folder.

    \b
    Example:
      graphmill inspect debian-packages --check
      graphmill inspect logs/cora-sage-20261121T081500Z
    """
    store, run = _store_at(target, resolved_dataset_root(root)), _run_at(target, logs_root)
    if store is None and run is None:
        raise UserError(
            f"{target!r} is no prepared dataset under {resolved_dataset_root(root)} and no run in {logs_root}",
            fix="`graphmill datasets` lists datasets; runs are the folders in the logs root",
        )
    if store is None:
        _show_run(run, json=json)
        return
    if check:
        with _progress(f"reading {store.metadata.name}"):
            store.verify()
    if json:
        print_json({"path": str(store.path), "checked": check, **store.metadata.model_dump(mode="json")})
        return
    is_graph = hasattr(store.metadata, "num_nodes")
    print_facts(_store_facts(store) if is_graph else _traffic_facts(store), title=store.metadata.name)
    if check:
        print_line("checksums and structure are as they should be")


def _store_at(target: str, root: Path) -> Any:  # noqa: ANN401  # a GraphStore or TrafficStore, imported here
    from graphmill.graph.store import GraphStore
    from graphmill.tasks.traffic.store import TrafficStore, is_traffic_store

    for path in (Path(target), root / target):
        if (path / "metadata.json").is_file():
            return TrafficStore.open(path) if is_traffic_store(path) else GraphStore.open(path)
    return None


def _run_at(target: str, logs_root: Path) -> Any:  # noqa: ANN401  # a RunFolder, whose module is imported here
    from graphmill.record.run_folder import RunFolder

    for path in (Path(target), logs_root / target):
        if RunFolder(path).plan_path.is_file():
            return RunFolder.open(path)
    return None


def _show_run(run: Any, *, json: bool) -> None:  # noqa: ANN401  # a RunFolder
    from graphmill.record.columns import MEASURES, facts_of
    from graphmill.record.metrics import read_metrics

    plan, outcome = run.read_plan(), run.read_outcome()
    rows = read_metrics(run.metrics_path, is_growing=True) if run.metrics_path.exists() else []
    attempts = run.attempts()
    if json:
        last = rows[-1] if rows else None
        print_json({"path": run.path, "plan": plan, "outcome": outcome, "attempts": attempts, "last_epoch": last})
        return
    status = "under way, or died without a word" if outcome is None else outcome.status
    primary = MEASURES[plan.task_name][0]
    best = facts_of(plan.task_name, rows[-1]).get(f"best_val_{primary.name}") if rows else None
    facts = [
        ("folder", str(run.path)),
        ("status", status),
        ("dataset", f"{plan.dataset.name}{' (synthetic)' if plan.dataset.synthetic else ''}"),
        ("scheme", f"{plan.sync.scheme}, every {plan.sync.every}"),
        ("ranks", plan.ranks),
        ("epochs", f"{len(rows)} of {plan.calendar.num_epochs}"),
        ("attempts", len(attempts)),
        (f"best val {primary.words}", float(best) if best else None),
    ]
    print_facts(facts, title=plan.run_id)


def _store_facts(store: Any) -> Sequence[tuple[str, Any]]:  # noqa: ANN401  # a GraphStore
    known = store.metadata
    size = sum(record.bytes for record in known.arrays.values()) / (1 << 20)
    splits = ", ".join(f"{name} {known.splits[name]:,}" for name in ("train", "val", "test", "none"))
    return [
        ("folder", str(store.path)),
        ("source", known.source),
        ("synthetic", known.synthetic),
        ("nodes", known.num_nodes),
        ("edges", known.num_edges),
        ("features", f"{known.num_features:,} ({'sparse' if known.has_sparse_features else known.feature_dtype})"),
        ("classes", known.num_classes),
        ("split", f"{splits} ({known.split})"),
        ("symmetric", known.is_symmetric),
        ("isolated nodes", known.num_isolated_nodes),
        ("duplicate edges merged", known.num_duplicate_edges),
        ("self-loops", known.num_self_loops),
        ("size", f"{size:,.1f} MiB"),
        ("checksum", known.checksum),
    ]


def _traffic_facts(store: Any) -> Sequence[tuple[str, Any]]:  # noqa: ANN401  # a TrafficStore
    known = store.metadata
    size = sum(record.bytes for record in known.arrays.values()) / (1 << 20)
    share = known.num_missing / (known.num_steps * known.num_sensors)
    return [
        ("folder", str(store.path)),
        ("source", known.source),
        ("synthetic", known.synthetic),
        ("sensors", known.num_sensors),
        ("edges", known.num_edges),
        ("steps", f"{known.num_steps:,} of {known.interval_s} s, {known.begin} to {known.end}"),
        ("gaps in time", known.num_gaps),
        ("missing", f"{known.num_missing:,} readings ({share:.1%}); {known.num_nan:,} were NaN"),
        ("training mean ± std", f"{known.mean:.2f} ± {known.std:.2f} {known.unit}"),
        ("size", f"{size:,.1f} MiB"),
        ("checksum", known.checksum),
    ]


def _options(texts: Sequence[str]) -> dict[str, Any]:
    from graphmill.config.yaml_text import parse_value

    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier() or key in options:
            raise UserError(
                f"-o {text} is not of the form key=value, each key once", fix="write, for example, -o num_nodes=1000"
            )
        options[key] = parse_value(value, source=f"-o {text}")
    return options


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str], None]]:
    """Tell what goes on, on standard error: a spinner with the time on a terminal, plain lines in a log."""
    from rich.console import Console

    begin = time.monotonic()
    console = Console(stderr=True, highlight=False)
    if not sys.stderr.isatty():
        typer.echo(f"{title} …", err=True)
        yield lambda text: typer.echo(f"  {text}", err=True)
        typer.echo(f"{title}: {time.monotonic() - begin:.1f} s", err=True)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(title)
        yield lambda text: progress.console.print(f"  {text}", markup=False)
