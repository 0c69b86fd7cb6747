"""`datasets`, `prepare`, `inspect`: the graphs at rest."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, resolved_dataset_root
from graphmill.cli.progress import progress
from graphmill.cli.show import print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.config.frozen import Spec
    from graphmill.graph.header import Header
    from graphmill.spec.kinds.kind import AnyKind
    from graphmill.spec.plan import Plan


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
    from graphmill.graph.header import prepared_in

    folder = resolved_dataset_root(root)
    rows = _dataset_rows({path.relative_to(folder).as_posix(): header for path, header in prepared_in(folder)})
    if json:
        print_json({"dataset_root": str(folder), "datasets": rows})
        return
    shown = ("name", "task", "prepared", "origin", "synthetic", "sizes")
    cells = [[_sizes_text(row[name]) if name == "sizes" else row[name] for name in shown] for row in rows]
    print_table(shown, cells, title=f"Datasets (prepared ones in {folder})")


def _dataset_rows(prepared: "dict[str, Header]") -> list[dict[str, Any]]:
    """Datasets of the catalogues, then those that are prepared under other names."""
    from graphmill.spec.kinds import all_kinds

    known = {dataset.name: (kind, dataset) for kind in all_kinds() for dataset in kind.data.known}
    counts = {kind.name: kind.data.counts for kind in all_kinds()}
    rows = []
    for name in [*known, *sorted(prepared.keys() - known.keys())]:
        header, (kind, dataset) = prepared.get(name), known.get(name, (None, None))
        task = header.kind if header else kind.name if kind else ""
        sizes = header.kind_fields if header else dataset.sizes if dataset else {}
        rows.append(
            {
                "name": name,
                "task": task,
                "prepared": header is not None,
                "origin": dataset.origin if dataset else "own",
                "sizes": {word: sizes[key] for key, word in counts.get(task, {}).items() if key in sizes},
                "synthetic": header.synthetic if header else dataset is not None and dataset.origin == "generated",
                "from": dataset.layout if dataset else "",
            }
        )
    return rows


def _sizes_text(sizes: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in sizes.items())


def prepare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `graphmill datasets` lists, or your own.")],
    *,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="PATH",
            show_default=False,
            help="Read the raw data here instead of downloading. Repeatable where a task merges datasets.",
        ),
    ] = None,
    save_as: Annotated[
        str | None, typer.Option("--as", metavar="NAME", show_default=False, help="Store it under another name.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", show_default=False, help="An option of the task. Repeatable."
        ),
    ] = None,
    feature_dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", show_default=False, help="Store dense features as float32, float16 or bfloat16."),
    ] = None,
    random_split: Annotated[
        bool, typer.Option("--random-split", help="Draw 60/20/20 in place of the dataset's own split.")
    ] = False,
    split_seed: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Seed of a random split.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build it again where it is prepared already.")] = False,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            show_default=False,
            help="A built-in task, or package.module:KIND; else seen by the name or the files.",
        ),
    ] = None,
    adjacency: Annotated[
        Path | None,
        typer.Option(metavar="PATH", show_default=False, help="The graph, where --from is a file of readings."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", show_default=False, help="What the readings are in.")
    ] = None,
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Turn a raw dataset into a store.

    A store is a folder of memory-mapped arrays with checksums, shared by the ranks of a host. What a task takes
    with -o is listed in docs/reference/experiment.md; --feature-dtype, --random-split, --split-seed, --adjacency and
    --unit are short for -o feature_dtype=…, and so on.

    \b
    Example:
      graphmill prepare debian-packages
      graphmill prepare planetoid/cora
      graphmill prepare ogbn-products --from ~/ogb/products
      graphmill prepare mine --from graph.npz --random-split
      graphmill prepare synthetic/sbm --as sbm-100k -o num_nodes=100000 -o num_edges=2000000
      graphmill prepare metr-la --from ~/metr-la/metr-la.h5 --adjacency ~/metr-la/adj_mx.pkl
      graphmill prepare merged --from shard_0.h5 --from shard_1.h5
    """
    from graphmill.tasks.stores import Preparation, prepare_store

    first, more = (source[0], source[1:]) if source else (None, [])
    kind, because = _kind_to_prepare(name, task, first)
    if more and not kind.data.merges:
        raise UserError(
            f"--from is given {1 + len(more)} times, and {kind.name} reads one dataset", fix="give one --from PATH"
        )
    flags = {
        "feature_dtype": feature_dtype,
        "random_split": "true" if random_split else None,
        "split_seed": split_seed,
        "adjacency": adjacency,
        "unit": unit,
    }
    texts = [*(option or []), *(f"{key}={value}" for key, value in flags.items() if value is not None)]
    options = task_options(kind.data.options, texts, f"prepare of the task {kind.name}")
    with _read_as(kind, because), progress(f"preparing {save_as or name}"):
        preparation = Preparation(name, resolved_dataset_root(root), options, first, save_as, force, tuple(more))
        store = prepare_store(kind, preparation)
    if json:
        print_json({"path": str(store.path), **store.metadata.model_dump(mode="json")})
    else:
        print_facts(
            _store_facts(store.path, store.metadata, store.described()), title=f"prepared {store.metadata.name}"
        )


