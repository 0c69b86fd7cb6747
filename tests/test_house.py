"""Rules of the house that a reader of the code relies on: one name for one class, files of one subject."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "graphmill"
MOST_LINES = 450
LOOP = "src/graphmill/train/loop.py"
MOST_LINES_OF_THE_LOOP = 250  # what a rank does is read in one go

# PyG's names, twice: `graphmill.nn.attention` has layers of its own, `graphmill.pyg` PyG's classes on its operator.
IN_TWO_MODULES = {"GATConv", "GATv2Conv"}

MOST_OPTIONAL = 4
IN_A_USERS_FILE = ("Spec", "Options", "Settings", "Defaults", "Entry")  # ends of names: each key may be left out
WITH_MORE_OPTIONAL = {  # to become fewer; what a host or Slurm need not tell is None
    "Job": 18,
    "Usage": 15,
    "Point": 12,
    "Combination": 8,
    "Epilog": 8,
    "Modelled": 8,
    "MeasuredCell": 7,
    "NodeClassificationPlan": 7,
    "Plan": 7,
    "RunView": 7,
    "SlurmPartition": 7,
    "Call": 6,
    "GpuReading": 6,
    "Launch": 6,
    "ResourceRequest": 6,
    "HostKind": 5,
    "JobReading": 5,
    "QueuedJob": 5,
    "SshHost": 5,
}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, parsed once, by its path in it."""
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def test_no_two_classes_have_one_name(trees):
    modules = defaultdict(set)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(path)
    assert {name for name, those in modules.items() if len(those) > 1} == IN_TWO_MODULES


def test_files_are_of_one_screenful_of_subjects():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "native").rglob("*"), *(ROOT / "tools").rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_bytes().splitlines()) for file in files if file.is_file()}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}
    assert lengths[LOOP] <= MOST_LINES_OF_THE_LOOP


def test_one_place_knows_the_variables_of_a_slurm_job(trees):
    """`JobEnvironment` is asked, elsewhere."""
    knows = {
        "runtime/job_environment.py",
        "cluster/jobs/steps.py",  # what sbatch sets and srun must not see
        "cluster/jobs/probe.py",  # SLURM_VERSION is a setting of the cluster
    }
    others = []
    for path, tree in trees.items():
        name = path.as_posix()
        if name.startswith("slurm/") or name in knows:
            continue
        strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        others += [name for value in strings if isinstance(value, str) and re.fullmatch(r"SLURMD?_[A-Z_]+", value)]
    assert not others


SCHEDULER = {  # what the package asks of Slurm, by verb: each name is one more thing that it knows of a scheduler
    "submit": {"sbatch", "sbatch_test_only", "srun", "find_program"},
    "cancel": {"scancel"},
    "states": {"Queue", "JobReading", "QueuedJob", "alive", "jobs_of_script", "is_job_id"},
    "states explained": {"explain_reason", "explain_end"},
    "accounts": {"Accounted", "Spent", "accounted", "all_runs", "ask_for_rows", "last_run", "commands_that_show"},
    "accounts as text": {"Row", "rows_in", "rows_of_ended", "sacct_command", "summary_text"},
    "deadline": {"job_deadline", "kill_wait_s"},
    "end and requeue": {"show_job", "requeue", "exclude_hosts", "folders_of"},
    "hosts": {"expand_hostlist"},
    "cluster": {"Cluster", "Host", "Qos", "SlurmPartition", "read_cluster"},
    "failures": {"SlurmError", "SlurmMissingError", "SlurmSilentError", "is_silence"},
}
PROGRAMS = {"sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun"}
SHOWN_OR_IN_A_JOB = {"cluster/jobs/sbatch.py", "cluster/jobs/steps.py"}  # a dry run's words; the driver's commands


