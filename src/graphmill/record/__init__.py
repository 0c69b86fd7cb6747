"""The run folder and its contents: events, metrics.csv, provenance, outcome."""
