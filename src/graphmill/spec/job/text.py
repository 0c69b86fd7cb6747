"""Which text each field of `slurm` takes, by where it ends up: Slurm's own grammars, option lists, the environment.

What a place cannot represent is refused here; the rest is quoted for its place when the script is rendered.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from graphmill.config.problems import Problem
from graphmill.spec.job.options import ApptainerSpec, NoContainerSpec, PodmanSpec, PyxisSpec, ShifterSpec, SlurmSpec

LONGEST: Final = 1024  # sbatch reads an option into a fixed buffer; far below its size
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
_GRAMMARS: Final = {
    "account": (_NAME, "a name"),
    "qos": (_NAME, "a name"),
    "slurm_partition": (rf"{_NAME}(?:,{_NAME})*", "a name, or several with commas between"),
    "reservation": (rf"{_NAME}(?:,{_NAME})*", "a name, or several with commas between"),
    "constraint": (r"[A-Za-z0-9_(\[!][A-Za-z0-9_.:=&|,*()\[\]!-]*", "words joined by & or |, such as gpu&hbm80g"),
    "gres": (r"[A-Za-z0-9_][A-Za-z0-9_.:,/=-]*", "NAME:TYPE:COUNT, such as gpu:v100:1"),
    "dependency": (r"[a-z]+(?::[0-9_+]+)*(?:[,?][a-z]+(?::[0-9_+]+)*)*", "KIND:JOB, such as afterok:1234"),
    "array": (r"[0-9]+(?:[-,:][0-9]+)*(?:%[0-9]+)?", "indices, such as 0-15%4"),
    "mail_user": (r"[A-Za-z0-9_][A-Za-z0-9._%+=-]*(?:@[A-Za-z0-9][A-Za-z0-9.-]*)?", "a mail address or a user name"),
    "interface": (r"[A-Za-z0-9][A-Za-z0-9_.-]*(?::[0-9]+)?", "a network interface, such as hsn0"),
    "python": (r"(?:python|pypy)[A-Za-z0-9._-]*|(?!-)[^\x00]*/[^\x00]*", "a path, or a name such as python3"),
}
_MODULE: Final = r"[A-Za-z0-9_][A-Za-z0-9_./+:=-]*"
_BIND: Final = r"(?!-)[^,:\x00-\x1f\x7f]+(?::[^,:\x00-\x1f\x7f]+(?::(?:ro|rw))?)?"
_MOUNT: Final = r"(?!-)[^,:\s\x00-\x1f\x7f]+:[^,:\s\x00-\x1f\x7f]+(?::[a-z+]+)?"
_SBATCH_ARG: Final = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)

SET_BY_US: Final = {
    "account": "account",
    "array": "array",
    "chdir": "work_dir",
    "comment": "comment",
    "constraint": "constraint",
    "cpus-per-task": "cpus_per_host",
    "dependency": "dependency",
    "exclusive": "exclusive",
    "gpus-per-node": "gpus_per_host",
    "gres": "gres",
    "job-name": "job_name_prefix",
    "mail-type": "mail_type",
    "mail-user": "mail_user",
    "mem": "mem",
    "nice": "nice",
    "no-requeue": "on_time_limit",
    "nodes": "hosts",
    "ntasks": "ranks_per_host",
    "ntasks-per-node": "ranks_per_host",
    "open-mode": "",
    "output": "output_dir",
    "partition": "slurm_partition",
    "qos": "qos",
    "requeue": "on_time_limit",
    "reservation": "reservation",
    "signal": "signal_before_s",
    "time": "time",
}
_NOT_IN_A_SCRIPT: Final = ("help", "ignore-pbs", "parsable", "quiet", "test-only", "usage", "verbose", "version")
_WOULD_REPLACE_THE_SCRIPT: Final = ("wait", "wrap")
_OPTIONS_OF_THEIR_OWN: Final = ("gpus",)  # that others begin with

_OURS: Final = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GRAPHMILL_LAUNCHER", "GRAPHMILL_STAGED_ROOT", "GRAPHMILL_TOKEN", "run", "runs", "status", "ranks", "python"),
}
_OF_BASH: Final = re.compile(  # read-only, or computed when assigned to: SECONDS='a[$(…)]' would run a command
    r"BASH.*|COMP_.*|DIRSTACK|ENV|EPOCH.*|EUID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|MAPFILE|OPT(?:IND|ARG|ERR)"
    r"|PIPESTATUS|POSIXLY_CORRECT|PPID|PS4|S?RANDOM|READLINE_.*|REPLY|SECONDS|SHELLOPTS|SHLVL|TMOUT|UID|_"
)
_OF_SLURM: Final = re.compile(r"SLURM_.*|SLURMD_.*|SBATCH_.*")

_SECRET: Final = re.compile(
    r"SECRET|(^|_)PASS(WORD|WD|PHRASE)?\d*$|(KEY|TOKEN|PASSWORD|CREDENTIALS?)\d*$", re.IGNORECASE
)
"""Names of variables whose values are nobody else's business."""


