"""`graphmill.plan`: from what is asked for to a plan of this machine."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphmill.base.arguments import items_of, path_of
from graphmill.base.errors import InvalidInputError
from graphmill.base.messages import messages_shown

if TYPE_CHECKING:
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.plan import Plan

    Asked = str | os.PathLike[str] | Mapping[str, Any] | Experiment | None

_log = logging.getLogger(__name__)

RUN_ID_OF_A_PLAN: Final = "planned"
Overrides = Mapping[str, Any] | Sequence[str]


@messages_shown()
def plan(
    experiment: "Asked" = None,
    overrides: Overrides = (),
    *,
    ranks: int | None = None,
    run_id: str = RUN_ID_OF_A_PLAN,
    dataset_root: str | os.PathLike[str] | None = None,
    **values: Any,  # noqa: ANN401  # whatever a key takes
) -> "Plan":
    """What an experiment resolves to, as `graphmill plan` shows it. Nothing is prepared or written.

    Args:
        experiment: a YAML file, the name of a recipe, the experiment itself or a dict of its keys; None: the recipe
            debian-packages-sage.
        overrides: laid over it, as by `-O`: a dict such as `{"train.sync.every": 4}`, or texts such as
            `["train.sync.every=4"]`.
        ranks: processes to start, as `{"train.ranks": ranks}`.
        run_id: the name of the run in the plan.
        dataset_root: where prepared data are; else $GRAPHMILL_DATA_ROOT, ….
        values: overrides whose keys have no dot (`train={…}` replaces the whole section), and the short flags of the
            command: epochs, batch_size, num_neighbors, hidden_channels, num_layers, dropout, lr, weight_decay, seed,
            sync_every, sync_scheme, max_steps, memory_budget.

    Returns:
        The plan: every choice made, as plan.json has it (`model_dump_json(indent=2)`).

    Raises:
        UserError: the request cannot be met; with what clashes (`message`) and what to type (`fix`).

    Example:
        graphmill.plan("cora-sage", {"train.sync.every": 4}, epochs=3).calendar
    """
    loaded = experiment_of(experiment, overrides_of(overrides, values), ranks)
    return planned(loaded, root_of(dataset_root), str(run_id))


def planned(experiment: "Experiment", root: Path | None, run_id: str, *, to_train: bool = False) -> "Plan":
    """The plan for so many hosts as its section slurm asks for, each like this one; its own code is tried."""
    from graphmill.cluster.launch.check_model import refuse_unfit_model

    hosts = experiment.slurm.hosts
    if hosts > 1:
        _log.info(f"slurm.hosts is {hosts}: each is taken to have what this machine has")
    resolved = make_plan(experiment, root, run_id, to_train=to_train, hosts=hosts)
    refuse_unfit_model(resolved)
    return resolved


def experiment_of(
    experiment: "Asked",
    overrides: Sequence[str],
    ranks: int | None = None,
) -> "Experiment":
    """The experiment with all overrides, each as `-O` takes it."""
    from graphmill.config.yaml_text import parse_value
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.load import inline_experiment, load_experiment

    texts = [*overrides, *([] if ranks is None else [f"train.ranks={ranks}"])]
    if isinstance(experiment, Experiment):
        experiment = experiment.model_dump(mode="json", exclude_unset=True)
    if isinstance(experiment, Mapping):
        plain = {str(key): parse_value(_text(key, each), source="experiment") for key, each in experiment.items()}
        return inline_experiment(plain, "experiment", texts)
    if experiment is None:
        return load_experiment(None, texts)
    path_of("experiment", experiment)  # refuses what is none
    return load_experiment(os.fspath(experiment), texts)


def overrides_of(overrides: Overrides, values: Mapping[str, Any]) -> list[str]:
    """Overrides as `-O` takes them, from those of a call; `values`: keys without a dot, and short flags."""
    from graphmill.spec.flags import SHORT_FLAGS, short_flags

    if isinstance(overrides, Mapping):
        texts = [f"{key}={_text(key, value)}" for key, value in overrides.items()]
    else:
        texts = [overrides] if isinstance(overrides, str) else [str(each) for each in items_of("overrides", overrides)]
    written = {name: _text(name, value) for name, value in values.items()}
    texts += [f"{name}={text}" for name, text in written.items() if name not in SHORT_FLAGS]
    return short_flags({name: text for name, text in written.items() if name in SHORT_FLAGS}).over(texts)


def _text(key: str, value: Any) -> str:  # noqa: ANN401  # whatever a key takes
    from graphmill.config.yaml_text import flow_text

    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    try:
        given = given.item() if hasattr(given, "item") else given  # a number of numpy's, or of torch's
        return flow_text(list(given) if isinstance(given, tuple) else given)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{key} is {value!r:.40}", fix="give text, a number, True, False, None, or a list or dict of such"
        ) from None


def root_of(dataset_root: str | os.PathLike[str] | None) -> Path | None:
    """The folder of prepared data that a call names."""
    return None if dataset_root is None else path_of("dataset_root", dataset_root)


def make_plan(
    experiment: "Experiment",
    root: Path | None,
    run_id: str,
    *,
    to_train: bool = False,
    hosts: int = 1,
    logs_root: Path = Path("logs"),
) -> "Plan":
    """Resolve an experiment on this machine, or on `hosts` like it.

    `to_train`: prepare its data first, if they come with the package, and look for the size of its batches and the
    number of its threads, if they are to be found; else what was found before in the `logs_root` is taken.
    """
    from graphmill.runtime.roots import dataset_root as found_root
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    dataset_root = found_root(root, os.environ)

    def plan_of(variant: "Experiment") -> "Plan":
        return plan_experiment(variant, dataset_root=dataset_root, run_id=run_id, hosts=hosts)

    if to_train:
        prepare_embedded(experiment, dataset_root)
    threads = experiment.train.threads
    if threads == "trial":  # the most of them are planned first
        experiment = experiment.model_copy(update={"train": experiment.train.model_copy(update={"threads": "auto"})})
    if experiment.train.sizing is None:
        plan = plan_of(experiment)
    else:
        from graphmill.estimate.batch_size import BatchSizes

        plan = BatchSizes(logs_root, may_try=to_train).plan(experiment, plan_of)
    if threads != "trial":
        return plan
    from graphmill.cluster.launch.threads import fewest_threads

    return fewest_threads(plan, logs_root, may_try=to_train)
