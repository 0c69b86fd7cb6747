"""Readers of raw data: each yields a `RawGraph`, unchecked, or a `UserError` that names the file."""
