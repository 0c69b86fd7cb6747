"""Models of windows of CAN frames: a node is an id, an edge an id followed by another."""
