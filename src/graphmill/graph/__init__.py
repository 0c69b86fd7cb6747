"""Graphs and features at rest (compressed sparse, memory-mapped, checksummed), ids and batch types."""
