"""Print a digest of a few sampled neighbourhoods."""

import hashlib
import sys

import numpy as np

from graphmill import _native

arrays = np.load(sys.argv[1])
sampler = _native.NeighborSampler(arrays["indptr"], arrays["indices"])
digest = hashlib.sha256()
for number, fanouts in enumerate(([25, 10], [100, 3, 2], [-1, 4])):
    hood = sampler.sample(
        arrays["seeds"], fanouts, 1000 + number, resample=number == 1, with_edge_ids=True, num_threads=2
    )
    for array in (hood.node_ids, hood.indptr, hood.indices, hood.edge_ids):
        digest.update(np.ascontiguousarray(array).tobytes())
sys.stdout.write(f"{digest.hexdigest()}\n")
