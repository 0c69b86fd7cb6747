"""One training step of DCRNN on 207 sensors, against torch-geometric-temporal's cell in the same arrangement.

    python benchmarks/traffic_step.py --peer FOLDER [--rounds 7] [--threads 2] [--adjacency FILE.npz]

207 sensors, batch 64, 12 steps in and 12 out, 64 units, 2 layers, diffusion of 2 steps in both directions, two input
channels, float32; forward, MAE, backward, Adam. FOLDER is where `pip install --no-deps --target FOLDER
torch-geometric-temporal` put it: only its file of the DCRNN cell is loaded. The peer's cell is called as its own
BatchedDCRNN calls it, with the graph of a whole batch made once. In each round both take a step, and the machine's rate
of the product that a gate makes is measured too.

Then the memory of the data path: a process of its own reads every batch of an epoch of [34272, 207] readings, and its
peak is compared with the size of that array.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from graphmill import _native
from graphmill.tasks.traffic.nn.dcgru import RandomWalks
from graphmill.tasks.traffic.nn.model import Dcrnn
from harness import Rounds, Spread, interleave, print_table, write_result
from origin import Origin
from peers.plain_traffic import PeerDcrnn, load_peer

NODES, BATCH, INPUTS, HORIZON, CHANNELS, UNITS, LAYERS, STEPS = 207, 64, 12, 12, 2, 64, 2, 2
SHARED = Path(__file__).parents[2] / "shared" / "data" / "traffic" / "metr_la_adj.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="folder of torch-geometric-temporal")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--adjacency", type=Path, default=SHARED, help=".npz with adj; made up where it is not there")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--windows", type=int, default=BATCH, help="in a batch")
    parser.add_argument("--readings", type=int, default=34_272, help="of the data path's array, in time")
    options = parser.parse_args()
    origin = Origin.now()
    if options.memory_of:
        sys.stdout.write(json.dumps(data_path_memory(options.memory_of)) + "\n")
        return
    torch.set_num_threads(options.threads)
    _native.keep_freed_memory()
    adjacency, graph = load_adjacency(options.adjacency)
    torch.manual_seed(0)
    batch = torch.randn(options.windows, INPUTS, NODES, CHANNELS), torch.randn(options.windows, HORIZON, NODES)
    ours = Step(our_model(adjacency), batch)
    contenders: dict[str, Callable[[int], object]] = {"graphmill": ours}
    if options.peer:
        contenders["torch-geometric-temporal"] = Step(
            PeerDcrnn(load_peer(options.peer), adjacency, options.windows, UNITS), batch
        )
    rates: list[float] = []
    contenders["product"] = lambda _: rates.append(product_rate(options.threads, options.windows))
    rounds = interleave(contenders, rounds=options.rounds, warmup=1)
    result = report(rounds, rates[1:], graph, options.threads, options.windows)
    write_result("traffic_step", result | {"data_path": run_data_path(options.readings)}, origin)


def load_adjacency(path: Path) -> tuple[np.ndarray, str]:
    if path.is_file():
        with np.load(path, allow_pickle=False) as archive:
            return archive["adj"], "METR-LA"
    rng = np.random.default_rng(0)
    made_up = (rng.random((NODES, NODES)) * (rng.random((NODES, NODES)) < 0.035)).astype(np.float32)
    return made_up + np.eye(NODES, dtype=np.float32), "synthetic"


def our_model(adjacency: np.ndarray) -> nn.Module:
    edges = np.nonzero(adjacency)
    walks = RandomWalks.of(np.stack(edges).astype(np.int32), adjacency[edges], NODES, STEPS)
    return Dcrnn(
        walks,
        horizon=HORIZON,
        rnn_units=UNITS,
        num_layers=LAYERS,
        cl_decay_steps=0,
        seed=0,
        in_channels=CHANNELS,
    )


class Step:
    """Forward, loss, backward, update."""

    def __init__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
        self.model, self.batch = model, batch
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def __call__(self, _: int) -> None:
        inputs, targets = self.batch
        self.optimizer.zero_grad()
        (self.model(inputs) - targets).abs().mean().backward()
        self.optimizer.step()


def product_rate(threads: int, batch: int) -> float:
    """GFLOP/s of the native product of one gate, the best of three."""
    m, k, n = batch * NODES, 5 * 2 * UNITS, 2 * UNITS
    a, w, out = torch.randn(m, k), torch.randn(n, k), torch.empty(m, n)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        _native.linear(a, w, None, out, False, None, 0.0, threads)
        seconds.append(time.perf_counter() - begin)
    return 2 * m * k * n / min(seconds) / 1e9


def gflop(batch: int) -> float:
    """Products of one step: forward, weight gradients, input gradients; 2 per multiply-add."""
    slots, rows = 1 + 2 * STEPS, batch * NODES
    widths = [CHANNELS, *[UNITS] * (LAYERS - 1)] * INPUTS + [1, *[UNITS] * (LAYERS - 1)] * HORIZON
    return 3 * sum(2 * rows * slots * (UNITS + width) * 3 * UNITS for width in widths) / 1e9


def report(rounds: Rounds, rates: list[float], graph: str, threads: int, batch: int) -> dict[str, object]:
    names = [name for name in rounds.seconds if name != "product"]
    table = []
    for name in names:
        spread = rounds.spread(name)
        table.append(
            [name, f"{spread.median:.2f}", f"{batch / spread.median:.1f}", str(rounds.ratio(name, "graphmill"))]
        )
    title = f"one step on a road graph ({graph}), {threads} threads; others used {rounds.foreign_cores:.2f} cores"
    print_table(title, ["form", "s", "samples/s", "time ÷ graphmill (quartiles)"], table)
    achieved = [gflop(batch) / seconds for seconds in rounds.seconds["graphmill"]]
    share = Spread.of([rate / possible for rate, possible in zip(achieved, rates, strict=True)])
    print_table(
        f"{gflop(batch):.0f} GFLOP a step",
        ["GFLOP/s of the step", "of the native product", "share"],
        [[str(Spread.of(achieved)), str(Spread.of(rates)), str(share)]],
    )
    return {
        "graph": graph,
        "batch": batch,
        "threads": threads,
        "rounds": len(rates),
        "foreign_cores": rounds.foreign_cores,
        "contenders": {
            name: {
                "seconds": rounds.spread(name),
                "samples_per_s": batch / rounds.spread(name).median,
                "ratio_to_graphmill": rounds.ratio(name, "graphmill"),
            }
            for name in names
        },
        "gflop": gflop(batch),
        "gflops_achieved": Spread.of(achieved),
        "gflops_product": Spread.of(rates),
        "share_of_product": share,
    }


def run_data_path(num_steps: int) -> dict[str, float]:
    from graphmill.tasks.traffic.data.generate import generate
    from graphmill.tasks.traffic.data.store import write_traffic

    with tempfile.TemporaryDirectory() as folder:
        write_traffic(generate(num_sensors=NODES, num_steps=num_steps), Path(folder) / "store")
        command = [sys.executable, __file__, "--memory-of", str(Path(folder) / "store")]
        result: dict[str, float] = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    rows = [[f"{result['raw_mib']:.1f}", f"{result['peak_mib']:.1f}", f"{result['peak_over_raw']:.2f}"]]
    print_table("data path, one epoch of batches", ["raw array MiB", "peak above start MiB", "peak ÷ raw"], rows)
    return result


def data_path_memory(path: Path) -> dict[str, float]:
    """Peak resident memory, mapped pages included, above what the process had before it opened the store."""
    from graphmill.sample.prefetch import prefetch
    from graphmill.sample.schedule import SeedSchedule
    from graphmill.spec.calendar import EqualBatches
    from graphmill.tasks.traffic.data.store import TrafficStore
    from graphmill.tasks.traffic.data.windows import TrafficWindows
    from graphmill.tasks.traffic.page import TrafficTrainSpec

    prefetched = TrafficTrainSpec().prefetch  # as training does unless told otherwise
    torch.zeros(8).sum()
    start = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    store = TrafficStore.open(path)
    windows = TrafficWindows(store, INPUTS, HORIZON)
    batches = EqualBatches(len(windows.starts), BATCH, 1)  # all windows: the whole array is read
    schedule = SeedSchedule.equal(windows.starts, batches, 0)
    steps = range(batches.num_steps)
    for _ in prefetch(lambda: (windows.batch(schedule.seeds(0, step, 0)) for step in steps), prefetched):
        pass
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    raw = store.values.nbytes
    return {"raw_mib": raw / 2**20, "peak_mib": (peak - start) / 2**20, "peak_over_raw": (peak - start) / raw}


if __name__ == "__main__":
    main()
