"""The pages for who changes the code: their sizes, and that what they name exists."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "graphmill"
MOST_WORDS = {"ARCHITECTURE.md": 1800, "README.md": 1300}
BESIDE_CODE = sorted([*PACKAGE.rglob("README.md"), *(ROOT / "native").rglob("README.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
AT_ROOT = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")]
WITH_A_PAGE = (
    *("sample/distributed", "sample/service", "sample/presampled", "partition", "nn/attention", "cluster/jobs"),
    *(f"tasks/{task.name}" for task in sorted((PACKAGE / "tasks").iterdir()) if (task / "task.py").is_file()),
)

INLINE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"[\w./-]+\.(py|pyi|h|cpp|cu|yaml|toml|j2|md)|CMakeLists\.txt")
IDENTIFIER = re.compile(r"(?=\w*(?:_|[a-z][A-Z]))[A-Za-z]\w+(?:\.[A-Za-z]\w*)*")
ELSEWHERE = {"FakeTensorMode"}  # of other libraries, named as what was not taken


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@cache
def words_of_the_code() -> frozenset[str]:
    folders = ("src", "native", "tests", "benchmarks", "recipes", "tools")
    suffixes = {".py", ".pyi", ".h", ".cpp", ".yaml", ".toml", ".j2"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    files += [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml", ROOT / "Makefile"]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def exists(named: str, page: Path) -> bool:
    return any((base / named).exists() for base in (page.parent, PACKAGE, ROOT, ROOT / "src", ROOT / "benchmarks"))


def looks_like_a_path(text: str) -> bool:
    if re.search(r"[\s<>*{}=:…,]|NAME", text) or text.startswith("/"):
        return False
    first = text.split("/")[0]
    of_ours = {path.name for base in (ROOT, PACKAGE) for path in base.iterdir() if path.is_dir()}
    return SOURCE.fullmatch(text) is not None or ("/" in text and first in of_ours)


@pytest.mark.parametrize("page", AT_ROOT[:1] + AT_ROOT[2:] + BESIDE_CODE, ids=name)
def test_a_page_is_short(page):
    most = MOST_WORDS.get(name(page), 750)
    assert len(page.read_text(encoding="utf-8").split()) <= most


def test_the_architecture_has_150_lines_at_most():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_a_decision_is_a_page(page):
    assert len(page.read_text(encoding="utf-8").split()) <= 400


@pytest.mark.parametrize("page", [*AT_ROOT, *BESIDE_CODE, *DECISIONS], ids=name)
def test_no_line_is_over_200_characters(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [f"{number}: {line[:60]}…" for number, line in enumerate(lines, 1) if len(line) > 200]


@pytest.mark.parametrize("page", [*AT_ROOT, *BESIDE_CODE, *DECISIONS], ids=name)
def test_the_paths_of_a_page_exist(page):
    missing = [text for text in INLINE.findall(prose(page)) if looks_like_a_path(text) and not exists(text, page)]
    assert not missing


@pytest.mark.parametrize("page", [*AT_ROOT, *BESIDE_CODE, *DECISIONS], ids=name)
def test_the_identifiers_of_a_page_stand_in_the_code(page):
    named = [text.removesuffix("()") for text in INLINE.findall(prose(page)) if "NAME" not in text]
    words = {word for text in named if IDENTIFIER.fullmatch(text) for word in text.split(".")}
    assert not words - words_of_the_code() - ELSEWHERE


@pytest.mark.parametrize("folder", WITH_A_PAGE)
def test_what_holds_a_design_has_a_page(folder):
    assert (PACKAGE / folder / "README.md").is_file()


def test_the_folder_table_has_the_packages():
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("src/graphmill/")
    table = lines[begin + 1 : lines.index("```", begin)]
    named = [re.match(r"  ([a-z_]+)/ ", line) for line in table]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert all(named)
    assert sorted(match[1] for match in named if match) == sorted(packages)
    assert not [line for line in table if len(line) > 120]


def test_decisions_are_numbered_and_listed():
    pages = [page for page in DECISIONS if page.name != "README.md"]
    assert [int(page.name[:2]) for page in pages] == list(range(1, len(pages) + 1))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for page in pages:
        title = page.read_text(encoding="utf-8").splitlines()[0]
        assert title.startswith(f"# {page.name[:2]}. ")
        assert f"({page.name}) | {title[6:]} |" in index


def test_every_howto_is_listed():
    folder = ROOT / "docs" / "howto"
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8")))
    assert listed == {page.name for page in folder.glob("*.md")} - {"README.md"}
