"""The run folder and what stands in it: events, metrics.csv, provenance, outcome."""
