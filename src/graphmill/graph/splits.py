"""Splits of nodes: which of them are learned from, chosen by, judged by; and the code of each in an array."""

from typing import Final, Literal

SplitName = Literal["train", "val", "test", "none"]
SPLIT_CODES: Final[dict[SplitName, int]] = {"train": 0, "val": 1, "test": 2, "none": -1}
