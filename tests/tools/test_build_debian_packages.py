"""debian-packages built from hand-written package lists; round trips of its compact file, and damage to it."""

import gzip
import hashlib
import io
import lzma
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build_debian_packages as build
from build_debian_packages import SUITES, build_from_package_lists, write_compact
from graphmill.base.errors import UserError
from graphmill.tasks import debian_packages as debian
from graphmill.tasks.debian_packages import RELATIONS, TEST, TRAIN, VAL, DebianPackages, read_compact
from graphmill.tasks.node_classification.data.prepare import prepare

TOOL = Path(__file__).parents[2] / "tools" / "build_debian_packages.py"

BULLSEYE = """\
Package: app
Version: 1.0
Depends: libalpha (>= 1.2), python3:any (>= 3.9~), mta | libbeta [amd64], no-such-package, app
Pre-Depends: dpkg (>= 1.15), libalpha
Suggests: doc-tool <!nocheck>
Description: Paint tool
Description-md5: 11111111111111111111111111111111
Section: graphics

Package: libalpha
Depends: libalpha-abi-7
Provides: libalpha-abi-7, libalpha-virtual (= 1.2)
Description: shared library of shapes
 Shapes, shapes and
 more SHAPES.
 .
 Written in C.
Section: contrib/libs

Package: libbeta
Recommends: libalpha-virtual
Description: shared library of beta
Section: libs

Package: nosection
Depends: libalpha
Description: nobody says where this belongs

Package: python3
Section: python
Description-md5: 22222222222222222222222222222222

Package: dpkg
Section: admin
Description: package maintenance system

Package: exim
Section: mail
Provides: mta
Description: mail mover

Package: postfix
Section: mail
Provides: mta
Description: mail mover
"""
BOOKWORM = """\
Package: app
Depends: newlib, libbeta
Recommends: dpkg
Description: Paint tool
Description-md5: 33333333333333333333333333333333
Section: gnome

Package: newlib
Suggests: nosection
Description: shared library, new
Section: libs
"""
TRIXIE = """\
Package: doc-tool
Section: doc
Description: reads manuals
"""
SID = """\
Package: latest
Section: libs
Depends: newlib
Description: shared shapes
"""
TRANSLATION = """\
Package: app
Description-md5: 33333333333333333333333333333333
Description-en: Paint tool
 Paints shapes. Paints more shapes.
"""
LISTS = {"bullseye": BULLSEYE, "bookworm": BOOKWORM, "trixie": TRIXIE, "sid": SID}


def write_lists(folder: Path, lists: dict[str, str], translation: str = TRANSLATION) -> Path:
    for suite, text in lists.items():
        (folder / suite).mkdir(parents=True, exist_ok=True)
        (folder / suite / "Packages").write_text(text)
        (folder / suite / "Translation-en").write_text(translation)
    return folder


def write_apt_lists(folder: Path, lists: dict[str, str], *, arch: str = "amd64", archive: str = "deb.example") -> Path:
    folder.mkdir(exist_ok=True)
    for suite, text in lists.items():
        stem = f"{archive}_debian_dists_{suite}"
        (folder / f"{stem}_main_binary-{arch}_Packages").write_text(text)
        (folder / f"{stem}_main_i18n_Translation-en").write_text(TRANSLATION)
    return folder


def release(origin: str, codename: str) -> str:
    return (
        f"Origin: {origin}\nSuite: some\nCodename: {codename}\nDate: Sat, 09 Aug 2025 09:16:30 UTC\nSHA256:\n 00 1 x\n"
    )


def edges_of(data: DebianPackages) -> dict[tuple[str, str], str]:
    pairs = zip(*data.edge_index.tolist(), data.edge_kind.tolist(), strict=True)
    return {(data.names[source], data.names[target]): RELATIONS[kind] for source, target, kind in pairs}


def words_of(data: DebianPackages, name: str) -> dict[str, int]:
    node = data.names.index(name)
    row = slice(int(data.x_indptr[node]), int(data.x_indptr[node + 1]))
    numbers, counts = data.x_indices[row].tolist(), data.x_counts[row].tolist()
    return {data.words[number]: count for number, count in zip(numbers, counts, strict=True)}


