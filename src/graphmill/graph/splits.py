"""Splits of nodes: which of them are learned from, chosen by, judged by; and the code of each in an array."""

from typing import Final, Literal, get_args

SplitName = Literal["train", "val", "test", "none"]
SPLIT_CODES: Final[dict[SplitName, int]] = {"train": 0, "val": 1, "test": 2, "none": -1}

Split = Literal["train", "val", "test"]
"""Name of a set of items that a model is trained on, chosen by or judged by."""
SPLITS: Final[tuple[Split, ...]] = get_args(Split)
