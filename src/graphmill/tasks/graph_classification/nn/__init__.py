"""Models and losses of graph classification."""