def text_problems(slurm: SlurmSpec) -> Iterator[Problem]:
    """Everything that cannot be written where it belongs."""
    for name, (pattern, takes) in _GRAMMARS.items():
        yield from _grammar(name, getattr(slurm, name), pattern, takes)
    for index, module in enumerate(slurm.modules):
        yield from _grammar(f"modules[{index}]", module, _MODULE, "a module's name, such as cuda/12.4.1")
    yield from _one_line("comment", slurm.comment)
    yield from _one_line("output_dir", slurm.output_dir)
    if slurm.output_dir is not None:
        yield from pattern_problems("slurm.output_dir", slurm.output_dir)
    elif slurm.work_dir is not None:  # where the job's output goes then
        yield from pattern_problems("slurm.work_dir", slurm.work_dir)
    for name in ("work_dir", "output_dir"):
        yield from _path(name, getattr(slurm, name))
    for index, line in enumerate(slurm.setup_lines):
        yield from _setup_line(f"slurm.setup_lines[{index}]", line)
    yield from _env(slurm.env)
    yield from _env_from(slurm)
    yield from _container(slurm)
    for index, argument in enumerate(slurm.sbatch_args):
        yield from _sbatch_arg(f"slurm.sbatch_args[{index}]", argument)


def pattern_problems(where: str, path: str, *, by_srun: bool = False) -> Iterator[Problem]:
    """Slurm's file names: a backslash switches the meaning of % off, so a path with one cannot be written.

    sbatch reads %% as one %; srun mostly, but 22.05 loses the output of `%%5t` and of several in one name.
    """
    if by_srun and "%" in path:
        yield Problem(where, f"{path!r} holds a %, which srun's file names cannot", "name another folder")
    if "\\" in path:
        yield Problem(where, f"{path!r} holds a backslash, which Slurm's file names cannot", "name another folder")
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        yield Problem(where, f"{path!r} holds a control character", "name another folder")