def assert_same(left: DebianPackages, right: DebianPackages) -> None:
    for each in fields(DebianPackages):
        a, b = getattr(left, each.name), getattr(right, each.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, each.name
            np.testing.assert_array_equal(a, b, err_msg=each.name)
        else:
            assert a == b, each.name


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebianPackages:
    monkeypatch.setattr(build, "MAX_SHARE", 0.5)  # of seven texts a quarter would leave few words
    return build_from_package_lists(write_lists(tmp_path / "lists", LISTS))


# ---- building


def test_nodes_are_packages_with_a_section_and_time_splits_them(built: DebianPackages) -> None:
    expected = ["app", "doc-tool", "dpkg", "exim", "latest", "libalpha", "libbeta", "newlib", "postfix", "python3"]
    assert list(built.names) == expected
    split = dict(zip(built.names, built.split.tolist(), strict=True))
    assert split == dict.fromkeys(expected, TRAIN) | {"newlib": VAL, "doc-tool": TEST, "latest": TEST}
    assert built.metadata["num_left_out_without_section"] == 1
    assert built.metadata["suites"] == list(SUITES)
    assert built.metadata["num_lists"] == 4


def test_labels_are_the_latest_sections_without_the_area(built: DebianPackages) -> None:
    section = {name: built.class_names[label] for name, label in zip(built.names, built.labels.tolist(), strict=True)}
    assert section["app"] == "gnome"  # graphics in bullseye
    assert section["libalpha"] == "libs"  # contrib/libs
    assert built.class_names == ("admin", "doc", "gnome", "libs", "mail", "python")


def test_edges_alternatives_virtual_names_qualifiers_and_kinds(built: DebianPackages) -> None:
    assert edges_of(built) == {
        ("app", "libalpha"): "Pre-Depends",  # also Depends: the strongest counts
        ("app", "dpkg"): "Pre-Depends",  # Recommends in bookworm: relations are the union over the suites
        ("app", "python3"): "Depends",  # python3:any (>= 3.9~)
        ("app", "exim"): "Depends",  # mta is virtual: all who provide it
        ("app", "postfix"): "Depends",
        ("app", "libbeta"): "Depends",  # the other side of `mta | libbeta [amd64]`
        ("app", "newlib"): "Depends",
        ("app", "doc-tool"): "Suggests",
        ("libbeta", "libalpha"): "Recommends",  # through libalpha-virtual (= 1.2)
        ("latest", "newlib"): "Depends",
    }  # and no loops, no edge to what has no section or does not exist


def test_features_come_from_the_latest_description_long_where_there_is_one(built: DebianPackages) -> None:
    assert words_of(built, "app")["shapes"] == 2  # Translation-en of bookworm's Description-md5
    assert words_of(built, "app")["paint"] == 1
    assert words_of(built, "libalpha") == {
        "shared": 1, "library": 1, "shapes": 4, "and": 1, "more": 1, "written": 1,
    }  # fmt: skip
    assert words_of(built, "python3") == {}  # its md5 leads nowhere
    assert "manuals" not in built.words  # only test packages have it
    assert built.num_words == len(built.words) == len(set(built.words))
    assert built.metadata["num_without_long_description"] == len(built.names) - 2


def test_words_are_ordered_by_spread_and_too_common_ones_dropped(built: DebianPackages) -> None:
    # Of the seven training texts, in alphabetical order within equal numbers.
    assert built.words[:5] == ("library", "mail", "more", "mover", "shapes")
    assert build_words(["aaa bbb", "aaa bbb", "aaa ccc", "aaa ddd"], share=0.5) == ("bbb", "ccc", "ddd")


def build_words(texts: list[str], share: float) -> tuple[str, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "MAX_SHARE", share)
        return build._choose_words(texts)


def test_counts_stop_at_255() -> None:
    indptr, indices, counts = build._count_words(["abc " * 300 + "xyz", "", "xyz"], ("xyz", "abc"))
    assert (indptr.tolist(), indices.tolist(), counts.tolist()) == ([0, 2, 2, 3], [0, 1, 0], [1, 255, 1])


def test_a_virtual_name_of_too_many_providers_ties_nothing(tmp_path: Path) -> None:
    def lists(num_providers: int) -> dict[str, str]:
        providers = "\n".join(
            f"Package: p{i}\nSection: misc\nProvides: editor\nDescription: w{'x' * i}yz\n" for i in range(num_providers)
        )
        return LISTS | {"bullseye": f"{providers}\nPackage: user\nSection: misc\nDepends: editor\nDescription: word\n"}

    few = build_from_package_lists(write_lists(tmp_path / "few", lists(build.MAX_PROVIDERS)))
    many = build_from_package_lists(write_lists(tmp_path / "many", lists(build.MAX_PROVIDERS + 1)))
    assert sum(source == "user" for source, _ in edges_of(few)) == build.MAX_PROVIDERS
    assert sum(source == "user" for source, _ in edges_of(many)) == 0


def test_two_suites_are_enough_and_the_rule_is_recorded(tmp_path: Path) -> None:
    new = "".join(f"Package: new{i}\nSection: libs\nDescription: shared\n\n" for i in range(30))
    data = build_from_package_lists(write_lists(tmp_path, {"bookworm": BOOKWORM, "sid": new}))
    assert data.metadata["suites"] == ["bookworm", "sid"]
    assert "crc32" in data.metadata["split"]
    assert {data.names[i] for i in np.flatnonzero(data.split == TRAIN)} == {"app", "newlib"}
    assert 0 < (data.split == VAL).sum() < (data.split == TEST).sum()


@pytest.mark.parametrize("suites", [[], ["sid"], ["trixie"]])
def test_fewer_than_two_suites_are_refused(tmp_path: Path, suites: list[str]) -> None:
    write_lists(tmp_path, {suite: LISTS[suite] for suite in suites} | {"forky": SID})
    with pytest.raises(UserError, match="two suites or more") as caught:
        build_from_package_lists(tmp_path)
    assert all(suite in caught.value.fix for suite in SUITES)


def test_a_missing_folder_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(UserError, match="two suites or more"):
            build_from_package_lists(path)


def test_suites_that_bring_nothing_new_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="each of train, val and test"):
        build_from_package_lists(write_lists(tmp_path, dict.fromkeys(SUITES, BULLSEYE)))


