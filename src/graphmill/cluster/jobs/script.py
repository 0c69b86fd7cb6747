"""Render a job as its script: pure, byte-stable, and with every value quoted for its place.

A value has one of three places: a word of bash, the value of an `#SBATCH` option (no shell reads those lines, but
sbatch's own parser does), and a file name of Slurm's, where % begins a pattern.
"""

import math
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Final

import jinja2

from graphmill.base.amounts import clock_of, mib_of
from graphmill.base.errors import UserError
from graphmill.spec.job.resolve import Job, NoContainerSpec, PyxisSpec, ShifterSpec
from graphmill.spec.job.text import is_one_line, is_text
from graphmill.spec.job.work import Begin, ExamineHosts, RunCommand, RunStages, TrainRuns

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")
_RESERVED: Final = frozenset(  # words that begin something longer than a line
    "if then else elif fi case esac for select while until do done in function time coproc".split()  # noqa: SIM905
)
_PLAIN_LINE: Final = re.compile(r"[A-Za-z_./~][A-Za-z0-9_./~@%+:,=-]*(?: [A-Za-z0-9_./~@%+:,=-]+)*")


def bash_word(text: str, *, field: str) -> str:
    """`text` as one word of bash, on one line.

    >>> bash_word("two words", field="x"), bash_word("a\\nb", field="x")
    ("'two words'", "$'a\\\\nb'")
    """
    if not is_text(text):
        raise UserError(f"{field} is {text!a}, which no process can be handed", fix=f"change {field}")
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escaped(character) for character in text) + "'"


def bash_words(texts: tuple[str, ...] | list[str], *, field: str) -> str:
    """Several words with spaces between."""
    return " ".join(bash_word(text, field=field) for text in texts)


def bash_line(line: str) -> str:
    """A line of shell that the user wrote, kept from affecting the lines after it.

    It is left as it is if it is plainly one command; else bash reads it separately, through `eval`, so that an open
    quote or here-document ends with it.
    """
    if _PLAIN_LINE.fullmatch(line) and line.split(" ", maxsplit=1)[0] not in _RESERVED:
        return line
    return f"eval {bash_word(line, field='slurm.setup_lines')}"


def sbatch_value(text: str, *, field: str) -> str:
    """`text` as sbatch's parser of `#SBATCH` lines reads it back: blanks end an option, # begins a comment, quotes and
    backslashes are taken off."""
    if not is_one_line(text):
        raise UserError(
            f"{field} is {text!a}, which no #SBATCH line can hold: it takes one line of printable text",
            fix=f"change {field}",
        )
    if _PLAIN_VALUE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def slurm_file_name(folder: str, pattern: str, *, field: str) -> str:
    """A file name of Slurm's: `folder` literally, then `pattern` with its % signs."""
    if "\\" in folder:
        raise UserError(f"{field} is {folder!r}, and Slurm's file names take no backslash", fix=f"change {field}")
    return f"{folder.replace('%', '%%').rstrip('/')}/{pattern}"


def _escaped(character: str) -> str:
    """Escape one character inside $'…'."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    if character in named:
        return named[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def render_script(job: Job) -> str:
    """The script that sbatch takes.

    Raises `UserError` if a value cannot be quoted for its place; `resolve_job` has refused those before.
    """
    return _template().render(
        name=job.name,
        hosts=job.hosts,
        ranks_per_host=job.ranks_per_host,
        samplers=job.samplers,
        site=job.site,
        directives=_directives(job),
        work_dir='"$SLURM_SUBMIT_DIR"' if job.work_dir is None else _folder(job.work_dir),
        modules=[bash_word(module, field="slurm.modules") for module in job.modules],
        setup_lines=[bash_line(line) for line in job.setup_lines],
        exports=_exports(job),
        taken=job.env_from,
        python=bash_word(job.python, field="slurm.python"),
        side_by_side=job.side_by_side,
        runs_a_command=isinstance(job.work, RunCommand),
        run_folders=_run_folders(job),
        options=_options(job),
    )


def script_name(job: Job) -> str:
    """Name of a job's script: `<prefix>_n<hosts>.sbatch`."""
    return f"{job.name.removesuffix(f'-n{job.hosts}')}_n{job.hosts}.sbatch"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # a shell script, not a page; every value is quoted for its place
    )
    return environment.from_string((Path(__file__).parent / "templates" / "job.sbatch.j2").read_text(encoding="utf-8"))