def is_text(text: str) -> bool:
    """Whether a process can be handed `text` at all: no NUL, and it is UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def is_one_line(text: str) -> bool:
    """Whether `text` can be written in an `#SBATCH` line: printable, and no longer than sbatch reads."""
    return text.isprintable() and len(text.encode("utf-8", "surrogatepass")) <= LONGEST


def _grammar(name: str, text: str | None, pattern: str, takes: str) -> Iterator[Problem]:
    if text is None:
        return
    if not re.fullmatch(pattern, text) or not is_text(text) or len(text) > LONGEST:
        yield Problem(f"slurm.{name}", f"is {_shown(text)}, but it takes {takes}", f"change slurm.{name}")


def _one_line(name: str, text: str | None) -> Iterator[Problem]:
    if text is not None and not is_one_line(text):
        yield Problem(
            f"slurm.{name}",
            f"is {_shown(text)}, but it takes one line of printable text, at most {LONGEST} bytes",
            f"change slurm.{name}",
        )


def _path(name: str, text: str | None) -> Iterator[Problem]:
    if text is not None and (not text or not is_text(text)):
        yield Problem(f"slurm.{name}", f"is {_shown(text)}, which names no folder", f"change slurm.{name}")


def _setup_line(where: str, line: str) -> Iterator[Problem]:
    if not is_text(line) or re.search(r"[\x00-\x08\n-\x1f\x7f]", line):
        yield Problem(where, f"is {_shown(line)}, but it is one line of shell", "give each line as an entry of its own")


def _env(env: Mapping[str, str | int]) -> Iterator[Problem]:
    for name, value in env.items():
        where = f"slurm.env.{name}" if name.isprintable() else "slurm.env"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Problem(
                where, f"{_shown(name)} cannot name a variable: letters, digits and _ only", "write NAME=VALUE"
            )
        elif name in _OURS or _OF_BASH.fullmatch(name) or _OF_SLURM.fullmatch(name):
            owner = "the script" if name in _OURS else "bash" if _OF_BASH.fullmatch(name) else "Slurm"
            yield Problem(where, f"is {owner}'s own variable", f"leave out slurm.env.{name}")
        elif _SECRET.search(name):
            told = f"export {name}, then --env {name} (slurm.env_from): its value is written nowhere"
            yield Problem(where, "is called like a secret, and its value would stand in the job's files", told)
        elif not is_text(str(value)):
            yield Problem(where, f"is {_shown(str(value))}, which no environment can hold", "remove the NUL in it")


def _env_from(slurm: SlurmSpec) -> Iterator[Problem]:
    for name in slurm.env_from:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Problem("slurm.env_from", f"{_shown(name)} cannot name a variable", "letters, digits and _ only")
        elif name in slurm.env:
            yield Problem("slurm.env_from", f"{name} has a value in slurm.env, too", "give one of the two")
    if slurm.env_from and any(argument.partition("=")[0] == "--export" for argument in slurm.sbatch_args):
        what = "sbatch would pass on other variables than slurm.env_from names"
        yield Problem("slurm.sbatch_args", what, "leave out --export: the ranks get what sbatch is called with")


def _container(slurm: SlurmSpec) -> Iterator[Problem]:
    container = slurm.container
    if isinstance(container, ApptainerSpec | ShifterSpec | PodmanSpec):
        yield from _each("container.binds", container.binds, _BIND, "FROM, FROM:TO or FROM:TO:ro, without commas")
    if isinstance(container, PyxisSpec):
        yield from _each("container.mounts", container.mounts, _MOUNT, "FROM:TO or FROM:TO:ro, without commas")
    if not isinstance(container, NoContainerSpec):
        image = r"(?!-)[^\x00]+"
        yield from _grammar("container.image", container.image, image, "an image")
        yield from _grammar("container.python", container.python, *_GRAMMARS["python"])


def _each(name: str, texts: tuple[str, ...], pattern: str, takes: str) -> Iterator[Problem]:
    for index, text in enumerate(texts):
        yield from _grammar(f"{name}[{index}]", text, pattern, takes)


def _sbatch_arg(where: str, argument: str) -> Iterator[Problem]:
    parts = _SBATCH_ARG.fullmatch(argument)
    if parts is None or not is_one_line(argument):
        yield Problem(where, f"is {_shown(argument)}, but it takes one --name or --name=value", "write it out in full")
        return
    name = parts[1]
    known = (*SET_BY_US, *_NOT_IN_A_SCRIPT, *_WOULD_REPLACE_THE_SCRIPT)
    whole = [each for each in known if each.startswith(name)]
    if whole and name not in (*known, *_OPTIONS_OF_THEIR_OWN):  # sbatch takes any beginning that is clear to it
        yield Problem(where, f"--{name} is short for --{whole[0]}", "write it out in full")
    elif name in SET_BY_US:
        field = SET_BY_US[name]
        fix = f"set slurm.{field}" if field else "leave it out"
        yield Problem(where, f"--{name} is set from the experiment", fix)
    elif name in _NOT_IN_A_SCRIPT:
        yield Problem(where, f"--{name} does not belong into a script", f"give it to sbatch itself: sbatch --{name}")
    elif name in _WOULD_REPLACE_THE_SCRIPT:
        yield Problem(where, f"--{name} does not go with a script", "leave it out")


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
