"""`evaluate` and `predict`: use the weights of a run, on its own data or on others."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from graphmill.api.using import ALL_SPLITS, Facts, choices, files, in_a_process, requested_pairs
from graphmill.base.errors import UserError
from graphmill.cli.agree import agree_to_code
from graphmill.cli.options import DatasetRoot, Json, LogsRoot
from graphmill.cli.show import Cell, print_facts, print_json

if TYPE_CHECKING:
    from graphmill.cli.bench_run import DataOf
    from graphmill.graph.splits import Split
    from graphmill.record.run_folder import RunFolder
    from graphmill.record.weights import Which
    from graphmill.spec.kinds.extras import Bench
    from graphmill.spec.kinds.kind import AnyKind

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id or a run folder.")]
WeightsOption = Annotated[
    str, typer.Option("--weights", metavar="best|last", help="Of the best checkpoint, or of the last.")
]
OtherData = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", show_default=False, help="Other prepared data; else those of the run."),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="cpu|cuda", show_default=False, help="Where; else on what the run was planned for."),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="DOTTED.PATH",
        show_default=False,
        help="Code of the run that may be imported although you have not run it on this machine. Repeatable.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(evaluate)
    app.command()(predict)


def evaluate(
    run: Run,
    *,
    split: Annotated[str, typer.Option(metavar="SPLIT", help="train, val or test.")] = "test",
    weights: WeightsOption = "best",
    dataset: OtherData = None,
    root: DatasetRoot = None,
    device: Device = None,
    trust: Trust = None,
    speed_ups: Annotated[
        bool,
        typer.Option("--speed-ups", help="Also what its predictions save the solver, over others: as bench, briefly."),
    ] = False,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Evaluate the weights of a run.

    Exact: layer by layer, with all neighbours.

    \b
    Example:
      graphmill evaluate logs/debian-packages-sage-20261121T081500Z --split val
      graphmill evaluate cora-sage-1 --weights last --dataset planetoid/cora --dataset-root /data
      graphmill evaluate trained-on-a-gpu-1 --device cpu
      graphmill evaluate logs/assignment-one-gnn-20261124T101500Z --speed-ups
    """
    agree, options = partial(agree_to_code, trust=trust), choices(split, weights, dataset, root, device)
    if not speed_ups:
        facts = in_a_process("evaluate", run, logs_root, options, agree)
        _show(facts, json=json, title=f"{run}: {split}")
        return
    from graphmill.cli.bench_run import DataOf, measured, show_summary
    from graphmill.cli.find_run import find_run

    folder = find_run(run, logs_root)
    agree(folder)  # its plan names the task
    kind, bench = _benched(folder)
    data = DataOf(cast("Which", weights), dataset, root)
    facts = _evaluated_here(folder, cast("Split", split), data, device)
    bench_options = bench.options.model_validate({"split": split, **bench.brief})
    benched = measured(kind, bench, folder, bench_options, data)
    if json:
        print_json({**facts, "speed_ups": benched.summary})
        return
    _show(facts, json=False, title=f"{run}: {split}")
    show_summary(benched.summary, title=f"speed-ups; more: graphmill bench {kind.name} {run}")


def _evaluated_here(folder: "RunFolder", split: "Split", data: "DataOf", device: str | None) -> Facts:
    """What an evaluation in a process of its own says, where this one needs torch anyhow."""
    from graphmill.train.evaluate import measured, open_run
    from graphmill.train.where_data_are import DataChoice

    opened = open_run(folder, data.weights, DataChoice(data.dataset, data.dataset_root), device=device)
    return measured(opened, split, folder)


def _benched(folder: "RunFolder") -> "tuple[AnyKind, Bench]":
    """The kind of the run's task, and how it measures; `UserError` if it does not measure what runs are worth."""
    from graphmill.spec.kinds.extras import Bench

    kind = folder.read_plan().kind
    bench = kind.extra(Bench)
    if bench is None:
        raise UserError(f"the task {kind.name} has nothing that its runs speed up", fix="leave out --speed-ups")
    return kind, bench


def predict(
    run: Run,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Ends in .parquet, .csv or .npz.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(metavar="SPLIT", help="train, val, test, or all there is.")] = "test",
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Also what the last layer, or the head, reads of every node.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(
            "--attention",
            metavar="FILE",
            help="Also, or only, the attention of every edge, layer and head. Ends in .parquet or .csv.",
            show_default=False,
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Of link prediction, in place of a split: a table (.csv, .parquet) of source, target[, relation].",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="K",
            help="Of link prediction: the K best targets of each source in --pairs, or of every node.",
            show_default=False,
        ),
    ] = None,
    weights: WeightsOption = "best",
    dataset: OtherData = None,
    root: DatasetRoot = None,
    device: Device = None,
    trust: Trust = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Write the predictions of a run to a file.

    With ids, and with the ground truth if it is known; by the same inference as evaluate.

    \b
    Example:
      graphmill predict logs/debian-packages-sage-20261121T081500Z --output test.parquet
      graphmill predict cora-sage-1 --split all --embeddings --output all.npz
      graphmill predict cora-gat-1 --split all --attention attention.parquet
      graphmill predict dependencies-1 --top 10 --output likely.parquet
    """
    options = choices(split, weights, dataset, root, device, splits=ALL_SPLITS)
    options += files(output, attention, embeddings=embeddings) + requested_pairs(pairs, top)
    facts = in_a_process("predict", run, logs_root, options, partial(agree_to_code, trust=trust))
    _show(facts, json=json, title=f"{run}: {split}")


def _show(facts: dict[str, Cell], *, json: bool, title: str) -> None:
    if json:
        print_json(facts)
    else:
        print_facts(list(facts.items()), title=title)
