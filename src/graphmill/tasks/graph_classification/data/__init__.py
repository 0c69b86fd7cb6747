"""Data of graph classification: read, generated, prepared, at rest."""
