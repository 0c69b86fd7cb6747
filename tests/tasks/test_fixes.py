"""A fix is a claim: what an error of `prepare` says to type is typed on the same input, and succeeds.

`CLAIMS` has an input for each fix with an option or a command. A fix of the readers that names an option and has no
claim here fails `test_every_option_in_a_fix_of_the_readers_is_followed`.
"""

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import h5py
import numpy as np
import pytest

DATA = Path(__file__).parents[1] / "data"
SOURCE = Path(__file__).parents[2] / "src" / "graphmill" / "tasks"
READERS = ("recognise.py", "traffic", "intrusion", "node_classification", "graph_classification")
RNG_SEED = 3
Words = list[str]


@dataclass(frozen=True)
class Claim:
    """An input, what is typed first, what the fix must say, and how it is followed."""

    make: Callable[[], Words]  # writes the input into the working folder, and gives what is typed after `prepare`
    says: str  # of the fix: what is typed in addition, word for word
    follow: Callable[[str], Words] | None = None  # another way: mends the input, given the fix; more words to type
    option: str = ""  # that is followed, where `says` does not begin with it


def archive(**changes) -> Callable[[], Words]:
    def make() -> Words:
        with np.load(DATA / "node_classification/archive.npz") as arrays:
            kept = {name: array for name, array in (dict(arrays) | changes).items() if array is not None}
        np.savez("g.npz", **kept)
        return ["mine", "--from", "g.npz"]

    return make


def series(values=None, times=None) -> Callable[[], Words]:
    def make() -> Words:
        rng, steps = np.random.default_rng(RNG_SEED), np.datetime64("2024-03-04", "s") + 300 * np.arange(400)
        readings = (rng.uniform(20, 70, (400, 3)) if values is None else values(rng)).astype(np.float32)
        np.savez(
            "s.npz",
            sensor_ids=["a", "b", "c"],
            values=readings,
            timestamps=steps if times is None else times(steps, rng),
        )
        return ["mine", "--from", "s.npz"]

    return make


def below_zero(*codes: float):
    def values(rng):
        readings = rng.uniform(20, 70, (400, 3))
        for number, code in enumerate(codes):
            readings[number :: 9 + number] = code
        return readings

    return values


def holed(rng):
    readings = rng.uniform(20, 70, (400, 3))
    readings[::7] = np.nan
    return readings


def capture(name: str, *, edit=lambda lines: lines, window=50) -> Callable[[], Words]:
    def make() -> Words:
        lines = (DATA / "intrusion" / name).read_text().splitlines()
        Path("bus.log").write_text("\n".join(edit(lines)) + "\n")
        return ["mine", "--from", "bus.log", "-o", f"window={window}", "-o", "stride=50"]

    return make


def unlabelled(lines):
    return [line.rpartition(" ")[0] for line in lines]


def torn(lines):
    """A tenth of the frames, of benign ones alone, have lost their bytes' last digit."""
    return [line[:-3] + line[-2:] if number % 10 == 0 and line.endswith("0") else line
            for number, line in enumerate(lines)]  # fmt: skip


def with_a_text_before(lines):
    return [*("recorded by me, with nothing else in mind" for _ in range(250)), *lines]


