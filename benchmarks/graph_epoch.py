"""A training epoch of the attention model of CAN windows, against the same model in PyG with its DataLoader.

    python benchmarks/graph_epoch.py [--rounds 5] [--threads 2] [--batch-size 64] [--scale large] [--without-compiled]

Windows of generated captures (`graphmill prepare synthetic/can`). Both sides read all training windows once, in
shuffled batches, and take a step of Adam after each; in eval mode they give the same logits for the same weights, which
is checked first, but for the term of deviations from benign traffic, which only graphmill's has. Contenders, in turns
in one process:
  graphmill          the task's own batches (cut out of a flat store while the step before computes) and its model
  PyG                GATConv with edge_dim, JumpingKnowledge, a list of Data, DataLoader in this process
  PyG, 1 worker      the same, batches made by a worker process
  PyG compiled       the first with torch.compile(dynamic=True), the graph breaks and all
The share of the epoch that a side waits for its batches is measured in the same epochs.

The floor is printed beside them: the multiply-adds of the layers of attention, forward and for both gradients, over the
rate of this project's own product on matrices of a batch, measured in the same run. No ratio can be higher than a
peer's seconds divided by it, however little the rest takes, for both sides compute these products in float32.
"""

import argparse
import copy
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, JumpingKnowledge, global_mean_pool

from graphmill import _native
from graphmill.graph.batch import GraphBatch
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.schemes import Step
from graphmill.tasks.build import build_task
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.ids import NUM_ID_COLUMNS, HashedIds, ids_of
from graphmill.tasks.intrusion.page.models import NUM_FEATURES, CanGatSpec
from graphmill.tasks.intrusion.task import Intrusion
from graphmill.train.learner import Learner
from harness import CACHE, Rounds, interleave, print_table, write_result
from origin import Origin

WARMUP = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--scale", choices=("large", "small"), default="large")
    parser.add_argument("--seconds", type=int, default=60, help="of each generated capture")
    parser.add_argument("--without-compiled", action="store_true")
    options = parser.parse_args()
    origin = Origin.now()
    torch.set_num_threads(options.threads)
    _native.keep_freed_memory()
    plan = planned(options)
    ours = Ours(plan)
    listed = as_list(ours.task)
    check_same(ours.task, listed)
    sides: dict[str, Side] = {"graphmill": ours}
    for name, workers, is_compiled in (("PyG", 0, False), ("PyG, 1 worker", 1, False), ("PyG compiled", 0, True)):
        if not (is_compiled and options.without_compiled):
            sides[name] = Peer(plan, listed, workers, is_compiled=is_compiled)
    rounds = interleave({name: timed(side) for name, side in sides.items()}, rounds=options.rounds, warmup=WARMUP)
    result = summed_up(rounds, sides, len(listed), options) | {"floor": floor(ours, listed, options)}
    write_result("graph_epoch", result, origin)
    rows = [
        [
            name,
            str(rounds.spread(name)),
            f"{each['windows_per_s']:,.0f}",
            str(rounds.ratio(name, "graphmill")),
            f"{each['waiting_share']:.1%}",
        ]
        for name, each in result["sides"].items()
    ]
    least = result["floor"]
    note = f"{least['products']:.3g} operations at {least['per_s']:.3g}/s"
    most = result["sides"]["PyG"]["seconds"]["median"] / least["seconds"]
    rows.append([f"floor: {note}", f"{least['seconds']:.3g}", "", f"{least['seconds'] / ours_s(result):.2f}", ""])
    rows.append(["PyG ÷ floor: no ratio can be higher", "", "", f"{most:.3g}", ""])
    title = f"an epoch of {len(listed):,} windows, batches of {options.batch_size}, {options.threads} threads"
    print_table(title, ["", "s", "windows/s", "÷ graphmill", "waits for batches"], rows)


