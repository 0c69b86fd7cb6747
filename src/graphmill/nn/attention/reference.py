"""Attention in plain PyTorch, edge by edge, as a reference: it holds tensors of edges × heads × channels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.nn.attention.edges import EdgeGroups
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores
from graphmill.nn.draws import drop_values, row_keys


def attention(
    x: Tensor, heads: int, scores: Scores, features: EdgeScores | None, dropout: Dropout | None, groups: EdgeGroups
) -> tuple[Tensor, Tensor]:
    """(out [num_targets, heads * channels], alpha [num_edges + num_loops, heads]), as the operator gives them."""
    loops = torch.arange(groups.num_loops, device=x.device)
    sources, targets = torch.cat([groups.edge_index, loops.expand(2, -1)], dim=1)
    is_kept = torch.ones_like(sources, dtype=torch.bool)
    if groups.num_loops:
        is_kept[: groups.edge_index.shape[1]] = groups.edge_index[0] != groups.edge_index[1]
    ids = is_kept.nonzero().squeeze(1)
    sources, targets = sources[ids], targets[ids]
    z = (x if scores.source is None else scores.source)[sources] + scores.target[targets]
    if features is not None:
        z = z + torch.cat([features.attr, features.loop_attr])[ids] @ features.weight
    logits = F.leaky_relu(z, scores.negative_slope)
    if scores.att is not None:
        logits = (logits * scores.att).view(len(ids), heads, x.shape[1] // heads).sum(-1)
    alpha = softmax(logits, targets, groups.num_targets)
    if dropout is not None:
        keys = row_keys(int(dropout.key) % 2**64, ids).to(x.device).unsqueeze(1)
        alpha = drop_values(alpha, keys, torch.arange(heads, device=x.device), dropout.p)
    messages = (alpha.unsqueeze(-1) * x[sources].view(len(ids), heads, x.shape[1] // heads)).flatten(1)
    # Of half a precision, autocast computes alpha, and so the sums, in fp32.
    out = messages.new_zeros(groups.num_targets, x.shape[1]).index_add(0, targets, messages).to(x.dtype)
    return out, alpha.new_zeros(len(is_kept), heads).index_put((ids,), alpha)


def softmax(logits: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Softmax of logits [n, heads] over those that share a row."""
    index = rows.unsqueeze(1).expand_as(logits)
    most = logits.new_zeros(num_rows, logits.shape[1])
    most = most.scatter_reduce(0, index, logits.detach(), "amax", include_self=False)
    powers = (logits - most[rows]).exp()
    return powers / powers.new_zeros(num_rows, logits.shape[1]).index_add(0, rows, powers)[rows]
