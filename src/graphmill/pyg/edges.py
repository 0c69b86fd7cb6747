"""Subgraphs around links: the links of a batch, negatives beside them, and where their ends are in the subgraph."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.pyg.negative_kinds import SourcedNegatives

if TYPE_CHECKING:
    from graphmill.pyg.sampler import NeighborSampler

_OF_NEGATIVES: Final = 2**33  # a coordinate apart from those of hops and relations


@dataclass(slots=True)
class _Links:
    """Ends and times of the positives, then of the negatives: the i-th one's repeat after `num_positive` links."""

    sources: Tensor
    targets: Tensor
    source_times: Tensor | None
    target_times: Tensor | None
    num_positive: int


def sampled_edges(
    sampler: "NeighborSampler", inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None, key: int
) -> Any:  # noqa: ANN401  # a SamplerOutput or HeteroSamplerOutput
    """What PyG's `edge_sample` gives, with negatives that are not edges.

    Negatives of the i-th link stand at i, i + num_links, …, so that all of a link share its subgraph where it has one
    of its own, and `dst_neg_index[i]` are the i-th link's.
    """
    if inputs.time is not None and not sampler.disjoint:
        raise InvalidInputError("links have times, and the graph has none", fix="name them: time_attr='time'")
    links, label = _with_negatives(sampler, inputs, neg_sampling, key)
    source_type, target_type = sampler.graph.ends(inputs.input_type)
    seeds, times, places = _seeds(links, source_type, target_type, sampler.disjoint)
    out = sampler.sample(seeds, times, key)
    if sampler.disjoint:
        _name_subgraphs(out, links)
    sources, targets = places
    num = links.num_positive
    if neg_sampling is not None and neg_sampling.is_triplet():
        negatives = targets[num:].view(-1, num).t()
        negatives = negatives.squeeze(-1) if negatives.size(-1) == 1 else negatives
        out.metadata = (inputs.input_id, sources, targets[:num], negatives, inputs.time)
    else:
        out.metadata = (inputs.input_id, torch.stack([sources, targets]), label, links.source_times)
    return out


def _with_negatives(
    sampler: "NeighborSampler", inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None, key: int
) -> tuple[_Links, Tensor | None]:
    sources, targets, times, num = inputs.row, inputs.col, inputs.time, inputs.row.numel()
    if neg_sampling is None or num == 0:
        return _Links(sources, targets, times, times, num), inputs.label
    count = math.ceil(num * neg_sampling.amount)
    which = torch.arange(count) % num  # the link that each stands beside
    negatives = sampler.negatives(inputs.input_type, neg_sampling)
    at = None if times is None else np.ascontiguousarray(times[which].numpy(), dtype=np.int64)
    of_negatives = _native.subkey(key, _OF_NEGATIVES)
    if isinstance(neg_sampling, SourcedNegatives) or neg_sampling.is_triplet():
        given = np.ascontiguousarray(sources[which].numpy(), dtype=np.int64)
        if isinstance(neg_sampling, SourcedNegatives):
            drawn = given, neg_sampling.targets(negatives, given, at, num, of_negatives)
        else:
            drawn = negatives.draw(count, given, at, of_negatives)
    else:
        drawn = negatives.draw(count, None, at, of_negatives)
    more_sources, more_targets = (torch.from_numpy(each).to(sources.dtype) for each in drawn)
    all_times = None if times is None else torch.cat([times, times[which]])
    targets = torch.cat([targets, more_targets])
    if neg_sampling.is_triplet():
        return _Links(sources, targets, times, all_times, num), None
    label = torch.ones(num) if inputs.label is None else inputs.label
    label = torch.cat([label, label.new_zeros((count, *label.shape[1:]))])
    return _Links(torch.cat([sources, more_sources]), targets, all_times, all_times, num), label


def _seeds(
    links: _Links,
    source_type: Any,  # noqa: ANN401  # a name, or None
    target_type: Any,  # noqa: ANN401
    disjoint: bool,
) -> tuple[dict[Any, Tensor], dict[Any, Tensor] | None, tuple[Tensor, Tensor]]:
    """Seeds and times by type, and where the sources and the targets of the links are among the seeds."""
    num_sources = links.sources.numel()
    if source_type == target_type:
        seeds = torch.cat([links.sources, links.targets])
        if disjoint:
            places = torch.arange(seeds.numel())
        else:
            seeds, places = torch.unique(seeds, return_inverse=True)
        return (
            {source_type: seeds},
            _by_type(links, source_type, target_type),
            (places[:num_sources], places[num_sources:]),
        )
    if disjoint:
        of_sources, of_targets = torch.arange(num_sources), torch.arange(links.targets.numel())
        sources, targets = links.sources, links.targets
    else:
        sources, of_sources = torch.unique(links.sources, return_inverse=True)
        targets, of_targets = torch.unique(links.targets, return_inverse=True)
    seeds_by_type = {source_type: sources, target_type: targets}
    return seeds_by_type, _by_type(links, source_type, target_type), (of_sources, of_targets)


def _by_type(links: _Links, source_type: Any, target_type: Any) -> dict[Any, Tensor] | None:  # noqa: ANN401
    """Times of the seeds, in their order."""
    if links.source_times is None or links.target_times is None:
        return None
    if source_type == target_type:
        return {source_type: torch.cat([links.source_times, links.target_times])}
    return {source_type: links.source_times, target_type: links.target_times}


def _name_subgraphs(out: Any, links: _Links) -> None:  # noqa: ANN401  # a SamplerOutput or HeteroSamplerOutput
    """Rename the subgraphs of seeds: `batch` says beside which link of the batch each stands."""
    num_sources, num = links.sources.numel(), max(links.num_positive, 1)

    def link_of(subgraph: Tensor) -> Tensor:
        return torch.where(subgraph < num_sources, subgraph, subgraph - num_sources) % num

    is_typed = isinstance(out.batch, dict)
    out.batch = {name: link_of(each) for name, each in out.batch.items()} if is_typed else link_of(out.batch)
