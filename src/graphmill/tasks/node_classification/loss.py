"""What a classification is trained on and judged by: cross-entropy by class weights, or what users define."""

import torch
from torch import Tensor

from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.kinds.node_classification import CrossEntropySpec, NodeClassificationPlan
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures


def class_weights(own: NodeClassificationPlan, labels: Tensor, device: torch.device) -> Tensor | None:
    """float32 [num_classes]; None if each seed counts 1. `labels`: of all seeds that are trained on.

    A class without a seed has the weight 0 if they are balanced: nothing is learnt of it either way.
    """
    match own.loss.class_weights if isinstance(own.loss, CrossEntropySpec) else "none":
        case "none":
            return None
        case "balanced":
            counts = torch.bincount(labels, minlength=own.dataset.num_classes).double()
            balanced = len(labels) / (own.dataset.num_classes * counts)
            return torch.where(counts > 0, balanced, 0.0).float().to(device)
        case given:
            return torch.tensor(given, dtype=torch.float32, device=device)


def custom_loss(plan: Plan, own: NodeClassificationPlan, group: Group) -> CustomLoss | None:
    """The user-defined loss, of logits [num_seeds, num_classes] and labels [num_seeds]; None: cross-entropy."""
    if not isinstance(own.loss, CustomLossSpec):
        return None
    return CustomLoss.of(own.loss, seed=plan.seed, rank=group.rank, device=group.device)


def check_judgement(plan: Plan, own: NodeClassificationPlan) -> None:
    """Try a user-defined loss and measures on made-up logits; `UserError` where one does not fit."""
    device = torch.device(plan.device)
    loss, measures = custom_loss(plan, own, Group(0, 1, device)), CustomMeasures.of(plan)
    logits, labels = _made_up(own.dataset.num_classes, device)
    if loss is not None:
        loss.try_out(logits, labels)
    measures.of_split(logits.cpu(), labels.cpu())


def _made_up(num_classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits [num_nodes, num_classes] and labels [num_nodes] of a few nodes, among them one of each class at least."""
    labels = torch.arange(max(8, 2 * num_classes), device=device) % num_classes
    return torch.randn(len(labels), num_classes, device=device), labels
