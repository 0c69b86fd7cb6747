"""The embedded real data set `debian-packages`: made from apt's package lists, kept in one compact file.

Nodes are binary packages of the Debian archive, edges say what depends on what, the label is the archive section, and
time splits them: train = packages of bullseye, validation = new in bookworm, test = new in trixie or sid. Assumed:

- A package of several suites is one node. Section and description are those of the latest suite; relations are the
  union over the suites, so the graph is transductive: a training package may be tied to one that came later.
- Relations are Pre-Depends, Depends, Recommends and Suggests; of several to one package the strongest counts. So does
  every alternative of `a | b`; versions and architecture qualifiers do not.
- A name that only `Provides` carries denotes the packages that provide it, up to MAX_PROVIDERS of them: beyond, the
  name is a role anyone may fill (editor, dictd-dictionary) and would tie packages that have nothing in common.
- Features count the words of the description, short and long. Neither section, name, tags nor maintainer is read into
  them. The words are chosen on the training packages alone: test descriptions decide nothing.

The compact file is a plain `.npz` (`numpy.load(path, allow_pickle=False)` reads it) whose members are LZMA-compressed
and whose last bytes, the comment of the zip archive, are the SHA-256 of all bytes before them.

A parser of our own, because python-debian takes 4.6 to 6.2 s for a list that is read here in 1.5 s, and is GPL.
"""

import hashlib
import io
import json
import lzma
import os
import re
import struct
import subprocess
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.packed import open_packed

SCRIPT_VERSION = 1  # raise it when the same lists would give another file
SUITES = ("bullseye", "bookworm", "trixie", "sid")  # oldest first
RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests")  # strongest first; the position is the edge kind
MAX_PROVIDERS = 10
MAX_WORDS = 4000
MAX_SHARE = 0.25  # a word in more than this share of the training descriptions is uninformative: "the", "package"
TRAIN, VAL, TEST = 0, 1, 2

_Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]
_WORD = re.compile(r"[a-z]{3,}")
_TARGET = re.compile(r"(?:^|[,|])\s*([A-Za-z0-9][A-Za-z0-9+.-]*)")  # stops at ":any", "(>= 1)", "[amd64]", "<!nocheck>"
_LIST = re.compile(  # host_debian_dists_bookworm_main_binary-amd64_Packages.xz, or bookworm/Packages.xz
    r"(?P<prefix>(?:.*_dists_)?(?P<dist>[^/]+?)[_/])(?P<part>[^_/]+_)?(?:binary-(?P<arch>[^_]+)_)?Packages"
    r"(?P<ending>\.xz|\.gz|\.lz4|)"
)
_RELEASE_FIELD = re.compile(r"^(Origin|Codename|Date): *(.+?) *$", re.MULTILINE)
_FIELDS = frozenset({*RELATIONS, "Package", "Section", "Provides", "Description", "Description-md5", "Description-en"})
_CHECKSUM_BYTES = 64  # SHA-256 in hexadecimal
_MAX_UNPACKED_BYTES = 1 << 30  # the real file unpacks to some 13 MB
_UNPACKING = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error)
_FETCH_AGAIN = "Fetch the list again (apt-get update), or unpack it where it lies."
_WHICH_LISTS = (
    f"Give a folder of apt package lists of two or more of {', '.join(SUITES)}: /var/lib/apt/lists after `apt-get "
    "update` with these suites in the sources, or folders such as bullseye/ and sid/ with a file Packages[.xz] each."
)


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


@dataclass(frozen=True)
class _PackageList:
    suite: int  # position in SUITES
    dist: str  # as the archive calls it: bookworm, bookworm-updates
    arch: str  # empty if the file's name does not say
    packages: Path
    translation: Path  # may not be there
    date: str | None


