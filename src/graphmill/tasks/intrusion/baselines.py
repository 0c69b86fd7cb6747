"""What a detector without a graph scores: counts of ids and their gaps, against benign training windows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphmill.spec.kinds.intrusion import IntrusionPlan
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.intrusion.judge import measured
from graphmill.tasks.intrusion.splits import SPLITS
from graphmill.tasks.intrusion.statistic import Frequencies
from graphmill.tasks.intrusion.store import CaptureStore
from graphmill.tasks.intrusion.threshold import choose_threshold
from graphmill.tasks.task import Split


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of intrusion detection. The threshold is chosen on the validation windows."""
    del bounded  # all of it is little work
    assert isinstance(own, IntrusionPlan)
    store = CaptureStore.open(Path(own.dataset.path))
    codes, labels = store.split_codes(own.division), np.asarray(store.labels)
    is_fitted = (codes == SPLITS.index("train")) & (labels == 0)
    is_val = codes == SPLITS.index("val")
    why_not = "" if is_fitted.any() else "no training window is benign"
    if len(np.unique(labels[is_val])) < 2:
        why_not = "the validation windows are all of one kind, and no threshold can be chosen"
    for name in names:
        if why_not:
            yield from (BaselineScore(name, split, None, why_not) for split in splits)
            continue
        windows = store.windows()
        scores = Frequencies.fit(windows, is_fitted).score(windows)
        threshold = choose_threshold(scores[is_val], labels[is_val] == 1).value
        for split in splits:
            ids = np.flatnonzero(codes == SPLITS.index(split))
            yield BaselineScore(name, split, measured(store, ids, scores[ids], threshold))
