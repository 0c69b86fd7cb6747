"""Heads that score pairs of nodes, and losses."""
