"""Models and losses of node classification."""
