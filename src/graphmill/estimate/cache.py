"""What was measured or found before: kept in the logs root, each under a hash of all that it depends on."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.base.json_text import parse_json
from graphmill.record.run_folder import plan_text
from graphmill.spec.plan import Plan

FOLDER: Final = ".estimates"
"""In the logs root."""

E = TypeVar("E")


class Estimates:
    """Estimates that were made earlier, by plan and by facts beside it; what is new is not written if `keep` is False.

    The plan counts without its name, its rng seed and the weights that it begins with, which cost nothing. Those that
    its task uses do, whoever trained them and wherever they are.
    """

    def __init__(self, logs_root: Path, *, keep: bool = True) -> None:
        self._folder = logs_root / FOLDER
        self._keep = keep
        self._unwritten: dict[Path, Any] = {}

    def path(self, plan: Plan, *facts: object) -> Path:
        """Where the estimate is, or would be."""
        sources = {name: each.model_copy(update={"source": "", "path": ""}) for name, each in plan.sources.items()}
        of_no_run = {"run_id": "", "name": "", "seed": 0, "init_from": None, "sources": sources}
        versions = [version(name) for name in ("graphmill", "torch")]
        text = json.dumps([plan_text(plan.model_copy(update=of_no_run)), facts, versions])
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def find(self, kind: type[E], plan: Plan, *facts: object) -> E | None:
        """What was kept, if anything was."""
        path = self.path(plan, *facts)
        try:
            found = self._unwritten[path] if path in self._unwritten else parse_json(path.read_bytes())
            return TypeAdapter(kind).validate_python(found)
        except FileNotFoundError:
            return None
        except ValidationError:  # of another version
            return None
        except ValueError:
            raise UserError(f"{path} is damaged", fix="remove it: it is measured again") from None

    def keep(self, estimate: object, plan: Plan, *facts: object) -> None:
        """Remember an estimate."""
        path, document = self.path(plan, *facts), TypeAdapter(type(estimate)).dump_python(estimate, mode="json")
        if self._keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, document)
        else:
            self._unwritten[path] = document
