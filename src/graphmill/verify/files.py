"""Are the files there that the plan promises, and are they as the ranks left them?"""

from collections.abc import Iterator

from graphmill.record.seal import broken_seals
from graphmill.verify.check import Check, judged
from graphmill.verify.evidence import Evidence


def checks(evidence: Evidence) -> Iterator[Check]:
    """Presence, then checksums."""
    yield judged("files", "required", lambda: _missing(evidence), "all there")
    yield judged("files", "checksums", lambda: _changed_files(evidence), "as the ranks left them when they were done")


def _missing(evidence: Evidence) -> Iterator[str]:
    folder = evidence.folder
    wanted = [
        folder.provenance_path,
        folder.attempts_path,
        folder.metrics_path,
        folder.outcome_path,
        folder.checkpoints_dir,
    ]
    if folder.jobs_path.exists() or folder.job_path.exists():
        wanted += [folder.job_path, folder.script_path, folder.jobs_path]
    if folder.sacct_path.exists() or folder.sacct_summary_path.exists():  # a cluster that keeps accounts
        wanted += [folder.sacct_path, folder.sacct_summary_path]
    absent = [path.name for path in wanted if not path.exists()]
    planned = evidence.plan.ranks
    silent = planned - sum(rank < planned for rank in evidence.heard_from)
    if silent:
        first = next(rank for rank in range(planned) if rank not in evidence.heard_from)
        absent.append(f"events/rank_{first}.jsonl" + (f" and {silent - 1} more" if silent > 1 else ""))
    if absent:
        yield f"missing: {', '.join(absent)}"
    extra = [rank for rank in evidence.heard_from if rank >= planned]
    if extra:
        yield f"events of rank {extra[0]}, but {planned} ranks were planned"


def _changed_files(evidence: Evidence) -> Iterator[str]:
    """Files that changed after a rank that is done took their checksums, and ranks that left none."""
    for log in evidence.logs:
        if log.finish is None:
            yield f"rank {log.rank} left no checksums of its files: it did not finish"
            continue
        changed = broken_seals(evidence.folder, log.rank, log.finish.seal, log.before_finish)
        if changed:
            yield f"{', '.join(changed)} changed after rank {log.rank} was done"
