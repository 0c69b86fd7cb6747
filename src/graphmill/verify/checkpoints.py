"""Are the checkpoints whole, and is the last one what the run ended with?"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.base.errors import UnreadableError
from graphmill.base.json_text import parse_json
from graphmill.record.documents import Outcome
from graphmill.record.manifest import MANIFEST, Manifest, file_checksum
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import checkpoint_name
from graphmill.spec.weights import Ancestor
from graphmill.spec.world import ranks_at
from graphmill.verify.check import Check, NotYet, judged
from graphmill.verify.evidence import Evidence, Saved
from graphmill.verify.files import left_where

_MAX_HEADER = 2**26  # bytes; safetensors refuses longer ones, too


def checks(evidence: Evidence) -> Iterator[Check]:
    """Check that the checkpoints are whole, that the last is at the end, and that they hold the right weights."""
    elsewhere = left_where(evidence)
    if elsewhere is not None:
        host = f"`graphmill pull {elsewhere} --checkpoints` fetches them"
        yield Check("checkpoints", "whole", "warn", f"they were left where the run is from: {host}")
        return
    last = evidence.last_saved
    names = f"{len(evidence.saved)}, every file as it was written"
    end = f"the last is that of step {last.steps_done}, the best is there" if last else ""
    yield judged("checkpoints", "whole", lambda: _damaged(evidence), names)
    yield judged("checkpoints", "end", lambda: _end(evidence), end)
    weights = "those of the ranks' syncs" if evidence.most_ranks > 1 else "those that the rank recorded"
    yield judged("checkpoints", "weights", lambda: _weights(evidence), weights)
    ancestor = evidence.plan.extends
    if ancestor is not None:
        known = f"continues {ancestor.run_id} after epoch {ancestor.epochs}"
        if not Path(ancestor.source).exists():
            yield Check("checkpoints", "ancestor", "warn", f"{known}, which is not here to be compared")
        else:
            yield judged("checkpoints", "ancestor", lambda: _ancestor(evidence, ancestor), f"{known}, as it still is")


def _damaged(evidence: Evidence) -> Iterator[str]:
    if not evidence.saved:
        yield evidence.unlisted or NotYet("none is there")
    for saved in evidence.saved:
        if saved.manifest is None:
            yield f"{saved.path.name}: {saved.problem}"
            continue
        yield from (f"{saved.path.name}: {problem}" for problem in _damage(evidence, saved, saved.manifest))


def _damage(evidence: Evidence, saved: Saved, manifest: Manifest) -> Iterator[str]:
    ranks, known = manifest.world_size, _may_have_written(evidence, manifest.steps_done)
    if ranks not in known or len(manifest.positions) != ranks:
        wanted = " or ".join(map(str, sorted(known)))
        yield f"written by {ranks} ranks with {len(manifest.positions)} positions, but {wanted} were there"
        return
    if saved.path.name != f"step_{manifest.steps_done:010d}":
        yield f"its manifest is that of step {manifest.steps_done}"
    expected = {"model.safetensors", *(f"rank_{rank}.safetensors" for rank in range(ranks))}
    if set(manifest.files) != expected:
        yield f"its manifest does not name {', '.join(sorted(expected ^ set(manifest.files)))} as it should"
        return
    try:
        problem = manifest.damage(saved.path)
    except UnreadableError as error:
        problem = str(error)
    if problem:
        yield problem
        return
    for name in sorted(expected):
        yield from _header_problem(saved.path / name)


def _may_have_written(evidence: Evidence, steps_done: int) -> set[int]:
    """How many ranks there were at that step: when it was done, or when an attempt began there and saved it anew."""
    first = evidence.logs[0] if evidence.logs else None
    began = {ranks for steps, ranks in first.worlds if steps == steps_done} if first and not first.rank else set()
    did = ranks_at(evidence.spans, steps_done)
    return began | ({did} if did else set()) or {evidence.plan.ranks}


def _header_problem(path: Path) -> Iterator[str]:
    """Whether the file is as long as its header says: one that was written whole, by a writer of this format."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size, _MAX_HEADER):
            yield f"{path.name} is not a safetensors file"
            return
        header: Any = parse_json(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if 8 + length + max(ends, default=0) != size:
        yield f"{path.name} has {size} bytes, but its header says {8 + length + max(ends, default=0)}"


def _end(evidence: Evidence) -> Iterator[str]:
    last, plan = evidence.last_saved, evidence.plan
    if last is None:
        yield "no checkpoint can be read" if evidence.saved or evidence.unlisted else NotYet("there is none")
        return
    if last.steps_done != plan.last_step:
        ends = f"the last checkpoint is that of step {last.steps_done}, but the plan ends at step {plan.last_step}"
        yield NotYet(ends) if last.steps_done < plan.last_step else ends
        return
    if any(position.steps_done != last.steps_done for position in last.positions):
        yield "its ranks were at different steps"
    best = last.positions[0].best
    if best is None:
        yield "no checkpoint was the best"
        return
    if best.step not in {saved.manifest.steps_done for saved in evidence.saved if saved.manifest}:
        yield f"the best checkpoint, that of step {best.step}, is not there"
    if isinstance(evidence.outcome, Outcome) and evidence.outcome.best != best.facts():
        yield f"outcome.json and the last checkpoint name different bests: {evidence.outcome.best}, {best.facts()}"


def _ancestor(evidence: Evidence, ancestor: Ancestor) -> Iterator[str]:
    """Whether every rank says the same of the run that this one continues, and that run is what the plan names."""
    for log in evidence.logs:
        told = None if log.extended is None else (log.extended.run_id, log.extended.steps_done)
        if told != (ancestor.run_id, ancestor.steps_done):
            yield f"rank {log.rank} does not say that it continues {ancestor.run_id} after step {ancestor.steps_done}"
    folder = RunFolder(Path(ancestor.source))
    if folder.plan_hash() != ancestor.plan_hash:
        yield f"plan.json of {ancestor.source} is not that of {ancestor.run_id}"
    manifest = folder.checkpoints_dir / checkpoint_name(ancestor.steps_done) / MANIFEST
    if file_checksum(manifest) != ancestor.checksum:
        yield f"{manifest.parent} is not the checkpoint that was continued"


def _weights(evidence: Evidence) -> Iterator[str]:
    for saved in evidence.saved:
        manifest = saved.manifest
        if manifest is None:
            continue
        for log in evidence.throughout:
            sync = log.syncs.get(manifest.steps_done)
            if sync is None:
                yield f"{saved.path.name}: rank {log.rank} has no sync at that step"
            elif sync.parameter_hash != manifest.parameter_hash:
                yield (
                    f"{saved.path.name} holds parameters {manifest.parameter_hash}, but rank {log.rank} had"
                    f" {sync.parameter_hash} after that step"
                )
        losses = [position.books.loss_sum for position in manifest.positions]
        if not all(math.isfinite(loss) for loss in losses):
            yield f"{saved.path.name} carries a loss that is not a number"
