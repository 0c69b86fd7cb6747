"""Plans of earlier versions, read as they would be written now: one function per change, the oldest first."""

from typing import Any, Final

Document = dict[str, Any]


def upgrade_plan(document: Document) -> Document:
    """The content of a plan.json in the current form; one that is in it already, or is not a plan, is left as it is."""
    for upgrade in _UPGRADES:
        document = upgrade(document)
    return document


def _calendar(document: Document) -> Document:
    """Epochs of one length became lengths of epochs."""
    old = ("epochs", "steps_per_epoch", "steps_per_rank")
    if not all(name in document for name in old):
        return document
    rest = {name: value for name, value in document.items() if name not in old}
    epochs, length, last_step = (document[name] for name in old)
    return {**rest, "epoch_lengths": [[epochs, length]], "last_step": last_step}


def _optimizer(document: Document) -> Document:
    """Adam's settings became a section, for other optimizers to take its place."""
    old = ("lr", "lr_schedule", "lr_milestones", "lr_gamma", "weight_decay", "adam_eps", "max_grad_norm")
    if not all(name in document for name in old):
        return document
    schedule: Document = {"kind": document["lr_schedule"]}
    if schedule["kind"] == "multistep":
        schedule |= {"milestones": document["lr_milestones"], "gamma": document["lr_gamma"]}
    optimizer = {
        "kind": "adam",
        "lr": document["lr"],
        "weight_decay": document["weight_decay"],
        "eps": document["adam_eps"],
        "max_grad_norm": document["max_grad_norm"],
        "schedule": schedule,
    }
    return {**{name: value for name, value in document.items() if name not in old}, "optimizer": optimizer}


def _loss(document: Document) -> Document:
    """The loss of a classification became one of several kinds."""
    task = document.get("task")
    if not isinstance(task, dict):
        return document
    loss = task.get("loss")
    if not isinstance(loss, dict) or "class_weights" not in loss or "kind" in loss:
        return document
    return {**document, "task": {**task, "loss": {"kind": "cross_entropy", **loss}}}


_UPGRADES: Final = (_calendar, _optimizer, _loss)
