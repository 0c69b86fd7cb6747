"""`python -m graphmill.cli`: the same as `python -m graphmill`."""

from graphmill.base.python import leave_out_working_folder

if __name__ == "__main__":  # before anything else is imported: who types it gives Python no -P
    leave_out_working_folder()

from graphmill.cli import main

main()
