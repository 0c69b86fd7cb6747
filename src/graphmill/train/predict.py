"""Write predictions of a run: `python -m graphmill.train.predict RUN_FOLDER --output FILE.parquet|.csv|.npz`.

With `--attention FILE.parquet|.csv` also, or only, what its layers of attention give every edge.

The inference is that of `graphmill.train.evaluate`, so measures computed from the file are those reported.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.files import replacing
from graphmill.base.messages import show_messages
from graphmill.graph.header import read_header
from graphmill.graph.splits import SPLITS, Split
from graphmill.record.csv_frames import without_formulas
from graphmill.spec.kinds.kind import ORIGIN, PredictsClasses, PredictsSeries
from graphmill.tasks.attended import Attended, Attention
from graphmill.tasks.task import Attends, Predictions, Predicts, ScoresPairs
from graphmill.train.evaluate import Facts, Judged, add_choices, judged, refused

STREAMED: Final = (".parquet", ".csv")
"""Formats that are written without holding all rows."""
_log = logging.getLogger(__name__)

FORMATS: Final = (".parquet", ".csv", ".npz")


def write_attention(attention: Attention, path: Path, about: Mapping[str, Any]) -> int:
    """Write the file in the format that its suffix names, whole or not at all; returns its rows.

    Columns: the ids, `layer`, and `alpha_0`, `alpha_1`, … for the heads. Parquet carries `about` as predictions do.
    """
    rows = 0
    heads = [f"alpha_{number}" for number in range(attention.heads)]
    schema = polars.Schema(
        {
            **dict.fromkeys(attention.names, polars.Int64()),
            "layer": polars.Int32(),
            **dict.fromkeys(heads, polars.Float32()),
        }
    )

    def tables(columns: list[str] | None, *_: object) -> Iterator[polars.DataFrame]:
        nonlocal rows
        for part in attention.parts:
            rows += len(part.alpha)
            yield _table(part, attention.names, schema).select(columns or polars.all())

    lazy = register_io_source(tables, schema=schema)
    with replacing(path) as temporary:
        if path.suffix == ".csv":  # as float64, so that the text carries every bit of a float32
            lazy = lazy.with_columns(polars.col(polars.Float32).cast(polars.Float64))
            without_formulas(lazy).sink_csv(temporary, engine="streaming")
        else:
            lazy.sink_parquet(temporary, metadata={ORIGIN: json.dumps(about)}, engine="streaming")
    return rows


def _table(part: Attended, names: tuple[str, ...], schema: polars.Schema) -> polars.DataFrame:
    columns: dict[str, Any] = dict(zip(names, part.ids, strict=True))
    columns["layer"] = polars.repeat(part.layer, len(part.alpha), dtype=polars.Int32, eager=True)
    columns |= {f"alpha_{head}": part.alpha[:, head].copy() for head in range(part.alpha.shape[1])}
    for name in schema.keys() - columns.keys():  # of a layer with fewer heads
        columns[name] = polars.repeat(None, len(part.alpha), dtype=polars.Float32, eager=True)
    return polars.DataFrame(columns, schema=schema)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; print a JSON summary of it on standard output."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.predict", description=__doc__)
    add_choices(parser, splits=(*SPLITS, "all"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--attention", type=Path)
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--top", type=int)
    options = parser.parse_args(arguments)
    show_messages()
    try:
        facts = written(options)
    except UserError as error:
        return refused(error, as_json=options.json_errors)
    except UnreadableError as error:
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
    except OSError as error:
        what = f"{options.output or options.attention} cannot be written: {error.strerror or error}"
        unwritten = UserError(what, fix="name a place that you may write to, with free space on it")
        return refused(unwritten, as_json=options.json_errors)
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    return exits.DONE


def written(options: argparse.Namespace) -> Facts:
    """The files that the arguments ask for, and what is in them."""
    refuse_no_file(options.output, options.attention)
    run, facts = judged(options), {}
    if options.attention is not None:
        facts = attend(run, options.split, options.attention)
    if options.output is not None and (options.pairs is not None or options.top is not None):
        facts |= score_pairs(run, options.pairs, options.top, options.output)
    elif options.output is not None:
        facts |= predict(run, options.split, options.output, embeddings=options.embeddings)
    return facts


def refuse_no_file(output: Path | None, attention: Path | None) -> None:
    """Raise a `UserError` unless something is to be written, and it can be."""
    if output is None and attention is None:
        raise UserError("neither --output nor --attention names a file", fix="give --output FILE.parquet")
    if output is not None:
        check_format(output)
    if attention is not None:
        check_format(attention, "--attention", STREAMED)


def attend(run: Judged, split: str, path: Path) -> Facts:
    """Write the attention paid by the items of a split, or by `all` of them: whole, or not at all."""
    if not isinstance(run.task, Attends):
        raise UserError(
            f"models of the task {run.plan.task.kind} have no attention",
            fix="leave --attention out; a task of one's own offers a method attention, as tasks/task.py's Attends says",
        )
    rows = write_attention(run.task.attention(_wanted(split)), path, _origin(run, split))
    return {**run.facts(split), "attention": str(path), "attention_rows": rows}


def predict(run: Judged, split: str, output: Path, *, embeddings: bool) -> Facts:
    """Write the predictions for a split, or for `all` items, to `output`: whole, or not at all."""
    check_format(output)
    if not isinstance(run.task, Predicts):
        raise UserError(
            f"the task {run.plan.task.kind} cannot write down its predictions",
            fix="give its class a method predict, as tasks/task.py's Predicts says",
        )
    found = run.task.predict(_wanted(split), embeddings=embeddings)
    return {**run.facts(split), "output": str(output), "rows": write_predictions(found, output, _origin(run, split))}


def score_pairs(run: Judged, pairs: Path | None, top: int | None, output: Path) -> Facts:
    """Write the scores of given pairs, or the best targets of given sources, or of all nodes, to `output`."""
    check_format(output)
    if not isinstance(run.task, ScoresPairs):
        raise UserError(f"the task {run.plan.task.kind} scores no pairs of nodes", fix="leave out --pairs and --top")
    given = None if pairs is None else _columns_of(pairs)
    if top is not None:
        found = run.task.best_pairs(given, top)
    else:
        assert given is not None
        found = run.task.scores(given)
    return {**run.facts("all"), "output": str(output), "rows": write_predictions(found, output, _origin(run, "all"))}


def _columns_of(path: Path) -> dict[str, list[Any]]:
    """The columns of a table, .parquet or .csv."""
    if path.suffix not in STREAMED:
        raise UserError(f"--pairs {path} is not a table", fix=f"give a file that ends in {' or '.join(STREAMED)}")
    try:
        table = polars.read_csv(path) if path.suffix == ".csv" else polars.read_parquet(path, memory_map=False)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise UserError(
            f"--pairs {path} cannot be read: {str(error).splitlines()[0]}",
            fix="give a table with columns source, target and, where links have relations, relation",
        ) from None
    return {name: table[name].to_list() for name in table.columns}


def _wanted(split: str) -> list[Split] | None:
    return None if split == "all" else [known for known in SPLITS if known == split]


def _origin(run: Judged, split: str) -> dict[str, Any]:
    """Origin of predictions, and what figures of them need besides: see `spec.kinds.kind`, predictions."""
    kind = run.plan.kind
    about: dict[str, Any] = {**run.facts(split), "task": kind.name}
    own = read_header(Path(run.plan.dataset.path)).kind_fields
    match kind.predictions:
        case PredictsClasses(truth=truth, predicted=predicted, names=key, several=several):
            about["class_names"] = own.get(key, [])
            about["class_columns"] = [truth, predicted]
            if several and own.get(several) == "labels":
                about["several_labels"] = True
        case PredictsSeries(unit=key):
            about["unit"] = own.get(key, "")
    return about


def check_format(output: Path, option: str = "--output", formats: Sequence[str] = FORMATS) -> None:
    """Raise a `UserError` if a file of that name cannot be written."""
    if output.suffix not in formats:
        raise UserError(
            f"{option} {output} ends in {output.suffix or 'nothing'}, which is not one of {', '.join(formats)}",
            fix=f"write {option} {output.with_suffix('.parquet')}",
        )


def write_predictions(predictions: Predictions, path: Path, about: Mapping[str, Any]) -> int:
    """Write the file in the format that its suffix names; returns its rows (of .npz: entries of the first value).

    Parquet carries `about` among its metadata, as JSON under the key `graphmill`; other formats have no such place.
    """
    if path.suffix == ".npz":
        arrays = {**predictions.axes, **{name: np.ma.filled(each) for name, each in predictions.values.items()}}
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        return int(np.prod([len(ids) for ids in predictions.axes.values()]))
    table = with_class_names(table_of(predictions), about)
    with replacing(path) as temporary:
        if path.suffix == ".csv":  # as float64, so that the text carries every bit of a float32
            table = table.with_columns(polars.col(polars.Float32).cast(polars.Float64))
            without_formulas(table).write_csv(temporary)
        else:
            table.write_parquet(temporary, metadata={ORIGIN: json.dumps(about)})
    return table.height


def table_of(predictions: Predictions) -> polars.DataFrame:
    """A row per item: its ids, then its values; `name_0`, `name_1`, … for vectors. Unknown values are null."""
    shape = tuple(len(ids) for ids in predictions.axes.values())
    columns: dict[str, NDArray[Any]] = {}
    for place, (name, ids) in enumerate(predictions.axes.items()):
        columns[name] = _spread(ids, shape, place)
    for name, values in predictions.values.items():
        if values.ndim > len(shape):
            flat = values.reshape(-1, values.shape[-1])
            columns |= {f"{name}_{number}": flat[:, number] for number in range(flat.shape[1])}
        else:
            columns[name] = _spread(values, shape, 0)
    return polars.DataFrame([_series(name, values) for name, values in columns.items()])


def with_class_names(table: polars.DataFrame, about: Mapping[str, Any]) -> polars.DataFrame:
    """The table with a column of names beside each column of class numbers, where the data name their classes.

    `prediction_name` stands behind `prediction`, and so on. `about`: whose predictions they are, and `class_names`.
    """
    names, columns = about.get("class_names") or (), []
    for name in table.columns:
        columns.append(polars.col(name))
        if names and name in about["class_columns"]:
            numbers = dict(enumerate(names))
            columns.append(
                polars.col(name).replace_strict(numbers, default=None, return_dtype=polars.String).alias(f"{name}_name")
            )
    return table.select(columns)


def _spread(values: NDArray[Any], shape: tuple[int, ...], place: int) -> NDArray[Any]:
    """`values`, whose first dimension is axis `place`, repeated along the other axes, flat."""
    wanted = (1,) * place + values.shape + (1,) * (len(shape) - place - values.ndim)
    if np.ma.isMaskedArray(values):
        mask = np.broadcast_to(np.ma.getmaskarray(values).reshape(wanted), shape).ravel()
        return np.ma.MaskedArray(np.broadcast_to(values.data.reshape(wanted), shape).ravel(), mask)
    return np.broadcast_to(values.reshape(wanted), shape).ravel()


def _series(name: str, values: NDArray[Any]) -> polars.Series:
    if not np.ma.isMaskedArray(values):
        return polars.Series(name, np.ascontiguousarray(values))
    known = polars.Series(~np.ma.getmaskarray(values))
    return polars.select(
        polars.when(known).then(polars.Series(np.ascontiguousarray(values.data))).alias(name)
    ).to_series()


if __name__ == "__main__":
    sys.exit(main())
