"""What of a run is profiled: a few of the first steps of an attempt, first timed, then traced."""

from typing import Final, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec

_TIMED: Final = 20


class ProfilerSpec(Spec):
    """Options of `train.profile`."""

    wait: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="steps before the traced ones, with torch's profiler off: the phases of all but the first are "
        f"timed; auto: {_TIMED}, fewer if the run is short",
    )
    warmup: PositiveInt = Field(2, description="steps after those, with torch's profiler on, that are not kept")
    shapes: bool = Field(False, description="keep the shapes of operators' inputs in traces")
    memory: bool = Field(False, description="keep allocations in traces, and the peak of torch's tensors")
    stacks: bool = Field(
        False, description="keep the Python calls in traces: slows the traced steps, much larger traces"
    )
    max_mib: PositiveInt = Field(
        64, description="of a rank's trace before compression: of a larger one calls, shapes and the shortest are cut"
    )
    memory_snapshot: bool = Field(
        False, description="record the CUDA allocations of the traced steps, for https://pytorch.org/memory_viz"
    )


class ProfilePlan(Spec):
    """What is profiled, in a plan: `wait` steps of each rank are timed, then `steps` are traced after a warm-up."""

    steps: int
    wait: int
    warmup: int
    shapes: bool = False
    memory: bool = False
    stacks: bool = False
    max_mib: int
    memory_snapshot: bool = False
    ends_run: bool = Field(False, description="the run stops once the profile is written: that of `graphmill profile`")

    @property
    def last_step(self) -> int:
        """Steps of each rank until it is complete."""
        return self.wait + self.warmup + self.steps


def planned_profile(
    spec: ProfilerSpec, *, steps: int, last_step: int, device: str, ends_run: bool = False
) -> ProfilePlan:
    """The profile of a run of `last_step` steps of each rank, or a `UserError` if the run is too short for it."""
    if spec.memory_snapshot and device != "cuda":
        raise UserError(
            f"train.profiler.memory_snapshot records CUDA allocations, and train.device is {device}",
            fix="leave it out; train.profiler.memory=true has the peak of tensors on a CPU",
        )
    traced = spec.warmup + steps
    wait = max(1, min(_TIMED, last_step - traced)) if spec.wait == "auto" else spec.wait
    if wait + traced > last_step:
        raise UserError(
            f"a profile takes {wait} + {spec.warmup} + {steps} steps of each rank (train.profiler.wait,"
            f" train.profiler.warmup, train.profile_steps), and the run has {last_step}",
            fix="fewer of them, or more epochs; `graphmill profile` makes as many steps as it needs",
        )
    chosen = spec.model_dump(exclude={"wait"})
    return ProfilePlan(steps=steps, wait=wait, ends_run=ends_run, **chosen)