def planned(options: argparse.Namespace) -> Plan:
    """The plan of a run that was made here, of one epoch."""
    data, logs, name = CACHE / "can", CACHE / "can-runs", f"can-{options.seconds}s"
    if not (data / name).exists():
        graphmill("prepare", "synthetic/can", "--as", name, "-o", f"seconds={options.seconds}", "--dataset-root", data)
    run = f"epoch-{options.scale}-{options.batch_size}-{options.threads}-{time.time_ns()}"
    sets = {
        "dataset.name": name,
        "model.scale": options.scale,
        "train.batch_size": options.batch_size,
        "train.epochs": 1,
        "train.threads": options.threads,
        "train.device": "cpu",
    }
    words = [word for key, value in sets.items() for word in ("-O", f"{key}={value}")]
    graphmill("train", "can-gat", "--run-id", run, *words, "--dataset-root", data, "--logs-root", logs)
    return RunFolder.open(logs / run).read_plan()


def graphmill(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "graphmill.cli", *map(str, words)], check=True)


@dataclass
class Side:
    """One contender: an epoch, and the seconds that it waited for batches in each epoch."""

    waiting_s: list[float] = field(default_factory=list, init=False)
    epoch: int = field(default=0, init=False)

    def train(self) -> None:
        """One epoch."""
        raise NotImplementedError

    def waited(self, batches: Iterable[Any]) -> Iterator[Any]:
        """`batches`, and the time until each of them came is counted."""
        total, iterator = 0.0, iter(batches)
        while True:
            begin = time.perf_counter()
            batch = next(iterator, None)
            total += time.perf_counter() - begin
            if batch is None:
                break
            yield batch
        self.waiting_s.append(total)


class Ours(Side):
    """The task and the learner as a rank has them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        group = Group(0, 1, torch.device("cpu"))
        task = build_task(plan, group)
        assert isinstance(task, Intrusion)
        self.task, self.learner = task, Learner.build(plan, task.model, group)

    def train(self) -> None:
        with closing(self.task.batches(0, 0)) as batches:
            for step, batch in enumerate(self.waited(batches)):
                self.task.loss_sum(batch).backward()  # type: ignore[no-untyped-call]
                weight = self.task.weights(0, step)[0]
                self.learner.update(Step(weight, weight, closes_round=True), 0)


class PygGat(nn.Module):
    """`tasks.intrusion.nn.gat.CanGat` written with PyG's parts; ids are hashed by the same code."""

    def __init__(self, spec: CanGatSpec, like: CanGat) -> None:
        super().__init__()
        self.nodes, self.edges, self.spec = like.nodes, like.edges, spec
        self.ids = HashedIds(spec.id_rows, spec.id_channels, hidden=spec.id_dropout)
        self.layers = nn.ModuleList(
            GATConv(
                layer.in_channels,
                spec.hidden_channels,
                spec.heads,
                dropout=spec.attention_dropout,
                edge_dim=spec.edge_dim or None,
            )
            for layer in like.layers
        )
        self.join = JumpingKnowledge("cat")
        self.stack = copy.deepcopy(like.stack)
        self.load_state_dict({k: v for k, v in like.state_dict().items() if k in self.state_dict()})

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        attr = None if self.edges is None else self.edges(edge_attr)
        h = torch.cat([self.ids(ids_of(x)), self.nodes(x[:, NUM_ID_COLUMNS:])], dim=1)
        read_out = []
        for layer in self.layers:
            h = F.dropout(F.relu(layer(h, edge_index, attr)), self.spec.dropout, self.training)
            read_out.append(h)
        h = global_mean_pool(self.join(read_out), batch, num_graphs)
        for linear in self.stack[:-1]:
            h = F.dropout(F.relu(linear(h)), self.spec.dropout, self.training)
        return self.stack[-1](h)  # type: ignore[no-any-return]


class Peer(Side):
    """PyG's loader and layers, with the optimizer's settings of the plan."""

    def __init__(self, plan: Plan, listed: list[Data], workers: int, *, is_compiled: bool) -> None:
        super().__init__()
        task = build_task(plan, Group(0, 1, torch.device("cpu")))
        assert isinstance(task, Intrusion)
        self.model = peer_of(task)
        self.forward: Callable[..., Tensor] = torch.compile(self.model, dynamic=True) if is_compiled else self.model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=plan.optimizer.lr, fused=True)
        self.loader = DataLoader(
            listed, plan.batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )

    def train(self) -> None:
        for batch in self.waited(self.loader):
            self.optimizer.zero_grad()
            logits = self.forward(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)
            F.cross_entropy(logits, batch.y).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()


