"""Synthetic graphs for tests and timings: a stochastic block model and R-MAT. Every record of them says `synthetic`.

Both yield simple undirected graphs with exactly the asked number of edges, features around one centre per class, and a
random split. The same options give the same graph.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.features import DenseFeatures
from graphmill.graph.topology import sorted_unique
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import random_split

_MAX_ROUNDS = 200
_CHUNK = 2**20
_CACHED = 2**15  # edges drawn together: their state stays in the cache through all levels
_RMAT = (0.57, 0.19, 0.19, 0.05)  # quadrants of the Graph 500 generator

Ends = NDArray[np.int64]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    num_nodes: int = Field(10_000, ge=2, le=2**31)
    num_edges: PositiveInt = Field(200_000, description="entries: each undirected edge counts twice")
    features: PositiveInt = 64
    signal: float = Field(0.5, ge=0, allow_inf_nan=False, description="distance of class centres over the noise's sd")
    seed: int = Field(0, ge=0, lt=2**63)


class SbmOptions(_Options):
    """Equal communities; an edge stays inside its own with probability `inside`."""

    communities: PositiveInt = 10
    classes: PositiveInt | None = Field(None, description="default: one per community")
    inside: float = Field(0.8, ge=0, le=1)


class RmatOptions(_Options):
    """R-MAT (Chakrabarti et al. 2004) with Graph 500's quadrants; classes are ranges of ids, which share edges."""

    classes: PositiveInt = 10


AnyOptions = TypeVar("AnyOptions", SbmOptions, RmatOptions)


def generate(kind: Literal["sbm", "rmat"], options: Mapping[str, Any], name: str) -> LabelledGraph:
    """Generate the graph. Unknown and ill-typed options are refused together."""
    if kind == "sbm":
        sbm = _check_communities(_parse(SbmOptions, options))
        return _generate(kind, sbm, name, _sbm_labels(sbm), _sbm_sampler(sbm))
    rmat = _parse(RmatOptions, options)
    labels = np.arange(rmat.num_nodes, dtype=np.int64) * rmat.classes // rmat.num_nodes
    return _generate(kind, rmat, name, labels, _rmat_sampler(rmat))


def _parse(model: type[AnyOptions], options: Mapping[str, Any]) -> AnyOptions:
    try:
        parsed = model.model_validate(dict(options))
    except ValidationError as error:
        known = list(model.model_fields)
        unknown = [str(e["loc"][0]) for e in error.errors() if e["type"] == "extra_forbidden"]
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(
            f"the generator's options: {problems}",
            fix=did_you_mean(unknown[0], known) if unknown else f"known: {', '.join(known)}",
        ) from None
    most = parsed.num_nodes * (parsed.num_nodes - 1)
    if parsed.num_edges % 2 or parsed.num_edges > most // 2:
        raise UserError(
            f"num_edges is {parsed.num_edges}; it counts each undirected edge twice, so it must be even,"
            f" and at most half of the {most} that {parsed.num_nodes} nodes have room for",
            fix=f"set num_edges={min(parsed.num_edges // 2, most // 4) * 2}",
        )
    return parsed


def _generate(
    kind: str,
    options: SbmOptions | RmatOptions,
    name: str,
    labels: Ends,
    draw: Callable[[int, np.random.Generator], tuple[Ends, Ends]],
) -> LabelledGraph:
    centres_seed, noise_seed, edges_seed = np.random.SeedSequence(options.seed).spawn(3)
    centres = np.random.default_rng(centres_seed).standard_normal(
        (int(labels.max()) + 1, options.features), dtype=np.float32
    )
    x = np.random.default_rng(noise_seed).standard_normal((options.num_nodes, options.features), dtype=np.float32)
    for start in range(0, len(x), _CHUNK):
        x[start : start + _CHUNK] += np.float32(options.signal) * centres[labels[start : start + _CHUNK]]
    split, note = random_split(labels, options.seed)
    settings = " ".join(f"{key}={value}" for key, value in options.model_dump().items())
    return LabelledGraph(
        edge_index=_undirected_pairs(options, draw, np.random.default_rng(edges_seed)),
        features=DenseFeatures(x, "float32"),
        labels=labels,
        split=split,
        name=name,
        source=f"generated: {kind} {settings}",
        synthetic=True,
        split_note=note,
    )


