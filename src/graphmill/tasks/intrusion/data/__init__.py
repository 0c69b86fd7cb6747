"""Data of intrusion detection: read, generated, prepared, at rest."""
