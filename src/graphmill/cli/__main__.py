"""`python -m graphmill.cli`, if the `graphmill` script is not on PATH."""

from graphmill.cli.app import main

main()
