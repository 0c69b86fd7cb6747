"""A real Slurm on one machine: hosts are namespaces, everything starts and ends with one process.

Whether `run` (for the time of one command) or `up` (until `down`), the cluster is one tree of processes below the first
process of a PID namespace of its own, and all its files lie in a memory file system of a mount namespace of its own.
The kernel takes both away with that process, however it ends: nothing to clean up, and any number side by side.
Each host is a PID, network, mount, IPC and host name namespace inside, so losing power is killing its first process.
"""
