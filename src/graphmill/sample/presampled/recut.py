"""Presampled epochs for other ranks than they were sampled for: the same global batches, cut otherwise.

With `resample` a node draws by the key and its identity alone, at each hop at which it is known, whatever else is in
the batch. So what was sampled for some ranks holds all draws of their global batch, and the neighbourhood of any of its
seeds is found there: hop by hop, as a graph in parts asks owners (`distributed/sampler.py`). PyG's way a node draws at
the hop that first meets it, which depends on the other seeds of its rank, so such batches cannot be cut otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, NodeIds, Sampled, Seeds
from graphmill.sample.neighbor import sampled_of
from graphmill.sample.presampled.schedule import PresampledFolder, PresampledReader, other_seeds

Ids = NDArray[np.int64]


@dataclass(slots=True)
class RecutSampler:
    """What `WholeSampler` samples with `resample`, out of what was sampled for other ranks: bit-identical."""

    folder: PresampledFolder  # of the identity that it was sampled with
    rank: int
    world_size: int
    num_nodes: int  # of the graph
    _reader: PresampledReader = field(init=False, repr=False)
    _relabeller: _native.Relabeller = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._reader = PresampledReader(self.folder)
        self._relabeller = _native.Relabeller(self.num_nodes)

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of any seeds of the global batch of an epoch and a step."""
        if isinstance(seeds, EvaluationSeeds):
            raise TypeError("an evaluation is not presampled")
        pieces = self._pieces_with(seeds)
        with_edge_ids = self.folder.identity.edge_ids
        batch = self._relabeller.begin(seeds.ids, resample=True, with_edge_ids=with_edge_ids)
        draws = _Draws.of(pieces, with_edge_ids=with_edge_ids)
        for hop in range(self.folder.form.num_hops):
            begins, counts = draws.rows(hop, NodeIds(batch.frontier))
            indptr = np.zeros(len(counts) + 1, dtype=np.int64)
            np.cumsum(counts, out=indptr[1:])
            at = np.repeat(begins - indptr[:-1], counts) + np.arange(indptr[-1])
            batch.relabel(indptr, draws.sources[at], draws.edge_ids[at] if with_edge_ids else None)
        hood = batch.finish()
        return sampled_of(seeds, hood, resample=True)

    def _pieces_with(self, seeds: Seeds) -> list[Sampled]:
        """Pieces of the global batch that were sampled for the ranks that had one of `seeds`."""
        found, missing = list[Sampled](), np.asarray(seeds.ids)
        for number in self._nearest_first():
            piece = self._reader.read(seeds.epoch, seeds.step, number)
            here = np.isin(missing, piece.seeds.ids)
            if here.any():
                found.append(piece)
                missing = missing[~here]
            if not len(missing) and found:
                return found
        if len(missing):
            raise other_seeds(self.folder, seeds, self.rank)
        return [self._reader.read(seeds.epoch, seeds.step, 0)]  # a rank without seeds: of any the form

    def _nearest_first(self) -> Iterator[int]:
        """Ranks it was sampled for: first the one that has this rank's seeds where both have contiguous shares."""
        num_ranks = self.folder.identity.ranks
        first = self.rank * num_ranks // self.world_size
        return ((first + turn) % num_ranks for turn in range(num_ranks))


@dataclass(slots=True)
class _Draws:
    """What some nodes have drawn: the sampled edges of all pieces, one piece after the other."""

    pieces: Sequence[Sampled]
    tables: tuple[_native.NodeTable, ...]  # of each piece: node → local id
    firsts: tuple[int, ...]  # of each piece: where its edges begin
    sources: Ids  # by identity
    edge_ids: Ids  # [0] if nobody reads them
    _piece_of: Ids = field(default_factory=lambda: np.empty(0, np.int64))  # of the nodes that were asked for before
    _place_of: Ids = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, pieces: Sequence[Sampled], *, with_edge_ids: bool) -> "_Draws":
        """Draws in the pieces of one global batch."""
        sources = [piece.node_ids[piece.blocks[0].indices] for piece in pieces]
        ends = np.cumsum([len(each) for each in sources])
        edge_ids = [piece.edge_ids for piece in pieces] if with_edge_ids else [np.empty(0, np.int64)]
        tables = tuple(_native.NodeTable(piece.node_ids) for piece in pieces)
        return cls(pieces, tables, (0, *ends[:-1].tolist()), np.concatenate(sources), np.concatenate(edge_ids))

    def rows(self, hop: int, nodes: NodeIds) -> tuple[Ids, Ids]:
        """Where the draws of `nodes` [n] at a hop begin, and how many each has. A hop's nodes begin with the last's."""
        self._find(hop, NodeIds(nodes[len(self._piece_of) :]))
        begins, counts = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
        for number, (piece, first) in enumerate(zip(self.pieces, self.firsts, strict=True)):
            mine = np.flatnonzero(self._piece_of == number) if len(self.pieces) > 1 else slice(None)
            indptr, places = piece.blocks[::-1][hop].indptr, self._place_of[mine]
            begins[mine] = indptr[places] + first
            counts[mine] = indptr[places + 1] - indptr[places]
        return begins, counts

    def _find(self, hop: int, nodes: NodeIds) -> None:
        """Find the piece in which each of `nodes` [n] draws at this hop, and so at all later ones."""
        piece_of, place_of = np.full(len(nodes), -1, np.int64), np.empty(len(nodes), np.int64)
        places = np.empty(len(nodes), np.int64)
        for number, (piece, table) in enumerate(zip(self.pieces, self.tables, strict=True)):
            table.find(nodes, places)
            here = (piece_of < 0) & (places >= 0) & (places < piece.blocks[::-1][hop].num_rows)
            piece_of[here], place_of[here] = number, places[here]
        if (piece_of < 0).any():
            raise RuntimeError("a node of the batch has no draws in what was sampled of it")
        self._piece_of = np.concatenate([self._piece_of, piece_of])
        self._place_of = np.concatenate([self._place_of, place_of])
