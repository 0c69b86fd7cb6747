"""Two ranks that infer layer by layer where a graph lies for a device, and compare their logits with the CPU's, alone.

python swept_by_ranks.py MEETING_FILE OUT_FOLDER DATASET_ROOT SHIM
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from device_graphs import budget, device_access, plan_of

from graphmill.access.device_kernels import LaunchedKernels
from graphmill.device.kernels import shim_kernels
from graphmill.runtime.process import leave
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.parts import open_graph

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, ROOT, SHIM = (Path(word) for word in sys.argv[2:])
CPU = torch.device("cpu")


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    plan = plan_of(ROOT, layers=3, features="standardised")
    task, asked = build_task(plan, Group(0, 1, CPU)), []
    task.model.eval()
    spec, store = access_spec(plan, plan.task), open_graph(ROOT / "sbm")
    kernels = LaunchedKernels(shim_kernels(SHIM))
    access = device_access(spec, store, budget(spec, store, 90), kernels, group=Group(RANK, RANKS, CPU))
    access.begin(store.labels, form="rows", dtype=torch.float32)
    nodes = store.nodes_in("test")[:-1]  # an odd number, if they are even: shares differ
    mine, found = access.exact(task.model, nodes, lambda: asked.append(1), hops=3, num_columns=1)
    order, expected = task.exact_logits(nodes, lambda: None)
    assert np.array_equal(order, nodes)
    equal = (found == expected[torch.from_numpy(np.searchsorted(nodes, mine))]).all(dim=1)
    told = {"equal": int(equal.sum()), "mine": len(mine), "all": len(nodes), "paused": len(asked)}
    (OUT / f"{RANK}.json").write_text(json.dumps(told))
    dist.barrier()  # whoever leaves first takes its connections along
    dist.destroy_process_group()
    leave(0)


main()
