"""Configuration files: YAML text, overrides, and messages about keys."""
