"""Whether the GPUs that a job may get have the kernels of fused attention."""

from collections.abc import Iterator

from graphmill.config.problems import Problem
from graphmill.runtime.gpus import capability_of, kernels_text
from graphmill.spec.attention import gpu_clash, is_fused, width_clash
from graphmill.spec.experiment import Experiment
from graphmill.spec.job.limits import ResourceRequest, fitting_kinds
from graphmill.spec.job.site import Site


def _gpu_types(experiment: Experiment, site: Site, asked: ResourceRequest) -> list[str]:
    """The GPUs, by Slurm's name, that fused attention may come to run on; none where there is no such thing."""
    if not asked.gpus or experiment.train.device == "cpu" or not is_fused(getattr(experiment, "model", None)):
        return []
    kinds = fitting_kinds(
        site, constraint=asked.constraint, slurm_partition=asked.slurm_partition, gpu_type=asked.gpu_type
    )
    types = {kind.gpu_type for kind in kinds.values() if kind.gpu_type and kind.gpus >= asked.gpus}
    return sorted(types or ({asked.gpu_type} if asked.gpu_type else set()))


def kernel_problems(experiment: Experiment, site: Site, asked: ResourceRequest) -> Iterator[Problem]:
    """A problem where attention runs on none of the GPUs that the job may get."""
    precision = experiment.train.precision
    types = _gpu_types(experiment, site, asked)
    wide = width_clash(getattr(experiment, "model", None)) if types else None
    clashes = [gpu_clash(precision, gpu, capability_of(gpu)) or wide for gpu in types]
    first = clashes[0] if clashes and None not in clashes else None
    if first is not None:
        yield Problem("model.attention", first[0].removeprefix("model.attention "), first[1])


def kernel_remarks(experiment: Experiment, site: Site, asked: ResourceRequest) -> Iterator[str]:
    """Say in which formats attention runs on the GPUs that the job may get."""
    types = _gpu_types(experiment, site, asked)
    if types:
        told = "; ".join(kernels_text(gpu, capability_of(gpu)) for gpu in types)
        yield f"attention is fused, by Triton on GPUs, in these formats: {told}"
