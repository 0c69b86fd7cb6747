"""`python -m graphmill.cli`, for where the `graphmill` script is not on PATH."""

from graphmill.cli.app import main

main()
