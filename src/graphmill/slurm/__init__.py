"""The Slurm client: commands, queue, states, accounting, host lists. It does not depend on runs."""
