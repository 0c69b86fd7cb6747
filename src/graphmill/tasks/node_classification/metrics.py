"""Measures of a classification, from a confusion matrix: sums that any number of ranks can add up."""

import torch
from torch import Tensor

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

    micro_f1 is the accuracy, for every node has one label. macro_f1 is the mean F1 over the classes that occur or are
    predicted, as scikit-learn's `f1_score(average="macro")` has it. macro_f1_all_classes is the mean over all classes
    of the data, those that do neither counting 0: what the sync-ablation scripts call macro-F1.
    """
    confusion = total[1:].view(num_classes, num_classes).numpy()  # whose means are rounded as scikit-learn's are
    hits, truths, guesses = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    num_nodes = confusion.sum()
    seen = truths + guesses
    f1 = 2 * hits / seen.clip(min=1)
    return Measures(
        loss=float(total[0] / num_nodes),
        values={
            "micro_f1": float(hits.sum() / num_nodes),
            "macro_f1": float(f1[seen > 0].mean()),
            "macro_f1_all_classes": float(f1.mean()),
        },
        num_seeds=int(num_nodes),
    )
