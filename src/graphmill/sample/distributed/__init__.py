"""Mini-batches of a graph in parts: what a rank does not hold, it asks of the ranks that do."""
