"""Dense features that lie in several tables, read as if they were one: nothing is copied before a batch is made."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill import _native
from graphmill.graph.features import DenseFeatures, FeatureDtype, Features
from graphmill.graph.sampled import StorageIds


@dataclass(frozen=True, slots=True)
class StackedFeatures:
    """Tables of one width and format, one under another: row r of the second is row r + len(first) here."""

    x: _native.RowStack  # what native gathers read in place of an array
    tables: tuple[DenseFeatures, ...]

    @classmethod
    def of(cls, tables: Sequence[Features]) -> "StackedFeatures":
        """Stack at least one table; all must be dense."""
        dense = tuple(table for table in tables if isinstance(table, DenseFeatures))
        if len(dense) != len(tables):
            raise TypeError("sparse rows cannot be stacked")
        return cls(_native.RowStack([table.x for table in dense]), dense)

    @property
    def num_features(self) -> int:
        """Columns."""
        return self.tables[0].num_features

    @property
    def dtype(self) -> FeatureDtype:
        """Number format."""
        return self.tables[0].dtype

    def take(self, rows: StorageIds, num_threads: int) -> DenseFeatures:
        """The rows [n], in that order, copied into a table of their own."""
        x = np.empty((len(rows), self.num_features), dtype=self.tables[0].x.dtype)
        self.x.copy(rows, x, num_threads)
        return DenseFeatures(x, self.dtype)
