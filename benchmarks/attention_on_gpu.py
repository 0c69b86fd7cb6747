"""GAT and GATv2 with features of edges on a GPU, forward and backward, against PyG's layers, eager and compiled.

    python benchmarks/attention_on_gpu.py [--edges 1000000 20000000] [--precisions fp32 bf16] [--rounds 7]

Every form gets the same weights, nodes and edges (unsorted, 20 to a node), and makes its own self-loops and order of
the edges at each step; bf16 is torch's autocast. Results and gradients are compared first, and the run ends where they
differ. Memory: the most that torch had allocated in a step above what it held before. A form that runs out of memory is
left out, and the entry says so. The floor: what a step must read and write, over the bandwidth of a copy measured on
the same device between the rounds. An entry is written as it ends, and names the card. `--device cpu` runs the same
program where there is no GPU; nothing is measured of memory there.
"""

import argparse
import gc
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import metadata

import torch
from torch import Tensor

from attention import (
    COMPILED,
    DEGREE,
    EAGER,
    KINDS,
    OURS,
    Graph,
    Step,
    best_of,
    compulsory_bytes,
    flop,
    gathered_bytes,
)
from entries import write_entries
from graphmill.base.errors import UserError
from harness import Rounds, Spread, interleave, print_table
from origin import Origin

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Largest difference from PyG's eager layer, of the largest value: sums are made in another order, and in bfloat16 PyG
# rounds what it adds up.
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}


@dataclass(frozen=True)
class Device:
    """What is measured on."""

    torch: torch.device

    @property
    def is_gpu(self) -> bool:
        return self.torch.type == "cuda"

    def wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.torch)

    def about(self) -> dict[str, object]:
        """For every entry."""
        versions = {"torch": torch.__version__, "triton": metadata.version("triton")}
        if not self.is_gpu:
            return {"card": "cpu", **versions}
        properties = torch.cuda.get_device_properties(self.torch)
        capability = f"{properties.major}.{properties.minor}"
        return {
            "card": properties.name,
            "compute_capability": capability,
            "memory_gib": properties.total_memory / 2**30,
            **versions,
        }

    def copy_bandwidth(self) -> float:
        """Bytes read and written per second by torch's copy; the best of three."""
        count = (1 << 28) if self.is_gpu else (1 << 22)
        source, target = (torch.zeros(count, device=self.torch) for _ in range(2))

        def copy() -> None:
            target.copy_(source)
            self.wait()

        return 2 * 4 * count / best_of(copy)


class DeviceStep(Step):
    """Forward and backward on a device, in a format."""

    def __init__(self, kind: str, form: str, graph: Graph, device: Device, precision: str) -> None:
        super().__init__(kind, form, graph)
        self.layer.to(device.torch)
        self.grad = torch.randn(self.grad.shape, generator=torch.Generator().manual_seed(1)).to(device.torch)
        self.device, self.precision = device, precision

    def __call__(self, call: int = 0) -> None:
        with self.autocast():
            super().__call__(call)
        self.device.wait()

    def autocast(self) -> torch.autocast | nullcontext[None]:
        dtype = FORMATS[self.precision]
        return nullcontext() if dtype == torch.float32 else torch.autocast(self.device.torch.type, dtype)

    def results(self) -> dict[str, Tensor]:
        """The output and every gradient."""
        self.layer.zero_grad()
        x = self.graph.x.clone().requires_grad_()
        with self.autocast():
            out = self.layer(x, self.graph.edge_index, self.graph.edge_attr)
            out.backward(self.grad)
        assert x.grad is not None
        gradients = {name: each.grad for name, each in self.layer.named_parameters() if each.grad is not None}
        return {"out": out.detach(), "x": x.grad, **gradients}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--precisions", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this torch cannot use a GPU here → run it on a GPU host, or try it out with --device cpu")
    device = Device(torch.device(options.device))
    forms = [OURS, EAGER] if options.no_compile else [OURS, EAGER, COMPILED]
    slug = re.sub(r"[^a-z0-9]+", "-", str(device.about()["card"]).lower())
    for num_edges in options.edges:
        for kind in options.kinds:
            for precision in options.precisions:
                origin = Origin.now()
                found = measure(kind, num_edges, precision, forms, options.rounds, device)
                write_entries("attention_on_gpu", {f"{kind}-{precision}-{num_edges}-{slug}": (origin, found)})


