"""One way to mini-batches of a large graph, whole or in parts, sampled here, before, or by other processes."""
