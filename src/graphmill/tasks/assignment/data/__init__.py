"""Data of assignment problems: read, generated, prepared, at rest."""
