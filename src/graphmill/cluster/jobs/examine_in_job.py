"""The driver's part of `graphmill doctor --hosts N`: one program on each host, then what they found in one document."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.srun_step import SrunStep
from graphmill.cluster.jobs.steps import environment, examine_command
from graphmill.diagnose.hosts.facts import HostFacts, HostReport
from graphmill.record.documents import read_document
from graphmill.slurm.hostlist import expand_hostlist

if TYPE_CHECKING:
    from graphmill.cluster.jobs.in_job import Driver

REPORT: Final = "hosts.json"

_log = logging.getLogger(__name__)


def examine(driver: "Driver", folder: Path) -> int:
    """Look at the hosts of this job. Returns the exit status of the job: done, if there is a report."""
    rendezvous = driver.rendezvous(1)
    hosts = expand_hostlist(driver.environ["SLURM_JOB_NODELIST"])
    command = examine_command(driver.arguments, folder, driver.here, hosts)
    step = SrunStep.start(command, environment(driver.arguments, driver.environ, rendezvous))
    if not step.wait(driver.signals, lambda: driver.signals.terminated):
        step.kill()
    for sign in folder.glob("seen_*"):
        sign.unlink(missing_ok=True)
    problem = step.first_error() or (f"srun ended with exit status {step.status}" if step.status else "")
    report = HostReport(
        job_id=driver.here.job_id, expected=tuple(hosts), hosts=tuple(_facts(folder, len(hosts))), problem=problem
    )
    write_text(folder / REPORT, report.model_dump_json(indent=2) + "\n")
    return exits.DONE


def _facts(folder: Path, number: int) -> list[HostFacts]:
    found = []
    for rank in range(number):
        path = folder / f"host_{rank}.json"
        if path.exists():
            try:
                found.append(read_document(path, HostFacts, "look at the host again"))
            except UserError as error:
                _log.error(f"{error}")
    return found