def measure(
    kind: str, num_edges: int, precision: str, forms: list[str], rounds: int, device: Device
) -> dict[str, object]:
    made = Graph.of(num_edges, "weights")
    graph = replace(made, **{name: getattr(made, name).to(device.torch) for name in ("x", "edge_index", "edge_attr")})
    steps: dict[str, DeviceStep] = {}
    memory: dict[str, float | None] = {}
    left_out: dict[str, str] = {}
    for form in forms:
        step = DeviceStep(kind, form, graph, device, precision)
        try:
            step()  # what is compiled once
            memory[form] = extra_mib(step, device)
            steps[form] = step
        except torch.OutOfMemoryError:
            left_out[form] = "out of memory"
        except UserError as error:
            left_out[form] = error.message
        except torch._dynamo.exc.TorchDynamoException as error:
            left_out[form] = f"does not compile: {type(error).__name__}"
        del step
        release(device)
    difference = differences(steps, precision)
    bandwidths: list[float] = []
    contenders: dict[str, Callable[[int], object]] = {
        **steps,
        "floor": lambda _: bandwidths.append(device.copy_bandwidth()),
    }
    timed = interleave(contenders, rounds=rounds, warmup=2)
    value = FORMATS[precision].itemsize
    floor = {
        "bytes": compulsory_bytes(kind, num_edges, value),
        "gathered_bytes": gathered_bytes(kind, num_edges, value),
        "flop": flop(kind, num_edges),
        "copy_bytes_per_s": Spread.of(bandwidths[2:]),
    }
    report(f"{kind}, {precision}, {num_edges:,} edges, {device.about()['card']}", forms, timed, memory, left_out, floor)
    return {
        "kind": kind,
        "precision": precision,
        "num_nodes": num_edges // DEGREE,
        "num_edges": num_edges,
        "rounds": rounds,
        **device.about(),
        "floor": floor,
        "difference_from_pyg": difference,
        "contenders": {
            form: {
                "seconds": timed.spread(form),
                "ratio_to_graphmill": timed.ratio(form, OURS) if OURS in steps else None,
                "extra_mib": memory[form],
                "share_of_copy_bandwidth": shares(timed.spread(form), floor),
            }
            if form in steps
            else {"left_out": left_out[form]}
            for form in forms
        },
    }


def extra_mib(step: DeviceStep, device: Device) -> float | None:
    """The most that a step has allocated above what was there before it; None: not on a GPU."""
    if not device.is_gpu:
        return None
    step.layer.zero_grad()
    release(device)
    before = torch.cuda.memory_allocated(device.torch)
    torch.cuda.reset_peak_memory_stats(device.torch)
    step()
    return (torch.cuda.max_memory_allocated(device.torch) - before) / 2**20


def release(device: Device) -> None:
    gc.collect()
    if device.is_gpu:
        torch.cuda.empty_cache()


def differences(steps: dict[str, DeviceStep], precision: str) -> float | None:
    """The largest difference of any result from PyG's, of its largest value; None where one of them is left out."""
    if OURS not in steps or EAGER not in steps:
        return None
    worst = 0.0
    mine = steps[OURS].results()
    for name, other in steps[EAGER].results().items():
        worst = max(worst, float((mine[name].float() - other.float()).abs().max() / other.float().abs().max()))
    if not worst <= TOLERANCE[precision]:
        raise SystemExit(f"results differ from PyG's by {worst:.2g} of the largest → no time is worth taking")
    return worst


def shares(seconds: Spread, floor: dict[str, object]) -> dict[str, float]:
    """Bytes over the median time, of the bandwidth of a copy: each byte once, and with the rows of neighbours."""
    bandwidth = floor["copy_bytes_per_s"]
    assert isinstance(bandwidth, Spread)
    moved = {"each_once": floor["bytes"], "gathered": floor["gathered_bytes"]}
    return {name: float(str(amount)) / seconds.median / bandwidth.median for name, amount in moved.items()}


def report(
    title: str, forms: list[str], timed: Rounds, memory: dict[str, float | None], left_out: dict[str, str],
    floor: dict[str, object],
) -> None:  # fmt: skip
    table = []
    for form in forms:
        if form in left_out:
            table.append([form, left_out[form], "", "", "", ""])
            continue
        extra = memory[form]
        of_copy = shares(timed.spread(form), floor)
        ratio = "" if OURS in left_out else str(timed.ratio(form, OURS))
        of_bytes = [f"{100 * of_copy[name]:.0f} %" for name in ("each_once", "gathered")]
        table.append([form, str(timed.spread(form)), ratio, "" if extra is None else f"{extra:,.0f}", *of_bytes])
    columns = ["form", "s", "time ÷ graphmill (quartiles)", "extra MiB", "of copy, bytes once", "with neighbours' rows"]
    print_table(title, columns, table)
    bandwidth = floor["copy_bytes_per_s"]
    assert isinstance(bandwidth, Spread)
    rows = [
        [name, f"{float(str(floor[key])) / 1e6:,.0f} MB", f"{1e3 * float(str(floor[key])) / bandwidth.median:.2f}"]
        for name, key in (("bytes, each once", "bytes"), ("rows of neighbours gathered", "gathered_bytes"))
    ]
    print_table(f"floor, at {bandwidth.median / 1e9:,.0f} GB/s of a copy", ["what", "amount", "ms"], rows)


if __name__ == "__main__":
    main()
