"""What the documents say exists: commands, options, recipes, keys, make targets, files. Nothing is run."""

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer

from graphmill.cli import app
from graphmill.cli.bench_run import parser_of
from graphmill.cli.words import ShortFlagsCommand
from graphmill.config.yaml_text import read_document
from graphmill.spec.flags import SHORT_FLAGS, parse_train_request
from graphmill.spec.job.site import load_site
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.extras import Bench
from graphmill.spec.load import load_experiment
from graphmill.spec.pipeline import load_pipeline
from graphmill.spec.recipes import list_recipes
from graphmill.spec.search import load_search, searched_keys
from graphmill.spec.study import load_study

ROOT = Path(__file__).parents[2]
OF_CODE = [
    *(ROOT / "src").rglob("README.md"),
    *(ROOT / "native").rglob("README.md"),
    ROOT / "tests/docs/newcomer_questions.md",
]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *OF_CODE])

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line in a document, cut into words."""

    document: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: {shlex.join(self.words)}"


def commands(program: str, *verbs: str) -> list[Command]:
    """Every call of `program` in a shell block, or in inline code that begins with it; `verbs`: with one of them."""
    found = [command for command in _all_commands() if command.words[0] == program]
    return [command for command in found if not verbs or set(command.words[1:2]) & set(verbs)]


@cache
def _all_commands() -> list[Command]:
    return [command for path in DOCUMENTS for command in _commands_of(path)]


def _commands_of(path: Path) -> Iterator[Command]:
    text = path.read_text(encoding="utf-8")
    lines = [
        line for kind, body in FENCE.findall(text) if kind in ("bash", "sh", "console") for line in body.splitlines()
    ]
    if "reference" not in path.parts:  # generated from the commands themselves, with their own test
        lines += INLINE.findall(FENCE.sub("", text))
    for line in lines:
        for part in line.split("&&"):
            words = _words(part)
            if words:
                yield Command(str(path.relative_to(ROOT)), words)


def _words(text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text.removeprefix("$ "), comments=True)
    except ValueError:  # prose in inline code
        return ()
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return tuple(words)


def links(path: Path) -> list[str]:
    """Targets of the links and pictures of a document that point into the project."""
    return [target for target in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in target]


PLACEHOLDER = re.compile(r"[A-Z][A-Z_@:]*[A-Z]|…")  # EXPERIMENT, FILE, FOLDER, …
MACHINE = re.compile(r"/(?:work|root|home|tmp)/|https?://[^\s)]*(?:pypi|/simple\b)")


@cache
def recipes() -> dict[str, str]:
    """Kinds by name."""
    return {recipe.name: recipe.kind for recipe in list_recipes()}


@cache
def tree():
    """All commands: typer reads the signature of each, which takes long."""
    return typer.main.get_command(app.commands())


def resolved(command: Command):
    """The command that the words name, and its own words."""
    found, words = tree(), list(command.words[1:])
    while words and hasattr(found, "commands"):
        if words[0].startswith("-"):
            break
        assert words[0] in found.commands, f"{command}: there is no such command as {words[0]}"
        found = found.commands[words.pop(0)]
    return found, words


def test_graphmills_commands_and_options_exist():
    for command in commands("graphmill"):
        options_exist(command)


def options_exist(command: Command) -> None:
    found, words = resolved(command)
    options = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help",
        "-h",
    }
    if isinstance(found, ShortFlagsCommand):
        options |= {f"--{spelt}" for name in SHORT_FLAGS for spelt in (name, name.replace("_", "-"))}
    benched = (
        {kind.name: bench for kind in all_kinds() if (bench := kind.extra(Bench))} if found.name == "bench" else {}
    )
    if words and words[0] in benched:  # their options are read by the task's own parser
        options |= set(parser_of(words[0], benched[words[0]])._option_string_actions)
    own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    given = {word.partition("=")[0] for word in own if re.match(r"--?[A-Za-z]", word)}
    assert given <= options, f"{command}: no such option"


def test_experiments_and_overrides_of_the_documents_load():
    for command in commands("graphmill", "train", "plan"):
        loads(command)


def loads(command: Command) -> None:
    words = list(command.words[2:])
    overrides = [words[place + 1] for place, word in enumerate(words) if word in ("-O", "--override")]
    experiment = words[0] if words and not words[0].startswith("-") else None
    if "--resume" in words or any(PLACEHOLDER.fullmatch(text) for text in (experiment or "", *overrides)):
        return
    if experiment is not None and experiment.endswith(".yaml"):
        experiment = None  # of the reader's own; the overrides are checked on the default
        overrides = [text for text in overrides if text.startswith("train.")]
    load_experiment(experiment, overrides)


def test_studies_of_the_documents_are_recipes():
    for command in commands("graphmill", "study"):
        names = [word for word in command.words[3:] if not word.startswith("-")][:1]
        for name in names:
            assert name.endswith(".yaml") or PLACEHOLDER.fullmatch(name) or recipes().get(name) == "study", (
                f"{command}: no such recipe"
            )


def test_searches_of_the_documents_are_recipes_or_files():
    for command in commands("graphmill", "tune"):
        name = next((word for word in command.words[2:] if not word.startswith("-")), "EXPERIMENT")
        assert name.endswith(".yaml") or PLACEHOLDER.fullmatch(name) or recipes().get(name) in ("experiment", "search")


def test_torchruns_commands():
    for command in commands("torchrun"):
        if "graphmill.train" in command.words:
            request = parse_train_request(command.words[command.words.index("graphmill.train") + 1 :])
            load_experiment(request.experiment, request.overrides)


def test_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    coming_later = {"sync-metrics"}
    for command in commands("make"):
        for word in command.words[1:]:
            assert "=" in word or word in targets | coming_later, f"{command}: no target {word}"


def test_scripts_of_python_exist():
    for command in commands("python"):
        words = command.words[1:]
        if words[:1] == ("-m",) and words[1].startswith("graphmill"):
            module = ROOT / "src" / words[1].replace(".", "/")
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), str(command)
        elif words and words[0].startswith("benchmarks/"):
            assert (ROOT / words[0]).is_file(), str(command)


def test_links_lead_somewhere():
    for path in DOCUMENTS:
        broken = [target for target in links(path) if not (path.parent / target).exists()]
        assert not broken, f"{path.relative_to(ROOT)}: {', '.join(broken)}"


def test_no_document_recipe_or_script_names_a_machine():
    tracked = [
        *DOCUMENTS,
        *(ROOT / "recipes").glob("*.yaml"),
        ROOT / "Makefile",
        ROOT / "constraints.txt",
        ROOT / ".ci/run",
    ]
    found = {str(path.relative_to(ROOT)): MACHINE.findall(path.read_text(encoding="utf-8")) for path in tracked}
    assert not {name: hits for name, hits in found.items() if hits}


def test_studies_name_recipes_and_every_one_is_told_in_a_line():
    for recipe in list_recipes():
        assert recipe.description
        if recipe.kind == "study":
            assert recipes().get(str(load_study(recipe.name).experiment)) == "experiment"


def test_yaml_in_documents_is_an_experiment_or_a_part_of_one(tmp_path):
    for path in DOCUMENTS:
        for number, body in enumerate(
            re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        ):
            file = tmp_path / f"{path.stem}-{number}.yaml"
            file.write_text(body, encoding="utf-8")
            if re.search(r"^stages:", body, re.MULTILINE):
                load_pipeline(file)
            elif re.search(r"^space:", body, re.MULTILINE):
                searched_keys(load_search(file))
            elif re.search(r"^(vary|cells|kind):", body, re.MULTILINE):
                load_study(file)
            elif ":KIND" in body:  # of a task outside the package: tests/integration/test_own_task.py trains it
                read_document(file, holds="an experiment")
            elif re.search(r"^defaults:", body, re.MULTILINE):
                load_site(str(file), folders=[])
            else:
                load_experiment(file)


NOT_INSTALLED_HERE = {"wandb", "trackio"}  # extras; their tests are skipped where they are not installed


def test_the_pins_cover_what_is_required():
    pins = {
        line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(name for key, names in extras.items() for name in names if key not in NOT_INSTALLED_HERE),
    ]
    names = {re.split(r"[<>=!~\[ ]", text)[0].lower() for text in wanted}
    assert names <= pins, f"not pinned: {names - pins}"
    assert all(
        re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.]+", line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )


def test_make_help_names_every_target():
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert all(re.search(rf"make {target}\b", listed) for target in phony[1].split())


def test_what_ci_runs_of_make_is_valid_shell():
    """Make parses a recipe only when it runs it, and CI names goals together that nobody else does."""
    goals = re.findall(r"^(?:exec )?make ([^<\n]*)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert goals, "what does CI run of make?"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    for words in [*goals, "check"]:
        printed = subprocess.run(
            ["make", "-C", str(ROOT), "--no-print-directory", "-n", *words.split()],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        parsed = subprocess.run(["sh", "-n"], input=printed.stdout, capture_output=True, text=True, check=False)
        assert parsed.returncode == 0, f"make {words}: {parsed.stderr}"