def _describe_list(folder: Path, match: re.Match[str]) -> _PackageList | None:
    """One package list, or None if it belongs to another archive, to backports, or to a suite that is not ours."""
    released = [folder / f"{match['prefix']}{name}" for name in ("InRelease", "Release")]
    texts = [path.read_text(encoding="utf-8", errors="replace")[:4096] for path in released if path.is_file()]
    release = dict(_RELEASE_FIELD.findall(texts[0])) if texts else {}
    dist = release.get("Codename", {"unstable": "sid"}.get(match["dist"], match["dist"]))
    suite = re.sub(r"-(updates|security)$", "", dist)
    if suite not in SUITES or release.get("Origin", "Debian") != "Debian":
        return None
    infix = f"{match['part']}i18n_" if match["part"] else ""
    translation = folder / f"{match['prefix']}{infix}Translation-en{match['ending']}"
    year, month, day = (parsedate(release.get("Date", "")) or (0, 0, 0))[:3]
    date = f"{year:04}-{month:02}-{day:02}" if year else None
    return _PackageList(SUITES.index(suite), dist, match["arch"] or "", folder / match.string, translation, date)


def _find_lists(folder: Path) -> list[_PackageList]:
    """All package lists of `folder`, oldest suite first, in an order that does not depend on the file system."""
    found: dict[str, _PackageList] = {}  # by name without ending: a list kept packed and unpacked is read once
    for path in sorted([*folder.glob("*Packages*"), *folder.glob("*/Packages*")]):
        match = _LIST.fullmatch(path.relative_to(folder).as_posix())
        if match and path.is_file() and (described := _describe_list(folder, match)):
            found.setdefault(match.string.removesuffix(match["ending"]), described)
    lists = sorted(found.values(), key=lambda each: (each.suite, each.dist, each.packages.name))
    if len(suites := sorted({each.suite for each in lists})) < 2:
        has = SUITES[suites[0]] if suites else "none"
        message = f"The split is by time and needs package lists of two suites or more; {folder} has {has}."
        raise UserError(message, fix=_WHICH_LISTS)
    archs = sorted({each.arch for each in lists} - {"", "all"})
    if len(archs) > 1:
        message = f"{folder} has lists of several architectures ({', '.join(archs)}), whose packages share their names."
        raise UserError(message, fix="Copy the lists of one architecture into a folder of their own and give that one.")
    return lists


def _read_lines(path: Path) -> Iterator[str]:
    """The lines of a list, unpacked as its ending says."""
    try:
        with _open_lz4(path) if path.suffix == ".lz4" else _as_text(open_packed(path)) as handle:
            yield from handle
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} cannot be read to its end: {error}.", fix=_FETCH_AGAIN) from error


