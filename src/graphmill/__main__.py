"""`python -m graphmill`, for where the `graphmill` script is not on PATH."""

from graphmill.cli import main

main()