def table_of_numbers() -> Words:
    rows = np.random.default_rng(RNG_SEED).uniform(20, 70, (600, 3)).round(1)
    Path("v.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return ["mine", "--from", "v.csv"]


def of_two_tasks() -> Words:
    Path("both").mkdir()
    shutil.copy(DATA / "traffic/frame.h5", "both")
    shutil.copy(DATA / "assignment/records.h5", "both")
    return ["mine", "--from", "both"]


def of_a_spreadsheet() -> Words:
    shutil.copytree(DATA / "node_classification/tables", "tables")
    for path in Path("tables").glob("*.csv"):
        path.write_text(path.read_text().replace(",", ";").replace(".", ","))
    return ["mine", "--from", "tables"]


def resaved(fix: str) -> Words:
    """The line of Python, for each table that it is said of."""
    exec(re.search(r"in Python: (.*\))", fix)[1], {})
    return []


def with_a_zone() -> Words:
    shutil.copy(DATA / "traffic/frame.h5", "z.h5")
    with h5py.File("z.h5", "a") as file:
        file["df/axis1"].attrs["tz"] = b"US/Pacific"
    return ["mine", "--from", "z.h5"]


def tz_localize_none(fix: str) -> Words:
    """What pandas writes then, which needs PyTables: wall clock times of the zone, and no zone."""
    assert "df.index.tz_localize(None)" in fix
    with h5py.File("z.h5", "a") as file:
        axis = file["df/axis1"]
        zone = ZoneInfo(as_text(axis.attrs["tz"]))
        instants = [np.datetime64(int(each), "ns").astype("datetime64[s]").item() for each in axis[:]]
        offsets = [each.replace(tzinfo=ZoneInfo("UTC")).astimezone(zone).utcoffset() for each in instants]
        axis[:] = [int(each) + int(shift.total_seconds()) * 10**9 for each, shift in zip(axis[:], offsets, strict=True)]
        del axis.attrs["tz"]
    return []


def as_text(name) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def prepared_before(*more: str) -> Callable[[], Words]:
    """The same again, with something asked for: it is not overwritten in silence."""

    def make() -> Words:
        return [*archive()(), *more]

    return make


def of_the_first_row(fix: str) -> Words:
    assert "--task traffic" in fix
    return ["--task", "traffic", "-o", "start=2012-05-01", "-o", "interval_s=300"]


WITHOUT_SPLIT = {"split": None}
CLAIMS = {
    "a graph without a split": Claim(archive(**WITHOUT_SPLIT), "--random-split"),
    "a split without training nodes": Claim(archive(split=np.arange(30) % 2 + 1), "--random-split"),
    "a split of no labels": Claim(
        lambda: [*archive(y=None, split=None)(), "--random-split"],
        "leave --random-split out",
        lambda fix: ["without", "--random-split"],
    ),
    "tables of a spreadsheet": Claim(of_a_spreadsheet, "in Python: import polars; polars.read_csv", resaved),
    "a table of numbers: of what task?": Claim(table_of_numbers, "--task traffic", of_the_first_row),
    "a table of numbers: since when?": Claim(
        lambda: [*table_of_numbers(), "--task", "traffic"], "-o start=2012-05-01 -o interval_s=300"
    ),
    "no time to start from": Claim(
        lambda: [*table_of_numbers(), "--task", "traffic", "-o", "interval_s=300", "-o", "start=noon"],
        "-o start=2012-05-01",
    ),
    "times, and a start": Claim(
        lambda: [*series()(), "-o", "start=2012-05-01"], "leave -o start out", lambda fix: ["without", "-o start"]
    ),
    "a folder of two tasks: traffic": Claim(
        of_two_tasks, "--",
        lambda fix: ["--task", "traffic"] if "--task traffic or" in fix else ["--from", "both/frame.h5"],
    ),
    "a code of missing readings": Claim(series(below_zero(-1)), "-o missing=-1"),
    "a code, of which the zeros said": Claim(
        lambda: [*series(below_zero(-1))(), "-o", "missing=nan"], "-o missing=-1"
    ),
    "readings below 0": Claim(series(below_zero(-3, -5, -7)), "-o missing=nan"),
    "missing readings where there are none": Claim(
        lambda: [*series(holed)(), "-o", "missing=never"], "-o missing=nan"
    ),
    "a clock that jitters": Claim(
        series(times=lambda steps, rng: steps + rng.integers(-20, 20, 400)), "-o interval_s=300"
    ),
    "a grid that is too wide": Claim(
        lambda: [*series()(), "-o", "interval_s=900"], "a smaller -o interval_s", lambda fix: ["-o", "interval_s=300"]
    ),
    "pandas' times with a zone": Claim(with_a_zone, "df.index.tz_localize(None)", tz_localize_none),
    "an empty sensor whose zeros are readings": Claim(
        series(lambda rng: rng.uniform(20, 70, (400, 3)) * [1, 0, 1]), "-o missing=nan"
    ),
    "a capture without labels": Claim(capture("candump.log", edit=unlabelled), "-o unlabelled=benign"),
    "torn lines": Claim(capture("candump.log", edit=torn), "-o bad_lines=0."),
    "a window longer than the capture": Claim(
        capture("candump.log", window=9999), "-o window to less", lambda fix: ["-o", "window=50"]
    ),
    "a capture that is known by no line": Claim(
        lambda: [*capture("candump.log", edit=with_a_text_before)(), "--task", "intrusion"], "-o ",
        lambda fix: ["-o", "layout=candump"] if "-o layout=" in fix else typed(fix, "-o bad_lines="),
        option="-o layout",
    ),
}  # fmt: skip


def typed(fix: str, says: str) -> Words:
    """The words of the fix that begin with `says`, up to the end of its options."""
    found = re.search(rf"{re.escape(says)}[\w.=-]*", fix)
    assert found, f"{says!r} is not in: {fix}"
    return found[0].rstrip(".").split()


def pairs_of(words: Words) -> dict[str, Words]:
    """Options with what follows them, by name; of -o by its key."""
    found: dict[str, Words] = {}
    for word in words:
        if word.startswith("-"):
            key, latest = word, [word]
        elif latest == ["-o"]:
            key, latest = f"-o {word.partition('=')[0]}", ["-o", word]
            found.pop("-o", None)
        else:
            latest.append(word)
        found[key] = latest
    return found


def retyped(words: Words, more: Words) -> Words:
    """The same command with other options in place of those of the same name; `without NAME`: without that."""
    name, options = words[0], pairs_of(words[1:])
    if more[:1] == ["without"]:
        del options[more[1]]
    else:
        options |= pairs_of(more)
    return [name, *(word for each in options.values() for word in each)]


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_fix_that_is_followed_mends_the_same_input(claim, graphmill):
    words = claim.make()
    for _ in range(4):  # a folder may have several files with one fault
        refused = graphmill("prepare", *words)
        if refused.code == 0:
            return
        assert refused.code == 2, refused.err
        fix = " ".join(refused.err.partition("→")[2].split())
        assert claim.says in fix, refused.err
        words = retyped(words, claim.follow(fix) if claim.follow else typed(fix, claim.says))
    raise AssertionError(refused.err)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_without_it_the_input_is_refused(claim, graphmill):
    assert graphmill("prepare", *claim.make()).code == 2


def test_a_prepared_set_is_kept_or_rebuilt_as_the_message_says(graphmill):
    words = archive()()
    assert graphmill("prepare", *words).code == 0
    refused = graphmill("prepare", *words)
    assert "--force" in refused.err
    assert "--as NAME" in refused.err
    assert graphmill("prepare", *words, "--as", "other").code == 0
    assert graphmill("prepare", *words, "--force").code == 0


def test_commands_for_a_graph_without_labels_run(graphmill):
    assert graphmill("prepare", *archive(y=None, split=None)()).code == 0
    refused = graphmill("train", "-O", "dataset.name=mine")
    commands = re.findall(r"`graphmill ([^`]*)`", " ".join(refused.err.split()))
    assert len(commands) == 2
    for command in commands:
        assert graphmill(*command.split()).code == 0


NOT_HERE = {  # of a fix, beginning: why it has no claim
    "leave --from out": "a name that is generated",
    "give --from PATH": "there is no input",
    "give a path that does": "there is no input",
    "leave --embeddings out": "of predict",
    "leave --attention out": "of predict",
    "leave --adjacency out": "of other readers: test_adjacency.py",
    "give another adjacency": "tests/tasks/traffic/data/test_adjacency.py",
    "give the files by name": "two files of one sort",
    "rebuild it with --force": "test_a_prepared_set_is_kept_or_rebuilt_as_the_message_says",
    "move it away": "a folder that is no prepared set",
    "choose another name with --as": "a set within a set",
    "prepare your own graph with --from": "there is no input",
    "prepare it again with y": "test_commands_for_a_graph_without_labels_run",
    "prepare it with such nodes": "of train",
    "prepare it with -o window": "of evaluate: two sets of other windows",
    "name the graph that was partitioned": "of evaluate",
    "set it (and val_mask, test_mask)": "of data in memory: from_data(split_seed=0)",
    "check the network": "needs a network",
    "download it where": "needs a network",
    "delete": "needs a network",
    "leave --from out, so that": "needs a network",
    "leave the capture out": "ROAD's capture_metadata.json, as `-o unlabelled=benign` of others",
    "mend them; or leave them out": "as those of `mend the capture`",
    "give the folder that holds it": "a file that vanished",
    "graphmill prepare": "of plan and train, with the sets of the catalogue",
    "give …; where it is": "there is no layout",
}


def fixes_with_options() -> Iterator[tuple[str, str]]:
    paths = [
        path
        for name in READERS
        for path in ([SOURCE / name] if name.endswith(".py") else (SOURCE / name).rglob("*.py"))
    ]
    of_readers = [path for path in paths if path.parent.name != "page"]  # which plans, and reads nothing
    for path in sorted(of_readers):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    text = text_of(keyword.value) if keyword.arg == "fix" else ""
                    if re.search(r"-o \w|--[a-z]|`graphmill ", text):
                        yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


def text_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return text_of(node.body) + text_of(node.orelse)
    return ""


def test_every_option_in_a_fix_of_the_readers_is_followed():
    options = {re.match(r"(?:leave |a smaller )?(--[a-z-]+|-o \w+)", claim.says) for claim in CLAIMS.values()}
    followed = {found[1] for found in options if found} | {claim.option for claim in CLAIMS.values()}
    fixes = list(fixes_with_options())
    assert len(fixes) > 20
    lost = [
        (place, text)
        for place, text in fixes
        if not any(text.startswith(begin) for begin in NOT_HERE)
        and not any(found in followed for found in re.findall(r"-o \w+|--[a-z-]+", text))
    ]
    assert not lost, lost
