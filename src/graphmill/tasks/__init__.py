"""One folder per learning problem; to add a problem, copy a folder."""
