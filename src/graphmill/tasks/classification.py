"""What tasks that tell classes apart have in common: what is trained on, and measures that ranks can add up."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.sampled import AnySeeds
from graphmill.sample.collect import Labels
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.classification import ClassifierLossSpec, CrossEntropySpec
from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.task import Measures


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """One rank's sums: [loss sum, confusion matrix…] as float64 [1 + num_classes²]; rows are true classes."""
    num_classes = logits.shape[1]
    loss = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
    cells = labels * num_classes + logits.argmax(dim=1)
    confusion = torch.bincount(cells, minlength=num_classes**2)
    return torch.cat([loss.reshape(1), confusion.double()])


def measures(total: Tensor, num_classes: int) -> Measures:
    """The measures of tallies added up over the ranks.

    micro_f1 is the accuracy, for everything has one label. macro_f1 is the mean F1 over the classes that occur or are
    predicted, as scikit-learn's `f1_score(average="macro")` has it. macro_f1_all_classes is the mean over all classes
    of the data, those that do neither counting 0: what the sync-ablation scripts call macro-F1.
    """
    confusion = total[1:].view(num_classes, num_classes).numpy()  # whose means are rounded as scikit-learn's are
    hits, truths, guesses = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    num_judged = confusion.sum()
    seen = truths + guesses
    f1 = 2 * hits / seen.clip(min=1)
    return Measures(
        loss=float(total[0] / num_judged),
        values={
            "micro_f1": float(hits.sum() / num_judged),
            "macro_f1": float(f1[seen > 0].mean()),
            "macro_f1_all_classes": float(f1.mean()),
        },
        num_seeds=int(num_judged),
    )


def measures_of_guesses(guesses: NDArray[np.int64], labels: NDArray[np.int64], num_classes: int) -> dict[str, float]:
    """The measures of predicted classes [n] where the true ones are `labels` [n]."""
    cells = np.bincount(labels * num_classes + guesses, minlength=num_classes**2)
    no_loss: Tensor = torch.zeros(1, dtype=torch.float64)
    return measures(torch.cat([no_loss, torch.from_numpy(cells).double()]), num_classes).values


def class_weights(loss: ClassifierLossSpec, num_classes: int, labels: Tensor, device: torch.device) -> Tensor | None:
    """float32 [num_classes]; None if each seed counts 1. `labels`: of all seeds that are trained on.

    A class without a seed has the weight 0 if they are balanced: nothing is learnt of it either way.
    """
    match loss.class_weights if isinstance(loss, CrossEntropySpec) else "none":
        case "none":
            return None
        case "balanced":
            counts = torch.bincount(labels, minlength=num_classes).double()
            balanced = len(labels) / (num_classes * counts)
            return torch.where(counts > 0, balanced, 0.0).float().to(device)
        case given:
            return torch.tensor(given, dtype=torch.float32, device=device)


def custom_loss(plan: Plan, loss: ClassifierLossSpec, group: Group) -> CustomLoss | None:
    """The user-defined loss, of logits [num_seeds, num_classes] and labels [num_seeds]; None: cross-entropy."""
    if not isinstance(loss, CustomLossSpec):
        return None
    return CustomLoss.of(loss, seed=plan.seed, rank=group.rank, device=group.device)


@dataclass(frozen=True, slots=True)
class ClassifierLoss:
    """What a classification is trained on: cross-entropy by the weights of classes, in nats, or the user's own."""

    spec: ClassifierLossSpec
    class_weights: Tensor | None  # float32 [num_classes], on the device; None: every seed counts 1
    custom: CustomLoss | None  # None: cross-entropy

    @classmethod
    def of(
        cls, plan: Plan, spec: ClassifierLossSpec, group: Group, *, num_classes: int, labels: Tensor
    ) -> "ClassifierLoss":
        """`labels` [num_seeds]: of all seeds that are trained on."""
        return cls(spec, class_weights(spec, num_classes, labels, group.device), custom_loss(plan, spec, group))

    def weights(
        self, schedule: SeedSchedule | BudgetSchedule, labels: Labels, epoch: int, step: int
    ) -> tuple[float, ...]:
        """What the seeds of every rank count together at a step: sums of their classes' weights, or their number.

        `labels` [n]: of all there are, by the ids of seeds.
        """
        if self.class_weights is None:
            return schedule.counts(epoch, step)
        of_class = self.class_weights.double().cpu().numpy()
        return tuple(float(of_class[labels[ids]].sum()) for ids in schedule.shares(epoch, step))

    def sum(self, seeds: AnySeeds, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum of the losses of logits [num_seeds, num_classes] in float32 and labels [num_seeds]."""
        if isinstance(self.spec, CrossEntropySpec):
            smoothing, weight = self.spec.label_smoothing, self.class_weights
            return F.cross_entropy(logits, labels, weight=weight, label_smoothing=smoothing, reduction="sum")
        assert self.custom is not None
        return self.custom.sum(seeds, logits, labels)

    @torch.no_grad()
    def of_split(self, seeds: AnySeeds, logits: Tensor, labels: Tensor, cross_entropy: Tensor) -> Tensor:
        """The loss of a rank's share of a split: the user's own, or `cross_entropy` [], which knows no weights."""
        if self.custom is None or not len(labels):
            return cross_entropy if self.custom is None else torch.zeros_like(cross_entropy)
        return self.custom.sum(seeds, logits.float(), labels).double().to(cross_entropy)


def check_judgement(plan: Plan, loss: ClassifierLossSpec, num_classes: int) -> None:
    """Try a user-defined loss and measures on made-up logits; `UserError` where one does not fit."""
    device = torch.device(plan.device)
    own_loss, own_measures = custom_loss(plan, loss, Group(0, 1, device)), CustomMeasures.of(plan)
    logits, labels = _made_up(num_classes, device)
    if own_loss is not None:
        own_loss.try_out(logits, labels)
    own_measures.of_split(logits.cpu(), labels.cpu())


def _made_up(num_classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits [n, num_classes] and labels [n], among them one of each class at least."""
    labels = torch.arange(max(8, 2 * num_classes), device=device) % num_classes
    return torch.randn(len(labels), num_classes, device=device), labels
