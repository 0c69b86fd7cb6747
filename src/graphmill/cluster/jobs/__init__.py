"""Runs as Slurm jobs: script, submission, the driver inside the job, site profiles."""
