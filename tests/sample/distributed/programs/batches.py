"""Ranks that make the batches of runs on a graph in parts, and compare each with that of the graph stored whole.

python batches.py MEETING_FILE OUT_FOLDER DATASET_ROOT NUM_PARTS EPOCHS [few]
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from graphmill.access.parts import GraphInParts
from graphmill.graph.batch import DenseRows, MiniBatch, SelfAndMean
from graphmill.graph.features import Features, SparseFeatures
from graphmill.graph.sampled import NodeIds, Seeds
from graphmill.runtime.process import leave
from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.schedule import in_windows
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

sys.path.append(str(Path(__file__).parents[4] / "benchmarks"))
from replay import Moved, needs_of_rank, steps_of, with_lookahead

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, ROOT, NUM_PARTS, EPOCHS = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
FEW = [("replicated", "equal"), ("partitioned", "owner")]
WAYS = FEW if "few" in sys.argv else list(itertools.product(("replicated", "partitioned"), ("equal", "owner")))
CPU = torch.device("cpu")
CACHES: dict[str, dict[str, Any]] = {
    "none": {"policy": "none"},
    **{policy: {"policy": policy, "ratio": 0.05} for policy in ("degree", "hotness", "vip", "presample")},
    "lookahead": {"policy": "lookahead", "window": 3},
    "lookahead with a budget": {"policy": "lookahead", "window": 3, "horizon": 2, "ratio": 0.3},
}
# Of the policies that hold the same rows throughout, one stands for the others among few: one_cache.py has them all.
POLICIES = [each for each in CACHES if "few" not in sys.argv or each not in ("degree", "hotness", "presample")]
MODELS = {
    "whole batches resampled": {"kind": "graphsage", "hidden_channels": 4},
    "subgraphs": {"kind": "gat", "hidden_channels": 4, "heads": 1},
}


def planned(dataset: str, model: dict[str, Any], partition: dict[str, Any], **of_dataset: Any) -> Plan:
    train = {"ranks": RANKS, "batch_size": 13, "epochs": EPOCHS, "num_neighbors": [4, 3], "device": "cpu", "threads": 1}
    raw = {"dataset": {"name": dataset, **of_dataset}, "model": model, "train": train, "partition": partition}
    machine = MachineInfo(num_cores=4, num_gpus=0)
    return plan_experiment(inline_experiment(raw, "batches.py"), dataset_root=ROOT, run_id="run", machine=machine)


def tensors(batch: MiniBatch) -> dict[str, Any]:
    inputs = batch.inputs
    own = {"x": inputs.x} if isinstance(inputs, DenseRows | SelfAndMean) else {
        "indptr": inputs.indptr, "indices": inputs.indices, "values": inputs.values,
    }  # fmt: skip
    blocks = {
        f"block {i} {name}": getattr(b, name) for i, b in enumerate(batch.blocks) for name in ("indptr", "indices")
    }
    edges = {"edge_attr": batch.edge_attr, "hops": torch.tensor([*batch.num_nodes_per_hop, *batch.num_edges_per_hop])}
    return {**own, **blocks, **edges, "node_ids": batch.node_ids, "labels": batch.labels}


def differences(task: NodeClassification, whole: NodeClassification) -> Iterator[str]:
    """Where a batch is not what the whole graph gives for its seeds, or not all seeds of a step are there."""
    steps = task.plan.calendar.steps_in(0)
    for epoch in range(EPOCHS):
        for step, batch in enumerate(task.batches(epoch, 0)):
            assert isinstance(batch.seeds, Seeds)
            sampled = whole.access.sampler.sample(batch.seeds)
            wanted = whole.access.collector.collect(sampled, *whole.access.source.tables.fetch([sampled]))
            found, expected = tensors(batch), tensors(wanted)
            for name, value in expected.items():
                if not torch.equal(found[name], value):
                    yield f"epoch {epoch}, step {step}: {name} {found[name]} for {value}"
            everyone = [torch.zeros(13 * RANKS, dtype=torch.int64) - 1 for _ in range(RANKS)]
            mine = torch.cat([torch.from_numpy(batch.seeds.ids), everyone[0][len(batch.seeds.ids) :]])
            dist.all_gather(everyone, mine)
            got = np.sort(np.concatenate([ids[ids >= 0].numpy() for ids in everyone]))
            if not np.array_equal(got, np.sort(np.concatenate(whole.schedule.shares(epoch, step)))):
                yield f"epoch {epoch}, step {step}: seeds {got}"
        if step + 1 != steps:
            yield f"epoch {epoch} has {step + 1} batches of {steps}"


def cells(dataset: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for (topology, seeds), policy in itertools.product(WAYS, POLICIES):
        cache = CACHES[policy]
        partition = {"topology": topology, "seeds": seeds, "placement": "per_rank", "cache": cache}
        for words, model in MODELS.items():
            if words == "subgraphs" and policy != "none" and "lookahead" not in policy:
                continue  # rows are held alike, however they are drawn
            yield f"{dataset}, {topology}, {seeds}, {policy}, {words}", model, partition


def compare() -> dict[str, Any]:
    found: dict[str, Any] = {}
    group = Group(RANK, RANKS, CPU)
    for dataset in ("synthetic/sbm", "debian-packages"):
        of_dataset = {"train_limit": 150}
        for words, model, partition in cells(dataset):
            parted = build_task(planned(f"parts/{dataset}/{NUM_PARTS}-ldg", model, partition, **of_dataset), group)
            whole = build_task(planned(dataset, model, {}, **of_dataset), group)
            found[words] = compared(parted, whole)
    for undirected, (words, model, partition) in itertools.product((True, False), cells("edgy")):
        if "subgraphs" in words:  # the model that reads features of edges
            asked = {"edge_features": "edge_attr", "undirected": undirected}
            parted = build_task(planned(f"parts/edgy/{NUM_PARTS}-ldg", model, partition, **asked), group)
            whole = build_task(planned("edgy", model, {}, **asked), group)
            words = f"{words}, {'un' if undirected else ''}directed"
            found[words] = compared(parted, whole)
    return found


def compared(parted: NodeClassification, whole: NodeClassification) -> dict[str, Any]:
    source = parted.access.source
    assert isinstance(source, GraphInParts)
    before = source.wire.num_swaps  # the cache is filled
    found = {"differences": list(differences(parted, whole))[:3], **parted.epoch_facts()}
    found["swaps of an epoch"] = (source.wire.num_swaps - before) / EPOCHS
    found["steps"] = parted.plan.calendar.steps_in(0)
    if (lookahead := source.tables.lookahead) is not None:
        counts = source.tables.fetcher.counts
        replayed = replayed_counts(parted, whole, lookahead.planner)
        found["counted"] = {
            "remote, reused, fetched, bytes": [
                counts.needed - counts.local,
                counts.reused,
                counts.fetched,
                counts.fetched_bytes,
            ],
            "replayed": [replayed.remote, replayed.hits, replayed.fetched, replayed.fetched_bytes],
        }
    return found


def replayed_counts(parted: NodeClassification, whole: NodeClassification, planner: Lookahead) -> Moved:
    """What this rank's batches of all epochs should have moved, without any of them."""
    steps, shares = parted.plan.calendar.steps_in(0), parted.access.source.shares
    is_remote = shares.locate(NodeIds(np.arange(shares.book.num_nodes))).servers != RANK
    needs = needs_of_rank(
        whole.access.sampler, parted.schedule, is_remote, rank=RANK, part=0, steps=steps_of(range(EPOCHS), steps)
    )
    windows = [in_windows(range(e * steps, (e + 1) * steps), parted.access.source.window) for e in range(EPOCHS)]
    return with_lookahead(needs, planner, windows, bytes_of_rows(whole.access.source.features))


def bytes_of_rows(features: Features) -> int | np.ndarray:
    """As they travel: of sparse ones the length, and 8 bytes a value."""
    if isinstance(features, SparseFeatures):
        return 4 + 8 * np.diff(features.indptr)
    return features.num_features * features.x.dtype.itemsize


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    (OUT / f"{RANK}.json").write_text(json.dumps(compare()))
    dist.barrier()  # whoever leaves first takes its connections along
    dist.destroy_process_group()
    leave(0)  # as ranks do: torch's threads need not have gone when python ends, and then it aborts


if __name__ == "__main__":
    main()
