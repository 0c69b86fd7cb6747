"""What is learnt from besides labels: a teacher's outputs, and which windows count in an epoch."""

import logging
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.batch import GraphBatch
from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.nn.graph_attention import mean_of_graphs
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.model import Detecting
from graphmill.tasks.intrusion.nn.vgae import CanVgae, Reconstruction
from graphmill.tasks.intrusion.page.models import CurriculumSpec, DistillSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A trained model that another learns from."""

    spec: DistillSpec
    model: CanGat | CanVgae  # not in training mode

    def of_logits(self, batch: GraphBatch, logits: Tensor, student_losses: Tensor) -> Tensor:
        """alpha · T² · KL(teacher ‖ student) + (1 − alpha) · `student_losses`, of every window [num_graphs].

        Hinton et al. 2015, arXiv 1503.02531: both probabilities are at the temperature T.
        """
        temperature, alpha = self.spec.temperature, self.spec.alpha
        with torch.no_grad():
            taught = F.log_softmax(self.model(batch).float() / temperature, dim=1)
        learnt = F.log_softmax(logits / temperature, dim=1)
        kl = F.kl_div(learnt, taught, reduction="none", log_target=True).sum(dim=1)
        return alpha * temperature**2 * kl + (1 - alpha) * student_losses

    def of_reconstruction(
        self, batch: GraphBatch, made: Reconstruction, student_losses: Tensor, student: Detecting
    ) -> Tensor:
        """alpha · (half of each squared error, means and features) + (1 − alpha) · `student_losses` [num_graphs]."""
        with torch.no_grad():
            taught: Reconstruction = self.model(batch)
        mean = made.mean if student.projection is None else student.projection(made.mean)
        errors = ((mean - taught.mean) ** 2).mean(dim=1) + ((made.features - taught.features) ** 2).mean(dim=1)
        of_windows = mean_of_graphs(errors.unsqueeze(1), batch.node_offsets).squeeze(1) / 2
        return self.spec.alpha * of_windows + (1 - self.spec.alpha) * student_losses


@dataclass(slots=True)
class Curriculum:
    """Which training windows count in an epoch: a function of (seed, epoch) alone."""

    spec: CurriculumSpec
    attacked: NDArray[np.int64]  # training windows with an attack
    benign: NDArray[np.int64]  # the others
    difficulty: NDArray[np.float64]  # of each of `benign`
    num_graphs: int
    num_epochs: int
    seed: int
    _latest: dict[int, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Say from which epoch on nothing is left to choose from."""
        for epoch in range(self.num_epochs):
            if round(self._at(epoch, self.spec.ratio) * len(self.attacked)) >= len(self.benign):
                _log.info(
                    f"curriculum: from epoch {epoch + 1} of {self.num_epochs} on every window counts, for"
                    f" {len(self.attacked):,} windows with an attack stand beside {len(self.benign):,} benign ones; a"
                    f" smaller train.curriculum.ratio than {list(self.spec.ratio)} leaves some out"
                )
                return

    def _at(self, epoch: int, bounds: tuple[float, float]) -> float:
        """Bound in an epoch, on the line from the first epoch's bound to the last one's."""
        first, last = bounds
        return first + epoch / max(1, self.num_epochs - 1) * (last - first)

    def counts(self, epoch: int) -> NDArray[np.bool_]:
        """Whether each window counts [num_graphs]: all with an attack, and benign ones that are drawn.

        They are drawn from those above the percentile; where these are too few for the ratio, the hardest are taken.
        """
        if epoch not in self._latest:
            self._latest = {epoch: self._drawn(epoch)}
        return self._latest[epoch]

    def _drawn(self, epoch: int) -> NDArray[np.bool_]:
        ratio, percentile = self._at(epoch, self.spec.ratio), self._at(epoch, self.spec.percentile)
        number = min(len(self.benign), round(ratio * len(self.attacked)))
        hardest_first = np.argsort(-self.difficulty, kind="stable")
        pool = max(number, len(self.benign) - int(len(self.benign) * percentile / 100))
        if number == pool < len(self.benign) and epoch == 0:
            _log.info(
                f"curriculum: {number:,} benign windows are wanted, and no more are above percentile {percentile:g}"
            )
        candidates = self.benign[hardest_first[:pool]]
        keys = keys_below(key_of(self.seed, Purpose.CURRICULUM, epoch), candidates)
        counts = np.zeros(self.num_graphs, bool)
        counts[self.attacked] = True
        counts[candidates[np.argsort(keys, kind="stable")[:number]]] = True
        return counts
