"""The driver's part of `graphmill doctor --hosts N`: one program on each host, then what they found in one document."""

import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.srun_step import SrunStep
from graphmill.cluster.jobs.steps import environment, examine_command
from graphmill.diagnose.job_hosts import HostFacts, HostReport
from graphmill.record.documents import read_document
from graphmill.slurm.hostlist import expand_hostlist

REPORT: Final = "hosts.json"
SEEN_WITHIN_S: Final = 65.0  # NFS looks again for a file that another host wrote after up to a minute
_LOOK_EVERY_S: Final = 0.5

_log = logging.getLogger(__name__)


def examine(driver: Driver, folder: Path) -> int:
    """Look at the hosts of this job. Returns the exit status of the job: done, if there is a report."""
    rendezvous = driver.rendezvous(1)
    hosts = expand_hostlist(driver.job.hosts)
    command = examine_command(driver.arguments, folder, driver.job_here, hosts)
    step = SrunStep.start(command, environment(driver.arguments, driver.environ, rendezvous))
    if not step.wait(driver.signals, lambda: driver.signals.terminated):
        step.kill()
    problem = step.first_error() or (f"srun ended with exit status {step.status}" if step.status else "")
    paths = [folder / f"host_{rank}.json" for rank in range(len(hosts))]
    until = time.monotonic() + SEEN_WITHIN_S
    while not problem and not all(path.exists() for path in paths) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    report = HostReport(
        job_id=driver.job_here.job_id, expected=tuple(hosts), hosts=tuple(_facts(paths)), problem=problem
    )
    write_text(folder / REPORT, report.model_dump_json(indent=2) + "\n")
    return exits.DONE


def _facts(paths: Iterable[Path]) -> Iterator[HostFacts]:
    for path in paths:
        if path.exists():
            try:
                yield read_document(path, HostFacts, "look at the host again")
            except UserError as error:
                _log.error(f"{error}")
