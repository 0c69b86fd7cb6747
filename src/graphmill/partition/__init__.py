"""A graph cut into parts: assign nodes to parts, write the parts, and find a node in them."""
