"""Splits of nodes: learned from, chosen by, judged by; and what sources give of them, as one int8 code per node."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean

SplitName = Literal["train", "val", "test", "none"]
SPLIT_CODES: Final[dict[SplitName, int]] = {"train": 0, "val": 1, "test": 2, "none": -1}

Split = Literal["train", "val", "test"]
"""Name of a set of items that a model is trained on, chosen by or judged by."""
SPLITS: Final[tuple[Split, ...]] = get_args(Split)
SPLIT_NAMES: Final[dict[str, int]] = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "none": -1, "": -1}
MASK_KEYS: Final[dict[str, SplitName]] = {"train_mask": "train", "val_mask": "val", "test_mask": "test"}
"""Keys of a .npz file."""


def first_columns(masks: Mapping[SplitName, NDArray[Any]]) -> tuple[dict[SplitName, NDArray[Any]], str]:
    """Masks [num_nodes] of masks that may have a column per split, as PyG's have, and the words that say so."""
    wide = {name: mask.shape[1] for name, mask in masks.items() if mask.ndim == 2 and mask.shape[1]}
    note = f", the first of {max(wide.values())} splits" if wide else ""
    return {name: mask[:, 0] if name in wide else mask for name, mask in masks.items()}, note


def split_from_masks(masks: Mapping[SplitName, NDArray[Any]], num_nodes: int, *, place: str) -> NDArray[np.int8]:
    """Codes [num_nodes] from one mask per split name; a node in two of them is refused."""
    split = np.full(num_nodes, SPLIT_CODES["none"], dtype=np.int8)
    for name, mask in masks.items():
        if mask.shape != (num_nodes,) or not _is_mask(mask):
            raise UserError(
                f"{place}: the {name} mask is {mask.dtype} {list(mask.shape)}, and there are {num_nodes} nodes",
                fix="give one boolean per node",
            )
        chosen = mask.astype(np.bool_)
        twice = np.flatnonzero(chosen & (split != SPLIT_CODES["none"]))
        if len(twice):
            other = next(key for key, code in SPLIT_CODES.items() if code == split[twice[0]])
            raise UserError(
                f"{place}: node {twice[0]} is in the {other} and the {name} split ({len(twice)} such nodes)",
                fix="let each node be in one split at most",
            )
        split[chosen] = SPLIT_CODES[name]
    return split


def split_from_ids(ids: Mapping[SplitName, NDArray[Any]], num_nodes: int, *, place: str) -> NDArray[np.int8]:
    """Codes [num_nodes] from the node ids of each split name."""
    masks: dict[SplitName, NDArray[Any]] = {}
    for name, members in ids.items():
        outside = np.flatnonzero((members < 0) | (members >= num_nodes))
        if len(outside):
            raise UserError(
                f"{place}: row {outside[0]} of the {name} split names node {members[outside[0]]} of {num_nodes} nodes",
                fix="correct the split, or give the missing nodes",
            )
        masks[name] = np.zeros(num_nodes, dtype=np.bool_)
        masks[name][members] = True
    return split_from_masks(masks, num_nodes, place=place)


def split_from_names(names: Sequence[str | None], *, place: Callable[[int], str]) -> NDArray[np.int8]:
    """Codes from train, val (valid, validation), test and none (or nothing), in any case.

    `place` says where a row is, for errors.
    """
    cleaned = [(name or "").strip().lower() for name in names]
    unknown = next((row for row, name in enumerate(cleaned) if name not in SPLIT_NAMES), None)
    if unknown is not None:
        raise UserError(
            f"{place(unknown)}: {names[unknown]!r} is not a split", fix=did_you_mean(cleaned[unknown], SPLIT_CODES)
        )
    return np.array([SPLIT_NAMES[name] for name in cleaned], dtype=np.int8)


def split_of_archive(arrays: Mapping[str, NDArray[Any]], num_nodes: int, path: Path) -> tuple[NDArray[np.int8], str]:
    """Codes [num_nodes] of the keys `split` or `*_mask` of a .npz file, and the words that say where they are from."""
    masks, note = first_columns({name: arrays[key] for key, name in MASK_KEYS.items() if key in arrays})
    note = f"as given in the file{note}"
    if "split" in arrays:
        split = _split_from_codes(arrays["split"], num_nodes, path)
        for name, mask in masks.items():
            if not np.array_equal(split == SPLIT_CODES[name], mask):
                raise UserError(f"{path}: split and {name}_mask are different splits", fix="keep one of them")
        return split, note
    if "train" not in masks:
        raise UserError(
            f"{path} has no split: neither train_mask (val_mask, test_mask) nor split",
            fix="add one, or split 60/20/20 at random: --random-split",
        )
    return split_from_masks(masks, num_nodes, place=str(path)), note


def _split_from_codes(split: NDArray[Any], num_nodes: int, path: Path) -> NDArray[np.int8]:
    if split.shape != (num_nodes,) or split.dtype.kind not in "iuU":
        raise UserError(
            f"{path}, key split: {split.dtype} {list(split.shape)} for {num_nodes} nodes",
            fix="give one code or name per node",
        )
    if split.dtype.kind == "U":
        return split_from_names([str(name) for name in split], place=lambda row: f"{path}, key split, node {row}")
    outside = np.flatnonzero((split < -1) | (split > 2))
    if len(outside):
        raise UserError(
            f"{path}, key split: node {outside[0]} has {split[outside[0]]}", fix="use 0 train, 1 val, 2 test, -1 none"
        )
    return split.astype(np.int8)


def random_codes(is_known: NDArray[np.bool_], seed: int) -> tuple[NDArray[np.int8], str]:
    """60 % train, 20 % val, 20 % test of the nodes that are known [num_nodes], and the sentence that says so."""
    known = np.flatnonzero(is_known)
    if not len(known):
        raise UserError("no node has a label, and a split is of labelled nodes", fix="leave --random-split out")
    shuffled = np.random.default_rng(seed).permutation(known)
    first, second = round(0.6 * len(shuffled)), round(0.8 * len(shuffled))
    split = np.full(len(is_known), SPLIT_CODES["none"], dtype=np.int8)
    split[shuffled[:first]] = SPLIT_CODES["train"]
    split[shuffled[first:second]] = SPLIT_CODES["val"]
    split[shuffled[second:]] = SPLIT_CODES["test"]
    return split, f"random 60/20/20 of the labelled nodes, seed {seed}, drawn by graphmill"


def _is_mask(mask: NDArray[Any]) -> bool:
    return mask.dtype == np.bool_ or (mask.dtype.kind in "iu" and bool(np.isin(mask, (0, 1)).all()))
