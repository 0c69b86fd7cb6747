"""`plan`: every choice made, and what it implies, before anything runs."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.api.planning import RUN_ID_OF_A_PLAN, experiment_of, planned
from graphmill.base.amounts import clock_of
from graphmill.base.names import counted
from graphmill.cli.options import DatasetRoot, ExperimentName, Json, Overrides, Ranks
from graphmill.cli.show import Cell, print_facts, print_json, print_line
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.estimate.trial import Trial
    from graphmill.spec.device_memory import LaidOut
    from graphmill.spec.modelled import MemoryParts
    from graphmill.spec.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=ShortFlagsCommand, epilog=short_flags_text())(plan)


def plan(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    override: Overrides = None,
    root: DatasetRoot = None,
    trial: Annotated[
        int | None,
        typer.Option(
            "--trial", metavar="STEPS", show_default=False, help="Run this many steps here and measure time and memory."
        ),
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory",
            metavar="GIB",
            show_default=False,
            help="Say where the graph would lie for a GPU of so much memory; none need be here.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what an experiment resolves to.

    Every choice, steps, rounds, and modelled bytes and memory. Nothing is trained, unless a trial is asked for; a model
    or loss of one's own is tried on a made-up batch.

    \b
    Example:
      graphmill plan debian-packages-sage --ranks 4 -O train.sync.scheme=local_sgd -O train.sync.every=8
      graphmill plan traffic-metr-la --trial 10
      graphmill plan -O dataset.name=ogbn-products --gpu-memory 80

    \b
    An experiment file:
      name: cora-sage
      dataset: {name: planetoid/cora}
      model: {hidden_channels: 64, num_layers: 2}
      train: {epochs: 50, batch_size: 64, num_neighbors: [10, 10], sync: {scheme: local_sgd, every: 4}}
    """
    overridden = experiment_of(experiment, with_short_flags(ctx, override or []), ranks)
    resolved = planned(overridden, root, RUN_ID_OF_A_PLAN, to_train=trial is not None)
    from graphmill.spec.modelled import laid_out

    on_device = laid_out(resolved, gpu_memory)
    if trial is None:
        show_plan(resolved, json=json, on_device=on_device)
        return
    from graphmill.cluster.launch.trial import try_out

    show_plan(resolved, json=json, trial=try_out(resolved, trial), on_device=on_device)


def show_plan(
    resolved: "Plan", *, json: bool, trial: "Trial | None" = None, on_device: "LaidOut | None" = None
) -> None:
    """Print a plan, its modelled figures, where its graph would lie for a GPU, and the figures of a trial."""
    from graphmill.spec.differences import flat
    from graphmill.spec.modelled import modelled

    figures = modelled(resolved)
    if json:
        measured = {} if trial is None else {"trial": {**asdict(trial), "total_h": trial.total_h}}
        placed = {} if on_device is None else {"on_device": on_device}
        print_json({"plan": resolved, "modelled": figures, **placed, **measured})
        return
    choices = [(key, _text(value)) for key, value in flat(resolved).items() if key != "run_id"]
    choices += [("on each host", _on_each_host(resolved))] if resolved.roles else []
    kernels = _attention_kernels(resolved)
    print_facts([*choices, *([] if kernels is None else [("attention kernels", kernels)])], title="plan")
    print_line("")
    syncs: list[tuple[str, Cell]] = [  # of one rank there are none
        ("rounds per epoch", figures.rounds_per_epoch),
        ("synchronisations", figures.num_syncs),
        ("MiB per sync (fp32)", figures.mib_per_sync_fp32),
        ("MiB in all (fp32)", figures.mib_total_fp32),
        (f"MiB per sync ({resolved.sync.payload} payload)", figures.payload_mib_per_sync),
        (f"MiB in all ({resolved.sync.payload} payload)", figures.payload_mib_total),
    ]
    print_facts(
        [
            ("seeds seen", figures.seeds_seen),
            ("parameters", figures.num_parameters),
            *(syncs if resolved.ranks > 1 else []),
            ("nodes per batch, at most", figures.nodes_per_batch),
            ("MiB of memory per rank, at most", figures.memory_per_rank_mib),
            ("  of the model, with gradients and moments", figures.memory.model_mib),
            ("  of batches under way", figures.memory.batches_mib),
            ("  of a step's activations, or an evaluation", figures.memory.activations_mib),
            ("  of what it keeps about all data", figures.memory.index_mib),
            *([("MiB of memory per sampler, at most", figures.memory_per_sampler_mib)] if resolved.roles else []),
            ("MiB of data, mapped once per host", _data_mib(figures.memory)),
            *([("  of it held, never dropped", figures.memory.shared_mib)] if figures.memory.shared_mib else []),
            *([("not counted", figures.memory.not_counted)] if figures.memory.not_counted else []),
        ],
        title="modelled (by formula, not measured)",
    )
    if on_device is not None:
        print_line("")
        print_facts(_placement_facts(on_device), title="the graph on a GPU (by formula, not measured)")
    if trial is not None:
        print_line("")
        print_facts(_trial_facts(trial), title=f"measured here, by a trial of {trial.steps} steps")