def _as_text(file: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8", errors="replace")


@contextmanager
def _open_lz4(path: Path) -> Iterator[Iterable[str]]:
    """Python has no lz4, but apt's own helper reads what apt wrote."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace") as helper:
        yield helper.stdout or ()
    if helper.returncode != 0:
        raise OSError("apt-helper cannot unpack it")


def _read_paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of a deb822 file, of each the fields of _FIELDS; continuation lines are joined by newlines."""
    paragraph: dict[str, str] = {}
    name = ""
    for number, line in enumerate(chain(_read_lines(path), ["\n"]), start=1):  # the empty line ends the last paragraph
        if line.isspace():
            if paragraph:
                yield paragraph
            paragraph, name = {}, ""
        elif line[0] not in " \t":
            name, colon, value = line.partition(":")
            if not colon:
                raise UserError(f"{path}, line {number}, is not a field of a package list.", fix=_FETCH_AGAIN)
            if name in _FIELDS:
                paragraph[name] = value.strip()
        elif name in paragraph:
            paragraph[name] += "\n" + line.strip()


@dataclass
class _Package:
    first_suite: int
    section: str = ""
    text: str = ""
    relations: dict[str, int] = field(default_factory=dict)  # name → the strongest kind
    provides: set[str] = field(default_factory=set)

    def absorb(self, paragraph: Mapping[str, str], descriptions: Mapping[str | None, str]) -> None:
        """Take in the next paragraph about this package; the last one determines section and description."""
        # The archive's area in front says what the licence allows, not what the package is: contrib/utils is utils.
        self.section = paragraph.get("Section", self.section).rpartition("/")[2]
        md5 = paragraph.get("Description-md5", "none")
        text = max(paragraph.get("Description", ""), descriptions.get(md5, ""), key=len)
        self.text = text.lower() or self.text
        for kind, relation in enumerate(RELATIONS):
            for target in _TARGET.findall(paragraph.get(relation, "")):
                self.relations[target] = min(kind, self.relations.get(target, kind))
        self.provides.update(_TARGET.findall(paragraph.get("Provides", "")))


def _read_packages(lists: list[_PackageList]) -> dict[str, _Package]:
    """Every package by name. Modern lists quote a long description by its md5; it is in the translation file."""
    translations = [each.translation for each in lists if each.translation.is_file()]
    paragraphs = chain.from_iterable(map(_read_paragraphs, translations))
    descriptions = {each.get("Description-md5"): each.get("Description-en", "") for each in paragraphs}
    packages: dict[str, _Package] = {}
    for each in lists:
        for paragraph in _read_paragraphs(each.packages):
            if not (name := paragraph.get("Package", "")):
                raise UserError(f"{each.packages} has a paragraph without a Package field.", fix=_FETCH_AGAIN)
            packages.setdefault(name, _Package(each.suite)).absorb(paragraph, descriptions)
    return packages


def _split(names: list[str], first_suites: list[int]) -> tuple[NDArray[np.int8], str]:
    """[num_nodes] split of each package, and the rule in words."""
    present = sorted(set(first_suites))
    ages = [present.index(suite) for suite in first_suites]
    if len(present) > 2:
        return np.minimum(ages, TEST).astype(np.int8), "train: oldest suite; val: new in the second; test: new later"
    rule = "train: older suite; of what is new in the other, crc32(name) % 3 == 0 is val, the rest test"
    later = [VAL if zlib.crc32(name.encode()) % 3 == 0 else TEST for name in names]
    return np.where(np.array(ages) == 0, TRAIN, later).astype(np.int8), rule


def _make_edges(names: list[str], packages: Mapping[str, _Package]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """[2, num_edges] edges, sorted, free of loops and duplicates, and [num_edges] their kinds."""
    ids = {name: number for number, name in enumerate(names)}
    providers: dict[str, list[int]] = {}
    for name, number in ids.items():
        for virtual in packages[name].provides:
            providers.setdefault(virtual, []).append(number)
    columns: list[tuple[int, int, int]] = []
    for name, number in ids.items():
        for target, kind in packages[name].relations.items():
            ends = [ids[target]] if target in ids else providers.get(target, [])
            if len(ends) <= MAX_PROVIDERS:
                columns += [(number, end, kind) for end in ends if end != number]
    edges = np.array(sorted(columns), np.int64).reshape(-1, 3).T
    is_first = np.ones(edges.shape[1], bool)  # of its pair: sorting put the strongest kind there
    is_first[1:] = (edges[:2, 1:] != edges[:2, :-1]).any(axis=0)
    return np.ascontiguousarray(edges[:2, is_first]), edges[2, is_first].astype(np.int8)


def _choose_words(texts: list[str]) -> tuple[str, ...]:
    """The words of the most texts, ties by the alphabet, without those of too many."""
    spread = Counter(word for text in texts for word in set(_WORD.findall(text)))
    telling = [word for word, count in spread.items() if count <= max(1.0, MAX_SHARE * len(texts))]
    return tuple(sorted(telling, key=lambda word: (-spread[word], word))[:MAX_WORDS])


def _count_words(texts: Iterable[str], words: tuple[str, ...]) -> _Rows:
    """Compressed sparse rows of [num_texts, num_words]: indptr, indices, counts."""
    ids = {word: number for number, word in enumerate(words)}
    indptr, indices, counts = [0], list[int](), list[int]()
    for text in texts:
        row = sorted(Counter(ids[word] for word in _WORD.findall(text) if word in ids).items())
        indices += [number for number, _ in row]
        counts += [min(count, 255) for _, count in row]
        indptr.append(len(indices))
    return np.array(indptr, np.int64), np.array(indices, np.int32), np.array(counts, np.uint8)


def build_from_package_lists(folder: Path) -> DebianPackages:
    """Read a folder of package lists: as apt keeps them, or as `<suite>/Packages[.xz|.gz|.lz4]`.

    At least two of SUITES are needed. Lists of other archives, suites and backports are passed over; `-updates` and
    `-security` count with their suite. Long descriptions come from Translation-en files next to the lists, if any.
    """
    lists = _find_lists(folder)
    packages = _read_packages(lists)
    names = sorted(name for name, package in packages.items() if package.section)
    kept = [packages[name] for name in names]
    split, rule = _split(names, [package.first_suite for package in kept])
    edges = _make_edges(names, packages)
    words = _choose_words([package.text for package, part in zip(kept, split, strict=True) if part == TRAIN])
    classes, labels = np.unique([package.section for package in kept], return_inverse=True)
    metadata = {
        "script_version": SCRIPT_VERSION,
        "suites": [SUITES[suite] for suite in sorted({each.suite for each in lists})],
        "list_dates": {each.dist: each.date for each in lists},
        "num_lists": len(lists),
        "architecture": next((each.arch for each in lists if each.arch), "unknown"),
        "split": rule,
        "num_left_out_without_section": len(packages) - len(names),
        "num_without_long_description": sum("\n" not in package.text for package in kept),
    }
    arrays = (*edges, *_count_words((package.text for package in kept), words))
    data = DebianPackages(tuple(names), *arrays, words, labels, tuple(classes.tolist()), split, metadata)
    if problem := next(_find_problems(data), None):
        raise UserError(f"The package lists of {folder} make no data set: {problem}.", fix=_WHICH_LISTS)
    return data


def _is_within(values: NDArray[Any], limit: int) -> bool:
    return values.ndim == 1 and (values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < limit))


def _find_problems(data: DebianPackages) -> Iterator[str]:
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


def _pack(data: DebianPackages) -> bytes:
    """The bytes of the compact file: the same for the same data (and the same release of liblzma)."""
    strings = {"names": data.names, "words": data.words, "class_names": data.class_names}
    strings["metadata"] = (json.dumps(data.metadata, sort_keys=True),)
    texts = {name: "\n".join(values).encode() for name, values in strings.items()}
    arrays: dict[str, NDArray[Any]] = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
    # Row lengths instead of sources and of indptr: small numbers. Differences of the rest would compress worse.
    arrays["out_degree"] = np.bincount(data.edge_index[0], minlength=len(data.names))
    arrays |= {"edge_target": data.edge_index[1], "edge_kind": data.edge_kind, "x_row_length": np.diff(data.x_indptr)}
    arrays |= {"x_indices": data.x_indices, "x_counts": data.x_counts, "labels": data.labels, "split": data.split}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.comment = bytes(_CHECKSUM_BYTES)
        for name, array in arrays.items():
            narrow = np.min_scalar_type(int(array.max(initial=0))).newbyteorder("<")
            content = io.BytesIO()
            np.save(content, array.astype(narrow), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # without a date: it would make other bytes of the same data
            member.compress_type, member.create_system = zipfile.ZIP_LZMA, 3
            archive.writestr(member, content.getvalue())
    content_bytes = packed.getvalue()[:-_CHECKSUM_BYTES]
    return content_bytes + hashlib.sha256(content_bytes).hexdigest().encode()


def write_compact(data: DebianPackages, path: Path) -> None:
    """Write the compact file, whole or not at all."""
    if problem := next(_find_problems(data), None):
        raise UserError(f"These packages cannot be written to {path}: {problem}.", fix="Correct the arrays first.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            handle.write(_pack(data))
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)  # without this the name can be lost with the power
        os.fsync(folder)
        os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def _unpack(content: bytes) -> DebianPackages:
    if hashlib.sha256(content[:-_CHECKSUM_BYTES]).hexdigest().encode() != content[-_CHECKSUM_BYTES:]:
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
    if problem := next(_find_problems(data), None):
        raise ValueError(problem)
    return data


def read_compact(path: Path) -> DebianPackages:
    """Read a compact file; one that is cut short, altered or at odds with itself is refused."""
    try:
        return _unpack(path.read_bytes())
    except (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, MemoryError, *_UNPACKING) as error:
        fix = (
            "Install graphmill again, or make the file again: graphmill prepare debian-packages --from FOLDER_OF_LISTS"
        )
        raise UserError(f"{path} is not a package data set: {error}.", fix=fix) from error
