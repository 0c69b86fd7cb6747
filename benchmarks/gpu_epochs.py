"""The parts of on_gpu.py that measure: steps beside PyG's forms, and epochs of Reddit- and products-shaped graphs."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from gpu_made import PRODUCTS, REDDIT, MadeStore, Shape, access_to, made, plan_of, task_of
from graphmill.access.local import LocalAccess
from graphmill.base.errors import UserError
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.nn.graphsage import GraphSage
from graphmill.sample.neighbor import WholeSampler
from graphmill.spec.node_models import GraphSageSpec
from graphmill.spec.plan import Plan
from graphmill.train.rounds import Pace
from harness import Rounds, interleave
from problem import FANOUTS

Found = dict[str, object]
ROOM = 0.6  # of a GPU's memory for the graph; a step of these takes a few GiB
WARM_STEPS = 10
PROFILED_STEPS = 50


def device_of(rehearse: bool) -> torch.device:
    """The first GPU, or the CPU in a rehearsal."""
    if rehearse:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SystemExit("this torch cannot use a GPU here → run it on a GPU host, or give --rehearse")
    return torch.device("cuda", 0)


def model_of(plan: Plan) -> GraphSage:
    torch.manual_seed(plan.seed)
    known, model = task_of(plan).dataset, task_of(plan).model
    assert isinstance(model, GraphSageSpec)
    return GraphSage(
        in_channels=known.num_features, hidden_channels=model.hidden_channels, out_channels=known.num_classes,
        num_layers=2, dropout=0.5, input_dropout=0.0, seed=plan.seed, training_dtype=torch.float32,
    )  # fmt: skip


def reddit(rehearse: bool) -> Found:
    return epochs(REDDIT.divided(200) if rehearse else REDDIT, rehearse)


def products(rehearse: bool) -> Found:
    return epochs(PRODUCTS.divided(200) if rehearse else PRODUCTS, rehearse)


def epochs(shape: Shape, rehearse: bool) -> Found:
    """An epoch by loaders of the CPU, and by those of the device, after some steps to warm up."""
    device, began = device_of(rehearse), time.perf_counter()
    store = made(shape)
    plan = plan_of(shape, threads=torch.get_num_threads(), batch_size=128 if rehearse else 1024)
    found: Found = {"shape": asdict(shape), "made_s": round(time.perf_counter() - began, 1)}
    is_gpu = device.type == "cuda"
    room = int(ROOM * torch.cuda.get_device_properties(device).total_memory) if is_gpu else 1 << 32
    for name, graph_bytes in (("loaders of the device", room), ("loaders of the CPU", None)):
        try:
            found[name] = epoch_of(store, plan, device, graph_bytes)
        except UserError as error:
            found[name] = {"left_out": error.message}
    return found


def epoch_of(store: MadeStore, plan: Plan, device: torch.device, graph_bytes: int | None) -> Found:
    """Seconds of an epoch of training, how busy the device was, and the peak of memory.

    `share_in_steps`: of the epoch, from the beginning to the end of a step by the device's clock, so that a kernel that
    is launched late within a step counts as work. `share_in_kernels`: of some more steps, in which a kernel ran by
    torch's profiler, which makes launches slower; copies do not count.
    """
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    access, model = access_to(store, plan, device, graph_bytes), model_of(plan).to(device)
    access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    laid_out_s = time.perf_counter() - began
    clock = StepClock(device)
    train(access.batches(0, 0), model, StepClock(device), WARM_STEPS)
    seconds = train(access.batches(1, 0), model, clock, None)
    peak_mib = torch.cuda.max_memory_allocated(device) / 2**20 if is_gpu else None
    try:
        share_in_kernels: float | str = kernels_share(access, model, device)
    except (RuntimeError, ValueError) as error:  # a host may forbid profiling; the other figures stand
        share_in_kernels = f"not measured: {error}"
    draws = None if graph_bytes is None else access.settle_draws()
    return {
        "epoch_s": seconds,
        "steps": clock.steps,
        "laid_out_s": laid_out_s,
        "share_in_steps": clock.share_in_steps(seconds),
        "share_in_kernels": share_in_kernels,
        "peak_mib": peak_mib,
        **({} if draws is None else {"draws": asdict(draws)}),
    }


def kernels_share(access: LocalAccess, model: GraphSage, device: torch.device) -> float:
    """Of the time from the first kernel of some steps to the last one's end; on the CPU of operators."""
    is_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU]) as profiled:
        train(access.batches(2, 0), model, StepClock(device), PROFILED_STEPS)
    kind = DeviceType.CUDA if is_gpu else DeviceType.CPU
    return covered(
        (each.time_range.start, each.time_range.end)
        for each in profiled.events() or ()
        if each.device_type == kind and not each.name.startswith(("Memcpy", "Memset"))
    )


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The share of the time from the first beginning to the last end in which there is a span, or several."""
    ordered = sorted(spans)
    if not ordered:
        raise ValueError("the profiler saw no kernel")
    total, reached = 0.0, ordered[0][0]
    for begin, end in ordered:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total / (reached - ordered[0][0])


class StepClock:
    """How long the device stood between steps: from the end of one until it could begin with the next."""

    def __init__(self, device: torch.device) -> None:
        self.is_gpu, self.pace, self.steps = device.type == "cuda", Pace(device), 0
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.cpu_s = 0.0

    def step(self, run: Callable[[], object]) -> None:
        self.steps += 1
        if not self.is_gpu:
            began = time.perf_counter()
            run()
            self.cpu_s += time.perf_counter() - began
            return
        begins, ends = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begins.record()
        run()
        ends.record()
        self.events.append((begins, ends))
        self.pace.step_queued()

    def share_in_steps(self, seconds: float) -> float:
        """Of the wall time; launches within a step that leave the device without work are not seen."""
        in_steps = sum(begins.elapsed_time(ends) for begins, ends in self.events) / 1e3 if self.is_gpu else self.cpu_s
        return in_steps / seconds


def train(batches, model: GraphSage, clock: StepClock, steps: int | None) -> float:
    """Seconds of so many steps; None: of all."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    began = time.perf_counter()
    for batch in islice(batches, steps):

        def one(batch=batch) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.labels).backward()
            optimizer.step()

        clock.step(one)
    batches.close()
    if clock.is_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def step(rehearse: bool) -> Found:
    """Phases of a step on a Reddit-shaped graph, and PyG's step of neighbourhoods that were sampled for it before."""
    device, rounds = device_of(rehearse), 3 if rehearse else 15
    shape = REDDIT.divided(200) if rehearse else REDDIT
    store, plan = made(shape), plan_of(shape, threads=1, batch_size=128 if rehearse else 1024, prefetch=0)
    shares = [store.train[number :: rounds + 2][: plan.batch_size] for number in range(rounds + 2)]
    seeds = [Seeds(0, number, SeedIds(np.ascontiguousarray(share))) for number, share in enumerate(shares)]
    contenders, left_out = dict[str, Callable[[int], object]](), dict[str, str]()
    _ours(store, plan, device, seeds, contenders, left_out)
    _pygs(store, plan, device, seeds, contenders, left_out)
    waited = {name: _waiting(run, device) for name, run in contenders.items()}
    timed: Rounds = interleave(waited, rounds=rounds, warmup=2)
    return {
        "shape": asdict(shape),
        "seconds": {name: asdict(timed.spread(name)) for name in waited},
        "left_out": left_out,
        "pyg": "features on the device; its sampling is not in its time",
    }


