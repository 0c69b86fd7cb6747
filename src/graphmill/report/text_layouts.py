"""A run as the text that another program writes: a view of its records (`graphmill logs --layout NAME`)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.events import Epoch, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.targets import TARGET

_ACCURACY: Final = "micro_f1"  # of one class per node, that is the share of right answers


def as_text(folder: RunFolder, layout: str) -> str:
    """What the program called `layout` would have written about the run, as far as it is recorded."""
    if layout not in TEXT_LAYOUTS:
        known = list(TEXT_LAYOUTS)
        raise UserError(
            f"there is no text layout {layout!r}; {did_you_mean(layout, known)}", fix=f"--layout {known[0]}"
        )
    return "".join(f"{line}\n" for line in TEXT_LAYOUTS[layout](folder))


def _dist_sage_sup(folder: RunFolder) -> Iterator[str]:
    """dist_sage_sup.txt of GraphLearn-for-PyTorch's supervised GraphSAGE, every trainer's lines by epoch.

    Epochs count from 0 there. Tested is once, exactly, over all trainers, with the best checkpoint.
    """
    plan = folder.read_plan()
    yield "--- Distributed training example of supervised SAGE ---"
    yield from (f"* {key}: {value}" for key, value in _arguments(plan).items() if value is not None)
    yield "--- Loading data partition ..."
    yield "--- Launching training processes ..."
    epochs = {rank: _epochs(folder, rank) for rank in range(plan.ranks)}
    for number in sorted({number for own in epochs.values() for number in own}):
        for rank, own in epochs.items():
            if number in own:
                epoch = own[number]
                time = f", Epoch Time: {epoch.train_s}"
                yield f"-- [Trainer {rank}] Epoch: {number - 1:03d}, Loss: {epoch.loss:.4f}{time}"
    outcome = folder.read_outcome()
    is_accuracy = plan.task.dataset.model_dump().get(TARGET, "class") == "class"
    tested = outcome.test.get(_ACCURACY) if is_accuracy and outcome is not None and outcome.test is not None else None
    if tested is not None:
        yield f"-- [Trainer 0] Test Acc: {tested:.4f}"


def _arguments(plan: Plan) -> Mapping[str, object]:
    """Arguments as the program's command line calls them; a value is None where the task has none."""
    data = plan.task.dataset.model_dump()
    return {
        "dataset": plan.dataset.name,
        "in_channel": data.get("num_features"),
        "out_channel": data.get("num_classes"),
        "num_dataset_partitions": data.get("num_parts"),
        "dataset_root_dir": plan.dataset.path,
        "num_nodes": plan.hosts,
        "num_training_procs": plan.ranks // plan.hosts,
        "epochs": plan.calendar.num_epochs,
        "batch_size": plan.batch_size,
    }


def _epochs(folder: RunFolder, rank: int) -> dict[int, Epoch]:
    """Epochs of a rank by number; if an epoch was repeated after a resume, the last one."""
    path = folder.events_path(rank)
    return {event.epoch: event for event in (events_in(path, Epoch) if path.exists() else [])}


TEXT_LAYOUTS: Final[Mapping[str, Callable[[RunFolder], Iterator[str]]]] = {"dist-sage-sup": _dist_sage_sup}
