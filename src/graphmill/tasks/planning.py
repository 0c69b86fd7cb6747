"""From an experiment to a plan, with the facts of this machine and of the prepared data. Never imports torch."""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from graphmill.base.errors import UserError
from graphmill.base.names import nearest
from graphmill.graph.store import GraphStore
from graphmill.record.find_weights import find_initial_weights
from graphmill.runtime.machine import machine_facts
from graphmill.spec.experiment import Experiment, NodeClassificationExperiment, TrafficExperiment
from graphmill.spec.plan import DatasetFacts, GraphFacts, MachineFacts, Plan, resolve
from graphmill.tasks.node_classification.prepare import known_datasets, prepare, prepared_datasets, store_path
from graphmill.tasks.traffic.prepare import open_traffic

EMBEDDED = "debian-packages"  # shipped with the package: prepared when first asked for, and said


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
    match experiment:
        case NodeClassificationExperiment():
            dataset: DatasetFacts = _graph_facts(experiment.dataset.name, dataset_root, say=say or _print)
        case TrafficExperiment():
            asked = experiment.dataset
            dataset = open_traffic(asked.name, dataset_root).facts(asked.history, asked.horizon)
        case _:
            assert_never(experiment)
    report = say or _print
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


def _graph_facts(name: str, root: Path, *, say: Callable[[str], None]) -> GraphFacts:
    store = open_dataset(name, root, say=say)
    for split in ("val", "test"):
        if store.metadata.splits[split] == 0:
            raise UserError(
                f"{store.metadata.name} has no {split} nodes, and the best checkpoint is chosen by val, judged by test",
                fix=f"prepare it with such nodes, or with --random-split (see graphmill inspect {store.path})",
            )
    return store.facts()


def _this_machine() -> MachineFacts:
    facts = machine_facts()
    return MachineFacts(num_cores=facts.num_cores, num_gpus=facts.num_gpus, memory_mib=facts.memory_bytes / (1 << 20))


def open_dataset(name: str, root: Path, *, say: Callable[[str], None]) -> GraphStore:
    """The prepared dataset `name` under `root`, or the store at the path `name`."""
    as_path = Path(name).expanduser()
    if name.startswith(("/", "./", "../", "~")):
        return GraphStore.open(as_path)
    path = store_path(name, root)
    if (path / "metadata.json").exists():
        return GraphStore.open(path)
    if (as_path / "metadata.json").exists():
        return GraphStore.open(as_path)
    if name == EMBEDDED:
        say(f"{EMBEDDED} is not prepared yet: building it in {path}")
        return prepare(EMBEDDED, root=root, say=say)
    raise _unprepared(name, root)


def _unprepared(name: str, root: Path) -> UserError:
    known = {dataset.name for dataset in known_datasets()}
    if name in known:
        return UserError(f"{name} is not prepared under {root}", fix=f"graphmill prepare {name} --dataset-root {root}")
    prepared = {store.metadata.name for store in prepared_datasets(root)}
    match = nearest(name, known | prepared)
    suggestion = f"; did you mean {match!r}?" if match else ""
    return UserError(
        f"no dataset {name!r} is prepared under {root}{suggestion}",
        fix=f"graphmill prepare {name} --from PATH --dataset-root {root} (graphmill datasets lists what is there)",
    )


def _print(message: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(message, markup=False, highlight=False)
