"""Graphs whose nodes have classes: what `prepare` takes, and which graphs have a name of their own."""

from typing import Final, Literal

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.spec.kinds.kind import KnownDataset
from graphmill.spec.targets import TargetKind


class GraphPrepareOptions(Spec):
    """Options of `graphmill prepare` for a graph. The keys from num_nodes on are of the generators only."""

    feature_dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        None, description="store dense features so; null: as they are"
    )
    random_split: bool = Field(False, description="split 60/20/20 at random in place of the dataset's own split")
    split_seed: int = Field(0, ge=0, description="of a random split")
    typed: bool = Field(
        True,
        description="keep types of edges and nodes where the source has them: edges between the same two nodes are "
        "merged if they are of one type; false: they are left out, and such edges merged whatever their types",
    )
    reverse_relations: bool = Field(
        False, description="of a typed graph: add every edge in the other direction, as relation rev_NAME"
    )
    target: TargetKind | None = Field(
        None,
        description="what y is: class, one of each node, as numbers or as rows with a single 1; labels, 0 or 1 for "
        "each of several; null: by its shape, several columns are labels",
    )
    self_loops: bool = Field(True, description="keep edges from a node to itself; false: they are left out")
    num_nodes: int | None = Field(None, description="of the graph; null: the generator's default, here and below")
    num_edges: int | None = Field(None, description="entries: each undirected edge counts twice")
    features: int | None = Field(None, description="per node")
    signal: float | None = Field(None, description="distance of class centres over the noise's standard deviation")
    seed: int | None = Field(None, description="of the generator")
    communities: int | None = Field(None, description="synthetic/sbm: blocks")
    classes: int | None = Field(None, description="of the nodes")
    inside: float | None = Field(None, description="synthetic/sbm: probability that an edge stays in its block")

    @property
    def of_generator(self) -> dict[str, int | float]:
        """Options that were given for a generator."""
        own = {"feature_dtype", "random_split", "split_seed", "typed", "reverse_relations", "target", "self_loops"}
        return {name: value for name, value in self.model_dump(exclude=own).items() if value is not None}


_PACKAGES = "a file that tools/build_debian_packages.py of a checkout made"
_PLANETOID = "the folder of ind.{name}.x, tx, allx, y, ty, ally, graph, test.index"
_AMAZON = "the file amazon_electronics_{name}.npz"
_SHCHUR = "the file {name}"
_OGB = "OGB's CSV folder: raw/{{edge,node-feat,node-label,num-node-list,num-edge-list}}.csv.gz, split/{name}/*.csv.gz"
_PROTEINS = (
    "OGB's CSV folder: raw/{edge,edge-feat,node-label,num-node-list,num-edge-list}.csv.gz, split/species/*.csv.gz"
)
_PAPERS = "OGB's binary folder: raw/{data,node-label}.npz, split/time/*.csv.gz; or a .npz with edge_index, x, y, split"
_ASKED = "nothing: num_nodes, num_edges, … are options"


def _known(
    name: str,
    counts: tuple[int, int, int, int, int],
    layout: str,
    origin: Literal["embedded", "download", "given"] = "download",
) -> KnownDataset:
    """`counts`: nodes, directed edges, classes, features, training nodes."""
    return KnownDataset(name, dict(zip(_PUBLISHED, counts, strict=True)), origin, layout)


_PUBLISHED: Final = ("num_nodes", "num_edges", "num_classes", "num_features", "num_train")
DENSE: Final = frozenset(("reddit", "ogbn-arxiv", "ogbn-products", "ogbn-proteins", "ogbn-papers100M"))  # else sparse
MULTI_LABEL: Final = frozenset(("ogbn-proteins",))
COUNTS: Final = {"num_nodes": "nodes", "num_edges": "edges", "num_classes": "classes"}
DATASETS: Final = (
    _known(
        "debian-packages",
        (93_649, 590_978, 58, 4_000, 58_653),
        _PACKAGES,
        "embedded",
    ),
    _known("planetoid/cora", (2_708, 10_556, 7, 1_433, 140), _PLANETOID.format(name="cora")),
    _known("planetoid/citeseer", (3_327, 9_104, 6, 3_703, 120), _PLANETOID.format(name="citeseer")),
    _known("planetoid/pubmed", (19_717, 88_648, 3, 500, 60), _PLANETOID.format(name="pubmed")),
    _known("amazon/photo", (7_650, 238_162, 8, 745, 4_590), _AMAZON.format(name="photo")),
    _known(
        "amazon/computers", (13_752, 491_722, 10, 767, 8_251), _SHCHUR.format(name="amazon_electronics_computers.npz")
    ),
    _known("coauthor/cs", (18_333, 163_788, 15, 6_805, 11_000), _SHCHUR.format(name="ms_academic_cs.npz")),
    _known("coauthor/physics", (34_493, 495_924, 5, 8_415, 20_696), _SHCHUR.format(name="ms_academic_phy.npz")),
    _known("reddit", (232_965, 114_615_892, 41, 602, 153_431), "the folder of reddit_data.npz and reddit_graph.npz"),
    _known("ogbn-arxiv", (169_343, 1_166_243, 40, 128, 90_941), _OGB.format(name="time")),
    _known("ogbn-products", (2_449_029, 123_718_280, 47, 100, 196_615), _OGB.format(name="sales_ranking")),
    _known("ogbn-proteins", (132_534, 79_122_504, 112, 8, 86_619), _PROTEINS, "given"),
    _known("ogbn-papers100M", (111_059_956, 1_615_685_872, 172, 128, 1_207_179), _PAPERS, "given"),
    KnownDataset("synthetic/sbm", {}, "generated", _ASKED),
    KnownDataset("synthetic/rmat", {}, "generated", _ASKED),
)
