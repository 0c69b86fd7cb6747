"""The turns of sampler_dgl.py, in a Python that has DGL: GRAPH.npz NATIVE_MODULE ROUNDS THREADS → one line of JSON."""

import importlib.util
import json
import sys
import time

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch  # before dgl, so that both use one OpenMP

FANOUTS, BATCH = [25, 10], 1024


def load_native(path):
    spec = importlib.util.spec_from_file_location("_native", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def graphbolt(indptr, indices, seeds):
    graph = gb.fused_csc_sampling_graph(indptr, indices)

    def run(i):
        nodes = seeds[i]
        for fanout in FANOUTS:
            sampled = graph.sample_neighbors(nodes, torch.tensor([fanout]))
            nodes, _ = gb.unique_and_compact_csc_formats(sampled.sampled_csc, nodes)[:2]

    return run


def main():
    path, native, rounds, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    with np.load(path) as stored:
        indptr, indices = stored["indptr"], stored["indices"]
    rng = np.random.default_rng(0)
    candidates = np.flatnonzero(np.diff(indptr) > 0)
    seeds = [rng.choice(candidates, BATCH, replace=False) for _ in range(rounds + 2)]
    tensors = [torch.from_numpy(s) for s in seeds]
    ours = load_native(native).NeighborSampler(indptr, indices)
    wide_ptr, wide = torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64))
    graph = dgl.graph(("csc", (wide_ptr, wide, torch.empty(0, dtype=torch.int64))), num_nodes=len(indptr) - 1)
    graph.create_formats_()
    # DGL counts fan-outs from the input side: the first entry is the hop farthest from the seeds.
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
    versions = {"dgl": dgl.__version__, "torch": torch.__version__}
    runs = forms(ours, sampler, graphbolt(wide_ptr, wide, tensors), graph, seeds, tensors)
    contenders = {
        f"{name}, {count} {'thread' if count == 1 else 'threads'}": (run, count)
        for count in sorted({1, threads})
        for name, run in runs.items()
    }
    print(json.dumps({"seconds": take_turns(contenders, rounds), "versions": versions}))


def forms(ours, sampler, bolt, graph, seeds, tensors):
    """Each is called with the number of the batch and of threads; DGL and GraphBolt use those of torch's OpenMP."""
    return {
        "graphmill, edge ids": lambda i, n: ours.sample(
            seeds[i], FANOUTS, i, resample=True, with_edge_ids=True, num_threads=n
        ),
        "graphmill": lambda i, n: ours.sample(seeds[i], FANOUTS, i, resample=True, num_threads=n),
        "DGL sample_blocks": lambda i, n: sampler.sample_blocks(graph, tensors[i]),
        "GraphBolt": lambda i, n: bolt(i),
    }


def take_turns(contenders, rounds):
    seconds = {name: [] for name in contenders}
    for number in range(rounds + 2):
        for name, (run, count) in contenders.items():
            torch.set_num_threads(count)
            begin = time.perf_counter()
            run(number, count)
            if number >= 2:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


if __name__ == "__main__":
    main()
