"""`graphmill.load`: the model of a run as plain PyTorch, ready for inference."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from torch import nn

from graphmill.base.arguments import items_of, one_of, path_of
from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.find_run import find_run
from graphmill.record.weights import warn_of_damage
from graphmill.runtime.trust import refuse_foreign_code
from graphmill.spec.plan import Plan
from graphmill.tasks.build import task_class
from graphmill.train.where_data_are import DATA_OF_THE_RUN, DataChoice, plan_over

_log = logging.getLogger(__name__)


def load(
    run: str | Path,
    weights: Literal["best", "last"] = "best",
    *,
    dataset_root: str | Path | None = None,
    logs_root: str | Path = "logs",
    trust: str | Iterable[str] = (),
) -> nn.Module:
    """The model of a run with its weights, as a `torch.nn.Module` in evaluation mode, on the CPU.

    Args:
        run: the run folder, such as `logs/cora-sage-1`, or the id of a run in `logs_root`, as the commands take it.
        weights: of the best checkpoint on the validation split, or of the last.
        dataset_root: where the prepared data are, for models that need them (a forecaster its road graph); else where
            the plan says, $GRAPHMILL_DATA_ROOT, ….
        logs_root: where runs are, if `run` is an id.
        trust: dotted paths of code that may be run although you have not run it on this machine.

    Returns:
        Node classification: called as `model(x, edge_index)` → logits [num_nodes, num_classes], as PyG's models are; of
        a model by dotted path, that module itself. Traffic: called as `model(readings, times)` → forecasts.

    Raises:
        UserError: there is no such run or no whole checkpoint; weights and model do not fit.

    Example:
        model = graphmill.load("cora-sage-1")
        logits = model(data.x, data.edge_index)
    """
    one_of("weights", weights, ("best", "last"))
    root = None if dataset_root is None else path_of("dataset_root", dataset_root)
    folder = find_run(str(path_of("run", run)), path_of("logs_root", logs_root))
    plan = folder.read_plan(trusted=[trust] if isinstance(trust, str) else list(items_of("trust", trust)))
    refuse_foreign_code(plan.model_dump(mode="json"))
    tensors = Weights.of_run(folder, weights, warn_of_damage)
    make = getattr(task_class(plan), "inference_model", None)
    if make is None:
        raise UserError(
            f"the task {plan.task.kind} does not say how its model is used outside training",
            fix=f"give its class a method inference_model, or read {folder.path}'s weights with safetensors",
        )
    model: nn.Module = make(_where_it_is(plan, root), tensors)
    return model.cpu().eval()


def _where_it_is(plan: Plan, root: Path | None) -> Plan:
    """The plan over its data, if they are found: not every model needs them; one that does reports what is missing."""
    if root is not None:
        return plan_over(plan, DataChoice(None, root), os.environ)
    try:
        return plan_over(plan, DATA_OF_THE_RUN, os.environ)
    except UserError:
        return plan
