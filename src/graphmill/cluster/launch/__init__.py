"""Starts the ranks of a run: on this machine, over SSH, as a study; one attempt and how it ended."""
