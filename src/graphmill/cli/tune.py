"""`tune`: a search for the values of an experiment's keys."""

import logging
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.api.planning import make_plan
from graphmill.base import exits
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, Overrides
from graphmill.cli.show import Cell, print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.cluster.launch.tune import Tuning
    from graphmill.record.trials import SearchTrial
    from graphmill.spec.search import Search

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tune)


def tune(
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT|SEARCH", help="A YAML file, or the name of a recipe.")
    ],
    *,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", metavar="N", show_default=False, help="Trials in all; without --hours 20, else no limit."
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            metavar="H",
            show_default=False,
            help="Of searching, over interruptions; of all processes together.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", show_default=False, help="Folder of its runs; else tune-EXPERIMENT."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", show_default=False, help="Of the choice of values; else 0.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="N,N…",
            show_default=False,
            help="Train every trial with each of them, and compare means; else the experiment's own.",
        ),
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option("--prune/--no-prune", show_default=False, help="Stop trials that fall behind early; the default."),
    ] = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is searched, and stop.")] = False,
    json: Json = False,
) -> None:
    """Search for the hyperparameters of an experiment, by its score on the validation split.

    Trials are runs, one after another; with --seeds one for each seed. What is searched is in a file; of an experiment
    alone, its learning rate, weight decay, dropout, width and depth. The first trial is the experiment as it is. Ctrl-C
    stops the search (75), and the same command continues it; more --trials or --hours extend it. The same command in
    several processes, or jobs, shares the trials out. Needs Optuna: pip install 'graphmill[tune]'.

    \b
    Example:
      graphmill tune cora-sage --trials 30
      graphmill tune search-cora --hours 2
      graphmill submit --run --time 2:10:00 -- graphmill tune search-cora --hours 2

    \b
    A search file:
      name: tune-cora
      experiment: cora-sage
      set: {train.epochs: 100}
      space:
        train.optimizer.lr: {low: 1.0e-3, high: 1.0e-1, log: true}
        model.hidden_channels: [32, 64, 128]
      trials: 30
    """
    from graphmill.config.yaml_text import parse_value
    from graphmill.spec.search import load_search

    listed = None if seeds is None else parse_value(f"[{seeds}]", source="--seeds")
    changes = {"trials": trials, "hours": hours, "name": name, "seed": seed, "seeds": listed, "prune": prune}
    search = load_search(experiment, override or [], changes)
    if dry_run:
        _print_space(search, json=json)
        return
    from graphmill.cluster.launch.asking import require_optuna
    from graphmill.cluster.launch.trial import stdout_is_stderr
    from graphmill.cluster.launch.tune import prepare, run_search

    require_optuna()
    with stdout_is_stderr() if json else nullcontext():
        tuning = prepare(
            search,
            logs_root=logs_root,
            planner=lambda resolved, run_id: make_plan(resolved, root, run_id, to_train=True, logs_root=logs_root),
        )
        code = run_search(tuning)
    if code != exits.DONE:
        _log.info(f"{search.name}: stopped after {tuning.describe()}; the same command continues")
        raise typer.Exit(code)
    if not _print_result(tuning, json=json):
        raise typer.Exit(exits.ANSWER_IS_NO)


def _print_space(search: "Search", *, json: bool) -> None:
    from graphmill.spec.search import load_trial, own_values, searched_keys

    keys = searched_keys(search)
    own = own_values(keys, load_trial(search, {}))
    if json:
        print_json({**search.model_dump(mode="json"), "trials": search.most_trials, "first": own})
        return
    print_table(("key", "values"), [[key.key, str(key)] for key in keys], title=f"searched by {search.name}")
    limits = [f"{search.most_trials} trials" if search.most_trials else "", f"{search.hours} h" if search.hours else ""]
    first = "the experiment as it is" if own else "drawn: the space does not hold the experiment's own values"
    seeds = f", each with the seeds {', '.join(map(str, search.seeds))}" if search.seeds else ""
    print_line(f"{search.name}: up to {' or '.join(filter(None, limits))}{seeds}; the first is {first}")


