"""`bottleneck`: what holds a run back, and what to try next."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line, print_table
from graphmill.diagnose.thresholds import thresholds_text

if TYPE_CHECKING:
    from graphmill.diagnose.rules import Diagnosis, Finding

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
    from graphmill.diagnose.bottleneck_facts import measured_of
    from graphmill.diagnose.rules import find_bottleneck

    folders = find_several(run, logs_root)
    diagnoses: dict[str, Diagnosis] = {}
    troubles: dict[str, UserError] = {}
    for folder in folders:
        try:
            diagnoses[str(folder.path)] = find_bottleneck(measured_of(folder))
        except UserError as error:
            troubles[str(folder.path)] = error
    if not diagnoses:
        raise next(iter(troubles.values()))
    if json:
        documents = [{"run": path, "verdict": _document(diagnosis)} for path, diagnosis in diagnoses.items()]
        failed = [{"run": path, "verdict": None, "why": error.message} for path, error in troubles.items()]
        print_json({"runs": [*documents, *failed]})
        return
    if len(folders) == 1:
        _print_one(*next(iter(diagnoses.items())))
        return
    rows = [[Path(path).name, each.verdict.subject, each.verdict.text] for path, each in diagnoses.items()]
    rows += [[Path(path).name, "not known", error.message] for path, error in troubles.items()]
    print_table(("run", "bound by", "the figure that says so"), rows)
    for caveat in dict.fromkeys(caveat for diagnosis in diagnoses.values() for caveat in diagnosis.caveats):
        _log.info(f"note: {caveat}")


_NOTHING: Final = 0.005  # a share that would be printed as 0 %


def _document(diagnosis: "Diagnosis") -> dict[str, Any]:
    def document_of(finding: "Finding") -> dict[str, Any]:
        return {"bound": finding.subject, "figure": finding.text, "suggestions": finding.fixes}

    findings = [
        {**document_of(each), **each.amounts, "is_severe": each.level == "severe"} for each in diagnosis.findings
    ]
    rest = {"shares": diagnosis.shares, "findings": findings, "caveats": diagnosis.caveats}
    return {**document_of(diagnosis.verdict), **rest}


def _print_one(path: str, diagnosis: "Diagnosis") -> None:
    from graphmill.diagnose.thresholds import headline

    verdict, all_shares = diagnosis.verdict, diagnosis.shares
    print_line(f"{path}: {headline(verdict.subject)}")
    print_line(f"  {verdict.text}")
    for number, fix in enumerate(verdict.fixes):
        print_line(f"  {'try' if number == 0 else 'then'}: {fix}")
    left_out = {"memory", *(["sync"] if all_shares["sync"] < _NOTHING else [])}  # as where one rank ran
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in all_shares.items() if name not in left_out)
    print_line(f"  shares: {shares}")
    if "memory" in all_shares:
        print_line(f"  memory: {100 * all_shares['memory']:.0f} % of what there is")
    for finding in diagnosis.findings[1:]:
        print_line(f"  also {finding.subject}: {finding.text}")
    for caveat in diagnosis.caveats:
        _log.info(f"note: {caveat}")
