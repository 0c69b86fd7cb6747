"""The loop, checkpoints, evaluation: what a rank does."""
