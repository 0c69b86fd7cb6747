"""`python -m graphmill.cli`: the same as `python -m graphmill`."""

from graphmill.cli import main

main()
