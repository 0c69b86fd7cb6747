"""Make the data set `debian-packages` from apt's package lists: one compact file, as ships with graphmill.

    python tools/build_debian_packages.py FOLDER_OF_LISTS debian-packages.npz
    graphmill prepare debian-packages --from debian-packages.npz

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

The file's layout stands where it is read, in graphmill's `tasks/debian_packages.py`.

A parser of our own, because python-debian takes 4.6 to 6.2 s for a list that is read here in 1.5 s, and is GPL.
"""

import argparse
import hashlib
import io
import json
import lzma
import re
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import replacing
from graphmill.base.packed import open_packed
from graphmill.tasks.debian_packages import (
    CHECKSUM_BYTES,
    RELATIONS,
    TEST,
    TRAIN,
    VAL,
    DebianPackages,
    find_problems,
)

SCRIPT_VERSION = 1  # raise it when the same lists would give another file
SUITES = ("bullseye", "bookworm", "trixie", "sid")  # oldest first
MAX_PROVIDERS = 10
MAX_WORDS = 4000
MAX_SHARE = 0.25  # a word in more than this share of the training descriptions is uninformative: "the", "package"

_Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]
_WORD = re.compile(r"[a-z]{3,}")
_TARGET = re.compile(r"(?:^|[,|])\s*([A-Za-z0-9][A-Za-z0-9+.-]*)")  # stops at ":any", "(>= 1)", "[amd64]", "<!nocheck>"
_LIST = re.compile(  # host_debian_dists_bookworm_main_binary-amd64_Packages.xz, or bookworm/Packages.xz
    r"(?P<prefix>(?:.*_dists_)?(?P<dist>[^/]+?)[_/])(?P<part>[^_/]+_)?(?:binary-(?P<arch>[^_]+)_)?Packages"
    r"(?P<ending>\.xz|\.gz|\.lz4|)"
)
_RELEASE_FIELD = re.compile(r"^(Origin|Codename|Date): *(.+?) *$", re.MULTILINE)
_FIELDS = frozenset({*RELATIONS, "Package", "Section", "Provides", "Description", "Description-md5", "Description-en"})
_FETCH_AGAIN = "Fetch the list again (apt-get update), or unpack it where it lies."
_WHICH_LISTS = (
    f"Give a folder of apt package lists of two or more of {', '.join(SUITES)}: /var/lib/apt/lists after `apt-get "
    "update` with these suites in the sources, or folders such as bullseye/ and sid/ with a file Packages[.xz] each."
)


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
    if problem := next(find_problems(data), None):
        raise UserError(f"The package lists of {folder} make no data set: {problem}.", fix=_WHICH_LISTS)
    return data


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
        archive.comment = bytes(CHECKSUM_BYTES)
        for name, array in arrays.items():
            narrow = np.min_scalar_type(int(array.max(initial=0))).newbyteorder("<")
            content = io.BytesIO()
            np.save(content, array.astype(narrow), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # without a date: it would make other bytes of the same data
            member.compress_type, member.create_system = zipfile.ZIP_LZMA, 3
            archive.writestr(member, content.getvalue())
    content_bytes = packed.getvalue()[:-CHECKSUM_BYTES]
    return content_bytes + hashlib.sha256(content_bytes).hexdigest().encode()


def write_compact(data: DebianPackages, path: Path) -> None:
    """Write the compact file, whole or not at all."""
    if problem := next(find_problems(data), None):
        raise UserError(f"These packages cannot be written to {path}: {problem}.", fix="Correct the arrays first.")
    with replacing(path) as temporary:
        temporary.write_bytes(_pack(data))


def main(words: Sequence[str]) -> int:
    """Read the lists, write the file, say what is in it."""
    parser = argparse.ArgumentParser(description="Make the data set debian-packages from apt's package lists.")
    parser.add_argument("lists", type=Path, metavar="FOLDER_OF_LISTS", help="/var/lib/apt/lists, or like it")
    parser.add_argument("out", type=Path, metavar="FILE.npz")
    arguments = parser.parse_args(words)
    try:
        data = build_from_package_lists(arguments.lists)
        write_compact(data, arguments.out)
    except UserError as error:
        sys.stderr.write(f"error: {error.message}\n  → {error.fix}\n")
        return exits.BAD_REQUEST
    print(
        f"{arguments.out}: {len(data.names):,} packages, {data.edge_index.shape[1]:,} edges, {data.num_words:,} words"
    )
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
