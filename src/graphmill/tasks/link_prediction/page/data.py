"""Links: what `prepare` takes, and which sets of links have a name of their own."""

from typing import Final, Literal

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.spec.columns import Baseline
from graphmill.spec.kinds.kind import KnownDataset

NAME: Final = "link_prediction"
"""What the kind calls itself, and prepared data say."""


class LinkPrepareOptions(Spec):
    """Options of `graphmill prepare` for links. The keys from num_nodes on are of the generator only."""

    feature_dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        None, description="store dense features so; null: as they are"
    )
    random_split: bool = Field(
        False, description="draw val and test links at random; all links between two nodes are in one split"
    )
    time_split: bool = Field(
        False, description="split by the time of each link: the earliest are learned from, the latest are test links"
    )
    split_seed: int = Field(0, ge=0, description="of a random split")
    val_fraction: float = Field(0.05, gt=0, lt=1, description="of the links, where a split is drawn")
    test_fraction: float = Field(0.1, gt=0, lt=1, description="of the links, where a split is drawn")
    val_from: float | None = Field(
        None, description="time_split: links from this time on are not learned from; null: by the fractions"
    )
    test_from: float | None = Field(None, description="time_split: links from this time on are test links")
    undirected: bool | None = Field(
        None,
        description="(u, v) and (v, u) are one link, and messages go both ways; null: as the source says, or else if "
        "every edge is there in both directions",
    )
    typed: bool = Field(True, description="keep relations of links and types of nodes where the source has them")
    reverse_relations: bool = Field(
        False, description="of links with relations: add every message edge in the other direction, as rev_NAME"
    )
    num_nodes: int | None = Field(None, description="of the graph; null: the generator's default, here and below")
    neighbours: int | None = Field(None, description="nearest nodes that each is joined to")
    dimensions: int | None = Field(None, description="of the hidden space")
    features: int | None = Field(None, description="per node")
    noise: float | None = Field(None, description="of features: its standard deviation over the signal's")
    seed: int | None = Field(None, description="of the generator")

    @property
    def of_generator(self) -> dict[str, int | float]:
        """Options that were given for the generator."""
        names = ("num_nodes", "neighbours", "dimensions", "features", "noise", "seed")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


_OGB: Final = (
    "OGB's folder: raw/{{edge,num-node-list,…}}.csv.gz, split/{split}/{{train,valid,test}}.pt; unpack its zip archive"
)
COUNTS: Final = {"num_nodes": "nodes", "num_edges": "message edges"}
_PUBLISHED: Final = ("num_nodes", "num_edges", "num_features", "num_train", "num_val", "num_test")


def _known(name: str, *counts: int, layout: str) -> KnownDataset:
    return KnownDataset(name, dict(zip(_PUBLISHED, counts, strict=True)), "given", layout)


_BY_TIME: Final = _OGB.format(split="time")
DATASETS: Final = (
    KnownDataset(
        "debian-dependencies",
        dict(zip(_PUBLISHED, (93_649, 324_986, 4_000, 324_986, 80_054, 185_938), strict=True)),
        "embedded",
        "a file that tools/build_debian_packages.py of a checkout made",
    ),
    _known("ogbl-collab", 235_868, 2_358_104, 128, 1_179_052, 60_084, 46_329, layout=_BY_TIME),
    _known(
        "ogbl-ppa", 576_289, 42_463_862, 58, 21_231_931, 6_062_562, 3_031_780, layout=_OGB.format(split="throughput")
    ),
    _known("ogbl-citation2", 2_927_963, 30_387_995, 128, 30_387_995, 86_596, 86_596, layout=_BY_TIME),
    KnownDataset("ogbl-wikikg2", {}, "given", _BY_TIME),
    KnownDataset(
        "synthetic/nearest", {}, "generated", "nothing: num_nodes, neighbours, … are options; links join nearby nodes"
    ),
)
SPARSE: Final = ("debian-dependencies",)
WITH_POOL: Final = ("ogbl-collab", "ogbl-ppa")  # of pairs, for all links; links without direction
WITH_CANDIDATES: Final = ("ogbl-citation2",)  # for each link

COMMON: Final = Baseline(
    "common_neighbours",
    "common neighbours",
    "how many neighbours two nodes share, of the message graph without directions",
    scored="end",
)
ADAMIC_ADAR: Final = Baseline(
    "adamic_adar", "Adamic-Adar", "the same, each counted 1 / log of its degree (Adamic, Adar 2003)", scored="end"
)
DEGREE: Final = Baseline(
    "degree",
    "degree",
    "by preferential attachment: links that a node has already, of that direction and relation",
    scored="end",
)
COSINE: Final = Baseline("cosine", "cosine of features", "how alike the features of two nodes are", scored="end")
BASELINES: Final = (COMMON, ADAMIC_ADAR, DEGREE, COSINE)