# ---- which files are read


def test_the_names_that_apt_gives_and_plain_folders_make_the_same(tmp_path: Path) -> None:
    apt = build_from_package_lists(write_apt_lists(tmp_path / "apt", LISTS))
    plain = build_from_package_lists(write_lists(tmp_path / "plain", LISTS))
    assert apt.metadata["architecture"] == "amd64"
    assert_same(replace(apt, metadata={}), replace(plain, metadata={}))


@pytest.mark.parametrize(("ending", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_packed_lists_make_the_same(tmp_path: Path, ending: str, pack: object) -> None:
    plain = build_from_package_lists(write_lists(tmp_path / "plain", LISTS))
    packed = write_lists(tmp_path / "packed", LISTS)
    for path in list(packed.glob("*/*")):
        path.with_name(path.name + ending).write_bytes(pack(path.read_bytes()))  # type: ignore[operator]
        path.unlink()
    assert_same(build_from_package_lists(packed), plain)


@pytest.mark.skipif(
    not (shutil.which("lz4") and Path("/usr/lib/apt/apt-helper").exists()), reason="lz4 or apt is not installed"
)
def test_lz4_lists_are_unpacked_by_apt_and_damage_is_seen(tmp_path: Path) -> None:
    plain = build_from_package_lists(write_apt_lists(tmp_path / "plain", LISTS))
    packed = write_apt_lists(tmp_path / "packed", LISTS)
    for path in list(packed.iterdir()):
        subprocess.run(["lz4", "-q", "--rm", str(path), f"{path}.lz4"], check=True)
    assert_same(build_from_package_lists(packed), plain)
    damaged = next(packed.glob("*bullseye*Packages.lz4"))
    damaged.write_bytes(damaged.read_bytes()[:-200])
    with pytest.raises(UserError, match="cannot be read to its end"):
        build_from_package_lists(packed)


def test_lz4_without_apt_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_apt_lists(tmp_path, LISTS)
    path = next(folder.glob("*bullseye*Packages"))
    path.rename(f"{path}.lz4")

    def absent(command: list[str], **_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", command[0])

    monkeypatch.setattr(build.subprocess, "Popen", absent)
    with pytest.raises(UserError, match="apt-helper") as caught:
        build_from_package_lists(folder)
    assert "unpack it" in caught.value.fix


def test_release_files_say_which_suite_which_archive_which_day(tmp_path: Path) -> None:
    folder = write_apt_lists(
        tmp_path, {"oldstable": BULLSEYE, "bookworm": BOOKWORM, "unstable": SID, "testing": TRIXIE}
    )
    stranger = "Package: stranger\nSection: libs\nDescription: shared\n"
    write_apt_lists(tmp_path, {"bookworm": stranger}, archive="other.example")
    write_apt_lists(tmp_path, {"bookworm-backports": stranger, "bookworm-updates": "Package: fix\nSection: libs\n"})
    for name, text in {
        "deb.example_debian_dists_oldstable_InRelease": release("Debian", "bullseye"),
        "deb.example_debian_dists_testing_Release": release("Debian", "trixie"),
        "other.example_debian_dists_bookworm_InRelease": release("Somebody", "bookworm"),
    }.items():
        (folder / name).write_text(text)
    data = build_from_package_lists(folder)
    assert data.metadata["suites"] == list(SUITES)
    assert data.metadata["list_dates"]["bullseye"] == "2025-08-09"
    assert data.metadata["list_dates"]["sid"] is None
    assert "stranger" not in data.names
    assert data.split[data.names.index("fix")] == VAL


def test_a_broken_date_is_no_date(tmp_path: Path) -> None:
    write_lists(tmp_path, LISTS)
    for suite in SUITES:
        (tmp_path / suite / "Release").write_text(release("Debian", suite).replace("09 Aug", "99 Zug"))
    assert set(build_from_package_lists(tmp_path).metadata["list_dates"]) == set(SUITES)


def test_several_architectures_are_refused(tmp_path: Path) -> None:
    write_apt_lists(tmp_path, LISTS)
    write_apt_lists(tmp_path, {"sid": SID}, arch="i386")
    with pytest.raises(UserError, match=r"amd64, i386"):
        build_from_package_lists(tmp_path)


def test_damaged_lists_are_refused_and_named(tmp_path: Path) -> None:
    folder = write_lists(tmp_path, LISTS)
    (folder / "sid" / "Packages").write_text(SID + "\nthis is no field\n")
    with pytest.raises(UserError, match=r"sid/Packages, line 6"):
        build_from_package_lists(folder)
    (folder / "sid" / "Packages").write_text(SID + "\nSection: libs\n")
    with pytest.raises(UserError, match="without a Package field"):
        build_from_package_lists(folder)
    (folder / "sid" / "Packages").unlink()
    for cut, ending in ((lzma.compress(SID.encode())[:-9], ".xz"), (gzip.compress(SID.encode())[:-9], ".gz")):
        path = folder / "sid" / f"Packages{ending}"
        path.write_bytes(cut)
        with pytest.raises(UserError, match=f"sid/Packages{ending}"):
            build_from_package_lists(folder)
        path.unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200) | st.sampled_from(["Package: a\nSection: ", "Depends: |,|,a||b\n"]).map(BULLSEYE.__add__))
def test_any_text_for_a_list_makes_data_or_a_user_error(tmp_path: Path, text: str) -> None:
    write_lists(tmp_path, LISTS)
    (tmp_path / "bullseye" / "Packages").write_text(text, encoding="utf-8", errors="replace", newline="")
    with suppress(UserError):
        assert next(debian.find_problems(build_from_package_lists(tmp_path)), None) is None


# ---- the compact file

names_strategy = st.lists(
    st.text("abcdefgh-+.0123456789é", min_size=1, max_size=8), min_size=3, max_size=12, unique=True
)


@st.composite
def packages(draw: st.DrawFn) -> DebianPackages:
    names = tuple(sorted(draw(names_strategy)))
    words = tuple(draw(st.lists(st.text("abcxyz", min_size=1, max_size=5), min_size=1, max_size=6, unique=True)))
    classes = tuple(sorted(draw(st.sets(st.text("klmn", min_size=1, max_size=4), min_size=1, max_size=4))))
    n = len(names)
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    edges = sorted(draw(st.sets(st.sampled_from(pairs), max_size=30)))
    kinds = draw(st.lists(st.integers(0, 3), min_size=len(edges), max_size=len(edges)))
    rows = [sorted(draw(st.sets(st.integers(0, len(words) - 1)))) for _ in names]
    indices = [number for row in rows for number in row]
    counts = draw(st.lists(st.integers(0, 255), min_size=len(indices), max_size=len(indices)))
    split = [TRAIN, VAL, TEST, *draw(st.lists(st.integers(0, 2), min_size=n - 3, max_size=n - 3))]
    labels = draw(st.lists(st.integers(0, len(classes) - 1), min_size=n, max_size=n))
    return DebianPackages(
        names=names,
        edge_index=np.array(edges, np.int64).reshape(-1, 2).T,
        edge_kind=np.array(kinds, np.int8),
        x_indptr=np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64),
        x_indices=np.array(indices, np.int32),
        x_counts=np.array(counts, np.uint8),
        words=words,
        labels=np.array(labels, np.int64),
        class_names=classes,
        split=np.array(split, np.int8),
        metadata=draw(
            st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=9), max_size=4)
        ),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(packages())
