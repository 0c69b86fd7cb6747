"""Data of node classification: read, generated, prepared, at rest."""
