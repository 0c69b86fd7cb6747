"""The commands. Importing this takes a blink: what is heavy is imported inside the command that needs it."""

from graphmill.cli.app import app, main

__all__ = ["app", "main"]
