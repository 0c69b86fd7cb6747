"""Slurm's job around this process: the one place that knows by which variables Slurm describes job, step and task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

JOB_ID: Final = "SLURM_JOB_ID"
END_TIME: Final = "SLURM_JOB_END_TIME"
HOST_NUMBER: Final = "SLURM_NODEID"
TASK_NUMBER: Final = "SLURM_PROCID"
HOST_LOCAL: Final = "SLURM_TMPDIR"  # some sites' own
OF_RANK: Final = (TASK_NUMBER, "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")
"""What srun tells a task that is a rank: its number, that on its host, how many tasks, and how many hosts."""


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """What the environment of a process says of its job; empty texts and None outside one."""

    environ: Mapping[str, str]

    @property
    def job_id(self) -> str:
        """The number of the job. Of a task of an array it is that of the array: see `queue_id`."""
        return self.environ.get(JOB_ID, "")

    @property
    def queue_id(self) -> str:
        """The job id as Slurm's commands take it: `17`, or `17_3` for a task of an array, and for no other task."""
        array = self.environ.get("SLURM_ARRAY_JOB_ID")
        return f"{array}_{self.environ.get('SLURM_ARRAY_TASK_ID', '')}" if array else self.job_id

    @property
    def array_index(self) -> int:
        """Number of the task of an array; 0 outside one."""
        return self._count("SLURM_ARRAY_TASK_ID") or 0

    @property
    def dependency(self) -> str:
        """What the job waited for, as it was submitted: `afterany:17`."""
        return self.environ.get("SLURM_JOB_DEPENDENCY", "")

    @property
    def num_restarts(self) -> int:
        """How often the job was requeued."""
        return self._count("SLURM_RESTART_COUNT") or 0

    @property
    def hosts(self) -> str:
        """The hosts of the job, as Slurm writes a list of them."""
        return self.environ.get("SLURM_JOB_NODELIST", "")

    @property
    def num_hosts(self) -> int:
        """Number of hosts of the job; 1 outside one."""
        return self._count("SLURM_JOB_NUM_NODES") or 1

    @property
    def cores_here(self) -> int | None:
        """Cores that the job has on this host."""
        return self._count("SLURM_CPUS_ON_NODE")

    @property
    def memory_mib(self) -> int | None:
        """MiB of each host; None: the job was given none, or memory by CPU."""
        return self._count("SLURM_MEM_PER_NODE")

    @property
    def end_time(self) -> float | None:
        """Time when the job ends, as it was when the job began: Unix time, s."""
        end = self._count(END_TIME)
        return None if end is None else float(end)

    @property
    def step_id(self) -> str:
        """The number of the step of the job."""
        return self.environ.get("SLURM_STEP_ID", "")

    @property
    def step_hosts(self) -> str:
        """The hosts of the step, as Slurm writes a list of them."""
        return self.environ.get("SLURM_STEP_NODELIST", "")

    @property
    def host(self) -> str:
        """Name of this host, as Slurm calls it."""
        return self.environ.get("SLURMD_NODENAME", "")

    @property
    def tasks_per_host(self) -> str:
        """How many tasks of the step each host has, as Slurm writes it: `2(x3)`, or `3,1`."""
        return self.environ.get("SLURM_STEP_TASKS_PER_NODE", "")

    @property
    def num_tasks(self) -> int:
        """How many processes the srun has started that started this one; 1 outside a step, as in a job's script."""
        number = self._count("SLURM_STEP_NUM_TASKS")
        return number if number is not None and self.environ.get(TASK_NUMBER) else 1

    def _count(self, name: str) -> int | None:
        text = self.environ.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() else None
