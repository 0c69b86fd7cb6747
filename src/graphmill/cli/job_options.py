"""What a job asks of Slurm, as options that several commands share; each sets a key of the section `slurm`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import typer

from graphmill.base.errors import UserError

_KEYS: Final = {
    "module": "slurm.modules",
    "setup_line": "slurm.setup_lines",
    "sbatch_arg": "slurm.sbatch_args",
    "staging": "staging.to",
    **dict.fromkeys(("apptainer", "pyxis", "shifter", "podman_hpc"), "slurm.container"),
}
"""The keys of options that are not called as their keys are."""


def _option(metavar: str | None, help_: str, *flags: str) -> Any:  # noqa: ANN401  # as typer has it
    return typer.Option(*flags, metavar=metavar, help=help_, show_default=False, rich_help_panel="Slurm")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job, as typer reads them; None: not given."""

    site: Annotated[
        str | None, _option("NAME", "Site profile: perlmutter, pitzer, generic-cpu, devcluster, or a path.", "--site")
    ] = None
    hosts: Annotated[int | None, _option("N", "Machines.", "--hosts", "--nodes")] = None
    ranks_per_host: Annotated[int | None, _option("N", "Processes on each.", "--ranks-per-host")] = None
    gpus_per_host: Annotated[int | None, _option("N", "GPUs of each.", "--gpus-per-host", "--gpus-per-node")] = None
    gres: Annotated[str | None, _option("LIST", "Generic resources of each host, such as gpu:v100:1.", "--gres")] = None
    cpus_per_host: Annotated[
        int | None,
        _option(
            "N",
            "CPUs of each host (--cpus-per-task where a script starts one task per host).",
            "--cpus-per-host",
            "--cpus-per-task",
        ),
    ] = None
    mem: Annotated[str | None, _option("SIZE", "Memory of each host, such as 85G.", "--mem")] = None
    time: Annotated[str | None, _option("TIME", "Limit of one job: minutes, HH:MM:SS or D-HH:MM:SS.", "--time")] = None
    account: Annotated[str | None, _option("NAME", "Who pays.", "--account", "--allocation")] = None
    qos: Annotated[str | None, _option("NAME", "Quality of service.", "--qos")] = None
    slurm_partition: Annotated[str | None, _option("NAME", "Partition.", "--slurm-partition", "--partition")] = None
    constraint: Annotated[str | None, _option("WORDS", "Features that the hosts must have.", "--constraint")] = None
    reservation: Annotated[str | None, _option("NAME", "Reservation to run in.", "--reservation")] = None
    dependency: Annotated[str | None, _option("LIST", "Jobs to wait for, such as afterok:1234.", "--dependency")] = None
    array: Annotated[
        str | None,
        _option(
            "LIST",
            "For `script`, since `submit` and studies begin one run a job: indices of an array, such as 0-15%4; each"
            " adds its own to train.seed.",
            "--array",
        ),
    ] = None
    nice: Annotated[int | None, _option("N", "Lowers (or raises) the priority.", "--nice")] = None
    comment: Annotated[str | None, _option("TEXT", "Kept by Slurm with the job.", "--comment")] = None
    exclusive: Annotated[bool | None, _option(None, "Share the hosts with no other job.", "--exclusive")] = None
    mail_user: Annotated[str | None, _option("ADDRESS", "Who is written to.", "--mail-user")] = None
    mail_type: Annotated[str | None, _option("LIST", "When, such as END,FAIL.", "--mail-type")] = None
    job_name_prefix: Annotated[str | None, _option("NAME", "The job is called NAME-n<hosts>.", "--job-name-prefix")] = (
        None
    )
    work_dir: Annotated[
        str | None, _option("FOLDER", "Where the job works; else where this is called.", "--work-dir", "--project-dir")
    ] = None
    module: Annotated[list[str] | None, _option("NAME", "Load a module first. Repeatable.", "--module")] = None
    setup_line: Annotated[
        list[str] | None, _option("LINE", "Run a line of shell first. Repeatable.", "--setup-line")
    ] = None
    env: Annotated[
        list[str] | None,
        _option(
            "NAME[=VALUE]",
            "Set a variable for the ranks; without a value: as it is here, written nowhere. Repeatable.",
            "--env",
        ),
    ] = None
    python: Annotated[str | None, _option("PATH", "Interpreter of the job.", "--python", "--python-bin")] = None
    apptainer: Annotated[str | None, _option("IMAGE", "Run the ranks in this container.", "--apptainer")] = None
    pyxis: Annotated[str | None, _option("IMAGE", "The same, started by Slurm's pyxis plugin.", "--pyxis")] = None
    shifter: Annotated[str | None, _option("IMAGE", "The same, started by shifter.", "--shifter")] = None
    podman_hpc: Annotated[str | None, _option("IMAGE", "The same, started by podman-hpc.", "--podman-hpc")] = None
    launcher: Annotated[str | None, _option("NAME", "srun (one task per rank) or torchrun.", "--launcher")] = None
    on_time_limit: Annotated[
        str | None, _option("NAME", "At the time limit: requeue, resubmit or stop.", "--on-time-limit")
    ] = None
    port: Annotated[
        int | None, _option("N", "Port of the rendezvous; else derived from the job's id.", "--port", "--rdzv-port")
    ] = None
    interface: Annotated[str | None, _option("NAME", "Network interface between hosts.", "--interface")] = None
    staging: Annotated[str | None, _option("WHERE", "Copy the dataset first: scratch or host_local.", "--staging")] = (
        None
    )
    sbatch_arg: Annotated[
        list[str] | None, _option("--NAME=VALUE", "Any other option of sbatch. Repeatable.", "--sbatch-arg")
    ] = None

    def overrides(self) -> list[str]:
        """Return what they set, as a list of key=value.

        >>> JobOptions(hosts=2, account="m1234", mail_type="END,FAIL").overrides()
        ['slurm.hosts=2', 'slurm.account="m1234"', 'slurm.mail_type=["END", "FAIL"]']
        """
        overrides: list[str] = []
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            key = _KEYS.get(name, f"slurm.{name}")
            if value is None or value == []:
                continue
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
