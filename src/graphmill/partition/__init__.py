<<<<<<< HEAD
"""A graph cut into parts: assign nodes to parts, write the parts, and find a node in them."""
=======
"""Parts of a graph: which part each node is in, how parts are written, how good they are. Nothing here needs torch."""
>>>>>>> partitioner
