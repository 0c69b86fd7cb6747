"""Ranks that infer without sampling on a graph in parts, and compare their logits with those of the graph stored whole.

python exact.py MEETING_FILE OUT_FOLDER DATASET_ROOT NUM_PARTS BLOCK_BYTES all|few
"""

import itertools
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from graphmill.access import hidden_rows, layerwise_parts
from graphmill.base.errors import UserError
from graphmill.graph.sampled import NodeIds
from graphmill.runtime.process import leave
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, ROOT, NUM_PARTS, BLOCK_BYTES = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
WAYS = sys.argv[6]
CPU = torch.device("cpu")


def task_of(dataset: str, group: Group, *, placement: str = "per_rank", held: float = 0.05, **form: Any) -> Any:
    train = {"ranks": group.world_size, "batch_size": 13, "epochs": 1, "device": "cpu", "threads": 1}
    model = {"kind": "graphsage", "hidden_channels": 24, "num_layers": 3, **form}
    raw = {"dataset": {"name": dataset}, "model": model, "train": {**train, "num_neighbors": [4, 3, 2]}}
    if dataset.startswith("parts/"):
        raw["partition"] = {"placement": placement, "cache": {"policy": "vip", "ratio": held}}
    machine = MachineInfo(num_cores=4, num_gpus=0)
    plan = plan_experiment(inline_experiment(raw, "exact.py"), dataset_root=ROOT, run_id="run", machine=machine)
    task = build_task(plan, group)
    assert isinstance(task, NodeClassification)
    task.model.eval()
    return task


def same(dataset: str, placement: str, **form: Any) -> dict[str, int]:
    """Of how many of its own nodes of a split the logits are those of the whole graph, and how many there are."""
    parted = task_of(f"parts/{dataset}/{NUM_PARTS}-ldg", Group(RANK, RANKS, CPU), placement=placement, **form)
    whole, asked = task_of(dataset, Group(0, 1, CPU), **form), []
    nodes = np.asarray(whole.access.nodes_in("test"))
    hidden_rows.BLOCK_BYTES = layerwise_parts.BLOCK_BYTES = BLOCK_BYTES * (100 if dataset == "debian-packages" else 1)
    mine, found = parted.exact_logits(nodes, lambda: asked.append(1))
    order, expected = whole.exact_logits(nodes, lambda: None)
    assert np.array_equal(order, nodes)
    equal = (found == expected[torch.from_numpy(np.searchsorted(nodes, mine))]).all(dim=1)
    return {"equal": int(equal.sum()), "mine": len(mine), "all": len(nodes), "blocks": len(asked)}


def received() -> dict[str, float]:
    """What an evaluation says that all ranks received, and what rows and ids must cross for it; of all ranks, bytes."""
    parted = task_of(f"parts/synthetic/sbm/{NUM_PARTS}-ldg", Group(RANK, RANKS, CPU), held=0)
    whole = task_of("synthetic/sbm", Group(0, 1, CPU))
    parted.epoch_facts()
    parted.evaluate("test")
    said = parted.evaluation_facts()["eval_mib"] * (1 << 20)
    topology = whole.access.store.topology(undirected=True)
    owner, width = parted.access.source.shares.owner_of(NodeIds(np.arange(len(topology.indptr) - 1))), 24
    rows, must = np.asarray(whole.access.nodes_in("test")), 0
    for bytes_of_neighbour in (4 * width + 16, 4 * width + 16, 4 * parted.task_plan.dataset.num_features):
        targets = np.repeat(rows, topology.indptr[rows + 1] - topology.indptr[rows])
        sources = np.concatenate([topology.indices[topology.indptr[r] : topology.indptr[r + 1]] for r in rows])
        is_remote = owner[targets] != owner[sources]
        must += bytes_of_neighbour * len(np.unique(np.stack([owner[targets], sources])[:, is_remote], axis=1).T)
        rows = np.union1d(rows, sources)
    return {"said": said, "must": must}


def without_room() -> str:
    """What is said where the last rank's files may not grow."""
    hidden_rows.BLOCK_BYTES = layerwise_parts.BLOCK_BYTES = BLOCK_BYTES
    parted = task_of(f"parts/synthetic/sbm/{NUM_PARTS}-ldg", Group(RANK, RANKS, CPU))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if RANK == RANKS - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        parted.exact_logits(np.asarray(parted.access.nodes_in("test")), lambda: None)
    except UserError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return ""


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    datasets, placements = ("synthetic/sbm", "edgy"), ("per_rank", "per_host")
    ways = zip(datasets, placements, strict=True) if WAYS == "few" else itertools.product(datasets, placements)
    found: dict[str, Any] = {f"{dataset}, {placement}": same(dataset, placement) for dataset, placement in ways}
    found["sparse features"] = same("debian-packages", "per_rank")
    found["a head on all layers"] = same("synthetic/sbm", "per_rank", residual=True, jumping_knowledge="cat")
    told = {"same": found, "without room": without_room(), "received": received()}
    (OUT / f"{RANK}.json").write_text(json.dumps(told))
    dist.barrier()  # whoever leaves first takes its connections along
    dist.destroy_process_group()
    leave(0)  # as ranks do: torch's threads need not have gone when python ends, and then it aborts


main()
