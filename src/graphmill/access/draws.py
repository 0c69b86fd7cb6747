"""Draws of a graph that a device holds: by the device, or by the CPU for it, whichever makes batches faster.

Both give bit-identical batches, so each rank decides for itself. An attempt that resumes keeps to what the first
one found: were a GPU's sums others after all, the run would still be the same as without the break.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from graphmill.graph.sampled import AnySeeds, Sampled
from graphmill.sample.collect import NeighbourSource
from graphmill.spec.gpu_graph import DrawnBy, GpuDraws

NUM_MEASURED: Final = 5  # batches of each way, after one that is not: its memory and kernels are new


@dataclass(frozen=True, slots=True)
class SettledDraws:
    """Device or CPU that draws, and what was measured for it: medians of one batch, s; None: nothing was."""

    by: DrawnBy
    asked: GpuDraws
    device_s: float | None = None
    cpu_s: float | None = None

    def describe(self) -> str:
        """Sentence for the log: who draws neighbourhoods, and why."""
        if self.device_s is None or self.cpu_s is None:
            why = "as this run began" if self.asked == "measured" else "as train.gpu_draws says"
            return f"neighbourhoods are drawn by the {self.by}, {why}"
        times = f"{1e3 * self.device_s:.2f} ms by the device, {1e3 * self.cpu_s:.2f} ms by the CPU"
        return f"neighbourhoods are drawn by the {self.by}: a batch takes {times} (medians of {NUM_MEASURED})"


@dataclass(slots=True)
class EitherSampler:
    """A sampler on the device and one on the CPU, of which one draws; until something was measured the device's."""

    ways: Mapping[DrawnBy, NeighbourSource]
    requested: GpuDraws
    by: DrawnBy = field(init=False)

    def __post_init__(self) -> None:
        self.by = "cpu" if self.requested == "cpu" else "device"

    def sample(self, seeds: AnySeeds) -> Sampled:
        """Sample with the one of the two samplers that draws now."""
        return self.ways[self.by].sample(seeds)

    def settle(self, make: Callable[[int], float], num_steps: int, before: DrawnBy | None) -> SettledDraws:
        """Decide who draws from here on.

        Args:
            make: makes the batch of a step, from seeds until it is on the device; returns how long that took, s.
            num_steps: that there are.
            before: who drew in earlier attempts; None: there was none.
        """
        if self.requested != "measured":
            return SettledDraws(self.by, self.requested)
        if before is not None:
            self.by = before
            return SettledDraws(self.by, self.requested)
        taken: dict[DrawnBy, list[float]] = {"device": [], "cpu": []}
        for turn in range(1 + NUM_MEASURED):
            for way, durations in taken.items():
                self.by = way
                durations.append(make(turn % num_steps))
        device, cpu = taken["device"][1:], taken["cpu"][1:]
        self.by = faster(device, cpu)
        return SettledDraws(self.by, self.requested, median(device), median(cpu))


def faster(device_s: Sequence[float], cpu_s: Sequence[float]) -> DrawnBy:
    """Choose the faster by medians; of equals the device, which leaves the CPU alone."""
    return "device" if median(device_s) <= median(cpu_s) else "cpu"
