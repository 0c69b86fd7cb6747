"""Which reader reads which links."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.archive import npz_keys
from graphmill.graph.tables import SUFFIXES, column_names
from graphmill.tasks.link_prediction.data.links import LinkGraph
from graphmill.tasks.link_prediction.data.sources import link_table, npz, ogb, random_link_split, triples
from graphmill.tasks.link_prediction.data.sources.debian import read_dependencies
from graphmill.tasks.link_prediction.data.sources.generate import generate_nearest
from graphmill.tasks.link_prediction.data.splits import JoinedGraph
from graphmill.tasks.link_prediction.page.data import DATASETS, LinkPrepareOptions
from graphmill.tasks.recognise import Look, named, shaped

OTHER_LAYOUTS: Final = (
    "a .npz with edge_index and train_links, val_links, test_links, or with edge_index alone and --random-split; a"
    " folder of train.txt, valid.txt, test.txt (head, relation, tail); a table .csv or .parquet with the columns source"
    " and target, or a folder with links.csv and nodes.csv; a folder of train.pt, val.pt, test.pt from RandomLinkSplit;"
    " or OGB's folder of a link set"
)
_GENERATED: Final = "synthetic/nearest"
_DEBIAN: Final = "debian-dependencies"


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What `prepare` was asked to read."""

    name: str  # of the dataset
    stored_name: str  # of the store
    from_path: Path | None
    options: LinkPrepareOptions
    scratch: Path  # what is large is unpacked there


def read_links(request: LinkRequest) -> LinkGraph | JoinedGraph:
    """Read the links from `--from PATH`, else from the package or the generator."""
    path, options = request.from_path, request.options
    if path is not None and not path.exists():
        raise UserError(f"{path} does not exist", fix="give a path that does with --from")
    if options.of_generator and request.name != _GENERATED:
        raise UserError(
            f"{request.name} is not generated and takes no options {', '.join(options.of_generator)}",
            fix=f"leave them out, or prepare {_GENERATED}",
        )
    if request.name == _GENERATED:
        if path is not None:
            raise UserError(f"{_GENERATED} is generated and reads nothing from {path}", fix="leave --from out")
        return generate_nearest(options.of_generator, request.stored_name)
    if request.name == _DEBIAN:
        return read_dependencies(path, request.stored_name)
    if path is None:
        known = next((each for each in DATASETS if each.name == request.name), None)
        expected = OTHER_LAYOUTS if known is None else known.layout
        hint = "" if known else f" ({did_you_mean(request.name, [each.name for each in DATASETS])})"
        raise UserError(f"{request.name} needs --from{hint}", fix=f"give --from PATH, where PATH is {expected}")
    if request.name.startswith("ogbl-"):
        folder = ogb.find_ogb_links(path, request.name)
        return ogb.read_ogb_links(folder, request.name, request.stored_name, undirected=options.undirected)
    return _read_own(path, request)


def _read_own(path: Path, request: LinkRequest) -> LinkGraph | JoinedGraph:
    name, options = request.stored_name, request.options
    if path.suffix == ".npz":
        return npz.read_npz_links(path, name, undirected=options.undirected, scratch=request.scratch)
    if link_table.is_link_folder(path) or (path.is_file() and path.name.endswith(SUFFIXES)):
        return link_table.read_link_table(path, name)
    if path.is_dir() and ogb.is_ogb_links(path):
        dataset = path.name.replace("_", "-")
        if dataset not in {each.name for each in DATASETS} and options.undirected is None:
            raise UserError(
                f"{path} is in OGB's layout, and its name does not say which link set it is",
                fix="graphmill prepare ogbl-NAME --from PATH, or say whether links have direction: -o undirected=true",
            )
        return ogb.read_ogb_links(path, dataset, name, undirected=options.undirected)
    if path.is_dir() and random_link_split.saved_files(path) is not None:
        return random_link_split.read_saved_split(path, name, undirected=options.undirected)
    if path.is_dir() and triples.triple_files(path) is not None:
        return triples.read_triples(path, name)
    raise UserError(f"{path} is in no layout of links that graphmill reads", fix=f"give {OTHER_LAYOUTS}")


def holds_links(path: Path) -> Look | None:
    """What says that a file or folder is links in splits: its keys, its files' names, its columns."""
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".npz":
        if path.is_file() and npz.has_links(set(npz_keys(path))):
            return named("it has links of splits besides edges")
        return None
    if path.is_file() and path.name.endswith(SUFFIXES):
        try:
            columns = {column.strip().lower() for column in column_names(path)}
        except UserError:  # no table: another task may know what it is
            return None
        if {"source", "target"} <= columns or {"head", "relation", "tail"} <= columns:
            return shaped("its columns are ends of links")
    return None


def _folder(path: Path) -> Look | None:
    if ogb.is_ogb_links(path):
        return named("it has raw/edge.csv.gz and split/*/train.pt, as OGB's link sets")
    if random_link_split.saved_files(path) is not None:
        return named("it has train.pt, val.pt and test.pt, as saved of PyG's RandomLinkSplit")
    if link_table.is_link_folder(path):
        return named("it has a table called links")
    files = triples.triple_files(path)
    if files is not None and triples.looks_like_triples(files["train"]):
        return named(f"it has {', '.join(each.name for each in files.values())} of triples")
    return None
