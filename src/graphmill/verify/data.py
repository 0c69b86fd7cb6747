"""Is the run about the data it says, and is real data real?"""

from collections.abc import Iterator
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.graph.header import Header, read_header
from graphmill.verify.check import Check, judged
from graphmill.verify.evidence import Cell, Evidence


def checks(evidence: Evidence) -> Iterator[Check]:
    """The dataset itself if it is here, then everything that refers to it."""
    promised = "synthetic, and says so" if evidence.plan.dataset.synthetic else "real"
    stored: Header | None = None
    try:
        stored = read_header(Path(evidence.plan.dataset.path))
    except (UserError, OSError) as error:
        message = error.message if isinstance(error, UserError) else str(error)
        yield Check("data", "dataset", "warn", f"not here to be compared: {message}")
    else:
        yield judged("data", "dataset", lambda: _dataset(evidence, stored), "the one that was planned with")
    yield judged("data", "synthetic", lambda: _synthetic(evidence, stored), f"{promised}, in every record")
    yield judged("data", "provenance", lambda: _provenance(evidence), _code(evidence))


def _dataset(evidence: Evidence, stored: Header) -> Iterator[str]:
    planned = evidence.plan.dataset
    if stored.checksum != planned.checksum:
        yield f"{planned.path} has checksum {stored.checksum}, but was planned with {planned.checksum}"


def _synthetic(evidence: Evidence, stored: Header | None) -> Iterator[str]:
    promised = evidence.plan.dataset.synthetic
    told: list[tuple[str, Cell]] = []
    if stored is not None and stored.checksum == evidence.plan.dataset.checksum:
        told.append(("the dataset", stored.synthetic))
    if evidence.provenance is not None and not isinstance(evidence.provenance, str):
        told.append(("provenance.json", evidence.provenance.synthetic))
    if not isinstance(evidence.rows, str):
        told.extend(("metrics.csv", row["synthetic"]) for row in evidence.rows)
    words: dict[Cell, str] = {True: "synthetic", False: "real", None: "nothing"}
    for who, synthetic in dict.fromkeys(told):
        if synthetic is not promised:
            yield f"{words[promised]} data was promised, but {who} says {words[synthetic]}"


def _provenance(evidence: Evidence) -> Iterator[str]:
    provenance, planned = evidence.provenance, evidence.plan.dataset
    if provenance is None:
        yield "provenance.json is missing"
    elif isinstance(provenance, str):
        yield provenance
    elif provenance.dataset_checksum != planned.checksum:
        yield f"speaks of a dataset with checksum {provenance.dataset_checksum}, but {planned.checksum} was planned"


def _code(evidence: Evidence) -> str:
    provenance = evidence.provenance
    code = None if provenance is None or isinstance(provenance, str) else provenance.code
    if code is None:
        return "speaks of the planned dataset; code of no checkout"
    clean = {True: "with changes", False: "clean", None: "perhaps with changes"}[code.dirty]
    return f"speaks of the planned dataset; code of commit {code.commit[:12]}, {clean}"
