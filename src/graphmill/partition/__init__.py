"""Parts of a graph: which part each node is in, how parts are written, how good they are. Nothing here needs torch."""
