"""The job: an experiment's `slurm` and `staging` sections with every choice made. Pure: no clock, file, environment.

It is what a script is rendered from; the run folder keeps it as job.json.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.config.problems import Problem, refuse
from graphmill.runtime.snapshot import Snapshot
from graphmill.spec.experiment import Experiment
from graphmill.spec.job.limits import ResourceRequest, cpus_paid_for, kernel_notes, kernel_problems, limit_problems
from graphmill.spec.job.options import (
    ApptainerSpec,
    ContainerSpec,
    Launcher,
    MailType,
    NoContainerSpec,
    OnStagingFailure,
    OnTimeLimit,
    PodmanSpec,
    PyxisSpec,
    ShifterSpec,
    SlurmSpec,
    StagingSpec,
)
from graphmill.spec.job.site import Site
from graphmill.spec.job.sizes import JobSize, gpus_in_gres, sizes_of
from graphmill.spec.job.text import is_text, pattern_problems, text_problems
from graphmill.spec.job.work import Begin, TrainRuns, Work

if TYPE_CHECKING:
    from graphmill.spec.plan import Plan

__all__ = [
    "ApptainerSpec",
    "Begin",
    "ContainerSpec",
    "Job",
    "NoContainerSpec",
    "PodmanSpec",
    "PyxisSpec",
    "ShifterSpec",
    "SlurmSpec",
    "Staging",
    "StagingSpec",
    "resolve_job",
]
_SIGNAL_BEFORE_S: Final = 120


class Staging(Spec):
    """A copy of the dataset that every host makes before its ranks start."""

    to: Literal["scratch", "host_local"]
    variable: str = Field(description="of the environment: names the folder that the copy is made in")
    via: str | None = Field(description="variable of the folder that is copied to before, once for all hosts")
    on_failure: OnStagingFailure


class Job(Spec):
    """Everything a script says."""

    name: str = Field(description="--job-name, and the stem of the run's name where the job makes it")
    site: str
    account: str | None
    qos: str | None
    slurm_partition: str | None
    constraint: str | None
    time_s: int = Field(description="limit of one job, in seconds")
    hosts: int
    ranks_per_host: int = Field(description="processes; with samplers those of both roles")
    samplers: int = Field(description="of the processes on all hosts, those that only sample; 0: there are no roles")
    cpus_per_rank: int = Field(description="of each process, CPUs as Slurm counts them")
    gpus_per_host: int
    gres: str | None = Field(description="instead of --gpus-per-node")
    mem: str | None
    mail_user: str | None
    mail_type: tuple[MailType, ...]
    output_dir: str | None = Field(description="None: the folder that sbatch is called in")
    work_dir: str | None = Field(description="None: the folder that sbatch is called in")
    exclusive: bool
    reservation: str | None
    dependency: str | None
    array: str | None
    nice: int | None
    comment: str | None
    modules: tuple[str, ...]
    setup_lines: tuple[str, ...]
    env: dict[str, str]
    env_from: tuple[str, ...] = Field(description="taken from where the job is submitted; their values are Slurm's")
    container: ContainerSpec
    sbatch_args: tuple[str, ...]
    launcher: Launcher
    on_time_limit: OnTimeLimit
    max_attempts: int
    retries: int
    signal: Literal["USR2"]
    signal_before_s: int
    python: str
    interface: str | None = Field(description="None: chosen on the hosts")
    port: int | None = Field(description="None: from the job's id")
    staging: Staging | None
    work: Work = Field(discriminator="kind", description="what it runs")
    code: Snapshot | None = Field(None, description="the copy of the user's own code that it imports; null: none")
    job_commands: tuple[str, ...]
    remarks: tuple[str, ...] = Field(description="what the user should know and need not change")

    @property
    def ranks(self) -> int:
        """Ranks on all hosts, without samplers."""
        return self.hosts * self.ranks_per_host - self.samplers

    @property
    def side_by_side(self) -> int:
        """Runs that share the job, each with its hosts and amounts."""
        return self.work.side_by_side if isinstance(self.work, TrainRuns) else 1

    @property
    def cpus_per_host(self) -> int:
        """CPUs of one host, as Slurm counts them."""
        return self.ranks_per_host * self.cpus_per_rank


def resolve_job(
    experiment: Experiment,
    site: Site,
    plan: "Plan | None" = None,
    *,
    run_folders: Sequence[str] = (),
    begin: Begin | None = None,
    python: str = "python3",
    called_in: str | None = None,
) -> Job:
    """Make every choice, or refuse with all problems at once.

    `plan`: its hosts and ranks are used if it is given. `run_folders`: of an existing run, or of the runs of an
    array; without one the job makes its own as `begin` says. `python`: the interpreter if the experiment names none.
    `called_in`: an absolute folder, which the job works in if the experiment names no other, and which relative
    folders are seen from; without it the script depends on where sbatch is called.
    """
    if plan is not None:
        each = plan.world.processes_per_host
        slurm = experiment.slurm.model_copy(update={"hosts": plan.hosts, "ranks_per_host": each})
        train = experiment.train.model_copy(update={"ranks": plan.ranks, "device": plan.device})
        experiment = experiment.model_copy(update={"slurm": slurm, "train": train, "roles": plan.roles})
    slurm = _with_site(experiment, site)
    if called_in is not None:
        slurm = _absolute(slurm, called_in)
    problems = [*text_problems(slurm), *_folder_problems(run_folders, begin)]
    sizes = sizes_of(experiment, slurm, site, problems)
    staging = _staging(experiment, site, problems)
    problems += limit_problems(site, sizes.request)
    problems += kernel_problems(experiment, site, sizes.request)
    problems += _clashes(slurm, sizes, run_folders)
    refuse(problems, f"the request to {site.name}")
    name = f"{slurm.job_name_prefix or experiment.name}-n{slurm.hosts}"
    return Job(
        name=name,
        site=site.name,
        time_s=sizes.request.time_s,
        ranks_per_host=sizes.ranks,
        samplers=0 if experiment.roles is None else experiment.roles.samplers,
        cpus_per_rank=sizes.cpus_per_rank,
        gpus_per_host=sizes.request.gpus,
        gres=slurm.gres or (f"gpu:{sizes.request.gpus}" if site.gpus_as == "gres" and sizes.request.gpus else None),
        signal_before_s=signal_before_s(slurm, sizes.request.time_s),
        output_dir=slurm.output_dir or _output_dir(run_folders),
        env={key: str(slurm.env[key]) for key in sorted(slurm.env)},
        python=slurm.python or python,
        interface=site.interface if slurm.interface == "auto" else slurm.interface,
        port=None if slurm.port == "auto" else slurm.port,
        staging=staging,
        work=TrainRuns(run_folders=tuple(run_folders), begin=None if run_folders else begin or Begin()),
        job_commands=site.job_commands,
        remarks=(*_notes(site, slurm, sizes.request), *kernel_notes(experiment, site, sizes.request)),
        **{field: getattr(slurm, field) for field in _AS_ASKED},
    )


def _absolute(slurm: SlurmSpec, called_in: str) -> SlurmSpec:
    """Make folders absolute, so that they mean the same wherever sbatch is called."""
    base = PurePosixPath(called_in) / (slurm.work_dir or "")
    output = None if slurm.output_dir is None else str(base / slurm.output_dir)
    return slurm.model_copy(update={"work_dir": str(base), "output_dir": output})


_AS_ASKED: Final = (
    *("account", "qos", "slurm_partition", "constraint", "hosts", "mem", "mail_user", "mail_type", "work_dir"),
    *("exclusive", "reservation", "dependency", "array", "nice", "comment", "modules", "setup_lines", "container"),
    "env_from",
    *("sbatch_args", "launcher", "on_time_limit", "max_attempts", "retries", "signal"),
)


def _with_site(experiment: Experiment, site: Site) -> SlurmSpec:
    """What is asked for, with the site's defaults where nothing is given."""
    slurm, defaults = experiment.slurm, site.defaults
    without_gpus = experiment.train.device == "cpu" or slurm.gpus_per_host == 0
    constraint = defaults.constraint_without_gpus if without_gpus else defaults.constraint
    names = ("account", "qos", "slurm_partition", "time", "mem")
    unsaid = {name: getattr(defaults, name) for name in names} | {"constraint": constraint}
    given = {
        **{name: value for name, value in unsaid.items() if getattr(slurm, name) is None},
        "mail_type": slurm.mail_type or (defaults.mail_type if slurm.mail_user else ()),
        "exclusive": slurm.exclusive or defaults.exclusive,
        "modules": (*site.modules, *slurm.modules),
        "setup_lines": (*site.setup_lines, *slurm.setup_lines),
        "sbatch_args": (*defaults.sbatch_args, *slurm.sbatch_args),
    }
    return slurm.model_copy(update=given)


