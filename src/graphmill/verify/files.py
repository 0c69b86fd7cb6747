"""Are the files there that the plan promises, and are they as the ranks left them?"""

from collections.abc import Iterator

from graphmill.base.files import leftovers
from graphmill.record.checksums import broken_seals, changed_files, checksums_path
from graphmill.record.documents import Outcome, Pulled, read_document
from graphmill.verify.check import Check, NotYet, judged
from graphmill.verify.evidence import Evidence


def checks(evidence: Evidence) -> Iterator[Check]:
    """Presence, then checksums, then what killed writers left behind."""
    yield judged("files", "required", lambda: _missing(evidence), "all there")
    yield judged("files", "checksums", lambda: _changed_files(evidence), "as the ranks left them when they were done")
    done = isinstance(evidence.outcome, Outcome) and evidence.outcome.status == "done"
    if done and checksums_path(evidence.folder).exists():  # not of a killed attempt
        yield judged("files", "attempt", lambda: _changed_later(evidence), "as they were when the last attempt ended")
    left = _left(evidence)
    if done and left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        yield Check(
            "files", "leftovers", "warn", f"a killed writer left {', '.join(left[:3])}{more}; remove what it left"
        )


def left_where(evidence: Evidence) -> str | None:
    """Where the checkpoints are, if `pull` fetched the run without them."""
    folder = evidence.folder
    if evidence.saved or not folder.pulled_path.exists():
        return None
    pulled = read_document(folder.pulled_path, Pulled, "remove it")
    return None if pulled.checkpoints else pulled.source


def _missing(evidence: Evidence) -> Iterator[str]:
    folder = evidence.folder
    wanted = [
        folder.provenance_path,
        folder.attempts_path,
        folder.metrics_path,
        folder.outcome_path,
    ]
    if left_where(evidence) is None:
        wanted.append(folder.checkpoints_dir)
    if folder.jobs_path.exists() or folder.job_path.exists():
        wanted += [folder.job_path, folder.script_path, folder.jobs_path]
    if folder.sacct_path.exists() or folder.sacct_summary_path.exists():  # a cluster that keeps accounts
        wanted += [folder.sacct_path, folder.sacct_summary_path]
    absent = [path.name for path in wanted if not path.exists()]
    last, most = evidence.last_world.ranks, evidence.most_ranks
    silent = last - sum(rank < last for rank in evidence.heard_from)
    if silent:
        first = next(rank for rank in range(last) if rank not in evidence.heard_from)
        absent.append(f"events/rank_{first}.jsonl" + (f" and {silent - 1} more" if silent > 1 else ""))
    if absent:
        missing = f"missing: {', '.join(absent)}"
        may_follow = {folder.outcome_path.name, folder.metrics_path.name, folder.checkpoints_dir.name}
        yield NotYet(missing) if set(absent) <= may_follow else missing
    extra = [rank for rank in evidence.heard_from if rank >= max(most, evidence.plan.ranks)]
    if extra:
        yield f"events of rank {extra[0]}, but {most} ranks were planned"


def _changed_files(evidence: Evidence) -> Iterator[str]:
    """Files that changed after a rank that is done took their checksums, and ranks that left none."""
    for log in evidence.at_the_end:
        if log.finish is None:
            yield NotYet(f"rank {log.rank} left no checksums of its files: it did not finish")
            continue
        changed = broken_seals(evidence.folder, log.rank, log.finish.seal, log.before_finish)
        if changed:
            yield f"{', '.join(changed)} changed after rank {log.rank} was done"


def _changed_later(evidence: Evidence) -> Iterator[str]:
    for what in changed_files(evidence.folder):
        yield f"{what} after the last attempt ended"


def _left(evidence: Evidence) -> list[str]:
    folder = evidence.folder
    found = [*leftovers(folder.path), *folder.checkpoints_dir.glob(".step_*")]
    return [path.relative_to(folder.path).as_posix() for path in found]
