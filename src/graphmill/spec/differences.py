"""Are two plans of one run the same? What a machine decides does not count: a run continues with what it began with."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from graphmill.base.json_text import parse_json
from graphmill.spec.calendar import Calendar
from graphmill.spec.plan import Plan

_PATHS: Final = {"dataset.path", "init_from.source", "init_from.path", "presampled"}
_OF_THE_MACHINE: Final = {"run_id", "threads", "evaluate_on", "gpu_graph_gib", "gpu_draws", "gpu_rows", *_PATHS}
_OF_ONE_RUN: Final = {"name", "run_id", "seed", "baselines", *_PATHS}
_OF_TRAINING: Final = {"cl_decay_steps", "kl_weight"}
_OF_SPEED: Final = {"attention", "checkpoint_activations", "fused", "tile_pairs"}
_NOT_COMPUTED: Final = {*_OF_TRAINING, *_OF_SPEED, "scale"}  # scale: sizes, which stand beside it
_NUM_STEPS: Final = ("steps_per_epoch", "steps_per_rank")
_CALENDAR: Final = {"epoch_lengths", "last_step"}  # reported as in `_calendar_values`


def plan_differences(one: Plan, other: Plan) -> list[str]:
    """What two plans ask for differently, as `lr is 0.01 there and 0.02 here`."""
    there, here = flat(one), flat(other)
    keys = [key for key in {**there, **here} if not _is_of_the_machine(key) and there.get(key) != here.get(key)]
    return [f"{key} is {json.dumps(there.get(key))} there and {json.dumps(here.get(key))} here" for key in keys]


def computed_with_weights(plan: Plan) -> dict[str, Any]:
    """What evaluation computes with the weights of a run, by dotted name: options of its model, but for those that
    only training reads, and those of speed and memory alone.
    """
    sections = parse_json(plan.task.model_dump_json(include=set(plan.task.of_weights)))  # as a file has them
    found = dict[str, Any]()
    for section, value in _lasting(sections).items():
        named = {f"{section}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {}
        found |= named or {section: value}
    return found


def _lasting(value: Any, *, is_own: bool = False) -> Any:  # noqa: ANN401  # any JSON value
    """`is_own`: of a user's own model, whose options are the user's to name."""
    if not isinstance(value, dict):
        return value
    left_out = set() if is_own else _NOT_COMPUTED
    kept = {key: each for key, each in value.items() if "drop" not in key and key not in left_out}
    return {key: _lasting(each, is_own=is_own or key == "options") for key, each in kept.items()}


def other_computation(weights: Mapping[str, Any], plan: Plan) -> list[str]:
    """Where a plan computes otherwise with weights than the run that trained them (`computed_with_weights`)."""
    here = computed_with_weights(plan)
    return [
        f"{key} is {json.dumps(weights[key])} there and {json.dumps(value)} here"
        for key, value in here.items()
        if key in weights and weights[key] != value
    ]


def configuration(plan: Plan, choices: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What was run, by dotted name: all choices but the run's name and id, the rng seed, and where files lie; and
    but for what the task repeats itself over (`Kind.repetitions`), such as folds.

    Runs that agree in it are repetitions; of others, no average is ever taken. A run that extends another computes what
    one of so many epochs does: that it does is no choice, either. `choices`: `flat` of the plan, where it is at hand.
    """
    left_out = {*_OF_ONE_RUN, *plan.kind.repetitions}
    return {
        key: value
        for key, value in (flat(plan) if choices is None else choices).items()
        if key not in left_out and not _is_path_of_source(key) and key.partition(".")[0] != "extends"
    }


def varied_keys(plans: Sequence[Plan]) -> list[str]:
    """The dotted names in which the configurations of `plans` differ: enough of them to tell all apart.

    Where some configurations cannot be told apart without them, also keys that only some have, and alike, such as an
    option of one synchronisation scheme (not all of them: a teacher that only some have brings many), and how many
    steps there are, which follows from batch size, ranks and epochs.
    """
    return keys_that_vary([configuration(plan) for plan in plans])


def keys_that_vary(configured: Sequence[Mapping[str, Any]]) -> list[str]:
    """`varied_keys` of configurations."""
    keys = dict.fromkeys(key for each in configured for key in each)
    each_key = ((key, [json.dumps(each.get(key)) for each in configured]) for key in keys)
    varied = {key: texts for key, texts in each_key if len(set(texts)) > 1}
    in_all = [key for key in varied if len({json.dumps(each[key]) for each in configured if key in each}) > 1]
    chosen = [key for key in in_all if key not in _NUM_STEPS]
    for key in sorted(varied, key=_NUM_STEPS.__contains__):  # those last, in their order
        if _num_distinct(varied, [*chosen, key]) > _num_distinct(varied, chosen):
            chosen = [*chosen, key]
    return [key for key in varied if key in chosen]


def _num_distinct(varied: Mapping[str, Sequence[str]], keys: Sequence[str]) -> int:
    return len(set(zip(*(varied[key] for key in keys), strict=True))) or 1


def _is_of_the_machine(key: str) -> bool:
    return key in _OF_THE_MACHINE or _is_path_of_source(key)


def _is_path_of_source(key: str) -> bool:
    return key.startswith("sources.") and key.endswith((".source", ".path"))


def flat(plan: Plan) -> dict[str, Any]:
    """All choices of a plan by dotted name: `sync.every`; what only its task has without the task's own section."""
    values = {name: item for name, item in plan.model_dump(mode="json").items() if name not in _CALENDAR}
    own = values.pop("task")
    return {**_flat({"task": own.pop("kind")}), **_flat(own), **_calendar_values(plan.calendar), **_flat(values)}


def _calendar_values(calendar: Calendar) -> dict[str, Any]:
    """How long a run is, by the names that users know."""
    lengths = {length for _, length in calendar.epoch_lengths}
    return {
        "epochs": calendar.num_epochs,
        "steps_per_epoch": lengths.pop() if len(lengths) == 1 else [list(run) for run in calendar.epoch_lengths],
        "steps_per_rank": calendar.last_step,
    }


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found
