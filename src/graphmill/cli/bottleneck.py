"""`bottleneck`: what holds a run back, and what to try next."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line, print_table
from graphmill.diagnose.thresholds import thresholds_text

if TYPE_CHECKING:
    from graphmill.diagnose.bottleneck import Diagnosis

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=f"Thresholds, of the time of the epochs after the first:\n\n\b\n{thresholds_text()}")(bottleneck)


def bottleneck(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN|STUDY]", show_default=False, help="A run, or a study's folder; else the latest."),
    ] = None,
    *,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Say what holds a run back.

    Computing, the loader, synchronising, memory, ranks that differ, or evaluating: from the clocks of every rank and
    the monitors, with the figure that says so and what to try next. Of a study: each of its runs.

    \b
    Example:
      graphmill bottleneck
      graphmill bottleneck debian-strong --json
    """
    from graphmill.cli.find_run import find_several
    from graphmill.diagnose.bottleneck import find_bottleneck
    from graphmill.diagnose.bottleneck_facts import measured_of

    folders = find_several(run, logs_root)
    verdicts: dict[str, Diagnosis] = {}
    troubles: dict[str, UserError] = {}
    for folder in folders:
        try:
            verdicts[str(folder.path)] = find_bottleneck(measured_of(folder))
        except UserError as error:
            troubles[str(folder.path)] = error
    if not verdicts:
        raise next(iter(troubles.values()))
    if json:
        told = [{"run": path, "verdict": verdict} for path, verdict in verdicts.items()]
        failed = [{"run": path, "verdict": None, "why": error.message} for path, error in troubles.items()]
        print_json({"runs": [*told, *failed]})
        return
    if len(folders) == 1:
        _print_one(*next(iter(verdicts.items())))
        return
    rows = [[Path(path).name, verdict.bound, verdict.figure] for path, verdict in verdicts.items()]
    rows += [[Path(path).name, "not known", error.message] for path, error in troubles.items()]
    print_table(("run", "bound by", "the figure that says so"), rows)
    for caveat in dict.fromkeys(caveat for verdict in verdicts.values() for caveat in verdict.caveats):
        _log.info(f"note: {caveat}")


_NOTHING: Final = 0.005  # a share that would be printed as 0 %


def _print_one(path: str, verdict: "Diagnosis") -> None:
    from graphmill.diagnose.thresholds import headline

    print_line(f"{path}: {headline(verdict.bound)}")
    print_line(f"  {verdict.figure}")
    for number, suggestion in enumerate(verdict.suggestions):
        print_line(f"  {'try' if number == 0 else 'then'}: {suggestion}")
    left_out = {"memory", *(["sync"] if verdict.shares["sync"] < _NOTHING else [])}  # as where one rank ran
    told = {name: share for name, share in verdict.shares.items() if name not in left_out}
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in told.items())
    print_line(f"  shares: {shares}")
    if "memory" in verdict.shares:
        print_line(f"  memory: {100 * verdict.shares['memory']:.0f} % of what there is")
    for finding in verdict.findings[1:]:
        print_line(f"  also {finding.bound}: {finding.figure}")
    for caveat in verdict.caveats:
        _log.info(f"note: {caveat}")
