"""The optimizer section: which one, its rate over the run, what it decays, what it leaves alone."""

import math
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, PositiveFloat, TypeAdapter, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.calendar import Calendar

Momentum = Annotated[float, Field(ge=0, lt=1)]
_WARMUP = "steps of each rank over which the rate rises linearly from 0 before the schedule begins"


class ConstantSchedule(Spec):
    """One rate at every step, after the warm-up."""

    kind: Literal["constant"] = "constant"
    warmup_steps: int = Field(0, ge=0, description=_WARMUP)


class CosineSchedule(Spec):
    """The rate falls along half a cosine, from `lr` to `lr` × `final_factor` at the end of the run."""

    kind: Literal["cosine"] = "cosine"
    warmup_steps: int = Field(0, ge=0, description=_WARMUP)
    final_factor: float = Field(0.0, ge=0, le=1, description="the rate after the last step, over `lr`")


class LinearSchedule(Spec):
    """The rate falls along a line, from `lr` to `lr` × `final_factor` at the end of the run."""

    kind: Literal["linear"] = "linear"
    warmup_steps: int = Field(0, ge=0, description=_WARMUP)
    final_factor: float = Field(0.0, ge=0, le=1, description="the rate after the last step, over `lr`")


class MultistepSchedule(Spec):
    """The rate is multiplied by `gamma` after each of `milestones`."""

    kind: Literal["multistep"]
    warmup_steps: int = Field(0, ge=0, description=_WARMUP)
    milestones: tuple[int, ...] = Field(description="after this many epochs, ascending")
    gamma: float = Field(0.1, gt=0, lt=1, description="the factor")

    @model_validator(mode="after")
    def _milestones_ascend(self) -> Self:
        if not self.milestones or any(one >= other for one, other in pairwise((0, *self.milestones))):
            raise ValueError(f"milestones {list(self.milestones)} must hold epochs > 0 that ascend")
        return self


ScheduleSpec = Annotated[
    ConstantSchedule | CosineSchedule | LinearSchedule | MultistepSchedule, Field(discriminator="kind")
]


class ParameterGroup(Spec):
    """Parameters that are updated differently from the rest."""

    parameters: tuple[str, ...] = Field(
        description="patterns of parameter names, such as '*.bias'; the first group that a parameter matches has it"
    )
    lr_factor: float = Field(1.0, gt=0, description="their learning rate, over that of the others")
    decay_factor: float = Field(1.0, ge=0, description="their weight decay, over that of the others; 0: none")


class _AnyOptimizer(Spec):
    """What all optimizers have in common."""

    lr: float = Field(
        0.01, gt=0, description="learning rate, before the schedule; of link_prediction 0.001 unless it is given"
    )
    weight_decay: float | None = Field(
        None,
        ge=0,
        description="of every parameter, unless its group says otherwise; null: what the task takes, which is"
        " 1 / training nodes of node_classification, at most 0.005, and 0 of all others",
    )
    max_grad_norm: PositiveFloat | None = Field(
        None, description="the mean gradient of an update is scaled down to this L2 norm; null: never"
    )
    schedule: ScheduleSpec = ConstantSchedule()
    groups: dict[str, ParameterGroup] = Field(
        {}, description="parameters that are updated otherwise, by a name that you choose"
    )
    frozen: tuple[str, ...] = Field(
        (), description="patterns of parameter names that keep their initial values; they are not exchanged either"
    )


class AdamSpec(_AnyOptimizer):
    """Adam (Kingma and Ba 2015, arXiv 1412.6980); weight decay is an L2 penalty in the gradient."""

    kind: Literal["adam"] = "adam"
    betas: tuple[Momentum, Momentum] = Field((0.9, 0.999), description="decay rates of the two moments")
    eps: float = Field(1e-8, gt=0, description="added to the denominator of the update")


class AdamWSpec(_AnyOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101)."""

    kind: Literal["adamw"]
    weight_decay: float | None = Field(
        0.01, ge=0, description="of every parameter, unless its group says otherwise; null: as of adam"
    )
    betas: tuple[Momentum, Momentum] = Field((0.9, 0.999), description="decay rates of the two moments")
    eps: float = Field(1e-8, gt=0, description="added to the denominator of the update")


class SgdSpec(_AnyOptimizer):
    """Stochastic gradient descent; weight decay is an L2 penalty in the gradient."""

    kind: Literal["sgd"]
    momentum: Momentum = Field(0.0, description="0: none")
    nesterov: bool = Field(False, description="Nesterov momentum; it needs momentum > 0")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is true, but momentum is 0")
        return self


OptimizerSpec = Annotated[AdamSpec | AdamWSpec | SgdSpec, Field(discriminator="kind")]


def num_moments(spec: OptimizerSpec) -> int:
    """Tensors as large as the parameters that the optimizer keeps."""
    return 2 if not isinstance(spec, SgdSpec) else int(spec.momentum > 0)


def learning_rate(spec: OptimizerSpec, calendar: Calendar, steps_done: int) -> float:
    """The rate of the step after `steps_done`: a function of the position alone."""
    schedule = spec.schedule
    if steps_done < schedule.warmup_steps:
        return spec.lr * (steps_done + 1) / schedule.warmup_steps
    match schedule:
        case ConstantSchedule():
            return spec.lr
        case CosineSchedule():
            done, steps = steps_done - schedule.warmup_steps, calendar.last_step - schedule.warmup_steps
            lowest = spec.lr * schedule.final_factor
            return lowest + (spec.lr - lowest) * (1 + math.cos(math.pi * done / steps)) / 2
        case LinearSchedule():
            done, steps = steps_done - schedule.warmup_steps, calendar.last_step - schedule.warmup_steps
            return spec.lr * (1 - (1 - schedule.final_factor) * done / steps)
        case MultistepSchedule():
            epochs_done = calendar.position(steps_done).epoch
            return spec.lr * schedule.gamma ** sum(milestone <= epochs_done for milestone in schedule.milestones)
        case _:
            assert_never(schedule)


def planned_optimizer(spec: OptimizerSpec, last_step: int, weight_decay: float) -> OptimizerSpec:
    """What a plan says of an optimizer, whatever set its defaults. `weight_decay`: where the spec says none.

    Raises a `UserError` if the run ends within the warm-up.
    """
    if spec.schedule.warmup_steps >= last_step:
        raise UserError(
            f"train.optimizer.schedule.warmup_steps is {spec.schedule.warmup_steps}, but each rank takes {last_step}"
            " steps in all",
            fix=f"set train.optimizer.schedule.warmup_steps to less than {last_step}, or train longer",
        )
    planned: TypeAdapter[OptimizerSpec] = TypeAdapter(OptimizerSpec)
    decay = weight_decay if spec.weight_decay is None else spec.weight_decay
    return planned.validate_python(spec.model_dump() | {"weight_decay": decay})


def matching(patterns: tuple[str, ...], names: list[str], key: str) -> list[str]:
    """Names that match any of the shell-style `patterns`, in order.

    Raises a `UserError` for a pattern that matches none, with the names: it would silently change nothing.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"{key} has the pattern {pattern!r}, which matches no trainable parameter of the model:"
                f" {', '.join(names)}",
                fix=f"change or remove the pattern in {key}",
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
