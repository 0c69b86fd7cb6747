"""From an experiment to a plan, with what is known of this machine and of the prepared data. Never imports torch."""

from collections.abc import Callable
from pathlib import Path

from graphmill.record.find_weights import find_initial_weights
from graphmill.runtime.machine import machine_facts
from graphmill.spec.experiment import Experiment
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.plan import MachineFacts, Plan, resolve
from graphmill.tasks.stores import (
    Preparation,
    Store,
    find_store,
    known_dataset,
    not_prepared,
    prepare_store,
    store_path,
)


def plan_experiment(
    experiment: Experiment,
    *,
    dataset_root: Path,
    run_id: str,
    machine: MachineFacts | None = None,
    hosts: int = 1,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """Open the dataset, look at the machine, make every choice. `say` gets a line where something is prepared first.

    `machine`: what each of the `hosts` has; this machine where it is None.
    """
    kind, report = find_kind(experiment.task.kind), say or _print
    dataset = open_dataset(kind, experiment.dataset.name, dataset_root, say=report).info(experiment.dataset)
    return resolve(
        experiment,
        machine=machine or _this_machine(),
        dataset=dataset,
        run_id=run_id,
        hosts=hosts,
        init_from=find_initial_weights(
            experiment.init_from, lambda name, problem: report(f"{name} is damaged and passed over: {problem}")
        ),
    )


def _this_machine() -> MachineFacts:
    facts = machine_facts()
    return MachineFacts(num_cores=facts.num_cores, num_gpus=facts.num_gpus, memory_mib=facts.memory_bytes / (1 << 20))


def open_dataset(kind: AnyKind, name: str, root: Path, *, say: Callable[[str], None]) -> Store:
    """The prepared dataset `name` under `root`, or the one in the folder `name`."""
    store = find_store(kind, name, root)
    if store is not None:
        return store
    known = known_dataset(kind, name)
    if known is not None and known.origin == "embedded":  # shipped with the package
        say(f"{name} is not prepared yet: building it in {store_path(name, root)}")
        return prepare_store(kind, Preparation(name, root, kind.prepare_options(), say=say))
    raise not_prepared(kind, name, root)


def _print(message: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(message, markup=False, highlight=False)
