"""What detectors without a graph score: counts of ids and their gaps, a linear model of pairs of ids, and trees."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_in_words
from graphmill.tasks.intrusion.boosting import boosting_cost, scores_by_boosting, why_no_boosting
from graphmill.tasks.intrusion.data.splits import SPLITS
from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.judge import measured
from graphmill.tasks.intrusion.page import BOOSTING, PAIRS, RATES, IntrusionPlan
from graphmill.tasks.intrusion.pairs import scores_by_pairs
from graphmill.tasks.intrusion.statistic import Frequencies
from graphmill.tasks.intrusion.threshold import choose_threshold


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of intrusion detection. The threshold is chosen on the validation windows."""
    assert isinstance(own, IntrusionPlan)
    store = CaptureStore.open(Path(own.dataset.path))
    codes, labels = store.split_codes(own.division), np.asarray(store.labels)
    is_train, is_val, windows = codes == SPLITS.index("train"), codes == SPLITS.index("val"), store.windows()
    for name in names:
        why_not = _why_not(name, labels[is_train], labels[is_val])
        if name == BOOSTING.name and bounded and not why_not:
            operations, num_bytes = boosting_cost(windows)
            if operations > MOST_OPERATIONS or num_bytes > MOST_BYTES:
                work = work_in_words(operations, num_bytes)
                why_not = f"it would take {work}: graphmill baseline {own.dataset.name} --all scores it"
        if why_not:
            yield from (BaselineScore(name, split, None, why_not) for split in splits)
            continue
        scores = _scores(name, windows, labels, is_train)
        threshold = choose_threshold(scores[is_val], labels[is_val] == 1).value
        for split in splits:
            ids = np.flatnonzero(codes == SPLITS.index(split))
            yield BaselineScore(name, split, measured(store, ids, scores[ids], threshold))


def _why_not(name: str, train: NDArray[np.int64], val: NDArray[np.int64]) -> str:
    """Why a baseline cannot be scored with these labels; "": it can."""
    if len(np.unique(val)) < 2:
        return "the validation windows are all of one kind, and no threshold can be chosen"
    if name != RATES.name and len(np.unique(train)) < 2:
        return "the training windows are all of one kind"
    if name == BOOSTING.name and (why_not := why_no_boosting()):
        return why_not
    return "" if (train == 0).any() else "no training window is benign"


def _scores(
    name: str, windows: WindowGraphs, labels: NDArray[np.int64], is_train: NDArray[np.bool_]
) -> NDArray[np.float64]:
    if name == PAIRS.name:
        return scores_by_pairs(windows, labels, is_train)
    if name == BOOSTING.name:
        return scores_by_boosting(windows, labels, is_train)
    return Frequencies.fit(windows, is_train & (labels == 0)).score(windows)
