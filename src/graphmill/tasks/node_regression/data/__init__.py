"""Data of node regression: read, generated, prepared, at rest."""
