"""Models and losses of assignment problems."""