def signal_before_s(slurm: SlurmSpec, time_s: int) -> int:
    """Seconds before the end of a job with this limit at which Slurm sends its warning."""
    if slurm.signal_before_s != "auto":
        return slurm.signal_before_s
    return max(1, min(_SIGNAL_BEFORE_S, time_s // 4))


def _staging(experiment: Experiment, site: Site, problems: list[Problem]) -> Staging | None:
    to = experiment.staging.to
    if to == "nowhere":
        return None
    variable = site.scratch if to == "scratch" else site.host_local
    via = site.scratch if to == "host_local" and experiment.staging.via_scratch else None
    if experiment.staging.via_scratch and via is None:
        problems.append(
            Problem(
                "staging.via_scratch",
                f"goes with staging.to=host_local on a site with a scratch folder; {site.name}'s is"
                f" {site.scratch or 'not known'}",
                "leave out staging.via_scratch",
            )
        )
    if variable is None:
        problems.append(
            Problem(
                "staging.to",
                f"is {to}, but the profile of {site.name} does not say which variable names that folder",
                f"set `{to}: VARIABLE` in a site profile, or staging.to=nowhere",
            )
        )
        return None
    return Staging(to=to, variable=variable, via=via, on_failure=experiment.staging.on_failure)


def _folder_problems(run_folders: Sequence[str], begin: Begin | None) -> Iterator[Problem]:
    for folder in run_folders:
        yield from pattern_problems("the run folder", folder, by_srun=True)
    if begin is None:
        return
    yield from pattern_problems("--logs-root", begin.logs_root, by_srun=True)
    for text in (begin.experiment or "", begin.logs_root, begin.dataset_root or "", *begin.overrides):
        if not is_text(text):
            yield Problem("the experiment", f"{text!a} cannot be handed to a process", "remove the NUL in it")


def _output_dir(run_folders: Sequence[str]) -> str | None:
    """The run folder; for an array the folder that holds the runs."""
    if not run_folders:
        return None
    return run_folders[0] if len(run_folders) == 1 else run_folders[0].rpartition("/")[0] or "."


def _clashes(slurm: SlurmSpec, sizes: JobSize, run_folders: Sequence[str]) -> Iterator[Problem]:
    request = sizes.request
    _, in_gres = gpus_in_gres(slurm.gres)
    if slurm.gres is not None and slurm.gpus_per_host not in (None, in_gres or 0):
        yield Problem(
            "slurm.gres", f"is {slurm.gres}, but slurm.gpus_per_host is {slurm.gpus_per_host}", "leave out one of them"
        )
    if slurm.signal_before_s != "auto" and 0 < request.time_s <= slurm.signal_before_s:
        yield Problem(
            "slurm.signal_before_s",
            f"is {slurm.signal_before_s} s, but the job has {request.time_s} s in all",
            f"set slurm.signal_before_s={max(1, request.time_s // 4)}, or a longer slurm.time",
        )
    if not isinstance(slurm.container, NoContainerSpec):
        for where, folder in (
            ("slurm.work_dir", slurm.work_dir or ""),
            *(("the run folder", path) for path in run_folders),
        ):
            if "," in folder or ":" in folder:
                yield Problem(
                    where,
                    f"{folder!r} holds a comma or a colon, with which lists of a container's folders are written",
                    "use a folder without them",
                )
    if len(run_folders) == 1 and slurm.array is not None:
        yield Problem("slurm.array", "would train one run several times at once", "leave out slurm.array")


def _notes(site: Site, slurm: SlurmSpec, request: ResourceRequest) -> Iterator[str]:
    paid = cpus_paid_for(site, request)
    if paid is not None:
        cpus, why = paid
        yield (
            f"{request.memory_mib:.0f}M of memory take {cpus} CPUs on {site.name} ({why}), not {request.cpus},"
            f" and all are charged: slurm.cpus_per_host={cpus} costs the same"
        )
    for partition in (request.slurm_partition or "").split(","):
        queue = site.slurm_partitions.get(partition)
        if queue and queue.preempt_mode == "cancel" and slurm.on_time_limit == "requeue":
            yield (
                f"jobs in {partition} are cancelled when they are preempted, and cannot be requeued:"
                " with slurm.on_time_limit=resubmit the run continues in another job"
            )
