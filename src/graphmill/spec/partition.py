"""How ranks train on a graph in parts: where sampling happens, who has which parts and seeds, what else they hold."""

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec

PARTS_FOLDER: Final = "parts"
"""Under a dataset root: parts/<dataset>/<name of the partition>."""
DEFAULT_METHOD: Final = "kaminpar"
"""Which partitioner `graphmill partition` chooses for graphs that it has the memory for."""
Method = Literal["kaminpar", "metis", "ldg", "random", "hotness"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
_PARTS_NAME: Final = re.compile(
    rf"{PARTS_FOLDER}/(?P<dataset>.+)/(?P<num_parts>[1-9][0-9]*)-(?P<method>{'|'.join(METHODS)})"
)

Seeding = Literal["equal", "owner"]


_HELD: Final = (
    "rows that are held, as a share of all nodes of the graph; with partition.placement=per_host once for all ranks of "
    "a host"
)


class NoCacheSpec(Spec):
    """No rows of other parts are held: each batch fetches all that it needs of them."""

    policy: Literal["none"] = "none"


class HotCacheSpec(Spec):
    """The hottest rows of other parts, fetched once when an attempt begins."""

    policy: Literal["degree", "hotness", "vip"] = Field(
        "vip",
        description="which rows: degree, of most edges into the part; hotness, the analytic propagation of "
        "GraphLearn-for-PyTorch; vip, the probability of being sampled (SALIENT++, arXiv 2305.03152)",
    )
    ratio: float = Field(0.1, ge=0, le=1, description=_HELD)
    mib: float | None = Field(None, gt=0, description="and at most so many MiB of them; null: no further limit")


class PresampledCacheSpec(Spec):
    """The rows that sampled epochs read most, counted before the first step of an attempt."""

    policy: Literal["presample"] = "presample"
    epochs: PositiveInt = Field(1, description="that are sampled and counted: the first ones of the run")
    ratio: float = Field(0.1, ge=0, le=1, description=_HELD)
    mib: float | None = Field(None, gt=0, description="and at most so many MiB of them; null: no further limit")


class LookaheadSpec(Spec):
    """Exactly the rows that the next batches need: draws are keyed, so these are known before."""

    policy: Literal["lookahead"] = "lookahead"
    window: PositiveInt = Field(16, description="batches whose rows are fetched together, each row once")
    horizon: PositiveInt = Field(
        1,
        description="windows, the next one among them, by whose needs is decided which rows stay; with 2 and more, "
        "batches are sampled that many windows ahead and wait in memory",
    )
    ratio: float | None = Field(
        None,
        ge=0,
        le=1,
        description="rows that stay from window to window at most, as a share of all nodes of the graph: those whose "
        "next use is nearest, then, while there is room, those that most windows have needed. null, of mib too: all "
        "that the windows in sight need, and no others",
    )
    mib: float | None = Field(None, gt=0, description="and at most so many MiB of them; null: no further limit")


CacheSpec = Annotated[NoCacheSpec | HotCacheSpec | PresampledCacheSpec | LookaheadSpec, Field(discriminator="policy")]


class PartitionSpec(Spec):
    """Use of data that `graphmill partition` made; it says nothing of other data."""

    topology: Literal["replicated", "partitioned"] = Field(
        "replicated",
        description="replicated: every host maps the whole topology, and sampling asks nobody; partitioned: the nodes "
        "of each hop go to the ranks that own them",
    )
    placement: Literal["per_host", "per_rank"] = Field(
        "per_host",
        description="per_host: the ranks of a host share its parts; per_rank: each rank reads its own parts only",
    )
    seeds: Seeding = Field(
        "owner",
        description="which rank learns from a seed: equal, equal shares of a global batch; owner, the rank that owns "
        "the node",
    )
    cache: CacheSpec = HotCacheSpec()


@dataclass(frozen=True, slots=True)
class PartsName:
    """What the name of a partition says of it, if it has the name that `graphmill partition` gives."""

    dataset: str
    num_parts: int
    method: str


def parts_named(name: str) -> PartsName | None:
    """What the name of prepared data says, or None.

    >>> parts_named("parts/ogbn-products/2-kaminpar")
    PartsName(dataset='ogbn-products', num_parts=2, method='kaminpar')
    >>> parts_named("parts/ogbn-products/2-kaminpr")
    """
    found = _PARTS_NAME.fullmatch(name)
    return None if found is None else PartsName(found["dataset"], int(found["num_parts"]), found["method"])


@dataclass(frozen=True, slots=True)
class InParts:
    """What decides where the parts of a plan's data lie."""

    num_parts: int
    placement: Literal["per_host", "per_rank"]
    topology: Literal["replicated", "partitioned"]
    seeds: Seeding = "owner"


def refuse_partition(spec: PartitionSpec, num_parts: int | None, dataset: str) -> None:
    """Raise a `UserError` if a partition is described, and the data are in one piece."""
    if num_parts is None and spec != PartitionSpec():
        key = next(name for name in PartitionSpec.model_fields if getattr(spec, name) != getattr(PartitionSpec(), name))
        raise UserError(
            f"partition.{key} is set, but {dataset} is not partitioned",
            fix=f"graphmill partition {dataset} --num-parts P, and set dataset.name to the folder that it names",
        )
