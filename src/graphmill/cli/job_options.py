"""What a job asks of Slurm, as options that several commands share; each sets a key of the section `slurm`."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from graphmill.base.errors import UserError


@dataclass(frozen=True, slots=True)
class _Option:
    """One option: how it is written, and the key that it sets."""

    flags: tuple[str, ...]
    key: str
    metavar: str
    help: str
    type: Any = str  # of one value
    repeatable: bool = False


_OPTIONS: Final = {
    "site": _Option(
        ("--site",), "slurm.site", "NAME", "Site profile: perlmutter, pitzer, generic-cpu, devcluster, or a path."
    ),
    "hosts": _Option(("--hosts", "--nodes"), "slurm.hosts", "N", "Machines.", int),
    "ranks_per_host": _Option(("--ranks-per-host",), "slurm.ranks_per_host", "N", "Processes on each.", int),
    "gpus_per_host": _Option(("--gpus-per-host", "--gpus-per-node"), "slurm.gpus_per_host", "N", "GPUs of each.", int),
    "gres": _Option(("--gres",), "slurm.gres", "LIST", "Generic resources of each host, such as gpu:v100:1."),
    "cpus_per_host": _Option(
        ("--cpus-per-host", "--cpus-per-task"),
        "slurm.cpus_per_host",
        "N",
        "CPUs of each host (--cpus-per-task where a script starts one task per host).",
        int,
    ),
    "mem": _Option(("--mem",), "slurm.mem", "SIZE", "Memory of each host, such as 85G."),
    "time": _Option(("--time",), "slurm.time", "TIME", "Limit of one job: minutes, HH:MM:SS or D-HH:MM:SS."),
    "account": _Option(("--account", "--allocation"), "slurm.account", "NAME", "Who pays."),
    "qos": _Option(("--qos",), "slurm.qos", "NAME", "Quality of service."),
    "slurm_partition": _Option(("--slurm-partition", "--partition"), "slurm.slurm_partition", "NAME", "Partition."),
    "constraint": _Option(("--constraint",), "slurm.constraint", "WORDS", "Features that the hosts must have."),
    "reservation": _Option(("--reservation",), "slurm.reservation", "NAME", "Reservation to run in."),
    "dependency": _Option(("--dependency",), "slurm.dependency", "LIST", "Jobs to wait for, such as afterok:1234."),
    "array": _Option(
        ("--array",),
        "slurm.array",
        "LIST",
        "For `script`, since `submit` and studies begin one run a job: indices of an array, such as 0-15%4; each adds"
        " its own to train.seed.",
    ),
    "nice": _Option(("--nice",), "slurm.nice", "N", "Lowers (or raises) the priority.", int),
    "comment": _Option(("--comment",), "slurm.comment", "TEXT", "Kept by Slurm with the job."),
    "exclusive": _Option(("--exclusive",), "slurm.exclusive", "", "Share the hosts with no other job.", bool),
    "mail_user": _Option(("--mail-user",), "slurm.mail_user", "ADDRESS", "Who is written to."),
    "mail_type": _Option(("--mail-type",), "slurm.mail_type", "LIST", "When, such as END,FAIL."),
    "job_name_prefix": _Option(
        ("--job-name-prefix",), "slurm.job_name_prefix", "NAME", "The job is called NAME-n<hosts>."
    ),
    "work_dir": _Option(
        ("--work-dir", "--project-dir"), "slurm.work_dir", "FOLDER", "Where the job works; else where this is called."
    ),
    "module": _Option(("--module",), "slurm.modules", "NAME", "Load a module first. Repeatable.", repeatable=True),
    "setup_line": _Option(
        ("--setup-line",), "slurm.setup_lines", "LINE", "Run a line of shell first. Repeatable.", repeatable=True
    ),
    "env": _Option(
        ("--env",),
        "slurm.env",
        "NAME[=VALUE]",
        "Set a variable for the ranks; without a value: as it is here, written nowhere. Repeatable.",
        repeatable=True,
    ),
    "python": _Option(("--python", "--python-bin"), "slurm.python", "PATH", "Interpreter of the job."),
    "apptainer": _Option(("--apptainer",), "slurm.container", "IMAGE", "Run the ranks in this container."),
    "pyxis": _Option(("--pyxis",), "slurm.container", "IMAGE", "The same, started by Slurm's pyxis plugin."),
    "shifter": _Option(("--shifter",), "slurm.container", "IMAGE", "The same, started by shifter."),
    "podman_hpc": _Option(("--podman-hpc",), "slurm.container", "IMAGE", "The same, started by podman-hpc."),
    "launcher": _Option(("--launcher",), "slurm.launcher", "NAME", "srun (one task per rank) or torchrun."),
    "on_time_limit": _Option(
        ("--on-time-limit",), "slurm.on_time_limit", "NAME", "At the time limit: requeue, resubmit or stop."
    ),
    "port": _Option(
        ("--port", "--rdzv-port"), "slurm.port", "N", "Port of the rendezvous; else derived from the job's id.", int
    ),
    "interface": _Option(("--interface",), "slurm.interface", "NAME", "Network interface between hosts."),
    "staging": _Option(("--staging",), "staging.to", "WHERE", "Copy the dataset first: scratch or host_local."),
    "sbatch_arg": _Option(
        ("--sbatch-arg",),
        "slurm.sbatch_args",
        "--NAME=VALUE",
        "Any other option of sbatch. Repeatable.",
        repeatable=True,
    ),
}


def takes_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of a job. It receives the overrides that they set as `job`, a list of key=value.

    The command declares `job: list[str]` among its keyword arguments.
    """
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:  # noqa: ANN401  # whatever typer read
        values = {name: given.pop(name) for name in _OPTIONS}
        command(**given, job=job_overrides(values))

    own = [parameter for parameter in signature.parameters.values() if parameter.name != "job"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(option))
        for name, option in _OPTIONS.items()
    ]
    parameters = [*own, *options]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def job_overrides(values: Mapping[str, Any]) -> list[str]:
    """The overrides that the options set; None is an option not given.

    >>> job_overrides({"hosts": 2, "account": "m1234", "mail_type": "END,FAIL"})
    ['slurm.hosts=2', 'slurm.account="m1234"', 'slurm.mail_type=["END", "FAIL"]']
    """
    overrides: list[str] = []
    for name, value in values.items():
        if value is None or value == []:
            continue
        key = _OPTIONS[name].key
        if name == "env":
            pairs = [_variable(text) for text in value]
            overrides += [f"slurm.env.{variable}={text}" for variable, text in pairs if text is not None]
            taken = [variable for variable, text in pairs if text is None]
            overrides += [f"slurm.env_from={_list(taken)}"] if taken else []
        elif name == "mail_type":
            overrides.append(f"{key}={_list(value.split(','))}")
        elif key == "slurm.container":
            overrides.append(f"{key}={{kind: {name.replace('_', '-')}, image: {yaml_text(value)}}}")
        elif isinstance(value, str):
            overrides.append(f"{key}={yaml_text(value)}")
        elif isinstance(value, bool):
            overrides.append(f"{key}={str(value).lower()}")
        else:
            overrides.append(f"{key}={value if isinstance(value, int) else _list(value)}")
    return overrides


