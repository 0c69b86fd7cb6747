"""Plan to ranks, here, over SSH and in jobs: launch, jobs, staging, status, stop, pull (control plane: no torch)."""
