"""What is trained on, and measures that ranks can add up, where each item has several labels at once (multi-label).

A model gives a logit for each label; a label is predicted where its probability exceeds one half.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.graph.sampled import AnySeeds
from graphmill.sample.collect import Labels
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.classification import ClassifierLossSpec, CrossEntropySpec
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.classification import custom_loss
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.task import Measures


def predicted(logits: Tensor) -> Tensor:
    """Which labels a model says an item has, bool [n, num_labels]: those with a probability over one half."""
    return logits > 0


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """One rank's sums, float64 [2 + 3 · num_labels]: loss, items; of each label right ones, true ones, predicted ones.

    Args:
        logits: [n, num_labels].
        labels: 0 and 1, int8 [n, num_labels].
    """
    loss = F.binary_cross_entropy_with_logits(logits.double(), labels.double(), reduction="sum") / labels.shape[1]
    sums = torch.tensor([float(loss), len(labels)], dtype=torch.float64)
    return torch.cat([sums, _counts(predicted(logits), labels == 1)])


def measures(total: Tensor) -> Measures:
    """The measures of tallies added up over the ranks.

    As scikit-learn's `f1_score` of label matrices has them: micro_f1 is the F1 of all (item, label) pairs together,
    macro_f1 the mean over the labels of their F1, which is 0 of a label that neither occurs nor is predicted. So
    macro_f1_all_classes is the same number.
    """
    loss, num_items = total[:2].tolist()
    hits, truths, guesses = total[2:].view(3, -1).numpy()  # whose means are rounded as scikit-learn's are
    f1 = 2 * hits / (truths + guesses).clip(min=1)
    macro = float(f1.mean())
    return Measures(
        loss=loss / num_items,
        values={
            "micro_f1": float(2 * hits.sum() / (truths + guesses).sum().clip(min=1)),
            "macro_f1": macro,
            "macro_f1_all_classes": macro,
        },
        num_seeds=int(num_items),
    )


def measures_of_guesses(guesses: NDArray[Any], labels: NDArray[np.integer[Any]]) -> dict[str, float]:
    """The measures of predicted labels, 0 and 1 or bool [n, num_labels], where the true ones are `labels`."""
    no_loss = torch.tensor([0.0, len(labels)], dtype=torch.float64)
    counts = _counts(torch.from_numpy(guesses == 1), torch.from_numpy(labels == 1))
    return measures(torch.cat([no_loss, counts])).values


def roc_auc(outputs: Tensor, truths: Tensor) -> float:
    """Area under the ROC curve, a mean over the labels that some items have and others not: as OGB's evaluator has it.

    A measure for `train.measures`, by its dotted path. Ties count one half, as scikit-learn's `roc_auc_score` has it.

    Args:
        outputs: logits [n, num_labels].
        truths: 0 and 1 [n, num_labels].

    Returns:
        The mean; NaN where no label is had by some items and not by others.
    """
    areas = [_area(outputs[:, label], truths[:, label] == 1) for label in range(truths.shape[1])]
    known = [area for area in areas if area is not None]
    return sum(known) / len(known) if known else float("nan")


def _area(scores: Tensor, is_true: Tensor) -> float | None:
    """Area under the ROC curve by ranks (Mann-Whitney) of scores [n]; None: all are true, or none is."""
    num_true = int(is_true.sum())
    num_false = len(is_true) - num_true
    if not num_true or not num_false:
        return None
    _, group, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    rank = last - (sizes.double() - 1) / 2  # of equal scores the mean of their ranks
    of_true = float(rank[group[is_true]].sum())
    return (of_true - num_true * (num_true + 1) / 2) / (num_true * num_false)


def _counts(guesses: Tensor, truths: Tensor) -> Tensor:
    """Counts of each label, float64 [3 · num_labels]: items that rightly have it, that have it, that are given it."""
    return torch.cat([each.sum(dim=0).double() for each in (guesses & truths, truths, guesses)])


def positive_weights(spec: ClassifierLossSpec, labels: Tensor, device: torch.device) -> Tensor | None:
    """How much a 1 counts beside a 0, by label, float32 [num_labels]; None: as much.

    Args:
        spec: balanced: as much as there are zeros for each one.
        labels: of all seeds that are trained on, int8 [num_seeds, num_labels].
        device: of the result.
    """
    match spec.class_weights if isinstance(spec, CrossEntropySpec) else "none":
        case "none":
            return None
        case "balanced":
            ones = (labels == 1).sum(dim=0).double()
            return torch.where(ones > 0, (len(labels) - ones) / ones.clip(min=1), 1.0).float().to(device)
        case given:
            return torch.tensor(given, dtype=torch.float32, device=device)


@dataclass(frozen=True, slots=True)
class LabelsLoss:
    """What several labels are trained on: binary cross-entropy, a mean over labels, in nats; or the user's own."""

    spec: ClassifierLossSpec
    positive_weights: Tensor | None  # float32 [num_labels], on the device; None: a 1 counts as a 0 does
    custom: CustomLoss | None  # None: binary cross-entropy

    @classmethod
    def of(cls, plan: Plan, spec: ClassifierLossSpec, group: Group, *, labels: Tensor) -> "LabelsLoss":
        """`labels` [num_seeds, num_labels]: of all seeds that are trained on."""
        return cls(spec, positive_weights(spec, labels, group.device), custom_loss(plan, spec, group))

    def weights(
        self, schedule: SeedSchedule | BudgetSchedule, labels: Labels, epoch: int, step: int
    ) -> tuple[float, ...]:
        """The seeds of every rank at a step: each counts 1, whatever the weights of its labels."""
        del labels
        return schedule.counts(epoch, step)

    def sum(self, seeds: AnySeeds, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of float32 logits [num_seeds, num_labels] and labels of that shape: mean over labels, sum over seeds."""
        truths = labels.to(logits.dtype)
        if self.custom is not None:
            return self.custom.sum(seeds, logits, truths) / labels.shape[1]
        assert isinstance(self.spec, CrossEntropySpec)
        if smoothing := self.spec.label_smoothing:
            truths = truths * (1 - smoothing) + smoothing / 2
        total = F.binary_cross_entropy_with_logits(logits, truths, pos_weight=self.positive_weights, reduction="sum")
        return total / labels.shape[1]

    @torch.no_grad()
    def of_split(self, seeds: AnySeeds, logits: Tensor, labels: Tensor, cross_entropy: Tensor) -> Tensor:
        """The loss of a rank's share of a split: the user's own, or `cross_entropy` [], which knows no weights."""
        if self.custom is None or not len(labels):
            return cross_entropy if self.custom is None else torch.zeros_like(cross_entropy)
        return self.sum(seeds, logits.float(), labels).double().to(cross_entropy)


def check_judgement(plan: Plan, spec: ClassifierLossSpec, num_labels: int) -> None:
    """Try a user-defined loss and measures on made-up logits; `UserError` where one does not fit."""
    device = torch.device(plan.device)
    own_loss, own_measures = custom_loss(plan, spec, Group(0, 1, device)), CustomMeasures.of(plan)
    logits = torch.randn(8, num_labels, device=device)
    labels = (torch.arange(8 * num_labels, device=device) % 3 == 0).view(8, num_labels)
    if own_loss is not None:
        try:
            own_loss.try_out(logits, labels.float())
        except UserError as error:
            raise UserError(
                error.message,
                fix=f"{error.fix}; of {num_labels} labels for each node truths are 0. and 1. [n, {num_labels}], as"
                " torch.nn.BCEWithLogitsLoss takes them",
            ) from error
    own_measures.of_split(logits.cpu(), labels.long().cpu())
