"""Attention over edges with features: GAT and GATv2, fused."""

from graphmill.nn.attention.edges import EdgeGroups, group_edges
from graphmill.nn.attention.gat import GATConv
from graphmill.nn.attention.gatv2 import GATv2Conv

__all__ = ["EdgeGroups", "GATConv", "GATv2Conv", "group_edges"]
