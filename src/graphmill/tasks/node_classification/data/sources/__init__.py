"""Readers of raw data: each yields a `LabelledGraph`, unchecked, or a `UserError` that names the file."""
