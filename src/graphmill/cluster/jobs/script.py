"""From a job to its script: pure, byte-stable, and with every value quoted for its place."""

from functools import cache
from pathlib import Path
from typing import Final

import jinja2

from graphmill.base.amounts import clock_of
from graphmill.cluster.jobs.quoting import bash_line, bash_word, sbatch_value, slurm_file_name
from graphmill.spec.job.resolve import ApptainerSpec, Begin, Job, PyxisSpec

TRIES: Final = 3  # ports that are tried where one is taken between the look and its use


def render_script(job: Job) -> str:
    """The script that sbatch takes.

    Raises `UserError` where a value cannot stand in its place; `resolve_job` has refused those before.
    """
    return _template().render(
        name=job.name,
        hosts=job.hosts,
        ranks_per_host=job.ranks_per_host,
        site=job.site,
        directives=_directives(job),
        work_dir='"$SLURM_SUBMIT_DIR"' if job.work_dir is None else _folder(job.work_dir),
        modules=[bash_word(module, field="slurm.modules") for module in job.modules],
        setup_lines=[bash_line(line) for line in job.setup_lines],
        exports=_exports(job),
        python=bash_word(job.python, field="slurm.python"),
        run_folders=[bash_word(folder, field="the run folder") for folder in job.run_folders],
        begin=_begin(job, job.begin or Begin()),
        goes_on_by=job.goes_on_by,
        max_attempts=job.max_attempts,
        stage=job.stage,
        launcher=job.launcher,
        tries=TRIES,
        port=job.port or "${meeting##*:}",
        rank_step=_step(job.ranks_per_host, job.cpus_per_rank),
        host_step=_step(1, job.cpus_per_host),
        srun_container=_srun_container(job),
        rank_python=_rank_python(job),
    )


def script_name(job: Job) -> str:
    """`<prefix>_n<hosts>.sbatch`, as seed 000 calls it."""
    return f"{job.name.removesuffix(f'-n{job.hosts}')}_n{job.hosts}.sbatch"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # a shell script, not a page; quoting.py quotes every value for its place
    )
    return environment.from_string((Path(__file__).parent / "templates" / "job.sbatch.j2").read_text(encoding="utf-8"))


def _directives(job: Job) -> list[str]:
    """The `#SBATCH` options, sorted."""
    one_per_host = job.launcher == "torchrun"
    options: dict[str, str | int | None] = {
        "--account": job.account,
        "--array": job.array,
        "--comment": job.comment,
        "--constraint": job.constraint,
        "--cpus-per-task": job.cpus_per_host if one_per_host else job.cpus_per_rank,
        "--dependency": job.dependency,
        "--gpus-per-node": job.gpus_per_host if job.gpus_per_host and job.gres is None else None,
        "--gres": job.gres,
        "--job-name": job.name,
        "--mail-type": ",".join(job.mail_type) or None,
        "--mail-user": job.mail_user,
        "--mem": job.mem,
        "--nice": job.nice,
        "--nodes": job.hosts,
        "--ntasks-per-node": 1 if one_per_host else job.ranks_per_host,
        "--open-mode": "append",
        "--output": _output(job),
        "--partition": job.slurm_partition,
        "--qos": job.qos,
        "--reservation": job.reservation,
        "--signal": f"{job.signal}@{job.signal_before_s}",
        "--time": clock_of(job.time_s),
    }
    lines = [f"{name}={sbatch_value(str(value), field=name)}" for name, value in options.items() if value is not None]
    lines += ["--exclusive"] if job.exclusive else []
    lines += ["--requeue" if job.goes_on_by == "requeue" else "--no-requeue"]
    return sorted([*lines, *(_sbatch_arg(argument) for argument in job.sbatch_args)])


def _sbatch_arg(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{name}={sbatch_value(value, field=name)}" if equals and value else argument


def _output(job: Job) -> str:
    pattern = "%A_%a.out" if job.array else "%j.out"
    if job.output_dir is None:
        return f"{job.name}-{pattern}"
    return slurm_file_name(job.output_dir, f"slurm-{pattern}", field="slurm.output_dir")


def _exports(job: Job) -> list[str]:
    variables = dict(job.env)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if job.interface is not None:
            variables.setdefault(name, job.interface)
    return [f"{name}={bash_word(variables[name], field=f'slurm.env.{name}')}" for name in sorted(variables)]


def _begin(job: Job, begin: Begin) -> list[str]:
    """How the job makes its run folder. The ranks follow the hosts, so that --nodes may be edited by hand."""
    options = []
    if begin.experiment is not None:
        options.append(f"--experiment={bash_word(begin.experiment, field='the experiment')}")
    options.append(f'--run-id="{job.name}-$SLURM_JOB_ID"')
    options.append(f"--logs-root={bash_word(begin.logs_root, field='--logs-root')}")
    if begin.dataset_root is not None:
        options.append(f"--dataset-root={bash_word(begin.dataset_root, field='--dataset-root')}")
    options += [f"--override={bash_word(text, field='--override')}" for text in begin.overrides]
    return [*options, f'--override=train.ranks="{_per_host(job.ranks_per_host)}"']


def _step(tasks_per_host: int, cpus_per_task: int) -> str:
    """Options of srun. `--cpus-per-task` again: Slurm 22.05 and later do not take it over from the job."""
    return (
        f"--export=ALL --kill-on-bad-exit=1 --cpus-per-task={cpus_per_task} \\\n"
        f'    --nodes="{_per_host(1)}" --ntasks="{_per_host(tasks_per_host)}" --ntasks-per-node={tasks_per_host}'
    )


def _per_host(count: int) -> str:
    """So many on each host, as the shell counts the hosts."""
    return "$SLURM_JOB_NUM_NODES" if count == 1 else f"$((SLURM_JOB_NUM_NODES * {count}))"


def _srun_container(job: Job) -> str:
    """Options of srun that pyxis adds."""
    container = job.container
    if not isinstance(container, PyxisSpec):
        return ""
    image = bash_word(container.image, field="slurm.container.image")
    mounts = "".join(f",{bash_word(mount, field='slurm.container.mounts')}" for mount in container.mounts)
    return f' \\\n    --container-image={image} --container-mounts="$run:$run"{mounts} --container-workdir="$PWD"'


def _rank_python(job: Job) -> str:
    """What stands before `-m` in the ranks' command."""
    container = job.container
    if isinstance(container, PyxisSpec):
        return bash_word(container.python, field="slurm.container.python")
    if not isinstance(container, ApptainerSpec):
        return '"$python"'
    gpus = ["--nv"] if container.gpus and job.gpus_per_host else []
    binds = [f"--bind={bash_word(bind, field='slurm.container.binds')}" for bind in container.binds]
    image = bash_word(container.image, field="slurm.container.image")
    inside = bash_word(container.python, field="slurm.container.python")
    options = " ".join([*gpus, '--bind="$run"', '--pwd="$PWD"', *binds])
    return f"apptainer exec {options} \\\n    {image} {inside}"


def _folder(path: str) -> str:
    """An argument of cd: a folder whose name begins with a dash is no option."""
    return bash_word(path if not path.startswith("-") else f"./{path}", field="slurm.work_dir")
