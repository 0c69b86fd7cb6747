"""A site's profile: what a cluster gives by default, where its fast disks are, and what it refuses."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PositiveInt

from graphmill.base.amounts import mib_of, seconds_of
from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.config.check import checked
from graphmill.config.draft import Draft
from graphmill.config.frozen import Spec
from graphmill.config.yaml_text import read_document
from graphmill.spec.job.options import MailType

SUFFIXES: Final = (".yaml", ".yml")
_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _time(text: str) -> str:
    if seconds_of(text) is None:
        raise ValueError(f"{text!r} is not a length of time; write HH:MM:SS or D-HH:MM:SS")
    return text


def _memory(text: str) -> str:
    if mib_of(text) is None:
        raise ValueError(f"{text!r} is not an amount of memory; write, for example, 85G")
    return text


Time = Annotated[str, AfterValidator(_time)]
Memory = Annotated[str, AfterValidator(_memory)]


class SiteDefaults(Spec):
    """What a job asks for if the experiment does not say."""

    account: str | None = Field(None, description="the account that pays")
    qos: str | None = Field(None, description="quality of service")
    slurm_partition: str | None = Field(None, description="Slurm's partition")
    constraint: str | None = Field(None, description="features that the hosts must have")
    constraint_without_gpus: str | None = Field(None, description="the same, for jobs that use no GPU")
    time: Time = Field("00:30:00", description="limit of a job")
    gpus_per_host: int = Field(0, ge=0, description="GPUs of each host, where train.device is not cpu")
    cpus_per_rank: PositiveInt = Field(1, description="CPUs of a rank without a GPU, where train.threads is auto")
    mem: Memory | None = Field(None, description="memory of each host; null: what Slurm gives")
    mail_type: tuple[MailType, ...] = Field((), description="when a mail is sent")
    exclusive: bool = Field(False, description="share the hosts with no other job")
    sbatch_args: tuple[str, ...] = Field((), description="other options of sbatch, each as --name=value")


class HostKind(Spec):
    """One kind of machine."""

    cpus: PositiveInt = Field(description="CPUs as Slurm counts them")
    gpus: int = Field(0, ge=0, description="GPUs")
    gpu_type: str | None = Field(None, description="the GPUs' name in --gres, such as v100")
    memory: Memory = Field(description="memory that jobs may use")
    memory_per_cpu: Memory | None = Field(None, description="memory that comes with each CPU")
    cpus_per_gpu: PositiveInt | None = Field(None, description="CPUs that come with each GPU")
    max_cpus_per_gpu: PositiveInt | None = Field(None, description="CPUs per GPU that a job may ask for at most")
    count: PositiveInt | None = Field(None, description="how many there are")
    constraints: tuple[str, ...] = Field((), description="words of --constraint that choose this kind")
    slurm_partitions: tuple[str, ...] = Field((), description="partitions that hold this kind; none: all")


class QueueLimits(Spec):
    """What a quality of service or a partition allows."""

    max_time: Time | None = Field(None, description="limit of a job")
    max_hosts: PositiveInt | None = Field(None, description="hosts of a job")
    preempt_mode: Literal["off", "cancel", "requeue", "suspend"] | None = Field(
        None, description="what befalls a job when one of higher priority takes its hosts; null: not known"
    )


class Limits(Spec):
    """What the site as a whole allows."""

    max_time: Time | None = Field(None, description="limit of a job")
    max_time_one_host: Time | None = Field(None, description="limit of a job on one host, where it differs")
    max_hosts: PositiveInt | None = Field(None, description="hosts of a job")
    more_memory_takes_more_cpus: bool = Field(
        False, description="memory beyond memory_per_cpu is granted, and paid for with CPUs; else it is refused"
    )
    account_required: bool = Field(False, description="sbatch refuses a job without an account")


class Scheduler(Spec):
    """How Slurm is set up there. Written down for people by `graphmill site probe`; nothing is decided by it."""

    slurm_version: str | None = Field(None, description="such as 24.11.5")
    kill_wait_s: PositiveInt | None = Field(None, description="seconds between SIGTERM and SIGKILL at the limit")


class Site(Spec):
    """One cluster."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="as messages call it")
    description: str = Field("", description="which cluster this is")
    checked: str = Field("", description="when these values were compared with the site's documentation")
    sources: tuple[str, ...] = Field((), description="where they stand")
    defaults: SiteDefaults = SiteDefaults()
    modules: tuple[str, ...] = Field((), description="environment modules that every job loads")
    setup_lines: tuple[str, ...] = Field((), description="shell commands that every job runs first")
    scratch: str | None = Field(None, pattern=_VARIABLE, description="variable that names the fast shared folder")
    host_local: str | None = Field(None, pattern=_VARIABLE, description="variable that names the host's own disk")
    interface: str | None = Field(None, description="network interface between hosts; null: chosen there")
    hosts: dict[str, HostKind] = Field({}, description="kinds of machines; none: not known, nothing is refused")
    qos: dict[str, QueueLimits] = Field({}, description="qualities of service; none: any name is taken")
    slurm_partitions: dict[str, QueueLimits] = Field({}, description="partitions; none: any name is taken")
    limits: Limits = Limits()
    scheduler: Scheduler = Scheduler()
    gpus_as: Literal["gpus-per-node", "gres"] = Field("gpus-per-node", description="how GPUs are asked for")
    job_commands: tuple[str, ...] = Field((), description="the site's commands about a job; {job_id} is its number")


def load_site(source: str, *, folders: Sequence[Path]) -> Site:
    """The profile that `source` names: a path, else the first `NAME.yaml` in `folders`.

    Raises `UserError` if there is none, or it does not fit.
    """
    if "/" in source or source.endswith(SUFFIXES):
        path = Path(source).expanduser()
    else:
        found = [folder / f"{source}.yaml" for folder in folders if (folder / f"{source}.yaml").is_file()]
        if not found or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", source):
            raise _unknown_site(source, folders)
        path = found[0]
    return checked(Site, Draft.of(read_document(path, holds="a site profile")), str(path))


def known_sites(folders: Sequence[Path]) -> list[str]:
    """The names that `load_site` finds, sorted."""
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def _unknown_site(source: str, folders: Sequence[Path]) -> UserError:
    own = folders[0] / f"{source}.yaml" if folders else f"{source}.yaml"
    return UserError(
        f"slurm.site is {source!r}, which is not a site profile; {did_you_mean(source, known_sites(folders))}",
        fix=f"name one of them, or a path to a YAML file, or write {own}",
    )