def _undirected_pairs(
    options: SbmOptions | RmatOptions,
    draw: Callable[[int, np.random.Generator], tuple[Ends, Ends]],
    rng: np.random.Generator,
) -> Ends:
    """Both directions [2, num_edges] of num_edges / 2 different pairs of nodes, drawn until there are enough."""
    wanted = options.num_edges // 2
    keys = np.empty(0, dtype=np.uint64)
    for _ in range(_MAX_ROUNDS):
        low, high = draw(max(1024, (wanted - len(keys)) * 5 // 4), rng)
        low, high = np.minimum(low, high), np.maximum(low, high)
        fresh = (low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64))[low != high]
        keys = sorted_unique(np.concatenate([keys, fresh]))
        if len(keys) >= wanted:
            break
    else:
        raise UserError(
            f"{options.num_edges} edges were not found: this generator repeats itself on {options.num_nodes} nodes",
            fix=f"set num_edges={len(keys) * 2}, or more nodes",
        )
    if len(keys) > wanted:  # a sorted prefix would favour low ids
        keys = np.delete(keys, rng.choice(len(keys), len(keys) - wanted, replace=False))
    ends = np.stack([keys >> np.uint64(32), keys & np.uint64(2**32 - 1)]).astype(np.int64)
    return np.concatenate([ends, ends[::-1]], axis=1)


def _check_communities(options: SbmOptions) -> SbmOptions:
    if options.communities > options.num_nodes:
        raise UserError(
            f"{options.communities} communities for {options.num_nodes} nodes",
            fix=f"set communities={options.num_nodes}",
        )
    return options


def _sbm_labels(options: SbmOptions) -> Ends:
    community = np.arange(options.num_nodes, dtype=np.int64) * options.communities // options.num_nodes
    return community % (options.classes or options.communities)


def _sbm_sampler(options: SbmOptions) -> Callable[[int, np.random.Generator], tuple[Ends, Ends]]:
    starts = -(-np.arange(options.communities + 1, dtype=np.int64) * options.num_nodes // options.communities)

    def draw(count: int, rng: np.random.Generator) -> tuple[Ends, Ends]:
        sources = rng.integers(0, options.num_nodes, count)
        community = sources * options.communities // options.num_nodes
        size = starts[community + 1] - starts[community]
        stays = rng.random(count, dtype=np.float32) < options.inside
        near = starts[community] + rng.integers(0, size)
        return sources, np.where(stays, near, rng.integers(0, options.num_nodes, count))

    return draw


def _rmat_sampler(options: RmatOptions) -> Callable[[int, np.random.Generator], tuple[Ends, Ends]]:
    levels = (options.num_nodes - 1).bit_length()
    left_of = np.cumsum(_RMAT)[:3].astype(np.float32)

    def draw_chunk(count: int, rng: np.random.Generator) -> tuple[Ends, Ends]:
        row, column = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        at = np.empty(count, dtype=np.float32)  # where in the unit interval, which the four quadrants divide
        for _ in range(levels):
            rng.random(out=at, dtype=np.float32)
            right = (at >= left_of[0]) & (at < left_of[1]) | (at >= left_of[2])
            row += row
            row += at >= left_of[1]
            column += column
            column += right
        inside = (row < options.num_nodes) & (column < options.num_nodes)
        return row[inside], column[inside]

    def draw(count: int, rng: np.random.Generator) -> tuple[Ends, Ends]:
        chunks = [draw_chunk(min(_CACHED, count - start), rng) for start in range(0, count, _CACHED)]
        return np.concatenate([row for row, _ in chunks]), np.concatenate([column for _, column in chunks])

    return draw
