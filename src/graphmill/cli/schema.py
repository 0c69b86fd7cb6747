"""`schema`: what an editor needs to complete and check the files that people write."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)


def schema(
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            show_default=False,
            help="Of experiments of this task, else of the default one; package.module:KIND; study; search; pipeline.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Write it there.")
    ] = None,
) -> None:
    """Print the JSON schema of experiment files: an editor completes and checks keys by it.

    An editor with a YAML language server takes it from a comment in the file,
    `# yaml-language-server: $schema=experiment.schema.json`, as every recipe has one.

    \b
    Example:
      graphmill schema --output experiment.schema.json
      graphmill schema study
    """
    import sys

    from graphmill.base.files import write_text
    from graphmill.cli.show import print_line
    from graphmill.spec.json_schema import schema_text
    from graphmill.spec.kinds import DEFAULT_TASK

    text = schema_text(of or DEFAULT_TASK)
    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    print_line(f"{output}; for a file beside it: # yaml-language-server: $schema={output.name}")
