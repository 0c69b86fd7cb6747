"""What step.py gives to all its contenders."""

from dataclasses import dataclass

import numpy as np

from graphs import Graph

FANOUTS, HIDDEN, CLASSES = (25, 10), 256, 41


@dataclass
class Problem:
    graph: Graph
    x: np.ndarray
    y: np.ndarray
    seeds: list[np.ndarray]
    threads: int

    @property
    def num_features(self) -> int:
        """Columns of `x`."""
        return int(self.x.shape[1])
