"""Who draws the neighbourhoods of a graph that lies for a GPU. Nothing here needs torch."""

from typing import Final, Literal

DrawnBy = Literal["device", "cpu"]
GpuDraws = Literal["measured", "device", "cpu"]

ABOUT_GPU_DRAWS: Final = (
    "who draws neighbours of a graph that lies for a GPU, and gathers their rows: device; cpu; or measured: whichever "
    "makes batches faster when a run begins. Batches are the same to the bit"
)
