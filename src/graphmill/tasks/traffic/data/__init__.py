"""Data of traffic forecasting: read, generated, prepared, at rest."""
