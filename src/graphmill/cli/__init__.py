"""The commands. Importing this is fast: heavy modules are imported inside the command that needs them."""

from graphmill.cli.app import commands, main

__all__ = ["commands", "main"]