def _directives(job: Job) -> list[str]:
    """The `#SBATCH` options, sorted."""
    one_per_host, number = job.launcher == "torchrun", job.side_by_side
    options: dict[str, str | int | None] = {
        "--account": job.account,
        "--array": job.array,
        "--comment": job.comment,
        "--constraint": job.constraint,
        "--cpus-per-task": job.cpus_per_host if one_per_host else job.cpus_per_rank,
        "--dependency": job.dependency,
        "--gpus-per-node": job.gpus_per_host * number if job.gpus_per_host and job.gres is None else None,
        "--gres": job.gres if number == 1 or job.gres is None else f"gpu:{job.gpus_per_host * number}",
        "--job-name": job.name,
        "--mail-type": ",".join(job.mail_type) or None,
        "--mail-user": job.mail_user,
        "--mem": job.mem if number == 1 else _times(job.mem, number),
        "--nice": job.nice,
        "--nodes": job.hosts,
        "--ntasks-per-node": number * (1 if one_per_host else job.ranks_per_host),
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
    lines += ["--requeue" if job.on_time_limit == "requeue" else "--no-requeue"]
    return sorted([*lines, *(_sbatch_arg(argument) for argument in job.sbatch_args)])


def _times(mem: str | None, number: int) -> str | None:
    """Memory of `number` runs; 0 is all of the host's."""
    mib = None if mem is None else mib_of(mem)
    return mem if not mib else f"{math.ceil(mib * number)}M"


def _sbatch_arg(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{name}={sbatch_value(value, field=name)}" if equals and value else argument


def _output(job: Job) -> str:
    pattern = "%A_%a.out" if job.array else "%j.out"
    if job.output_dir is None:
        own = f"{job.name}-{pattern}"
        return own if job.work_dir is None else slurm_file_name(job.work_dir, own, field="slurm.work_dir")
    return slurm_file_name(job.output_dir, f"slurm-{pattern}", field="slurm.output_dir")


def _exports(job: Job) -> list[str]:
    variables = dict(job.env)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if job.interface is not None:
            variables.setdefault(name, job.interface)
    return [f"{name}={bash_word(variables[name], field=f'slurm.env.{name}')}" for name in sorted(variables)]


def _options(job: Job) -> list[str]:
    """The arguments of the driver (`arguments.py`), one line of the script each."""
    ranks = f"--launcher={job.launcher} --ranks-per-host={job.ranks_per_host} --cpus-per-rank={job.cpus_per_rank}"
    if job.gpus_per_host:
        ranks += f" --gpus-per-host={job.gpus_per_host}" if job.side_by_side > 1 else ""
    retries = f" --retries={job.retries}" if job.retries else ""
    lines = [
        '--python="$python"',
        f"--on-time-limit={job.on_time_limit} --max-attempts={job.max_attempts}{retries}",
        ranks if job.port is None else f"{ranks} --port={job.port}",
        *_code(job),
        *_container(job),
        *_staging(job),
    ]
    return [*lines, *_what(job)]


def _option(name: str, value: str, field: str) -> str:
    """One argument of the driver, whose argparse drops a value that is `--` alone until Python 3.13."""
    if value == "--":
        raise UserError(f"{field} is called --, which ends options", fix="give it another name, or write ./--")
    return f"--{name}={bash_word(value, field=field)}"


def _run_folders(job: Job) -> list[str]:
    folders = job.work.run_folders if isinstance(job.work, TrainRuns) else ()
    return [bash_word(folder, field="the run folder") for folder in folders]


def _what(job: Job) -> list[str]:
    """Arguments of the driver that say what the job runs."""
    match job.work:
        case ExamineHosts(folder=folder):
            return [_option("examine", folder, "--logs-root")]
        case RunStages(folder=folder, stages=names, hands_over=hands_over):
            stages = " ".join(_option("stage", stage, "the stage") for stage in names)
            options = _option("pipeline", folder, "the folder of the pipeline")
            return [f"{options} {stages}", *(["--hand-over"] if hands_over else [])]
        case RunCommand(folder=folder, command=command):  # its words last: what follows -- is no option of the driver
            data = [] if command.data is None else [_option("data", command.data, "--data")]
            words = f"-- {bash_words(command.words, field='the command')}"
            return [_option("command", folder, "--logs-root"), *data, words]
        case TrainRuns(side_by_side=number) if number > 1:
            return [f"--side-by-side={number}", f'"${{runs[@]:$((SLURM_ARRAY_TASK_ID * {number})):{number}}}"']
        case TrainRuns(run_folders=()) as runs:
            return _begin(job, runs.begin or Begin())
        case TrainRuns():
            folders = _run_folders(job)
            return folders if len(folders) == 1 else ['"$run"']


def _begin(job: Job, begin: Begin) -> list[str]:
    """How the job makes its run folder. Its ranks follow the hosts, so that --nodes may be edited by hand."""
    options = ['--script="$0"']
    if begin.experiment is not None:
        options.append(_option("experiment", begin.experiment, "the experiment"))
    options.append(f'--run-id="{job.name}-$SLURM_JOB_ID"')
    options.append(_option("logs-root", begin.logs_root, "--logs-root"))
    if begin.dataset_root is not None:
        options.append(_option("dataset-root", begin.dataset_root, "--dataset-root"))
    return [*options, *(_option("override", text, "--override") for text in begin.overrides)]


def _container(job: Job) -> list[str]:
    """Where the ranks run, if not on the host itself."""
    container = job.container
    if isinstance(container, NoContainerSpec):
        return []
    image = _option(container.kind, container.image, "slurm.container.image")
    python = _option("container-python", container.python, "slurm.container.python")
    if isinstance(container, PyxisSpec):
        binds = [_option("bind", mount, "slurm.container.mounts") for mount in container.mounts]
        return [" ".join([image, python, *binds])]
    binds = [_option("bind", bind, "slurm.container.binds") for bind in container.binds]
    takes_gpus = not isinstance(container, ShifterSpec) and container.gpus  # shifter's modules are the site's matter
    gpus = ["--container-gpus"] if takes_gpus and job.gpus_per_host else []
    return [" ".join([image, python, *gpus, *binds])]


def _code(job: Job) -> list[str]:
    """The copy of the user's code that is imported, if there is one."""
    if job.code is None:
        return []
    origins = [_option("code-origin", origin, "the folder of your code") for origin in job.code.origins]
    return [_option("code", job.code.folder, "the copy of your code"), " ".join(origins)]


def _staging(job: Job) -> list[str]:
    """Where the dataset is copied. The site's variables are expanded in the job: they are known on its hosts only."""
    staging = job.staging
    if staging is None:
        return []
    unset = f"{job.site} does not set it, and"
    lines = [f'--staging-to="${{{staging.variable}:?{unset} staging.to={staging.to} needs it}}/graphmill-$UID"']
    if staging.via is not None:
        lines.append(f'--staging-via="${{{staging.via}:?{unset} staging.via_scratch needs it}}/graphmill-$UID"')
    return [*lines, f"--staging-on-failure={staging.on_failure}"]


def _folder(path: str) -> str:
    """An argument of cd: a folder whose name begins with a dash must not be read as an option."""
    return bash_word(path if not path.startswith("-") else f"./{path}", field="slurm.work_dir")
