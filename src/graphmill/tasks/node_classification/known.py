"""The datasets that `prepare` knows by name."""

from dataclasses import dataclass

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """One line of `graphmill datasets`. Counts are of the published data; edges are directed, as stored."""

    name: str
    num_nodes: int | None  # None: as asked
    num_edges: int | None
    num_classes: int | None
    origin: str  # embedded, download, generated
    layout: str  # what --from PATH must hold


_PLANETOID = "the folder of ind.{name}.x, tx, allx, y, ty, ally, graph, test.index"
_SHCHUR = "the file {name}"
_OGB = "OGB's CSV folder: raw/{{edge,node-feat,node-label,num-node-list,num-edge-list}}.csv.gz, split/{name}/*.csv.gz"

_KNOWN = (
    KnownDataset("debian-packages", 93_649, 590_978, 58, "embedded", "a folder of apt package lists (*_Packages)"),
    KnownDataset("planetoid/cora", 2_708, 10_556, 7, "download", _PLANETOID.format(name="cora")),
    KnownDataset("planetoid/citeseer", 3_327, 9_104, 6, "download", _PLANETOID.format(name="citeseer")),
    KnownDataset("planetoid/pubmed", 19_717, 88_648, 3, "download", _PLANETOID.format(name="pubmed")),
    KnownDataset("amazon/photo", 7_650, 238_162, 8, "download", _SHCHUR.format(name="amazon_electronics_photo.npz")),
    KnownDataset(
        "amazon/computers", 13_752, 491_722, 10, "download", _SHCHUR.format(name="amazon_electronics_computers.npz")
    ),
    KnownDataset("coauthor/cs", 18_333, 163_788, 15, "download", _SHCHUR.format(name="ms_academic_cs.npz")),
    KnownDataset("coauthor/physics", 34_493, 495_924, 5, "download", _SHCHUR.format(name="ms_academic_phy.npz")),
    KnownDataset("reddit", 232_965, 114_615_892, 41, "download", "the folder of reddit_data.npz and reddit_graph.npz"),
    KnownDataset("ogbn-arxiv", 169_343, 1_166_243, 40, "download", _OGB.format(name="time")),
    KnownDataset("ogbn-products", 2_449_029, 123_718_280, 47, "download", _OGB.format(name="sales_ranking")),
    KnownDataset("synthetic/sbm", None, None, None, "generated", "nothing: num_nodes, num_edges, … are options"),
    KnownDataset("synthetic/rmat", None, None, None, "generated", "nothing: num_nodes, num_edges, … are options"),
)

OTHER_LAYOUTS = (
    "a .npz file with edge_index, y, x (or x_data x_indices x_indptr x_shape), train_mask val_mask test_mask or split;"
    " or a folder with edges.csv (src,dst) and nodes.csv (id,label,split, one column per feature), or both as .parquet"
)


def known_datasets() -> tuple[KnownDataset, ...]:
    """Every dataset that has a name of its own. Others are prepared with any name and `--from`."""
    return _KNOWN


def is_known(name: str) -> bool:
    """Whether `prepare` knows the name."""
    return any(dataset.name == name for dataset in _KNOWN)


def known(name: str) -> KnownDataset:
    """The dataset of that name, or a `UserError` with the nearest one."""
    for dataset in _KNOWN:
        if dataset.name == name:
            return dataset
    names = [dataset.name for dataset in _KNOWN]
    same_end = [known_name for known_name in names if known_name.rpartition("/")[2] == name]
    hint = f"did you mean {same_end[0]!r}?" if same_end else did_you_mean(name, names)
    raise UserError(
        f"no dataset is called {name!r}: {hint}",
        fix=f"prepare your own graph with --from PATH, where PATH is {OTHER_LAYOUTS}",
    )