def _waiting(run: Callable[[int], object], device: torch.device) -> Callable[[int], None]:
    def waited(number: int) -> None:
        run(number)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return waited


def _ours(store, plan, device, seeds, contenders, left_out) -> None:
    """Sampling, making a batch, and computing on it; by the CPU's loaders and by the device's."""
    model = model_of(plan).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def compute(batch) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(batch), batch.labels).backward()
        optimizer.step()

    is_gpu = device.type == "cuda"
    room = int(ROOM * torch.cuda.get_device_properties(device).total_memory) if is_gpu else 1 << 32
    for name, graph_bytes in (("CPU", None), ("device", room)):
        try:
            access = access_to(store, plan, device, graph_bytes)
        except UserError as error:
            left_out[f"loaders of the {name}"] = error.message
            continue
        access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
        sampled = [access.sampler.sample(each) for each in seeds]

        def batch(number: int, access=access, sampled=sampled):
            return next(access.collected([sampled[number]], [], False)).to(device)

        ready = [batch(0)] if name == "CPU" else []
        contenders[f"sampling, {name}"] = lambda number, access=access: access.sampler.sample(seeds[number])
        contenders[f"gather, {name}"] = batch
        if ready:
            contenders["step, batch at hand"] = lambda number, ready=ready: compute(ready[0])
        contenders[f"step, all of it, {name}"] = lambda number, access=access: compute(
            next(access.collected([access.sampler.sample(seeds[number])], [], False)).to(device)
        )


def _pygs(store, plan, device, seeds, contenders, left_out) -> None:
    """PyG's bipartite step in two forms of edges."""
    try:
        from torch_geometric.nn import SAGEConv
    except ImportError:
        left_out["PyG"] = "torch_geometric is not installed"
        return
    known = task_of(plan).dataset
    convs = torch.nn.ModuleList([SAGEConv(known.num_features, 256), SAGEConv(256, known.num_classes)]).to(device)
    optimizer = torch.optim.Adam(convs.parameters(), lr=0.003, fused=True)
    x, labels = torch.from_numpy(store.features.x).to(device), torch.from_numpy(store.labels).to(device)
    sampler = WholeSampler(store.known, FANOUTS, plan.seed, num_threads=1, resample=False)
    drawn = [sampler.sample(each) for each in seeds]
    for form in ("edge_index", "CSR"):
        prepared = [_for_pyg(each, form, device) for each in drawn]

        def compute(number: int, prepared=prepared) -> None:
            nodes, first, second, rows1, rows2 = prepared[number]
            optimizer.zero_grad()
            rows = x.index_select(0, nodes)
            h = F.dropout(convs[0]((rows, rows[:rows1]), first).relu(), 0.5)
            F.cross_entropy(convs[1]((h, h[:rows2]), second), labels[nodes[:rows2]]).backward()
            optimizer.step()

        contenders[f"PyG's step, batch at hand ({form})"] = compute


def _for_pyg(sampled, form: str, device: torch.device):
    nodes, hops = torch.from_numpy(np.asarray(sampled.node_ids)).to(device), sampled.num_nodes_per_hop
    rows1, rows2, block = hops[0] + hops[1], hops[0], sampled.blocks[0]
    first = _edges(block.indptr[: rows1 + 1], block.indices, len(nodes), form, device)
    second = _edges(block.indptr[: rows2 + 1], block.indices, rows1, form, device)
    return nodes, first, second, rows1, rows2


def _edges(indptr, indices, num_columns: int, form: str, device: torch.device) -> Tensor:
    pointers, sources = torch.from_numpy(np.asarray(indptr)), torch.from_numpy(indices[: indptr[-1]]).long()
    if form == "edge_index":
        targets = torch.repeat_interleave(torch.arange(len(pointers) - 1), pointers.diff())
        return torch.stack([sources, targets]).to(device)
    size = (len(pointers) - 1, num_columns)
    return torch.sparse_csr_tensor(pointers, sources, torch.ones(len(sources)), size=size).to(device)
