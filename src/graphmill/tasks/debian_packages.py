"""The embedded real data set `debian-packages`, which more than one task learns from: the reader of its one file.

Nodes are binary packages of the Debian archive, edges say what depends on what, the label is the archive section, and
time splits them: train = packages of bullseye, validation = new in bookworm, test = new in trixie or sid. The file is
made from apt's package lists by tools/build_debian_packages.py of a checkout, whose head says what was assumed.

It is a plain `.npz` (`numpy.load(path, allow_pickle=False)` reads it) whose members are LZMA-compressed and whose last
bytes, the comment of the zip archive, are the SHA-256 of all bytes before them.
"""

import hashlib
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json

RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests")  # strongest first; the position is the edge kind
TRAIN, VAL, TEST = 0, 1, 2
CHECKSUM_BYTES = 64  # SHA-256 in hexadecimal
_MAX_UNPACKED_BYTES = 1 << 30  # the real file unpacks to some 13 MB
_UNPACKING = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error)


@dataclass(frozen=True, eq=False)
class DebianPackages:
    """Packages, what they depend on, the words that describe them. Strings are tuples: an array would pad them all."""

    names: tuple[str, ...]  # [num_nodes], sorted
    edge_index: NDArray[np.int64]  # [2, num_edges] row 0 depends on row 1; columns sorted; no loops, no duplicates
    edge_kind: NDArray[np.int8]  # [num_edges] position in RELATIONS
    x_indptr: NDArray[np.int64]  # [num_nodes + 1] where each node's words begin in the next two
    x_indices: NDArray[np.int32]  # [nnz] positions in words, rising within a node
    x_counts: NDArray[np.uint8]  # [nnz] how often the word occurs, at most 255
    words: tuple[str, ...]  # [num_words] the most common in training first: the first k are the vocabulary of size k
    labels: NDArray[np.int64]  # [num_nodes] position in class_names
    class_names: tuple[str, ...]  # [num_classes] archive sections
    split: NDArray[np.int8]  # [num_nodes] TRAIN, VAL or TEST
    metadata: Mapping[str, Any]  # suites, dates of the lists, what was left out: JSON values

    @property
    def num_words(self) -> int:
        """How many features a node has."""
        return len(self.words)


def _is_within(values: NDArray[Any], limit: int) -> bool:
    return values.ndim == 1 and (values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < limit))


def find_problems(data: DebianPackages) -> Iterator[str]:
    """What is inconsistent in the arrays; a check relies on those before it, so ask for the first problem only."""
    n, strings = len(data.names), (*data.names, *data.words, *data.class_names)
    if not all(text and "\n" not in text for text in strings):
        yield "a name is empty or has a line break"
    if not n or not data.words or any(a >= b for a, b in pairwise(data.names)):
        yield "there are no words, or names are not sorted and distinct"
    if data.split.shape != (n,) or set(data.split.tolist()) != {TRAIN, VAL, TEST}:
        yield "the split does not give each of train, val and test a node"
    if data.labels.shape != (n,) or not _is_within(data.labels, len(data.class_names)):
        yield "labels are not [num_nodes] class numbers"
    edges, kinds = data.edge_index, data.edge_kind
    if edges.shape != (2, kinds.size) or not (_is_within(edges.ravel(), n) and _is_within(kinds, len(RELATIONS))):
        yield "edges are not pairs of node numbers, each of a known kind"
    if (edges[0] == edges[1]).any() or (np.diff(edges[0] * n + edges[1]) <= 0).any():
        yield "edges are not sorted, or hold loops or duplicates"
    lengths = np.diff(data.x_indptr)
    if lengths.shape != (n,) or data.x_indptr[0] != 0 or (lengths < 0).any():
        yield "x_indptr is not [num_nodes + 1] rising positions from 0"
    sizes = {int(data.x_indptr[-1]), data.x_indices.size, data.x_counts.size}
    if len(sizes) > 1 or not _is_within(data.x_indices, data.num_words):
        yield "x_indices and x_counts are not [nnz] word numbers and counts"
    if (np.diff(np.repeat(np.arange(n), lengths) * data.num_words + data.x_indices) <= 0).any():
        yield "word numbers do not rise within a node"


def _content(path: Path) -> bytes:
    if path.stat().st_size > _MAX_UNPACKED_BYTES:
        raise ValueError("it is larger than a GiB")
    return path.read_bytes()


def _unpack(content: bytes) -> DebianPackages:
    if hashlib.sha256(content[:-CHECKSUM_BYTES]).hexdigest().encode() != content[-CHECKSUM_BYTES:]:
        raise ValueError("its checksum does not match: it is cut short, was altered, or never was one")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED_BYTES:
            raise ValueError("it would unpack to more than a GiB")
        members = {name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False) for name in archive.namelist()}
    arrays = {name.removesuffix(".npy"): array for name, array in members.items()}
    texts = {name: arrays[name].tobytes().decode() for name in ("names", "words", "class_names", "metadata")}
    source = np.repeat(np.arange(len(arrays["out_degree"])), arrays["out_degree"])
    data = DebianPackages(
        names=tuple(texts["names"].split("\n")),
        edge_index=np.stack([source, arrays["edge_target"]]).astype(np.int64),
        edge_kind=arrays["edge_kind"].astype(np.int8),
        x_indptr=np.concatenate([[0], np.cumsum(arrays["x_row_length"], dtype=np.int64)]),
        x_indices=arrays["x_indices"].astype(np.int32),
        x_counts=arrays["x_counts"].astype(np.uint8),
        words=tuple(texts["words"].split("\n")),
        labels=arrays["labels"].astype(np.int64),
        class_names=tuple(texts["class_names"].split("\n")),
        split=arrays["split"].astype(np.int8),
        metadata=parse_json(texts["metadata"]),
    )
    if problem := next(find_problems(data), None):
        raise ValueError(problem)
    return data


def read_compact(path: Path) -> DebianPackages:
    """Read a compact file; one that is cut short, altered or at odds with itself is refused."""
    try:
        return _unpack(_content(path))
    except (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, MemoryError, *_UNPACKING) as error:
        raise UserError(
            f"{path} is not a package data set: {error}",
            fix="leave --from out for the one that comes with graphmill, or install graphmill again; of other package "
            "lists one is made in a checkout: python tools/build_debian_packages.py FOLDER_OF_LISTS FILE.npz",
        ) from error


def read_shipped() -> DebianPackages:
    """The file that ships with graphmill."""
    with resources.as_file(resources.files("graphmill.tasks") / "debian-packages.npz") as path:
        return read_compact(path)
