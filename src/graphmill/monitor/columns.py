"""The columns of monitor/<hostname>.csv: one row per second and subject. An empty cell: not measured there and then.

Subjects: `host` (everything on it, whoever runs it), `job` (the control group that Slurm made), `rank_<r>` (a rank and
the processes it started), `sampler_<s>` (the same of a process that samples for ranks), `gpu_<i>` (by the driver's
count). What a column says of ranks is true of samplers.
"""

from typing import Final

COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "time": ("s", "Unix time at which the row was taken; it covers the time since the row before"),
    "subject": ("", "host, job, rank_<r>, sampler_<s> or gpu_<i>"),
    "cores": ("cores", "busy on average: CPU time used ÷ time passed (host, job, rank)"),
    "cpu_s": ("s", "rank: CPU time since it began, in all its threads and processes"),
    "busy_percent": ("%", "host: busy share of all its cores; gpu: share of the time in which a kernel ran"),
    "memory_busy_percent": ("%", "gpu: share of the time in which its memory was read or written"),
    "memory_mib": ("MiB", "in use; host: not available to others; job: charged, page cache included; rank: resident"),
    "memory_total_mib": ("MiB", "there is (host, gpu), or allowed (job)"),
    "private_mib": ("MiB", "of memory_mib, what no other process shares (rank), or what cannot be dropped (job)"),
    "proportional_mib": ("MiB", "rank: shared pages divided among their users; measured now and then"),
    "peak_mib": ("MiB", "rank, job: highest so far, as the kernel kept it: no peak between two rows is missed"),
    "received_bytes": ("B", "host: over the interfaces in use, since the row before"),
    "sent_bytes": ("B", "host: over the interfaces in use, since the row before"),
    "read_bytes": ("B", "host: from its disks; rank: caused to be fetched from storage; since the row before"),
    "written_bytes": ("B", "host: to its disks; rank: caused to be sent to storage; since the row before"),
    "power_w": ("W", "gpu"),
    "temperature_c": ("°C", "gpu"),
}
"""Column → unit, what it holds."""
