"""How ranks train on a graph in parts: where sampling happens, who has which parts and seeds, what is held of others."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from graphmill.config.frozen import Spec

Policy = Literal["none", "degree", "presample", "hotness", "vip", "lookahead"]


class HotCacheSpec(Spec):
    """Rows of other parts' features that each rank holds."""

    policy: Policy = Field(
        "vip",
        description="which rows: degree, those with most edges into the part; presample, those that sampled epochs read "
        "most; hotness, the analytic propagation of GraphLearn-for-PyTorch; vip, the probability of being sampled "
        "(SALIENT++, arXiv 2305.03152); lookahead, exactly what the next `window` batches need; none",
    )
    ratio: float = Field(0.1, ge=0, le=1, description="rows held, as a share of all nodes of the graph; not of lookahead")
    mib: float | None = Field(None, gt=0, description="and at most so many MiB of them; null: no further limit")
    window: PositiveInt = Field(8, description="lookahead: batches whose rows are fetched together, each row once")
    epochs: PositiveInt = Field(1, description="presample: epochs that are sampled before the first step")


class PartitionSpec(Spec):
    """Of prepared data that `graphmill partition` made."""

    topology: Literal["replicated", "partitioned"] = Field(
        "replicated",
        description="replicated: every host maps the whole topology, sampling asks nobody; partitioned: each hop's nodes "
        "go to the ranks that own them",
    )
    placement: Literal["per_host", "per_rank"] = Field(
        "per_host", description="per_host: ranks of a host share its parts; per_rank: each rank reads its own parts only"
    )
    seeds: Literal["equal", "owner"] = Field(
        "equal", description="which rank learns from a seed: equal shares of a batch, or the rank that owns the node"
    )
    cache: HotCacheSpec = HotCacheSpec()

    @model_validator(mode="after")
    def _window_is_of_lookahead(self) -> Self:
        given = self.cache.model_fields_set
        for key, policy in (("window", "lookahead"), ("epochs", "presample")):
            if key in given and self.cache.policy != policy:
                raise ValueError(f"cache.{key} is of policy {policy}, and cache.policy is {self.cache.policy}")
        return self
