"""A graph cut into parts: which part each node is in, how parts are written, read and judged. Nothing here needs torch."""