def _kind_to_prepare(name: str, task: str | None, source: Path | None) -> "tuple[AnyKind, str]":
    """Kind to prepare: by --task, else by a name of a catalogue, else by what --from looks like; and then why."""
    from graphmill.spec.kinds import all_kinds, default_kind, find_kind
    from graphmill.tasks.recognise import recognised
    from graphmill.tasks.stores import known_dataset

    if task is not None:
        return find_kind(task), ""
    known = next((kind for kind in all_kinds() if known_dataset(kind, name) is not None), None)
    if known is not None or source is None:
        return known or default_kind(), ""
    return recognised(source.expanduser()) or (default_kind(), "")


@contextmanager
def _read_as(kind: "AnyKind", because: str) -> Iterator[None]:
    """An error of raw data whose task was guessed says so first: the guess may be what is wrong."""
    try:
        yield
    except UserError as error:
        if because:
            error.message = f"read as {kind.name} because {because}: {error.message}"
            error.fix = f"{error.fix}; if it is something else: --task"
        raise


def task_options(model: "type[Spec]", texts: Sequence[str], where: str) -> Any:  # noqa: ANN401  # one of `model`
    """What `-o KEY=VALUE` asked for; `UserError` names all that is wrong at once."""
    from graphmill.config.check import checked
    from graphmill.config.draft import Draft

    draft = Draft({}, {}, flag="-o")
    for text in texts:
        draft.override(text)
    return checked(model, draft, where)


