"""Who draws the neighbourhoods of a graph that lies for a GPU, and who has its rows. Nothing here needs torch."""

from typing import Final, Literal

DrawnBy = Literal["device", "cpu"]
GpuDraws = Literal["measured", "device", "cpu"]
GpuRows = Literal["own", "presample", "wholegraph"]

ABOUT_GPU_DRAWS: Final = (
    "who draws neighbours of a graph that lies for a GPU, and gathers their rows: device; cpu; or measured: whichever "
    "makes batches faster when a run begins. Batches are the same to the bit"
)
ABOUT_GPU_ROWS: Final = (
    "where rows of features of a graph that lies for GPUs are: own: each GPU holds those that are likeliest in a batch "
    "(vip), and others are page-locked; presample: the same, of those that most batches of the run's first epoch read, "
    "which is sampled before and counted; wholegraph: spread over the GPUs of a host by NVIDIA's WholeGraph (package "
    "pylibwholegraph), which nobody has tried with graphmill yet. Batches are the same to the bit"
)
