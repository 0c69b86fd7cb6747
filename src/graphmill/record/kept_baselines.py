"""What baselines scored, kept beside the runs: `<logs root>/.baselines/KEY.json`, for all runs on the same data."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import refuse_link, write_text
from graphmill.base.retries import retried
from graphmill.runtime.code import code_checksum
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import TaskPlan

FOLDER: Final = ".baselines"
Scores = dict[str, dict[str, float]]
"""Split, measure → value."""
_FILE: Final = TypeAdapter(dict[str, Scores])


@dataclass(frozen=True, slots=True)
class KeptBaselines:
    """Scores of baselines by name, for a task's plan section; sections that they score alike share a file."""

    path: Path

    @classmethod
    def of(cls, logs_root: Path, task_plan: TaskPlan) -> "KeptBaselines":
        """File of a plan's scores, keyed by the data (not its place), what the kind names of it, and the code."""
        section = task_plan.model_dump(mode="json", exclude={"dataset": {"path"}})
        read = find_kind(task_plan.kind).baselines.reads
        section |= {name: getattr(task_plan, name) for name in read or () if name not in section}  # properties
        depends = section if read is None else {name: section[name] for name in ("kind", "dataset", *read)}
        text = json.dumps([depends, code_checksum()], sort_keys=True)
        return cls(logs_root / FOLDER / f"{sha256(text.encode()).hexdigest()[:32]}.json")

    def read(self) -> dict[str, Scores]:
        """Name → scores; empty where nothing is kept, or where the file is none of ours."""
        try:
            return _FILE.validate_json(retried(self.path, Path.read_bytes))
        except (FileNotFoundError, UserError, ValidationError):
            return {}

    def keep(self, name: str, scores: Scores) -> None:
        """Keep what the baseline of that name scored; of two that write at once, one may be scored again later."""
        refuse_link(self.path.parent)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps({**self.read(), name: scores}, indent=1) + "\n")
