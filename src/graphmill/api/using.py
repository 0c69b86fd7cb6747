"""`graphmill.evaluate`, `graphmill.predict`, `graphmill.compare`: what runs are worth."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphmill.api.planning import root_of
from graphmill.api.run import EndedError
from graphmill.api.training import Agree, agreeing
from graphmill.base import exits
from graphmill.base.arguments import items_of, path_of
from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.messages import messages_shown
from graphmill.base.names import nearest
from graphmill.base.python import as_module

if TYPE_CHECKING:
    import polars

    from graphmill.report.compare import Comparison

_log = logging.getLogger(__name__)

SPLITS: Final = ("train", "val", "test")
ALL_SPLITS: Final = (*SPLITS, "all")
_FORMATS: Final = (".parquet", ".csv", ".npz")
_STREAMED: Final = (".parquet", ".csv")
Facts = dict[str, Any]
AnyPath = str | os.PathLike[str]


@messages_shown()
def evaluate(
    run: AnyPath,
    split: str = "test",
    *,
    weights: str = "best",
    dataset: str | None = None,
    dataset_root: AnyPath | None = None,
    device: str | None = None,
    trust: str | Iterable[str] = (),
    logs_root: AnyPath = "logs",
) -> Facts:
    """Evaluate the weights of a run, as `graphmill evaluate`: exact, with all neighbours, in a process of its own.

    Args:
        run: a `Run`, a run folder, or the id of a run in `logs_root`.
        split: train, val or test.
        weights: of the best checkpoint on the validation split, or of the last.
        dataset: other prepared data; else those of the run.
        dataset_root: where prepared data are; else where the plan says, ….
        device: cpu or cuda; None: what the run was planned for.
        trust: dotted paths of code of the run that may be run although you have not run it on this machine.
        logs_root: where runs are, if `run` is an id.

    Returns:
        What `graphmill evaluate --json` prints: each measure of the split, by name, and which weights and data they
        belong to.

    Raises:
        UserError: the request cannot be met.
        EndedError: the process that evaluates died.
    """
    where = path_of("logs_root", logs_root)
    options = choices(str(split), str(weights), _name(dataset), root_of(dataset_root), device)
    return in_a_process("evaluate", _text(run), where, options, agreeing(trust))


@messages_shown()
def predict(
    run: AnyPath,
    split: str = "test",
    *,
    output: AnyPath | None = None,
    embeddings: bool = False,
    attention: AnyPath | None = None,
    pairs: AnyPath | None = None,
    top: int | None = None,
    weights: str = "best",
    dataset: str | None = None,
    dataset_root: AnyPath | None = None,
    device: str | None = None,
    trust: str | Iterable[str] = (),
    logs_root: AnyPath = "logs",
) -> "polars.DataFrame":
    """The predictions of a run, as `graphmill predict` writes them, by the same inference as `evaluate`.

    Args:
        run: as of `evaluate`.
        split: train, val, test, or all there is.
        output: a file to keep them in, .parquet or .csv; None: they are returned only.
        embeddings: also what the last layer, or the head, reads of every node.
        attention: also a file, .parquet or .csv, with the attention of every edge, layer and head.
        pairs: of link prediction: in place of a split a table, .parquet or .csv, with columns source, target and, where
            links have relations, relation: a score of each row.
        top: of link prediction: so many best targets of each source in `pairs`, or of all nodes.
        weights: as of `evaluate`.
        dataset: as of `evaluate`.
        dataset_root: as of `evaluate`.
        device: as of `evaluate`.
        trust: as of `evaluate`.
        logs_root: as of `evaluate`.

    Returns:
        A row per item, with its id, the prediction, and the ground truth, null where it is not known.

    Raises:
        UserError: the request cannot be met.
        EndedError: the process that predicts died.
    """
    import polars

    where = path_of("logs_root", logs_root)
    edges = None if attention is None else path_of("attention", attention)
    options = choices(str(split), str(weights), _name(dataset), root_of(dataset_root), device, splits=ALL_SPLITS)
    with tempfile.TemporaryDirectory(prefix="graphmill-predict-") as folder:
        path = Path(folder, "predictions.parquet") if output is None else path_of("output", output)
        options += files(path, edges, embeddings=embeddings, formats=_STREAMED)
        options += requested_pairs(None if pairs is None else path_of("pairs", pairs), top)
        in_a_process("predict", _text(run), where, options, agreeing(trust))
        return polars.read_csv(path) if path.suffix == ".csv" else polars.read_parquet(path, memory_map=False)


@messages_shown()
def compare(
    what: AnyPath | Sequence[AnyPath] = (),
    *,
    sort: str | None = None,
    by: Sequence[str] = (),
    logs_root: AnyPath = "logs",
) -> "polars.DataFrame":
    """Compare finished runs, as `graphmill compare`: one row for each configuration, over its rng seeds.

    Args:
        what: studies, runs or folders of runs; all runs of `logs_root` if left out.
        sort: val, test (the best first), or a key that varies; None: by the keys in `by`, else val.
        by: keys of the plan: a row for each of their values, and what its runs moved and took.
        logs_root: where run folders are.

    Returns:
        Columns `task`, `dataset`, `measure`, the keys that vary, `runs` (their ids), `val` and `test` with their
        standard deviations `val_sd` and `test_sd`, `best` (on the validation split), and with `by` what a run took.

    Raises:
        UserError: there are no such runs, or they cannot be compared so.
    """
    from graphmill.report.compare import frame_of

    named = [what] if isinstance(what, str | os.PathLike) else list(items_of("what", what))
    keys = [by] if isinstance(by, str) else [str(key) for key in items_of("by", by)]
    order = None if sort is None else str(sort)
    tables = compared([_text(each) for each in named], order, keys, path_of("logs_root", logs_root))
    for table in tables:
        tell_left_out(table)
    return frame_of(tables)


def compared(what: Sequence[str], sort: str | None, by: Sequence[str], logs_root: Path) -> "list[Comparison]":
    """The tables of the runs that are named; of all there are if none is."""
    from graphmill.record.find_run import find_several, name_of_runs
    from graphmill.record.run_folder import find_runs
    from graphmill.report.compare import compare as tables_of

    named = [name_of_runs(text, logs_root) for text in what]
    runs = [run for name in named for run in find_several(name, logs_root)] if what else find_runs(logs_root)
    if not runs:
        raise UserError(f"{logs_root} holds no runs", fix="train one with `graphmill train`, or give --logs-root")
    return tables_of(list({run.path.resolve(): run for run in runs}.values()), sort=sort, by=by)


def tell_left_out(table: "Comparison") -> None:
    """Log what a reader of the table has to know, and what is in no row of it."""
    for row in table.rows:
        if row.lost:
            named = ", ".join(f"{key} {row.values[key]}" for key in table.varied) or row.runs[0]
            _log.warning(f"{len(row.lost)} of {len(row.runs)} runs of {named}, on test: {row.lost[0]}")
    if table.same_seeds:
        _log.warning(f"not independent, since they share configuration and rng seed: {', '.join(table.same_seeds)}")
    if table.unfinished:
        _log.info(f"left out, not done: {', '.join(table.unfinished)}")


def files(
    output: Path | None, attention: Path | None, *, embeddings: bool, formats: Sequence[str] = _FORMATS
) -> list[str]:
    """What is to be written, as words for `predict`; `UserError` if there is nothing, or not of that format."""
    if output is None and attention is None:
        raise UserError("neither --output nor --attention names a file", fix="--output FILE.parquet")
    words = []
    for option, path, known in (("--output", output, formats), ("--attention", attention, _STREAMED)):
        if path is None:
            continue
        if path.suffix not in known:
            raise UserError(
                f"{option} {path} does not end in {', '.join(known)}", fix=f"{option} {path.with_suffix('.parquet')}"
            )
        words += [option, str(path)]
    return [*words, *(["--embeddings"] if embeddings else [])]


def requested_pairs(pairs: Path | None, top: int | None) -> list[str]:
    """Which pairs are to be scored, as words for `predict`; none where neither is given."""
    if top is not None and top < 1:
        raise UserError(f"--top {top} is not above 0", fix="--top 10")
    if pairs is not None and not pairs.exists():
        raise UserError(f"--pairs {pairs} does not exist", fix="give a .csv or .parquet file that does")
    return [
        *(["--pairs", str(pairs)] if pairs is not None else []),
        *(["--top", str(top)] if top is not None else []),
    ]


def refuse_other(given: str, option: str, known: tuple[str, ...]) -> None:
    """`UserError` if the option has a value that is not known."""
    if given not in known:
        raise UserError(
            f"{option} {given} is not one of {', '.join(known)}",
            fix=f"give {option} {nearest(given, known) or known[-1]}",
        )


def choices(
    split: str,
    weights: str,
    dataset: str | None,
    root: Path | None,
    device: str | None,
    *,
    splits: tuple[str, ...] = SPLITS,
) -> list[str]:
    """Which weights are used, where, and on which data, as words for `evaluate` and `predict`."""
    refuse_other(split, "--split", splits)
    refuse_other(weights, "--weights", ("best", "last"))
    if device is not None:
        refuse_other(device, "--device", ("cpu", "cuda"))
    return [
        *("--split", split, "--weights", weights),
        *(["--dataset", dataset] if dataset is not None else []),
        *(["--dataset-root", str(root)] if root is not None else []),
        *(["--device", device] if device is not None else []),
    ]


def in_a_process(module: str, run: str, logs_root: Path, options: Sequence[str], agree: Agree) -> Facts:
    """What `graphmill.train.evaluate`, or `predict`, says of a run as JSON; torch is loaded there, once, not here."""
    from graphmill.record.find_run import find_run
    from graphmill.runtime.fork_server import output_of

    folder = find_run(run, logs_root)
    agree(folder)
    program = f"graphmill.train.{module}"
    words = [*as_module(program), str(folder.path), *options, "--json-errors"]
    status, said = output_of(words, os.environ, imports=[program])
    if status == exits.DONE:
        facts: Facts = parse_json(said)
        return facts
    if status == exits.BAD_REQUEST and said.startswith("{"):
        raise UserError(**parse_json(said))
    sys.stdout.write(said)
    raise EndedError(
        f"{module} of {folder.path} ended with exit status {status}",
        fix="its error is above, in what it printed",
        exit_status=status,
        path=folder.path,
    )


def _text(run: AnyPath) -> str:
    return str(path_of("run", run))


def _name(dataset: str | None) -> str | None:
    return None if dataset is None else str(path_of("dataset", dataset))
