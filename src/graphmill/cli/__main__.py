"""`python -m graphmill.cli`: the same as `python -m graphmill`."""

from graphmill.base.python import working_folder_last

if __name__ == "__main__":  # before anything else is imported: who types it gives Python no -P
    working_folder_last()

from graphmill.cli import main

main()
