"""Merged tables, Pareto frontiers and figures (control plane; the only home of matplotlib)."""
