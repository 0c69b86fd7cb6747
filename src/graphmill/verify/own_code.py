"""Did every rank import the copy of the user's code that was submitted, and is it whole?"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from graphmill.base.errors import UserError
from graphmill.record.documents import Attempt, read_document
from graphmill.runtime.snapshot import FOLDER, Snapshot, damage
from graphmill.verify.check import Check, judged
from graphmill.verify.evidence import Evidence

_SHOWN = 12  # characters of a checksum


class _NamedCopy(BaseModel):
    """What job.json says of it."""

    code: Snapshot | None = None


def checks(evidence: Evidence) -> Iterator[Check]:
    """Check the copies of code that ranks imported; no check if no attempt imported one, and the job names none."""
    attempts = evidence.attempts if isinstance(evidence.attempts, list) else []
    used = list(dict.fromkeys(attempt.own_code for attempt in attempts if attempt.own_code))
    if used:
        names = ", ".join(each[:_SHOWN] for each in used)
        yield judged("job", "own code", lambda: _imported(evidence, attempts), f"the ranks imported copy {names}")
    if attempts:
        yield from _other_than_submitted(evidence, attempts[-1])
    for sha256 in used:
        place = _place(evidence.folder.path, sha256)
        if place is None:
            is_pulled = evidence.folder.pulled_path.exists()
            why = "it was not pulled along" if is_pulled else "it was removed, or left behind"
            yield Check("job", "copy of own code", "warn", f"{sha256[:_SHOWN]} is not here: {why}")
            continue
        yield judged("job", "copy of own code", partial(_damaged, place), f"{place.name[:_SHOWN]} is whole")


def _imported(evidence: Evidence, attempts: list[Attempt]) -> Iterator[str]:
    """An attempt and its ranks may have other clocks: a rank is compared with all attempts."""
    begun_with = {attempt.own_code for attempt in attempts}
    for log in evidence.logs:
        for start in log.starts:
            if start.own_code not in begun_with:
                what = f"copy {start.own_code[:_SHOWN]}" if start.own_code else "no copy"
                yield f"rank {log.rank} imported {what}, with which no attempt began"


def _other_than_submitted(evidence: Evidence, last: Attempt) -> Iterator[Check]:
    if not evidence.folder.job_path.exists():
        return
    try:
        job = read_document(evidence.folder.job_path, _NamedCopy, "submit the run again")
    except UserError as error:
        yield Check("job", "own code", "fail", error.message)
        return
    if job.code is not None and job.code.sha256 != last.own_code:
        what = f"copy {last.own_code[:_SHOWN]}" if last.own_code else "your code where it lies"
        yield Check("job", "own code", "warn", f"job.json names copy {job.code.sha256[:_SHOWN]}; imported was {what}")


def _place(run: Path, sha256: str) -> Path | None:
    """The copy lies in the logs root, wherever that was moved to."""
    places = (parent / FOLDER / sha256 for parent in run.absolute().parents)
    return next((place for place in places if place.is_dir()), None)


def _damaged(place: Path) -> Iterator[str]:
    problem = damage(place)
    if problem is not None:
        yield f"{place}: {problem}"
