"""The sections `slurm` and `staging` of an experiment: where a job runs, and what it asks of Slurm.

Nothing here (but the number of hosts) changes what is computed: the plan of a run is the same under other limits.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from graphmill.config.frozen import Spec

MailType = Literal[
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
]
Launcher = Literal["srun", "torchrun"]
OnTimeLimit = Literal["requeue", "resubmit", "stop"]
StagingTo = Literal["nowhere", "scratch", "host_local"]
OnStagingFailure = Literal["fail", "use_shared"]
Port = Annotated[int, Field(ge=1024, le=65535)]


class NoContainerSpec(Spec):
    """The ranks run on the host itself."""

    kind: Literal["none"] = "none"


class ApptainerSpec(Spec):
    """The ranks run under `apptainer exec`."""

    kind: Literal["apptainer"]
    image: str = Field(description="a .sif file or an image address")
    binds: tuple[str, ...] = Field((), description="folders seen inside, each FROM, FROM:TO or FROM:TO:ro")
    gpus: bool = Field(True, description="hand the GPUs in (--nv), where the job has some")
    python: str = Field("python3", description="the interpreter inside the container; it has graphmill installed")


class PyxisSpec(Spec):
    """The ranks run in a container that Slurm's pyxis plugin starts."""

    kind: Literal["pyxis"]
    image: str = Field(description="an image address as enroot takes it, or a .sqsh file")
    mounts: tuple[str, ...] = Field((), description="folders seen inside, each FROM:TO or FROM:TO:ro")
    python: str = Field("python3", description="the interpreter inside the container; it has graphmill installed")


class ShifterSpec(Spec):
    """The ranks run under `shifter`."""

    kind: Literal["shifter"]
    image: str = Field(description="an image that `shifterimg images` lists, such as docker:me/project:1")
    binds: tuple[str, ...] = Field((), description="folders seen inside, each FROM, FROM:TO or FROM:TO:ro")
    python: str = Field("python3", description="the interpreter inside the container; it has graphmill installed")


class PodmanSpec(Spec):
    """The ranks run under `podman-hpc run`, on the host's network and shared memory."""

    kind: Literal["podman-hpc"]
    image: str = Field(description="an image that `podman-hpc images` lists")
    binds: tuple[str, ...] = Field((), description="folders seen inside, each FROM, FROM:TO or FROM:TO:ro")
    gpus: bool = Field(True, description="hand the GPUs in (--gpu), where the job has some")
    python: str = Field("python3", description="the interpreter inside the container; it has graphmill installed")


ContainerSpec = Annotated[
    NoContainerSpec | ApptainerSpec | PyxisSpec | ShifterSpec | PodmanSpec, Field(discriminator="kind")
]


class SlurmSpec(Spec):
    """What a job asks of Slurm. What is left out comes from the site's profile."""

    site: str = Field("generic-cpu", description="a site profile: its name, or a path to a YAML file")
    account: str | None = Field(None, description="the account or allocation that pays (--account)")
    qos: str | None = Field(None, description="quality of service (--qos)")
    slurm_partition: str | None = Field(None, description="Slurm's partition (--partition)")
    constraint: str | None = Field(None, description="features that the hosts must have (--constraint)")
    time: str | int | None = Field(None, description="limit of a job: minutes, HH:MM:SS or D-HH:MM:SS")
    hosts: PositiveInt = Field(1, description="machines (--nodes)")
    ranks_per_host: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="processes on each; auto: train.ranks ÷ hosts, else one per GPU, else one; with roles as they say",
    )
    gpus_per_host: int | None = Field(None, ge=0, description="GPUs of each host (--gpus-per-node)")
    gres: str | None = Field(None, description="generic resources of each host, such as gpu:v100:1 (--gres)")
    cpus_per_host: PositiveInt | Literal["auto"] = Field(
        "auto", description="CPUs as Slurm counts them; auto: the site's per GPU, else train.threads of each rank"
    )
    mem: str | None = Field(None, description="memory of each host, such as 85G (--mem); null: what Slurm gives")
    mail_user: str | None = Field(None, description="who is written to")
    mail_type: tuple[MailType, ...] = Field((), description="when a mail is sent")
    job_name_prefix: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="the job is called PREFIX-n<hosts>; null: the experiment's name",
    )
    output_dir: str | None = Field(
        None, description="folder of what the job itself prints; null: the run folder, else the working folder"
    )
    work_dir: str | None = Field(None, description="folder that the job works in; null: where graphmill is called")
    exclusive: bool = Field(False, description="share the hosts with no other job")
    reservation: str | None = Field(None, description="a reservation to run in")
    dependency: str | None = Field(None, description="jobs to wait for, such as afterok:1234")
    array: str | None = Field(
        None, description="indices of an array of jobs, such as 0-15%4; each adds its own to train.seed"
    )
    nice: int | None = Field(None, ge=-2147483645, le=2147483645, description="lowers (or raises) the priority")
    comment: str | None = Field(None, description="any text, kept by Slurm with the job")
    modules: tuple[str, ...] = Field((), description="environment modules to load, after those of the site")
    setup_lines: tuple[str, ...] = Field((), description="shell commands to run first, one line each")
    env: dict[str, str | int] = Field({}, description="environment of the ranks")
    env_from: tuple[str, ...] = Field(
        (), description="variables that the job takes from where it is submitted; their values are written nowhere"
    )
    container: ContainerSpec = NoContainerSpec()
    sbatch_args: tuple[str, ...] = Field((), description="any other option of sbatch, each as --name=value")
    launcher: Launcher = Field("srun", description="srun: one task per rank; torchrun: one agent per host")
    on_time_limit: OnTimeLimit = Field(
        "requeue", description="requeue the job, submit another one that depends on it, or stop"
    )
    max_attempts: PositiveInt = Field(20, description="starts of one run, the first among them")
    retries: int = Field(
        0, ge=0, description="further tries after failures that one may mend: a signal ended a rank, or srun"
    )
    signal: Literal["USR2"] = Field("USR2", description="signals the ranks that time runs out; NCCL catches USR1")
    signal_before_s: Annotated[int, Field(gt=0, le=65535)] | Literal["auto"] = Field(
        "auto", description="seconds before the limit that it is sent; auto: 120, or a quarter of a short limit"
    )
    python: str | None = Field(
        None, description="interpreter of the job: a path or a name; null: the one that submits, else python3"
    )
    interface: str = Field("auto", description="network interface between hosts; auto: the site's, else chosen there")
    port: Port | Literal["auto"] = Field(
        "auto", description="port of the rendezvous (MASTER_PORT); auto: from the job's id"
    )


class StagingSpec(Spec):
    """Copying the dataset near the ranks before they start."""

    to: StagingTo = Field("nowhere", description="scratch: the site's scratch; host_local: the disk of every host")
    via_scratch: bool = Field(False, description="with host_local: to scratch first, once for all hosts and jobs")
    on_failure: OnStagingFailure = Field("fail", description="when a copy fails: fail the job, or read the shared copy")
