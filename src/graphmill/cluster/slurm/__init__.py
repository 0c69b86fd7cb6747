"""Slurm: scripts, jobs, and what runs inside a job (control plane: never imports torch)."""
