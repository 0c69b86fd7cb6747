"""The run folder of a script that names only its experiment: made by the job's first attempt, found by the others."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.arguments import Arguments, RunsHere
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.job_environment import JobEnvironment

if TYPE_CHECKING:
    from graphmill.spec.experiment import Experiment

_log = logging.getLogger(__name__)


def find_or_make(arguments: Arguments, environ: Mapping[str, str]) -> RunFolder:
    """The folder of that run. Its ranks follow the hosts, so that --nodes may be edited by hand.

    The tasks of an array are repetitions: each adds its index to the rng seed, for equal ones would be one run.
    """
    assert isinstance(arguments.work, RunsHere), "else nothing is made"
    new, begin, logs_root = arguments.work, arguments.work.begin, Path(arguments.work.begin.logs_root)
    if not begin.experiment or not new.run_id:
        raise UserError("the driver needs a run folder, or --experiment and --run-id", fix="see --help")
    folder = RunFolder(logs_root / new.run_id)
    if folder.plan_path.exists():
        return folder
    from graphmill.estimate.batch_size import BatchSizes
    from graphmill.runtime.machine import machine_info
    from graphmill.runtime.roots import dataset_root
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.load import load_experiment
    from graphmill.spec.plan import MachineInfo, Plan
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    here = machine_info(environ)
    job = JobEnvironment(environ)
    hosts, index = job.num_hosts, job.array_index
    experiment, root = load_experiment(begin.experiment, begin.overrides), dataset_root(begin.dataset_root, environ)
    experiment = _of_size(experiment, hosts * arguments.ranks_per_host)
    if index:
        seed = experiment.train.seed + index
        experiment = experiment.model_copy(update={"train": experiment.train.model_copy(update={"seed": seed})})
        _log.info(f"task {index} of the array: train.seed={seed}")
    prepare_embedded(experiment, root)
    machine = MachineInfo(num_cores=job.cores_here or here.num_cores, num_gpus=here.num_gpus, gpu_names=here.gpu_names)

    def plan_of(variant: Experiment) -> Plan:
        return plan_experiment(variant, dataset_root=root, run_id=str(new.run_id), machine=machine, hosts=hosts)

    folder = RunFolder.create(BatchSizes(logs_root).plan(experiment, plan_of), logs_root)
    if new.script is not None:
        write_text(folder.script_path, new.script.read_text(encoding="utf-8"))
    return folder


def _of_size(experiment: "Experiment", processes: int) -> "Experiment":
    """Experiment with this number of processes; if it has roles, the number of samplers stays."""
    roles = experiment.roles
    ranks = processes if roles is None else processes - roles.samplers
    if ranks < 1:
        raise UserError(
            f"the job starts {processes} processes, and roles.samplers takes {processes - ranks} of them",
            fix="write the script again: graphmill script",
        )
    train = experiment.train.model_copy(update={"ranks": ranks})
    update = {"train": train, "roles": None if roles is None else roles.model_copy(update={"trainers": ranks})}
    return experiment.model_copy(update=update)
