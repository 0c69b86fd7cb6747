"""Are two plans of one run the same? What a machine decides does not count: a run goes on with what it began with."""

import json
from collections.abc import Mapping
from typing import Any, Final

from graphmill.spec.plan import Plan

_OF_THE_MACHINE: Final = {"run_id", "threads", "dataset.path"}


def plan_differences(one: Plan, other: Plan) -> list[str]:
    """What two plans ask for differently, as `train.lr: 0.01 there, 0.02 here`."""
    there, here = _flat(one.model_dump(mode="json")), _flat(other.model_dump(mode="json"))
    keys = [key for key in {**there, **here} if key not in _OF_THE_MACHINE and there.get(key) != here.get(key)]
    return [f"{key} is {json.dumps(there.get(key))} there and {json.dumps(here.get(key))} here" for key in keys]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat
