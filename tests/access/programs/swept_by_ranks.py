"""Two ranks that infer layer by layer where a graph lies for a device, and compare their logits with the CPU's, alone.

Then their batches with those of the mapped graph. ROWS: each has its own, or they share them.

python swept_by_ranks.py MEETING_FILE OUT_FOLDER DATASET_ROOT SHIM ROWS
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import wholegraph_stand_in
from device_graphs import NODES, budget, device_access, plan_of

from graphmill.access.device_kernels import LaunchedKernels
from graphmill.access.opening import open_access
from graphmill.device.kernels import shim_kernels
from graphmill.runtime.process import leave
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.parts import open_graph

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, ROOT, SHIM = (Path(word) for word in sys.argv[2:5])
ROWS = sys.argv[5]
CPU = torch.device("cpu")


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    plan = plan_of(ROOT, layers=3, features="standardised")
    task, asked = build_task(plan, Group(0, 1, CPU)), []
    task.model.eval()
    spec, store = access_spec(plan, plan.task), open_graph(ROOT / "sbm")
    kernels = LaunchedKernels(shim_kernels(SHIM))
    group, is_shared = Group(RANK, RANKS, CPU), ROWS == "wholegraph"
    if is_shared:
        wholegraph_stand_in.install(OUT)
    rows = -(-NODES // RANKS) if is_shared else 90
    access = device_access(spec, store, budget(spec, store, rows), kernels, group=group, rows=ROWS)
    access.begin(store.labels, form="rows", dtype=torch.float32)
    nodes = store.nodes_in("test")[:-1]  # an odd number, if they are even: shares differ
    mine, found = access.exact(task.model, nodes, lambda: asked.append(1), hops=3, num_columns=1)
    order, expected = task.exact_logits(nodes, lambda: None)
    assert np.array_equal(order, nodes)
    equal = (found == expected[torch.from_numpy(np.searchsorted(nodes, mine))]).all(dim=1)
    told = {"equal": int(equal.sum()), "mine": len(mine), "all": len(nodes), "paused": len(asked)}
    mapped = open_access(spec, store, group)
    mapped.begin(store.labels, form="rows", dtype=torch.float32)
    pairs = list(zip(access.batches(1, 0), mapped.batches(1, 0), strict=True))
    told["batches"] = len(pairs)
    told["same_rows"] = sum(torch.equal(mine.inputs.x, other.inputs.x) for mine, other in pairs)
    (OUT / f"{RANK}.json").write_text(json.dumps(told))
    dist.barrier()  # whoever leaves first takes its connections along
    dist.destroy_process_group()
    leave(0)


main()
