"""Four ranks on two hosts, of which each holds its hot rows once: batches, and where the rows lie.

python one_cache.py MEETING_FILE OUT_FOLDER DATASET_ROOT NUM_PARTS EPOCHS [few]
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from batches import CACHES, CPU, NUM_PARTS, OUT, RANK, RANKS, WAYS, differences, planned

from graphmill.runtime.process import leave
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task

MODEL = {"kind": "graphsage", "hidden_channels": 4}


def memories() -> dict[str, str]:
    """Of this process, by the place and number of each: where shared memory is mapped."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:graphmill" in line]
    return {f"{device} {inode}": span for span, _, _, device, inode, *_ in lines}


def compare() -> dict[str, Any]:
    found: dict[str, Any] = {}
    group = Group(RANK, RANKS, CPU, num_hosts=2)
    policies = [policy for policy in CACHES if "ratio" in CACHES[policy] and "lookahead" not in policy]
    for dataset, (topology, seeds), policy in itertools.product(("synthetic/sbm", "debian-packages"), WAYS, policies):
        of_dataset = {"train_limit": 150}
        partition = {"topology": topology, "seeds": seeds, "cache": CACHES[policy]}
        before = memories()
        parted = build_task(planned(f"parts/{dataset}/{NUM_PARTS}-ldg", MODEL, partition, **of_dataset), group)
        whole = build_task(planned(dataset, MODEL, {}, **of_dataset), group)
        fetcher = parted.access.source.tables.fetcher
        found[f"{dataset}, {topology}, {seeds}, {policy}"] = {
            "differences": list(differences(parted, whole))[:3],
            "memories": sorted(memories().keys() - before.keys()),
            "rows": len(fetcher.held.table),
            "of_all": len(fetcher.held.table) / fetcher.shares.book.num_nodes,
            "hits": fetcher.counts.held,
        }
    return found


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    found = compare()
    left = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    found["open"] = [name for name in left if "memfd" in name]
    (OUT / f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    leave(0)


main()
