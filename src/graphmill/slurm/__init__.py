"""The Slurm client: commands, queue, states, accounting, host lists. It knows no run."""