def _placement_facts(on_device: "LaidOut") -> list[tuple[str, Cell]]:
    """What lies where, and what crosses the bus."""
    rows = on_device.rows_on_device + on_device.rows_page_locked
    share = 100 * on_device.rows_on_device / rows if rows else 100.0
    return [
        ("GiB of GPU memory for the graph", round(on_device.graph_gib, 2)),
        ("topology", f"{on_device.topology_on.replace('_', '-')}, {on_device.topology_mib:,.0f} MiB"),
        (_rows_title(on_device), f"{on_device.rows_on_device:,} of {rows:,} ({share:.1f} %)"),
        ("rows of features page-locked", f"{on_device.rows_page_locked:,}"),
        ("MiB on the GPU", round(on_device.device_mib, 1)),
        ("MiB page-locked, on the host", round(on_device.page_locked_mib, 1)),
        ("MiB over the bus per step, at most", round(on_device.bus_mib_per_step, 1)),
        ("MiB over the bus per epoch, at most", round(on_device.bus_mib_per_epoch, 1)),
        ("  per step if the CPU drew and gathered", round(on_device.host_bus_mib_per_step, 1)),
        *([] if on_device.hidden_rows_on is None else [("hidden rows of exact evaluation", _hidden_rows(on_device))]),
    ]


def _rows_title(on_device: "LaidOut") -> str:
    if on_device.num_sharing > 1:
        return f"rows of features, over {on_device.num_sharing} GPUs of a host"
    return "rows of features on the GPU, the hottest"


def _hidden_rows(on_device: "LaidOut") -> str:
    where = {"device": "on the GPU", "page_locked": "page-locked"}[on_device.hidden_rows_on or "device"]
    return f"{where}, {on_device.hidden_rows_mib:,.0f} MiB at most"


def _data_mib(memory: "MemoryParts") -> Cell:
    """Size of the data in MiB, or words where the size is not known; the line below in the table says why."""
    if memory.data_mib is not None:
        return memory.data_mib
    return "not known" if memory.not_counted else "not modelled"


def _on_each_host(resolved: "Plan") -> str:
    """Which processes run where."""
    world = resolved.world
    role_ranks = [world.role_rank(process) for process in range(world.processes)]
    each = world.processes_per_host
    hosts = [role_ranks[first : first + each] for first in range(0, len(role_ranks), each)]
    counts = [
        tuple(sum(role_rank.role == role for role_rank in host) for role in ("trainer", "sampler")) for host in hosts
    ]
    said = [
        " and ".join(counted(n, noun) for n, noun in zip(count, ("rank", "sampler"), strict=True) if n)
        for count in counts
    ]
    if len(set(said)) == 1:
        return said[0]
    found = [(count, said.count(count)) for count in dict.fromkeys(said)]
    return "; ".join(f"{counted(number, 'host')} of {count}" for count, number in found)


def _attention_kernels(resolved: "Plan") -> str | None:
    """Where fused attention will run; None: there is none."""
    from graphmill.runtime.gpus import capability_of, kernels_text
    from graphmill.runtime.machine import machine_info
    from graphmill.spec.attention import is_fused

    if not is_fused(getattr(resolved.task, "model", None)):
        return None
    if resolved.device == "cpu":
        return "native, in fp32, on the CPU"
    names = dict.fromkeys(gpu.name for gpu in machine_info().gpus)
    told = "; ".join(kernels_text(name, capability_of(name)) for name in names)
    return f"Triton's, on {told or 'GPUs that are not here'}"


def _trial_facts(trial: "Trial") -> list[tuple[str, Cell]]:
    low, high = trial.step_spread_s
    baselines = trial.baselines_s.values()
    return [
        ("s per step", f"{trial.step_s:.3g} ({low:.3g} to {high:.3g})"),
        ("s per evaluation, val and test", f"{trial.val_s:.3g} and {trial.test_s:.3g}"),
        ("time of all steps", clock_of(3600 * trial.train_h)),
        ("time of all evaluations", clock_of(3600 * trial.evaluate_h)),
        *([("time of baselines, once for all runs on the data", clock_of(sum(baselines)))] if baselines else []),
        ("time in all, without start-up and checkpoints", clock_of(3600 * trial.total_h)),
        ("MiB of memory per rank", round(trial.peak_rss_mib, 1)),
    ]


def _text(value: object) -> Cell:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or None
    return value if isinstance(value, str | bool | None) else str(value)