def joined_values(args: Sequence[str]) -> list[str]:
    """`--sbatch-arg --licenses=a` → `--sbatch-arg=--licenses=a`: a value that looks like an option stays a value.

    For a command that reads its arguments before typer does.
    """
    with_value = {flag for option in _OPTIONS.values() if option.type is not bool for flag in option.flags}
    words: list[str] = []
    queue = list(args)
    while queue:
        word = queue.pop(0)
        words.append(f"{word}={queue.pop(0)}" if word in with_value and queue else word)
    return words


def yaml_text(text: str) -> str:
    """`text` as YAML takes it literally, whatever is in it.

    >>> yaml_text('say "hi"'), yaml_text("no")
    ('"say \\\\"hi\\\\""', '"no"')
    """
    return '"' + "".join(_yaml_character(character) for character in text) + '"'


def _yaml_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(yaml_text(text) for text in texts)}]"


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UserError(
            f"--env {text!r} sets no variable", fix="write --env NAME or NAME=VALUE; names are letters, digits, _"
        )
    return name, yaml_text(value) if equals else None


def _annotation(option: _Option) -> Any:  # noqa: ANN401  # annotations have no common type
    kind = list[str] | None if option.repeatable else option.type | None
    flags = option.flags if option.type is not bool else (option.flags[0],)
    settings: dict[str, Any] = {"help": option.help, "show_default": False}
    if option.metavar:
        settings["metavar"] = option.metavar
    return Annotated[kind, typer.Option(*flags, rich_help_panel="Slurm", **settings)]