def _print_result(tuning: "Tuning", *, json: bool) -> bool:
    """Print what was found. Returns whether anything was, or may be: others are at trials."""
    best, trials = tuning.write_best(), tuning.folder.trials()
    importances, elsewhere = tuning.asking.importances(trials), tuning.elsewhere()
    facts = None if best is None else _best(tuning, best)
    if json:
        print_json(
            {
                "search": tuning.search.name,
                "folder": tuning.folder.path,
                "measure": tuning.measure.name,
                "higher_is_better": tuning.measure.higher_is_better,
                "spent_s": tuning.folder.spent_s(),
                "best": facts,
                "importance": importances,
                "elsewhere": elsewhere,
                "trials": [
                    {
                        "trial": trial.number,
                        "state": trial.state,
                        **_runs(tuning, trial),
                        "val": _score(trial),
                        **({"val_of_seeds": _of_seeds(trial)} if tuning.search.seeds else {}),
                        "values": trial.values,
                        "why": "" if trial.end is None else trial.end.why,
                    }
                    for trial in trials
                ],
            }
        )
        return facts is not None or bool(elsewhere)
    heads = [key.key.rpartition(".")[2] for key in tuning.keys]
    spread = ["s.d."] if tuning.search.seeds[1:] else []
    rows: list[list[Cell]] = [
        [
            *(trial.name, trial.state, _score(trial), *(_sd(trial) for _ in spread)),
            *(_cell(trial.values[key.key]) for key in tuning.keys),
        ]
        for trial in trials
    ]
    print_table(("trial", "state", f"val {tuning.measure.name}", *spread, *heads), rows)
    if importances:
        shares = ", ".join(f"{key} {share:.0%}" for key, share in importances.items())
        print_line(f"what told good trials from the others: {shares}")
    if facts is not None:
        print_facts([(key, _fact(value)) for key, value in facts.items()], title="the best by its validation score:")
    for name, owner in elsewhere.items():
        print_line(f"{name} is under way: {owner}")
    advice = "" if facts or elsewhere else "; none is complete: give it more"
    print_line(f"{tuning.search.name}: {tuning.describe()}{advice}")
    return facts is not None or bool(elsewhere)


def _best(tuning: "Tuning", best: "SearchTrial") -> dict[str, Any]:
    """What the best trial is, and what trains with its values; its test score has chosen nothing."""
    from graphmill.spec.search import trial_overrides

    name, test = tuning.measure.name, tuning.test_scores(best)
    source = tuning.search.experiment
    words = [f"-O {shlex.quote(text)}" for text in trial_overrides(tuning.search, best.values)]
    saved = f"graphmill train {tuning.best_path}"
    return {
        "trial": best.name,
        **_runs(tuning, best),
        f"val {name}": _score(best),
        **({"val of seeds": _of_seeds(best), "test of seeds": test} if tuning.search.seeds else {}),
        f"test {name}": fmean(test) if test else None,
        "train it": saved,
        **({"or": " ".join(["graphmill train", source, *words])} if isinstance(source, str) else {}),
    }


def _runs(tuning: "Tuning", trial: "SearchTrial") -> dict[str, Any]:
    runs = [str(run.path) for run in tuning.runs(trial)]
    return {"runs": runs} if tuning.search.seeds else {"run": runs[0]}


def _score(trial: "SearchTrial") -> float | None:
    return None if trial.score is None else round(trial.score, 6)


def _of_seeds(trial: "SearchTrial") -> list[float]:
    return [] if trial.end is None else [round(score, 6) for score in trial.end.of_seeds]


def _sd(trial: "SearchTrial") -> float | None:
    return None if trial.end is None or not trial.end.of_seeds[1:] else round(stdev(trial.end.of_seeds), 6)


def _fact(value: Any) -> str:  # noqa: ANN401  # what `_best` has
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cell(value: Any) -> Cell:  # noqa: ANN401  # any JSON value
    return f"{value}" if value is None or isinstance(value, list | Mapping) else value
