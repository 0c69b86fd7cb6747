"""Are two plans of one run the same? What a machine decides does not count: a run goes on with what it began with."""

import json
from collections.abc import Mapping
from typing import Any, Final

from graphmill.spec.plan import Plan

_OF_THE_MACHINE: Final = {"run_id", "threads", "dataset.path", "init_from.source", "init_from.path"}


def plan_differences(one: Plan, other: Plan) -> list[str]:
    """What two plans ask for differently, as `lr is 0.01 there and 0.02 here`."""
    there, here = flat(one), flat(other)
    keys = [key for key in {**there, **here} if key not in _OF_THE_MACHINE and there.get(key) != here.get(key)]
    return [f"{key} is {json.dumps(there.get(key))} there and {json.dumps(here.get(key))} here" for key in keys]


def flat(plan: Plan) -> dict[str, Any]:
    """All choices of a plan by dotted name: `sync.every`; what only its task has without the task's own section."""
    values = plan.model_dump(mode="json")
    own = values.pop("task")
    return {**_flat({"task": own.pop("kind")}), **_flat(own), **_flat(values)}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found