def test_slurms_programs_are_called_in_one_place(trees):
    """`slurm/` calls them and reads what they print; the rest of the package asks it by the verbs above."""
    asked, others = set(), []
    for path, tree in trees.items():
        name = path.as_posix()
        if name.startswith("slurm/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("graphmill.slurm"):
                asked |= {alias.name for alias in node.names}
            if isinstance(node, ast.List | ast.Tuple) and name not in SHOWN_OR_IN_A_JOB and _is_of_slurm(node):
                others.append(f"{name}:{node.lineno}")
    assert asked == set().union(*SCHEDULER.values())
    assert not others


def _is_of_slurm(words: ast.List | ast.Tuple) -> bool:
    """Whether these are one of Slurm's programs and its arguments, and not names of some."""
    first, *others = words.elts or [None]
    is_program = isinstance(first, ast.Constant) and first.value in PROGRAMS
    return is_program and any(not isinstance(word, ast.Constant) or word.value.startswith("-") for word in others)


def test_a_class_has_few_fields_that_may_be_absent(trees):
    """More than four say that several things are one class. Keys of a user's file may all be left out."""
    found = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.endswith(IN_A_USERS_FILE):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                optional = sum("None" in ast.unparse(each.annotation) for each in fields)
                if optional > MOST_OPTIONAL:
                    found[node.name] = optional
    assert found == WITH_MORE_OPTIONAL, "less is better: lower the number, or take the class off the list"


LEANS_ON_ANOTHER = {
    "After", "Also", "And", "As", "Before", "But", "For", "From", "Here", "In", "It", "Its", "Kept", "Not", "Of",
    "On", "Or", "Same", "So", "Such", "Than", "That", "Their", "There", "These", "They", "Those", "Until", "With",
    "Without",
}  # fmt: skip


def test_docstrings_stand_on_their_own(trees):
    """They begin with a noun or a verb, and not with what only the class around them, or the one above, explains."""
    fragments = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node) or "None"
                if text.split()[0].strip(",.:;") in LEANS_ON_ANOTHER or text.startswith("The same"):
                    fragments.append(f"{path}: {text.splitlines()[0]}")
    assert not fragments


OUR_OWN_WORDS = {  # each with the field's word, which is used
    "Company": "process group",
    "CostRoom": "buffers",
    "Held": "cached rows",
    "Room": "buffer",
    "Stock": "cache",
    "Word": "message type",
    "mates": "ranks of the host",
    "whence": "begins with",
}


def test_names_are_the_fields(trees):
    used = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.arg | ast.ClassDef | ast.FunctionDef | ast.Attribute):
                names = [getattr(node, key, None) for key in ("id", "arg", "name", "attr")]
                used |= OUR_OWN_WORDS.keys() & set(names)
    assert not used


DECLARED_OTHERWISE = {  # names of parameters, fields, functions and classes, with the words that stand in their place
    "Seat": "rank of a role",
    "Stretch": "span",
    "aside": "excluded",
    "asked": "spec, request, or what its type is called",
    "asked_of": "dataset spec",
    "beside": "what it is: extra columns, peers",
    "books": "saved statistics",
    "causes": "attributions",
    "fixed": "settled, required",
    "forget": "evict, clear",
    "found": "what was found: result, request, instance",
    "here": "this job, this host",
    "in_words": "describe, or what it is the text of",
    "own": "task plan, or what its type is called",
    "remarks": "notes",
    "said": "message, output",
    "take": "allocate, gather",
    "there": "remote",
    "together": "gathered, joined, collective",
    "told": "text, or what it is the text of",
    "weigh": "attribute",
    "whole": "full",
}
KEYS_OF_FILES = {  # an older run folder is still read
    ("record/events.py", "asked"),
    ("access/draws.py", "asked"),  # written as that event
    ("diagnose/epilog.py", "asked"),
    ("record/manifest.py", "books"),
    ("spec/job/resolve.py", "remarks"),
}


def test_declared_names_are_the_fields(trees):
    """As a local name for a moment, such a word may stand."""
    declared = set()
    for path, tree in trees.items():
        names = [name.strip("_") for node in ast.walk(tree) for name in _declared_by(node)]
        declared |= {(path.as_posix(), name) for name in names if name in DECLARED_OTHERWISE}
    assert declared == KEYS_OF_FILES


def _declared_by(node: ast.AST) -> list[str]:
    """What a function, its parameters, or a class and its fields are called."""
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.ClassDef):
        fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
        return [node.name, *(field.id for field in fields if isinstance(field, ast.Name))]
    return []
