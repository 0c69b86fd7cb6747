"""Is a run whole and true to its plan? One file per subject; `run.py` runs them all."""
