"""Errors, whole-file writes, name suggestions: standard library only."""