@pytest.mark.slow
def test_what_is_written_is_read_and_twice_gives_the_same_bytes(tmp_path: Path, data: DebianPackages) -> None:
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    write_compact(data, one)
    again = read_compact(one)
    assert_same(again, data)
    write_compact(again, two)
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "two.npz"]


def test_the_same_lists_give_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    lists = write_lists(tmp_path / "lists", LISTS)
    digests = set()
    for seed in ("0", "1", "2"):
        out = tmp_path / f"{seed}.npz"
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"}
        subprocess.run([sys.executable, str(TOOL), str(lists), str(out)], check=True, env=environment)
        digests.add(hashlib.sha256(out.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_what_it_made_is_prepared_and_lists_themselves_are_told_where_to_go(tmp_path: Path) -> None:
    lists = write_lists(tmp_path / "lists", LISTS)
    assert build.main([str(lists), str(tmp_path / "mine.npz")]) == 0
    store = prepare("debian-packages", root=tmp_path / "data", from_path=tmp_path / "mine.npz", save_as="mine")
    assert (store.metadata.num_nodes, store.metadata.source) == (10, "Debian package lists: mine.npz")
    with pytest.raises(UserError, match=str(lists)) as caught:
        prepare("debian-packages", root=tmp_path / "data", from_path=lists)
    assert "build_debian_packages.py" in caught.value.fix


def test_lists_that_make_none_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main([str(tmp_path), str(tmp_path / "mine.npz")]) == 2
    assert "two suites or more" in capsys.readouterr().err


@pytest.fixture
def compact(built: DebianPackages, tmp_path: Path) -> Path:
    path = tmp_path / "packages.npz"
    write_compact(built, path)
    return path


def test_every_flipped_byte_and_every_cut_is_refused(compact: Path) -> None:
    whole = compact.read_bytes()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        compact.write_bytes(damaged)
        with pytest.raises(UserError, match="checksum") as caught:
            read_compact(compact)
        assert "build_debian_packages.py" in caught.value.fix
    for length in (0, 1, 63, 64, 65, len(whole) // 2, len(whole) - 1):
        compact.write_bytes(whole[:length])
        with pytest.raises(UserError, match="checksum"):
            read_compact(compact)
    compact.write_bytes(whole + b"x")
    with pytest.raises(UserError, match="checksum"):
        read_compact(compact)


def test_an_absent_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.npz", tmp_path):
        with pytest.raises(UserError, match="not a package data set"):
            read_compact(path)


def resealed(path: Path, members: dict[str, np.ndarray]) -> Path:
    """The file with some members changed and a checksum that fits."""
    with np.load(path) as old:
        arrays = dict(old) | members
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.comment = bytes(64)
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=True)
            archive.writestr(f"{name}.npy", content.getvalue())
    content_bytes = packed.getvalue()[:-64]
    path.write_bytes(content_bytes + hashlib.sha256(content_bytes).hexdigest().encode())
    return path


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, ("bomb-went-off",))


@pytest.mark.parametrize(
    ("member", "array", "match"),
    [
        ("edge_target", np.full(10, 99, np.uint8), "node numbers"),
        ("edge_kind", np.full(10, 9, np.uint8), "known kind"),
        ("edge_kind", np.zeros(3, np.uint8), "node numbers"),
        ("edge_target", np.zeros(10, np.uint8), "loops or duplicates"),
        ("labels", np.full(10, 50, np.uint8), "class numbers"),
        ("split", np.zeros(10, np.uint8), "each of train, val and test"),
        ("x_row_length", np.zeros(10, np.uint8), "word numbers and counts"),
        ("x_row_length", np.zeros(9, np.uint8), "x_indptr"),
        ("x_indices", np.zeros(1, np.uint8), "word numbers and counts"),
        ("names", np.frombuffer(b"b\na", np.uint8), "sorted"),
        ("words", np.frombuffer(b"", np.uint8), "empty"),
        ("metadata", np.frombuffer(b"{", np.uint8), "not a package data set"),
        ("words", np.array([Bomb()], object), "allow_pickle"),
    ],
)
def test_arrays_at_odds_are_refused_though_the_checksum_fits(
    compact: Path, monkeypatch: pytest.MonkeyPatch, member: str, array: np.ndarray, match: str
) -> None:
    monkeypatch.chdir(compact.parent)
    with pytest.raises(UserError, match=match):
        read_compact(resealed(compact, {member: array}))
    assert not Path("bomb-went-off").exists()


def test_a_file_that_claims_to_unpack_to_very_much_is_refused(compact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(UserError, match="GiB"):
        read_compact(compact)


def test_a_refused_or_failed_write_leaves_the_old_file_and_nothing_else(
    built: DebianPackages, compact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compact.read_bytes()
    with pytest.raises(UserError, match="cannot be written"):
        write_compact(replace(built, edge_index=built.edge_index[:, ::-1]), compact)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_compact(built, compact)
    assert compact.read_bytes() == before
    assert sorted(path.name for path in compact.parent.iterdir()) == ["lists", "packages.npz"]
