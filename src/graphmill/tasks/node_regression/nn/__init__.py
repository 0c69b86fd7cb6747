"""The model of node regression, its losses and its measures."""