def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="STORE|PARTS|RUN|FILE",
            help="A dataset's name or folder, or its parts'; a run id or folder; a folder of presampled epochs; raw"
            " files, if a task reads them.",
        ),
    ],
    check: Annotated[bool, typer.Option("--check", help="Also read everything and compare checksums.")] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Show what is in a prepared dataset, in its parts, in a run, in presampled epochs, or in raw files.

    Raw files have no checksums: --check reads every record of them, names those that are wrong, and exits with 1.

    \b
    Example:
      graphmill inspect debian-packages --check
      graphmill inspect parts/debian-packages/4-kaminpar
      graphmill inspect logs/cora-sage-20261121T081500Z
      graphmill inspect data/train.h5 --check
    """
    from graphmill.cli.find_run import neither_data_nor_run

    folder, run = store_folder(target, resolved_dataset_root(root)), _run_at(target, logs_root)
    if folder is not None:
        _show_store(folder, check=check, json=json)
    elif run is not None:
        _show_run(run, json=json)
    elif not Path(target).exists():
        raise neither_data_nor_run(target, resolved_dataset_root(root), logs_root)
    else:
        _show_files(Path(target), check=check, json=json)


def _show_files(path: Path, *, check: bool, json: bool) -> None:
    from graphmill.cli.presample import show_presampled
    from graphmill.sample.presampled.schedule import is_presampled

    if is_presampled(path):
        show_presampled(path, check=check, json=json)
    else:
        _show_raw(path, check=check, json=json)


def _show_raw(path: Path, *, check: bool, json: bool) -> None:
    from graphmill.base import exits
    from graphmill.tasks.recognise import recognised
    from graphmill.tasks.stores import RawData, load

    kind = (recognised(path) or (None,))[0]
    if kind is None or not kind.data.raw:
        raise UserError(
            f"{path} is neither prepared data nor a run, and no task looks into such files",
            fix="prepare it, then inspect what was prepared: graphmill prepare NAME --from PATH",
        )
    raw: RawData = load(kind.data.raw)(path)
    rows = raw.table()
    problems = list(raw.problems()) if check else []
    if json:
        facts = dict(raw.described())
        print_json({**facts, "task": kind.name, "checked": check, "problems": problems, "table": rows})
    else:
        print_facts([*raw.described(), ("task", kind.name)], title=path.name)
        _print_rows(rows)
        for problem in problems:
            print_line(problem)
        if check and not problems:
            print_line("every record is as it should be")
    if problems:
        raise typer.Exit(exits.ANSWER_IS_NO)


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        print_table(tuple(rows[0]), [list(row.values()) for row in rows])


def store_folder(target: str, root: Path) -> Path | None:
    """The folder of the prepared data called `target`, or `target` itself; None: neither is there."""
    from graphmill.graph.header import is_prepared

    return next((path for path in (Path(target), root / target) if is_prepared(path)), None)


def _show_store(folder: Path, *, check: bool, json: bool) -> None:
    """Show all of data of a built-in task; else the header only, since data must not choose what code is imported."""
    from graphmill.cli.parts import show_parts
    from graphmill.graph.arrays import check_arrays, check_checksums
    from graphmill.graph.header import read_header
    from graphmill.spec.kinds import TASKS, find_kind
    from graphmill.tasks.stores import HasTable, open_store

    header = read_header(folder)
    if "parts_version" in header.kind_fields:
        show_parts(folder, check=check, json=json)
        return
    kind = find_kind(header.kind) if header.kind in TASKS else None
    store = None if kind is None else open_store(kind, folder)
    if check:
        with progress(f"reading {header.name}"):
            if store is not None:
                store.verify()
            else:
                check_arrays(folder, header.arrays)
                check_checksums(folder, header.arrays)
    rows = store.table() if isinstance(store, HasTable) else ()
    if json:
        facts = {"path": str(folder), "checked": check, **header.model_dump(mode="json")}
        print_json({**facts, "table": rows} if rows else facts)
        return
    plain = [(key, str(value)) for key, value in header.kind_fields.items() if isinstance(value, str | int | float)]
    print_facts(_store_facts(folder, header, store.described() if store else plain), title=header.name)
    _print_rows(rows)
    if check:
        print_line("checksums and structure are as they should be")


def _run_at(target: str, logs_root: Path) -> Any:  # noqa: ANN401  # a RunFolder, whose module is imported here
    from graphmill.record.run_folder import RunFolder

    for path in (Path(target), logs_root / target):
        if RunFolder(path).plan_path.is_file():
            return RunFolder.open(path)
    return None


def _show_run(run: Any, *, json: bool) -> None:  # noqa: ANN401  # a RunFolder
    from graphmill.record.evaluations import recorded_baselines
    from graphmill.record.judged import lost_on_test
    from graphmill.record.metrics import read_metrics
    from graphmill.record.staged import data_read, data_read_text
    from graphmill.spec.fetching import FetchedByEpoch

    plan, outcome = run.read_plan(), run.read_outcome()
    rows = read_metrics(run.metrics_path, is_growing=True) if run.metrics_path.exists() else []
    attempts = run.attempts()
    if json:
        last = rows[-1] if rows else None
        print_json(
            {
                "path": run.path,
                "plan": plan,
                "outcome": outcome,
                "attempts": attempts,
                "last_epoch": last,
                "fetched": FetchedByEpoch.of(rows),
                "data_read": data_read(run),
            }
        )
        return
    status = "running, or killed before it could write an outcome" if outcome is None else outcome.status
    primary = plan.kind.primary
    best = rows[-1].get(f"best_val_{primary.name}") if rows else None
    facts = [
        ("folder", str(run.path)),
        ("status", status),
        ("dataset", f"{plan.dataset.name}{' (synthetic)' if plan.dataset.synthetic else ''}"),
        *([("data read from", data_read_text(run))] if data_read(run) else []),
        *([("scheme", f"{plan.sync.scheme}, every {plan.sync.every}")] if plan.ranks > 1 else []),
        ("ranks", plan.ranks),
        *([("samplers", plan.roles.samplers)] if plan.roles is not None else []),
        ("epochs", f"{len(rows)} of {plan.calendar.num_epochs}"),
        ("attempts", len(attempts)),
        (f"best val {primary.words}", float(best) if best else None),
    ]
    if outcome is not None and outcome.test is not None:
        facts.append((f"test {primary.words}", outcome.test.get(primary.name)))
    recorded = recorded_baselines(run)
    for baseline in plan.kind.baselines.methods:
        by_split = [recorded.get(split, {}).get(baseline.name, {}) for split in ("val", "test")]
        by = next((measure for measure in plan.kind.measures if all(measure.name in each for each in by_split)), None)
        if by is not None:  # not a measure of the user's own
            scores = f"val {by_split[0][by.name]:.4f}, test {by_split[1][by.name]:.4f}"
            facts.append((baseline.words, scores if by == primary else f"{by.words} {scores}"))
    if lost := lost_on_test(plan.kind, outcome):
        facts.append(("judged on test", f"the run {lost}"))
    fetched = FetchedByEpoch.of(rows)
    facts += [] if fetched is None else fetched.described()
    print_facts([*facts, *_weights_facts(plan)], title=plan.run_id)


def _weights_facts(plan: "Plan") -> list[tuple[str, str]]:
    """The runs and files that its weights come from, if it did not begin with random ones."""
    found = []
    if plan.extends is not None:
        found.append(("begins with", f"{plan.begins_with}: step {plan.extends.steps_done} of {plan.extends.source}"))
    if plan.init_from is not None:
        found.append(("initial weights", f"of {plan.init_from.source}, checksum {plan.init_from.checksum}"))
    return found + [
        (name, f"weights of {each.source}, checksum {each.checksum}") for name, each in plan.sources.items()
    ]


def _store_facts(folder: Path, header: "Header", described: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    source = getattr(header, "source", header.kind_fields.get("source", ""))
    return [
        ("folder", str(folder)),
        ("task", header.kind),
        ("source", source),
        ("synthetic", header.synthetic),
        *[(name, value) for name, value in described if name != "source"],
        ("size", f"{header.num_bytes / (1 << 20):,.1f} MiB"),
        ("checksum", header.checksum),
    ]
