"""Seeds, then neighbourhoods, then mini-batches: schedule, sampler, collector, prefetch."""