def peer_of(task: Intrusion) -> PygGat:
    assert isinstance(task.task_plan.model, CanGatSpec)
    assert isinstance(task.model.inner, CanGat)
    return PygGat(task.task_plan.model, task.model.inner)


def as_list(task: Intrusion) -> list[Data]:
    """The training windows as PyG keeps them: an object for each, with tensors of its own."""
    found = []
    for batch in task.feed.in_order(task.train_ids, lambda: None):
        nodes, edges = batch.node_offsets.tolist(), np.diff(edge_offsets(batch)).tolist()
        first = 0
        for row, count in enumerate(edges):
            here = slice(first, first + count)
            found.append(
                Data(
                    x=batch.x[nodes[row] : nodes[row + 1]].clone(),
                    edge_index=batch.edge_index[:, here] - nodes[row],
                    edge_attr=batch.edge_attr[here].clone(),
                    y=batch.labels[row : row + 1].clone(),
                )
            )
            first += count
    return found


def edge_offsets(batch: GraphBatch) -> np.ndarray:
    """Edges stand in the order of their targets, so those of a graph are beside each other."""
    return np.searchsorted(batch.edge_index[1].numpy(), batch.node_offsets.numpy())


def check_same(task: Intrusion, listed: list[Data]) -> None:
    """The same logits, for weights that are not the initial ones of the table (zeros)."""
    inner = task.model.inner
    assert isinstance(inner, CanGat)
    with torch.no_grad():
        inner.ids.table.normal_()
        peer = peer_of(task).eval()
        ours = next(iter(task.feed.in_order(task.train_ids[:64], lambda: None)))
        theirs = next(iter(DataLoader(listed[:64], 64)))
        inner.eval()
        found = peer(theirs.x, theirs.edge_index, theirs.edge_attr, theirs.batch, theirs.num_graphs)
        term = inner.by_reference(inner.reference.of_windows(ours).float().unsqueeze(1))
        difference = (inner(ours) - F.pad(term, (1, 0)) - found).abs().max().item()
        inner.train()
        inner.ids.table.zero_()
    if difference > 1e-4:
        raise SystemExit(f"the two models differ by {difference}")


def floor(ours: Ours, listed: list[Data], options: argparse.Namespace) -> dict[str, float]:
    """What the dense products of the layers of attention take, if nothing else did."""
    spec, num_nodes = ours.task.task_plan.model, sum(len(each.x) for each in listed)
    assert isinstance(spec, CanGatSpec)
    widths = [spec.id_channels + NUM_FEATURES, *[spec.width] * (spec.num_layers - 1)]
    products = 3 * 2.0 * num_nodes * sum(widths) * spec.width  # forward, of inputs, of weights
    rows = num_nodes * options.batch_size // len(listed)
    x, weight = (np.ones((count, spec.width), np.float32) for count in (rows, spec.width))
    out = np.empty((rows, spec.width), np.float32)
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        _native.linear(x, weight, None, out, False, None, 0.0, options.threads)
        times.append(time.perf_counter() - begin)
    per_s = 2.0 * rows * spec.width**2 / float(np.median(times))
    return {"products": products, "per_s": per_s, "seconds": products / per_s}


def ours_s(result: dict[str, Any]) -> float:
    """The median of an epoch."""
    return float(result["sides"]["graphmill"]["seconds"]["median"])


def timed(side: Side) -> Callable[[int], object]:
    def run(_: int) -> None:
        side.train()

    return run


def summed_up(rounds: Rounds, sides: dict[str, Side], num_windows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Of each side: seconds of an epoch, windows a second, the share of waiting, the ratio to ours."""
    found = {}
    for name, side in sides.items():
        shares = [waited / whole for waited, whole in zip(side.waiting_s[WARMUP:], rounds.seconds[name], strict=True)]
        found[name] = {
            "seconds": asdict(rounds.spread(name)),
            "windows_per_s": num_windows / rounds.spread(name).median,
            "ratio_to_graphmill": asdict(rounds.ratio(name, "graphmill")),
            "waiting_share": float(np.median(shares)),
        }
    return {
        "sides": found,
        "num_windows": num_windows,
        "batch_size": options.batch_size,
        "scale": options.scale,
        "threads": options.threads,
        "foreign_cores": rounds.foreign_cores,
    }


if __name__ == "__main__":
    main()
