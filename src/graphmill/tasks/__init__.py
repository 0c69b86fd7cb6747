"""One folder per learning problem; whoever adds a problem copies a folder."""
