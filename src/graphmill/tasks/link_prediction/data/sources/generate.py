"""A synthetic graph for tests and tutorials, whose links can be learned from features. Records of it say `synthetic`.

Nodes lie at random in a hidden space, each is joined to those nearest to it, and features show its place through a
random map and noise: a latent-space model (Hoff, Raftery, Handcock 2002) with nearest neighbours for its probabilities.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures
from graphmill.tasks.link_prediction.data.splits import JoinedGraph

_ROWS: Final = 256  # of distances at a time


class NearestOptions(BaseModel):
    """What the graph is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    num_nodes: int = Field(2_000, ge=10, le=200_000)
    neighbours: PositiveInt = 8
    dimensions: PositiveInt = 4
    features: PositiveInt = 32
    noise: float = Field(0.5, ge=0, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)


def generate_nearest(options: Mapping[str, Any], name: str) -> JoinedGraph:
    """The graph, without a split; the same options give the same one. Ill-typed options are refused together."""
    asked = _parsed(options)
    places_rng, map_rng, noise_rng = (
        np.random.default_rng(each) for each in np.random.SeedSequence(asked.seed).spawn(3)
    )
    places = places_rng.standard_normal((asked.num_nodes, asked.dimensions))
    shown = places @ map_rng.standard_normal((asked.dimensions, asked.features)) / np.sqrt(asked.dimensions)
    x = shown + asked.noise * noise_rng.standard_normal(shown.shape)
    settings = " ".join(f"{key}={value}" for key, value in asked.model_dump().items())
    return JoinedGraph(
        edge_index=_nearest(places, asked.neighbours),
        features=DenseFeatures(x.astype(np.float32), "float32"),
        name=name,
        source=f"generated: nearest {settings}",
        synthetic=True,
        have_direction=False,
    )


def _nearest(places: NDArray[np.float64], neighbours: int) -> NDArray[np.int64]:
    """Pairs [2, n], the smaller id first: each node with those nearest to it."""
    found = []
    for start in range(0, len(places), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(places)))
        squares = np.zeros((len(rows), len(places)))
        for column in places.T:
            squares += (column[rows, None] - column) ** 2
        squares[np.arange(len(rows)), rows] = np.inf
        nearest = np.argpartition(squares, neighbours - 1, axis=1)[:, :neighbours]
        found.append(np.stack([np.repeat(rows, neighbours), nearest.reshape(-1)]))
    return np.unique(np.sort(np.concatenate(found, axis=1), axis=0), axis=1)


def _parsed(options: Mapping[str, Any]) -> NearestOptions:
    try:
        asked = NearestOptions.model_validate(dict(options))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(
            f"the generator's options: {problems}", fix=f"known: {', '.join(NearestOptions.model_fields)}"
        ) from None
    if asked.neighbours >= asked.num_nodes:
        raise UserError(
            f"{asked.neighbours} neighbours of {asked.num_nodes} nodes", fix=f"set neighbours={asked.num_nodes - 1}"
        )
    return asked
