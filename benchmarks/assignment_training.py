"""A training step on assignment problems, against the step that the task comes from, written from its description.

    python benchmarks/assignment_training.py [--rounds 5] [--size 512] [--batch-size 8] [--threads 1]

Both sides read the same prepared instances (float64, uniform), make batches, and take a step of AdamW after each.
Contenders, in turns in one process:
  graphmill    the task's own batches and OneGNN as the recipe assignment-one-gnn has it, with all of its sweeps
  the original its OneGNN (hidden 128, 3 layers: its default): 21 features of a row with two sorts of the matrix, u,
               then v by the min-trick; its loss: a greedy primal solution of each instance in numpy (all pairs in order
               of their costs), the dual objective, a hinge that is always 0, and 0.1 of the squared distance to the
               oracle's u
  its network  the same without the greedy solution, whose value has no gradient: what a careful user would have run
The floor is the bytes that one step has to read and write once, over the rate of a plain copy measured beside it.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attention import copy_bandwidth
from graphmill import _native
from graphmill.spec.load import load_experiment
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.sync.schemes import Step
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.task import Assignment
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment
from graphmill.train.learner import Learner
from harness import CACHE, Spread, interleave, print_table, write_result
from origin import Origin
from peers.plain_assignment import OriginalOneGnn, row_features

STEPS = 3  # of our side in a round; the original takes one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    origin = Origin.now()
    torch.set_num_threads(options.threads)
    _native.keep_freed_memory()
    plan = planned(options)
    ours, original, network = Ours(plan), Original(plan, greedy=True), Original(plan, greedy=False)
    bandwidths: list[float] = []

    def measure(_: int) -> None:
        bandwidths.append(copy_bandwidth())

    contenders: dict[str, Callable[[int], object]] = {
        "graphmill": lambda _: ours.steps(STEPS),
        "the original": lambda _: original.step(),
        "its network": lambda _: network.step(),
        "copy": measure,
    }
    rounds = interleave(contenders, rounds=options.rounds, warmup=1)
    count = {"graphmill": STEPS * options.batch_size}
    rates = {
        name: Spread.of([count.get(name, options.batch_size) / each for each in rounds.seconds[name]])
        for name in ("graphmill", "the original", "its network")
    }
    ratios = {
        name: Spread.of(
            [
                STEPS * theirs / own
                for theirs, own in zip(rounds.seconds[name], rounds.seconds["graphmill"], strict=True)
            ]
        )
        for name in ("the original", "its network")
    }
    # Read in float64, written in float32, and read by every sweep: 1 + soft sweeps + rounds, and the last one.
    pairs_of_step = options.batch_size * options.size**2
    model = ours.task.task_plan.model
    sweeps = 2 + model.soft_sweeps + model.rounds  # type: ignore[union-attr]  # the recipe's is OneGNN
    floor_bytes = pairs_of_step * (8 + 4 + 4 * sweeps)
    bandwidth = Spread.of(bandwidths[1:])
    result: dict[str, Any] = {
        "size": options.size,
        "batch_size": options.batch_size,
        "threads": options.threads,
        "instances_per_s": rates,
        "ratio_to_graphmill": ratios,
        "sweeps": sweeps,
        "floor": {"bytes": floor_bytes, "copy_bytes_per_s": bandwidth},
        "foreign_cores": rounds.foreign_cores,
    }
    write_result("assignment_training", result, origin)
    rows = [[name, str(rates[name]), str(ratios.get(name, ""))] for name in rates]
    rows.append(["floor", f"{options.batch_size / (floor_bytes / bandwidth.median):,.0f}", ""])
    title = (
        f"training on uniform instances of {options.size}, batches of {options.batch_size}, {options.threads} threads"
    )
    print_table(title, ["", "instances/s", "time ÷ graphmill"], rows)


def planned(options: argparse.Namespace) -> Plan:
    """The recipe's plan for one size of uniform instances, which are made if they are not there."""
    root, name = CACHE / "assignment", f"uniform-{options.size}"
    if not (root / name).exists():
        made = f"sizes=[{options.size}]", "families=[uniform]", "instances=64"
        words = ["prepare", "synthetic/assignment", "--as", name, "--dataset-root", str(root)]
        words += [word for each in made for word in ("-o", each)]
        subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True)
    sets = {"dataset.name": name, "train.batch_size": options.batch_size, "train.threads": options.threads}
    sets |= {"train.device": "cpu", "train.ranks": 1, "train.epochs": 1000}
    experiment = load_experiment("assignment-one-gnn", [f"{key}={value}" for key, value in sets.items()])
    machine = MachineInfo(num_cores=options.threads, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id="benchmark", machine=machine)


class Ours:
    """The task and the learner as a rank has them."""

    def __init__(self, plan: Plan) -> None:
        group = Group(0, 1, torch.device("cpu"))
        task = build_task(plan, group)
        assert isinstance(task, Assignment)
        self.task, self.learner = task, Learner.build(plan, task.model, group)
        self.batches, self.position = self._endless(), (0, 0)

    def _endless(self) -> Iterator[Any]:
        for epoch in range(self.task.plan.calendar.num_epochs):
            for step, batch in enumerate(self.task.batches(epoch, 0)):
                self.position = (epoch, step)
                yield batch

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.task.loss_sum(next(self.batches)).backward()  # type: ignore[no-untyped-call]
            weight = self.task.weights(*self.position)[0]
            self.learner.update(Step(weight, weight, closes_round=True), 0)


class Original:
    """The step of the trainer that the task comes from."""

    def __init__(self, plan: Plan, *, greedy: bool) -> None:
        torch.manual_seed(0)
        self.store = AssignmentStore.open(Path(plan.dataset.path))
        self.ids, self.size, self.at = self.store.instances("train"), plan.batch_size, 0
        self.model, self.greedy = OriginalOneGnn(hidden=128, layers=3), greedy
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4, weight_decay=1e-4)

    def step(self) -> None:
        picked = [int(self.ids[(self.at + place) % len(self.ids)]) for place in range(self.size)]
        self.at += self.size
        costs = torch.from_numpy(np.stack([self.store.cost(i) for i in picked]).astype(np.float32))
        oracle = torch.from_numpy(np.stack([self.store.u(i) for i in picked]).astype(np.float32))
        u = self.model(torch.stack([row_features(each) for each in costs]))
        v = (costs - u.unsqueeze(2)).min(dim=1).values
        dual = u.sum(1) + v.sum(1)
        infeasible = F.relu(u.unsqueeze(2) + v.unsqueeze(1) - costs).mean(dim=(1, 2))
        primal = torch.tensor([greedy_cost(each.numpy()) for each in costs]) if self.greedy else torch.zeros(self.size)
        loss = (primal - dual + infeasible).mean() + 0.1 * F.mse_loss(u, oracle)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def greedy_cost(costs: np.ndarray) -> float:
    """The cost of taking pairs in order of their costs, each row and column once."""
    n = len(costs)
    rows, columns, total, left = np.zeros(n, bool), np.zeros(n, bool), 0.0, n
    for place in np.argsort(costs, axis=None):
        row, column = divmod(int(place), n)
        if not rows[row] and not columns[column]:
            rows[row] = columns[column] = True
            total += float(costs[row, column])
            left -= 1
            if not left:
                break
    return total


if __name__ == "__main__":
    main()
