"""Plan an experiment with what is known of this machine and of the prepared data. Never imports torch."""

import logging
from functools import cache
from pathlib import Path
from typing import Any, Final

from graphmill.record.find_weights import find_initial_weights, find_sources
from graphmill.record.weights import warn_of_damage
from graphmill.runtime.machine import machine_info
from graphmill.runtime.trust import code_in, vouch_for
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.experiment import Experiment
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.extras import Sampling
from graphmill.spec.kinds.kind import AnyKind, DatasetInfo
from graphmill.spec.partition import parts_named
from graphmill.spec.plan import MachineInfo, NumBatches, Plan, resolve
from graphmill.tasks.stores import (
    CutsByBudget,
    Preparation,
    Store,
    find_store,
    known_dataset,
    load,
    not_prepared,
    prepare_store,
    store_path,
)

_log = logging.getLogger(__name__)
_EPOCHS: Final = 200  # where nothing says how long
_PATIENCE: Final = 20
_FEW: Final = 1_000
_PATIENCE_OF_FEW: Final = 50  # with fewer than so many to train on


def plan_experiment(
    experiment: Experiment,
    *,
    dataset_root: Path,
    run_id: str,
    machine: MachineInfo | None = None,
    hosts: int = 1,
) -> Plan:
    """Open the dataset, look at the machine, make every choice. Nothing is prepared or written.

    If the data are not prepared and the catalogue knows their sizes, the plan is made from those, a message says so,
    and the plan cannot be trained. `machine`: what each of the `hosts` has; this machine if it is None. Code that the
    experiment names is the person's own word, in this process (`runtime.trust`).
    """
    vouch_for(code_in(experiment.model_dump(mode="json")))
    kind = find_kind(experiment.task.kind)

    store = find_store(kind, experiment.dataset.name, dataset_root)
    dataset = _published(kind, experiment, dataset_root) if store is None else store.info(experiment.dataset)
    experiment = _with_end(experiment, experiment.dataset.train_limit or dataset.num_train)
    plan = resolve(
        experiment,
        machine=machine or _this_machine(),
        dataset=dataset,
        run_id=run_id,
        hosts=hosts,
        init_from=find_initial_weights(experiment.init_from, warn_of_damage),
        sources=find_sources(experiment.sources, warn_of_damage),
        num_batches=_num_batches(experiment, store),
    )
    plan = _with_schedule(plan)
    given = "batch_size" in experiment.train.model_fields_set and experiment.train.batch_size != "auto"
    if plan.budget is not None and given:
        _tell_once(f"not used: train.batch_size={experiment.train.batch_size}, since train.batch has a budget")
    if plan.task.unused:
        _tell_once(f"not used: {plan.task.unused}")
    if plan.task.evaluation:
        _tell_once(f"evaluated {plan.task.evaluation} (train.evaluate_on)")
    return plan


def _with_end(experiment: Experiment, num_train: int) -> Experiment:
    """Set an end where none is given: long enough that the validation score no longer improves.

    Scores of small data jump from one epoch to the next, and their epochs cost little.
    """
    train = experiment.train
    if train.epochs is not None or train.max_steps is not None:
        return experiment
    stops = train.early_stopping
    if "early_stopping" not in train.model_fields_set and train.evaluate_every_epochs:
        stops = EarlyStoppingSpec(patience=_PATIENCE_OF_FEW if num_train < _FEW else _PATIENCE)
    update: dict[str, Any] = {"epochs": _EPOCHS, "early_stopping": stops}
    until = f", or until {stops.patience} evaluations in a row bring no better score on the validation split"
    until = until if stops.patience else ""
    _tell_once(f"for {_EPOCHS} epochs{until}: neither train.epochs nor train.max_steps is given")
    return experiment.model_copy(update={"train": train.model_copy(update=update)})


def _with_schedule(plan: Plan) -> Plan:
    """The plan, with where its presampled epochs are, if it reads such; `UserError` if they are another run's."""
    folder, sampled = plan.task.presampled_in, plan.kind.extra(Sampling)
    if folder is None or sampled is None or not plan.dataset.is_prepared:
        return plan
    from graphmill.sample.presampled.schedule import EpochSource, identity_to_read, refuse_missing

    source: EpochSource = load(sampled.presample)(plan)
    found = source.folder(Path(folder).absolute())
    identity_to_read(found.path, found.identity)
    refuse_missing(found, plan.calendar.num_epochs)
    return plan.model_copy(update={"task": plan.task.reading_presampled(str(found.path))})


@cache
def _tell_once(text: str) -> None:
    """A study plans many runs on the same data."""
    _log.info(text)


def _this_machine() -> MachineInfo:
    facts = machine_info()
    return MachineInfo(
        num_cores=facts.num_cores,
        num_gpus=facts.num_gpus,
        memory_mib=facts.memory_bytes / (1 << 20),
        gpu_names=facts.gpu_names,
    )


def _num_batches(experiment: Experiment, store: Store | None) -> NumBatches | None:
    """How batches by budget are counted; None: not without prepared data of such a kind."""
    if not isinstance(store, CutsByBudget):
        return None

    def count(max_nodes: int, max_edges: int, ranks: int) -> int:
        return store.num_batches(
            experiment.dataset, rng_seed=experiment.train.seed, max_nodes=max_nodes, max_edges=max_edges, ranks=ranks
        )

    return count


def _published(kind: AnyKind, experiment: Experiment, root: Path) -> DatasetInfo:
    """What the catalogue knows of data that are not prepared, if that is enough."""
    name = experiment.dataset.name
    parts = parts_named(name)
    known = known_dataset(kind, name if parts is None else parts.dataset)
    info: DatasetInfo | None = None
    if known is not None:
        info = kind.data.from_catalogue(experiment, known, str(store_path(name, root).absolute()))
    if info is None:
        raise not_prepared(kind, name, root)
    # A warning, so that a script that plans without its data hears of it, too.
    _log.warning(f"{name}: sizes from the catalogue; not prepared here ({root})")
    return info


def prepare_embedded(experiment: Experiment, root: Path) -> None:
    """Prepare the experiment's dataset if it is shipped with the package and not prepared yet; for what is to train."""
    kind, name = find_kind(experiment.task.kind), experiment.dataset.name
    known = known_dataset(kind, name)
    if known is None or known.origin != "embedded" or find_store(kind, name, root) is not None:
        return
    _log.info(f"{name} is not prepared yet: building it in {store_path(name, root)}")
    prepare_store(kind, Preparation(name, root, kind.data.options()))
