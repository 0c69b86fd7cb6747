"""Partitioners: each takes a `Problem` and returns the part of each node."""
