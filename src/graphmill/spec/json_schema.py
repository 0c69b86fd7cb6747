"""JSON schemas of the files that people write, for editors that complete and check YAML by one.

They are what the models of the spec say, so looser than `graphmill plan`, which also knows what keys mean together.
"""

import json
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.config.frozen import Spec
from graphmill.spec.kinds import DEFAULT_TASK, TASKS, find_kind
from graphmill.spec.pipeline import PipelineFile
from graphmill.spec.search import Search
from graphmill.spec.study import Study

_OTHERS: Final[dict[str, type[Spec]]] = {"study": Study, "search": Search, "pipeline": PipelineFile}
FILES: Final = (*TASKS, *_OTHERS)
"""What has a schema: experiments of each task, studies, searches, pipelines."""

SCHEMA_FOLDER: Final = "schema"
"""In the folder of recipes, which name theirs in a comment."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(of: str) -> dict[str, Any]:
    """JSON schema of an experiment of the task `of` (package.module:KIND of an outside one), or of another file."""
    if of in _OTHERS:
        found = _plain(_OTHERS[of].model_json_schema())
    elif of in TASKS or ":" in of:
        found = _with_short_task(_plain(find_kind(of).experiment.model_json_schema()), of)
    else:
        raise UserError(
            f"there is no schema of {of!r}; {did_you_mean(of, FILES)}",
            fix=f"name one of {', '.join(FILES)}, or a task outside this package, package.module:KIND",
        )
    return {"$schema": _DIALECT, "title": f"graphmill: {of}", **{key: found[key] for key in found if key != "title"}}


def schema_text(of: str) -> str:
    """JSON schema as the text of a file."""
    return json.dumps(json_schema(of), indent=1, ensure_ascii=False) + "\n"


def _with_short_task(schema: dict[str, Any], task: str) -> dict[str, Any]:
    """`task: NAME` is short for `task: {kind: NAME}`; an experiment without one is of the default task."""
    properties = dict(schema["properties"])
    properties["task"] = {"anyOf": [{"const": task}, properties["task"]]}
    required = [name for name in schema.get("required", []) if (name, task) != ("task", DEFAULT_TASK)]
    return {**schema, "properties": properties, "required": required}


def _plain(schema: Any) -> Any:  # noqa: ANN401  # JSON
    """Drop what only code generators read; one of several models may then leave out the key that chooses it."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value
        for key, value in schema.items()
        if key != "discriminator"
        and not (key == "title" and isinstance(value, str))
        and not (key == "default" and isinstance(value, dict))
    }
    return {("anyOf" if key == "oneOf" else key): _plain(value) for key, value in kept.items()}
