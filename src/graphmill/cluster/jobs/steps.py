"""The commands of srun: the driver's, to stage the dataset and to start the ranks, and a shell beside them. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.python import as_module
from graphmill.cluster.jobs.arguments import Arguments, Container
from graphmill.runtime.rank import LAUNCHER
from graphmill.runtime.secret import TOKEN, new_token
from graphmill.spec.world import World

STAGED_ROOT: Final = "GRAPHMILL_STAGED_ROOT"
# The scheduler's warning would kill a process that has no handler yet.
_DEAF_TO_WARNING: Final = ("bash", "-c", 'trap "" USR2; exec "$@"')
# srun numbers its tasks, and counts samplers among the ranks: with roles each task opens the log of its own name.
_DEAF_WITH_OWN_LOG: Final = (
    *("bash", "-c"),
    'trap "" USR2; stems=($2); log=$1/${stems[$SLURM_PROCID]}.log; shift 2; exec "$@" >>"$log" 2>&1',
)


_NO_BIND: Final = re.compile(r"[,:]")


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where rank 0 listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class JobHere:
    """The properties of its job that a command depends on."""

    job_id: str
    num_hosts: int
    work_dir: Path
    data: Path | None = None  # the prepared dataset, which containers see as well
    memory_mib: int | None = None  # of each host, for a run that shares the job; None: all that the job has


def staging_command(arguments: Arguments, run: Path, job: JobHere) -> list[str]:
    """Copies the run's dataset, once per host."""
    staging = arguments.staging
    assert staging is not None, "there is something to stage"
    via = [] if staging.via is None else [f"--via={staging.via}"]
    return [
        *("srun", *_size(1, arguments.cpus_per_host, job, _share(arguments, job)), "--label"),
        *(*_srun_container(arguments, run, job), *_DEAF_TO_WARNING, "stage", *_python(arguments, run, job)),
        *(*as_module("graphmill.cluster.staging.stage"), str(run), *via, f"--on-failure={staging.on_failure}"),
    ]


