"""What a plan says of a GPU: where its graph would lie, and what that leaves for a step. By formula, never measured."""

from graphmill.base.errors import UserError
from graphmill.spec.device_memory import GIB, LaidOut, StepMemory, lay_out, room_of
from graphmill.spec.modelled import copies_of_model, sizes_of
from graphmill.spec.plan import Plan


def laid_out(plan: Plan, gpu_gib: float | None = None) -> LaidOut | None:
    """Where the graph of `plan` lies, by what it gives the graph, or on a GPU of `gpu_gib`; None: neither is said.

    Raises `UserError` where that cannot be: it does not fit, or no GPU can draw of such a graph.
    """
    given: float | None = getattr(plan.task, "gpu_graph_gib", None)
    if gpu_gib is None and given is None:
        return None
    sizes = sizes_of(plan)
    if sizes.resident is None:
        raise UserError(
            f"--gpu-memory is given, but {plan.task.kind} has no graph that a GPU could draw of",
            fix="leave --gpu-memory out",
        )
    steps = plan.calendar.length(0)
    if gpu_gib is None:
        assert given is not None  # one of the two is
        return lay_out(sizes.resident, int(given * GIB), steps=steps, batch_bytes=sizes.batch_bytes)
    if sizes.num_parameters is None:
        raise UserError(
            "the model is user-defined, and only once it is built its parameters are known: what it leaves of a GPU is"
            " not",
            fix="leave --gpu-memory out, and set train.gpu_graph_gib to what the graph may have",
        )
    model = 4 * sizes.num_parameters * copies_of_model(plan)
    room = room_of(int(gpu_gib * GIB), StepMemory(model, sizes.batch_bytes, sizes.activation_bytes, plan.prefetch))
    asked = room if given is None else int(given * GIB)
    if asked > room:
        raise UserError(
            f"train.gpu_graph_gib is {given:g}, and a GPU of {gpu_gib:g} GiB has {room / GIB:.2f} GiB left for it"
            " beside a step, by formula",
            fix=f"set train.gpu_graph_gib={int(room / GIB * 100) / 100:g} or less",
        )
    return lay_out(sizes.resident, asked, steps=steps, batch_bytes=sizes.batch_bytes)
