"""Mini-batches of links: the links of a step, negatives of each, their end nodes, and what may be read around them."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.batch import MiniBatch, copied
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import Sampled, SeedIds, Seeds
from graphmill.sample.negatives import Ends, KnownEdges, Negatives
from graphmill.sample.schedule import SeedSchedule
from graphmill.tasks.link_prediction.data.links import Links
from graphmill.tasks.link_prediction.page.models import NegativesSpec

Ids = NDArray[np.int64]
_DEGREE_POWER = 0.75  # Mikolov et al. 2013, arXiv 1310.4546


@dataclass(frozen=True, slots=True)
class OwnNegatives:
    """Negatives that each link has for itself; ends are places in `LinkPairs.nodes`."""

    others: Tensor  # int64 [n, count]: of each negative the node in the place of an end of the link
    replaces_target: Tensor  # bool [n, count]: in the target's place, else the source's

    def to(self, device: torch.device) -> "OwnNegatives":
        """Copy of the negatives on `device`."""
        return OwnNegatives(copied(self.others, device), copied(self.replaces_target, device))


@dataclass(frozen=True, slots=True)
class SharedNegatives:
    """Negatives with the same nodes for all links of a batch; ends are places in `LinkPairs.nodes`."""

    others: Tensor  # int64 [count]
    num_targets: int  # the first ones stand in the target's place, the others in the source's
    are_links: Tensor  # bool [n, count]: the pair is a known link, so it is no negative

    def to(self, device: torch.device) -> "SharedNegatives":
        """Copy of the negatives on `device`."""
        return SharedNegatives(copied(self.others, device), self.num_targets, copied(self.are_links, device))


@dataclass(frozen=True, slots=True)
class LinkPairs:
    """The links of a batch and their negatives; ends are places in `nodes`."""

    nodes: Tensor  # int64 [num_ends], ascending: ids of the graph
    sources: Tensor  # int64 [n]
    targets: Tensor  # int64 [n]
    relations: Tensor  # int64 [n]; [0] where links have none
    negatives: OwnNegatives | SharedNegatives

    def to(self, device: torch.device) -> "LinkPairs":
        """Copy of the pairs on `device`."""
        if device.type == "cpu":
            return self
        ends = {name: copied(getattr(self, name), device) for name in ("nodes", "sources", "targets", "relations")}
        return LinkPairs(**ends, negatives=self.negatives.to(device))


@dataclass(frozen=True, slots=True)
class LinkBatch:
    """What one step computes on."""

    seeds: Seeds  # numbers of training links
    pairs: LinkPairs
    neighbourhood: MiniBatch | None  # of the nodes of `pairs`; None: no neighbours are read

    @property
    def num_seeds(self) -> int:
        """Links to learn from; 0 if the rank has no share of the step."""
        return len(self.seeds.ids)


@dataclass(frozen=True, slots=True)
class NegativeSampler:
    """Negatives of links: pairs that are no training link and no edge of the message graph, of whatever relation.

    Nor a node with itself.

    Each is keyed by (seed, epoch, step, link), where links share them by (seed, epoch, step), so it does not depend on
    how a batch is shared out.
    """

    spec: NegativesSpec
    rng_seed: int
    of_targets: Negatives | None  # None: no target is replaced
    of_sources: Negatives | None  # with both ends exchanged

    @classmethod
    def of(
        cls, spec: NegativesSpec, rng_seed: int, links: Links, edges: Ids, num_nodes: int, *, have_direction: bool
    ) -> "NegativeSampler":
        """Sampler for training links and the edges [2, n] of the message graph as given, of which some may be links."""
        loops = np.stack([np.arange(num_nodes)] * 2)  # no node with itself
        edges = np.concatenate([links.ends, edges, loops], axis=1)
        if not have_direction:
            edges = np.concatenate([edges, edges[::-1]], axis=1)
        weights = None
        if spec.by == "degree":
            weights = torch.from_numpy(np.bincount(links.ends.reshape(-1), minlength=num_nodes) ** _DEGREE_POWER)
        ends = Ends.of(num_nodes, weights, None)

        def negatives_of(pairs: Ids) -> Negatives:
            return Negatives(KnownEdges.of(np.ascontiguousarray(pairs), None, num_nodes, num_nodes), ends, ends)

        of_targets = None if spec.side == "source" else negatives_of(edges)
        return cls(spec, rng_seed, of_targets, None if spec.side == "target" else negatives_of(edges[::-1]))

    def draw(self, links: Links, seeds: Seeds) -> tuple[Ids, NDArray[np.bool_]]:
        """Draw for links [n], which are `seeds`, nodes [n, count] that replace an end, and whether it is the target."""
        key, count = seeds.key(self.rng_seed, Purpose.NEGATIVES), self.spec.count
        numbers = (seeds.ids[:, None] * count + np.arange(count)).reshape(-1)
        others, is_target = np.empty(len(numbers), np.int64), self._replaces_target(numbers)
        for negatives, given, chosen in (
            (self.of_targets, links.sources, is_target),
            (self.of_sources, links.targets, ~is_target),
        ):
            if negatives is None:
                continue
            rows = np.flatnonzero(chosen)
            _, others[rows] = negatives.draw(len(rows), given[rows // count], None, key, numbers=numbers[rows])
        return others.reshape(-1, count), is_target.reshape(-1, count)

    def draw_shared(self, links: Links, seeds: Seeds) -> tuple[Ids, int, NDArray[np.bool_]]:
        """Draw nodes [count] that replace an end of each of the links [n], which are `seeds`.

        Also returns how many of the nodes, the first ones, replace targets, and which pairs [n, count] are known links.
        """
        rng = np.random.Generator(np.random.PCG64(seeds.key(self.rng_seed, Purpose.NEGATIVES)))
        count = self.spec.count
        num_targets = {"target": count, "source": 0}.get(self.spec.side, count - count // 2)
        others, are_links = np.empty(count, np.int64), np.zeros((len(links), count), np.bool_)
        for negatives, given, some in (
            (self.of_targets, links.sources, slice(num_targets)),
            (self.of_sources, links.targets, slice(num_targets, None)),
        ):
            if negatives is None:
                continue
            others[some] = negatives.targets.drawn(len(others[some]), rng)
            are_links[:, some] = negatives.known.are_edges_among(given, others[some])
        return others, num_targets, are_links

    def _replaces_target(self, numbers: Ids) -> NDArray[np.bool_]:
        side: Literal["auto", "target", "source", "both"] = self.spec.side
        if side == "both":
            return np.equal(numbers % 2, 0)
        return np.full(len(numbers), side == "target")


@dataclass(slots=True)
class LinkSeeds:
    """`SeedNodes` of training links: a step reads the neighbourhoods of their ends and of their negatives' ends.

    The links of a step, of all ranks, are left out of what it reads, in both directions: else the model would learn to
    find the link that it is asked about among the edges, where none is when it is judged.
    """

    schedule: SeedSchedule
    links: Links  # training links; a seed is a place among them
    negatives: NegativeSampler
    num_nodes: int
    resamples: bool  # whether a node draws its neighbours anew at each hop
    _made: dict[tuple[int, int], LinkPairs] | None = field(default=None, init=False, repr=False)  # None: none is taken

    def pairs_of(self, seeds: Seeds) -> LinkPairs:
        """Links and negatives of a step of this rank."""
        links = self.links.taken(seeds.ids)
        drawn = self._negatives_of(links, seeds)
        ends = [links.sources, links.targets, drawn.others.numpy().reshape(-1)]
        nodes, places = np.unique(np.concatenate(ends), return_inverse=True)
        cuts = np.cumsum([len(each) for each in ends])[:-1]
        sources, targets, other = (torch.from_numpy(each) for each in np.split(places.reshape(-1), cuts))
        relations = np.empty(0, np.int64) if links.relations is None else links.relations
        return LinkPairs(
            nodes=torch.from_numpy(nodes),
            sources=sources,
            targets=targets,
            relations=torch.from_numpy(relations),
            negatives=replace(drawn, others=other.reshape(drawn.others.shape)),
        )

    def _negatives_of(self, links: Links, seeds: Seeds) -> OwnNegatives | SharedNegatives:
        """Negatives whose `others` are ids of the graph."""
        if not self.negatives.spec.shared:
            others, replaces_target = self.negatives.draw(links, seeds)
            return OwnNegatives(torch.from_numpy(others), torch.from_numpy(replaces_target))
        others, num_targets, are_links = self.negatives.draw_shared(links, seeds)
        return SharedNegatives(torch.from_numpy(others), num_targets, torch.from_numpy(are_links))

    def nodes_of(self, seeds: Seeds) -> Seeds:
        """The ends of the pairs of a step, ascending."""
        pairs = self.pairs_of(seeds)
        if self._made is not None:
            self._made[seeds.epoch, seeds.step] = pairs
        return Seeds(seeds.epoch, seeds.step, SeedIds(pairs.nodes.numpy()))

    def begin(self) -> None:
        """Begin an epoch: batches that are made from here on can be taken, those of an earlier epoch are forgotten."""
        self._made = {}

    def pairs_at(self, epoch: int, step: int) -> LinkPairs:
        """The pairs of a step whose nodes were asked for."""
        assert self._made is not None, "nodes are asked for between `begin` and `pairs_at`"
        return self._made.pop((epoch, step))

    def kept(self, sampled: Sampled) -> Sampled:
        """Leave out the links that any rank learns from at this step, in both directions."""
        seeds = sampled.seeds
        assert isinstance(seeds, Seeds)
        links = self.links.taken(self.schedule.cut(self.schedule.order(seeds.epoch), seeds.step))
        return without_edges(sampled, links, self.num_nodes, resamples=self.resamples)


def without_edges(sampled: Sampled, links: Links, num_nodes: int, *, resamples: bool) -> Sampled:
    """A neighbourhood without the edges that are some links, in either direction; its nodes stay.

    Args:
        sampled: by a sampler that resamples, or not.
        links: at least one.
        num_nodes: of the graph.
        resamples: whether each hop has rows of its own.
    """
    nodes, indices = sampled.node_ids, sampled.blocks[0].indices
    targets = sampled.targets(resampled=resamples)
    is_end = np.isin(nodes, links.ends)  # few are: only edges between two of them are looked up
    among = np.flatnonzero(is_end[indices] & is_end[targets])
    one, other = links.sources, links.targets
    left_out = np.sort(np.concatenate([other * num_nodes + one, one * num_nodes + other]))
    keys = nodes[targets[among]] * num_nodes + nodes[indices[among]]
    found = np.minimum(np.searchsorted(left_out, keys), len(left_out) - 1)
    gone = among[left_out[found] == keys]
    if not len(gone):
        return sampled
    stays = np.ones(len(indices), dtype=bool)
    stays[gone] = False
    return sampled.with_edges(stays)