def rank_command(
    arguments: Arguments, run: Path, job: JobHere, rendezvous: Rendezvous, trial: int, world: World | None = None
) -> list[str]:
    """Command that starts the ranks; `trial` counts the ports that were tried for this attempt, from 1.

    `world`: of the attempt; None: one without samplers.
    """
    inside = [*_srun_container(arguments, run, job), *_DEAF_TO_WARNING]
    python = _python(arguments, run, job)
    worker = [*as_module("graphmill.train.worker"), str(run), "--resume"]
    share = _share(arguments, job)
    if arguments.launcher == "srun":
        size = _size(arguments.ranks_per_host, arguments.cpus_per_rank, job, share)
        if world is not None and world.samplers:
            inside = [*_srun_container(arguments, run, job), *_DEAF_WITH_OWN_LOG, *_logs(run, world)]
            return ["srun", *size, *inside, *python, *worker]
        return ["srun", *size, *_log(run, "rank_%t.log"), *inside, "rank", *python, *worker]
    size = _size(1, arguments.cpus_per_host, job, share)
    agent = [
        *(*as_module("torch.distributed.run"), f"--nnodes={job.num_hosts}"),
        *(f"--nproc-per-node={arguments.ranks_per_host}", "--max-restarts=0", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint={rendezvous.host}:{rendezvous.port}", f"--rdzv-id={job.job_id}.{trial}"),
        *("--no-python", python[-1], "-u"),  # it would start its ranks without -P
    ]
    return ["srun", *size, *_log(run, "host_%n.log"), *inside, "torchrun", *python, *agent, *worker]


def _logs(run: Path, world: World) -> list[str]:
    """The words of `_DEAF_WITH_OWN_LOG`: its name, the folder, and by task the stem of its log."""
    stems = (world.role_rank(process).stem for process in range(world.processes))
    return ["rank", str(run), " ".join(stems)]


def single_command(arguments: Arguments, folder: Path, words: Sequence[str], job: JobHere) -> list[str]:
    """Runs a command once, on the job's first host, with a monitor beside it; what it prints is rank 0's log."""
    size = _size(1, arguments.cpus_per_host, job, _share(arguments, job))
    inside = [*_srun_container(arguments, folder, job), *_DEAF_TO_WARNING]
    what = [*as_module("graphmill.cluster.jobs.command_here"), str(folder), "--", *words]
    return ["srun", *size, *_log(folder, "rank_%t.log"), *inside, "command", *_python(arguments, folder, job), *what]


def examine_command(arguments: Arguments, folder: Path, job: JobHere, hosts: Sequence[str]) -> list[str]:
    """Command that looks at every host, and measures the ways between them."""
    size = _size(1, arguments.cpus_per_host, job, _share(arguments, job))
    inside = [*_srun_container(arguments, folder, job), *_DEAF_TO_WARNING]
    what = [*as_module("graphmill.train.examine_hosts"), str(folder), ",".join(hosts)]
    return ["srun", *size, *_log(folder, "rank_%t.log"), *inside, "rank", *_python(arguments, folder, job), *what]


def single_python(arguments: Arguments, folder: Path, job: JobHere) -> list[str]:
    """Command that starts one interpreter on one host, as ranks are started; `folder` is seen inside a container."""
    size = ["--export=ALL", "--nodes=1", "--ntasks=1", f"--cpus-per-task={arguments.cpus_per_host}"]
    inside = [*_srun_container(arguments, folder, job), *_DEAF_TO_WARNING]
    return ["srun", *size, *inside, "python", *_python(arguments, folder, job)]


def shell_command(job_id: str, host: str, shell: str) -> list[str]:
    """Command that opens a shell on a host of a running job, on what its ranks have there."""
    return [
        *("srun", f"--jobid={job_id}", "--overlap", "--pty", "--nodes=1", "--ntasks=1"),
        *(f"--nodelist={host}", shell),
    ]


def environment(arguments: Arguments, environ: Mapping[str, str], rendezvous: Rendezvous | None) -> dict[str, str]:
    """The environment variables of the ranks."""
    found = dict(environ)
    if arguments.staging is not None:
        found[STAGED_ROOT] = arguments.staging.to
    if arguments.side_by_side > 1:  # else srun asks for the GPUs of all runs for each
        found.pop("SLURM_GPUS_PER_NODE", None)
    if rendezvous is not None:
        found |= {"MASTER_ADDR": rendezvous.host, "MASTER_PORT": str(rendezvous.port), TOKEN: new_token()}
        found |= {LAUNCHER: "srun"} if arguments.launcher == "srun" else {}
    return found


def _size(tasks_per_host: int, cpus_per_task: int, job: JobHere, share: Sequence[str]) -> list[str]:
    """`--cpus-per-task` again: Slurm 22.05 and later do not take it over from the job."""
    return [
        *("--export=ALL", "--kill-on-bad-exit=1", f"--cpus-per-task={cpus_per_task}", f"--nodes={job.num_hosts}"),
        *(f"--ntasks={job.num_hosts * tasks_per_host}", f"--ntasks-per-node={tasks_per_host}"),
        *share,
    ]


def _share(arguments: Arguments, job: JobHere) -> list[str]:
    """What a run takes of a job that it shares: without these its first step would hold all of it."""
    if arguments.side_by_side == 1:
        return []
    memory = [] if job.memory_mib is None else [f"--mem={job.memory_mib}"]
    return ["--exact", *memory, f"--gres=gpu:{arguments.gpus_per_host}" if arguments.gpus_per_host else "--gres=none"]


def _log(run: Path, pattern: str) -> list[str]:
    """srun's own patterns begin with %, so one in the folder's name is doubled."""
    return ["--open-mode=append", f"--output={str(run).replace('%', '%%')}/{pattern}"]


def _srun_container(arguments: Arguments, run: Path, job: JobHere) -> list[str]:
    """Options of srun that pyxis adds."""
    container = arguments.container
    if container is None or container.kind != "pyxis":
        return []
    return [
        f"--container-image={container.image}",
        f"--container-mounts={','.join(_binds(arguments, container, run, job))}",
        f"--container-workdir={job.work_dir}",
    ]


def _python(arguments: Arguments, run: Path, job: JobHere) -> list[str]:
    """What precedes `-m` in the command of the ranks."""
    container = arguments.container
    if container is None:
        return [arguments.python]
    binds = [] if container.kind == "pyxis" else _binds(arguments, container, run, job)
    starts = {
        "pyxis": [],
        "apptainer": [
            *("apptainer", "exec", *(["--nv"] if container.gpus else [])),
            *(*(f"--bind={bind}" for bind in binds), f"--pwd={job.work_dir}", container.image),
        ],
        "shifter": [
            *("shifter", f"--image={container.image}", *(f"--volume={bind}" for bind in binds)),
            *(f"--workdir={job.work_dir}", "--"),
        ],
        "podman-hpc": [
            *("podman-hpc", "run", "--rm", *(["--gpu"] if container.gpus else [])),
            *("--network=host", "--ipc=host", "--env-host", *(f"--volume={bind}" for bind in binds)),
            *(f"--workdir={job.work_dir}", container.image),
        ],
    }
    return [*starts[container.kind], container.python]


def _binds(arguments: Arguments, container: Container, run: Path, job: JobHere) -> list[str]:
    """What the container sees of the host: the run, where the job works, the data and their staged copies, the copy
    of the user's code, and what the experiment names.

    Raises `UserError` for a folder whose name no list of binds can hold.
    """
    staging = arguments.staging
    roots = [] if staging is None else [Path(root).parent for root in (staging.to, staging.via) if root is not None]
    own = {str(folder): "" for folder in (job.work_dir, run, *roots)}
    if job.data is not None and str(job.data) not in own:
        own[str(job.data)] = ":ro"
    if arguments.code is not None:
        own.setdefault(arguments.code.folder, ":ro")
    for folder in own:
        if _NO_BIND.search(folder):
            raise UserError(
                f"{folder!r} cannot be seen inside a container: lists of binds are written with , and :",
                fix="use a folder without these characters",
            )
    return [*(f"{folder}:{folder}{mode}" for folder, mode in own.items()), *map(_both_ends, container.binds)]


def _both_ends(bind: str) -> str:
    """FROM as FROM:FROM, which all of them read."""
    return bind if ":" in bind else f"{bind}:{bind}"
