"""Which reader reads which dataset, and which datasets have names."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.archive import npz_keys
from graphmill.graph.features import sparse
from graphmill.graph.tables import SUFFIXES
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.kind import KnownDataset
from graphmill.tasks.debian_packages import read_compact, read_shipped
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources import ogb, ogb_hetero, planetoid, raw_npz
from graphmill.tasks.node_classification.data.sources.download import fetch, unpack
from graphmill.tasks.node_classification.data.sources.edge_list import read_edge_list
from graphmill.tasks.node_classification.data.sources.generate import generate
from graphmill.tasks.node_classification.data.sources.npz import is_graph_npz, read_npz_graph
from graphmill.tasks.node_classification.data.sources.pyg import read_pyg_dataset
from graphmill.tasks.node_classification.page.data import DATASETS
from graphmill.tasks.recognise import Look, named, shaped

OTHER_LAYOUTS = (
    "a .npz file with edge_index, y, x (or x_data x_indices x_indptr x_shape), train_mask val_mask test_mask or split;"
    " or a folder with edges.csv (src,dst) and nodes.csv (id,label,split, one column per feature), or both as .parquet"
)
_SHCHUR_FILES = {
    "amazon/photo": "amazon_electronics_photo.npz",
    "amazon/computers": "amazon_electronics_computers.npz",
    "coauthor/cs": "ms_academic_cs.npz",
    "coauthor/physics": "ms_academic_phy.npz",
}
_PYG_FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}


def is_known(name: str) -> bool:
    """Whether `prepare` knows the name."""
    return any(dataset.name == name for dataset in DATASETS)


def known(name: str) -> KnownDataset:
    """The dataset of that name, or a `UserError` with the nearest one."""
    for dataset in DATASETS:
        if dataset.name == name:
            return dataset
    names = [dataset.name for kind in all_kinds() for dataset in kind.data.known]
    same_end = [known_name for known_name in names if known_name.rpartition("/")[2] == name]
    hint = f"did you mean {same_end[0]!r}?" if same_end else did_you_mean(name, names)
    raise UserError(
        f"no dataset is called {name!r}: {hint}",
        fix=f"prepare your own graph with --from PATH, where PATH is {OTHER_LAYOUTS}",
    )


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What `prepare` was asked to read."""

    name: str  # of the dataset
    stored_name: str  # of the store
    downloads: Path
    from_path: Path | None = None
    random_split: bool = False  # in place of the dataset's own, which it then need not have
    split_seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def read_raw(request: ReadRequest) -> LabelledGraph:
    """Read the dataset from `--from PATH`, else from the package, the generator or the network."""
    _check(request)
    if request.from_path is not None and is_graph_npz(request.from_path):
        return read_npz_graph(
            request.from_path,
            request.stored_name,
            scratch=request.downloads,
            split_seed=_forced_seed(request),
        )
    match request.name.split("/"):
        case ["debian-packages"]:
            raw = _read_debian(request)
        case ["planetoid", ("cora" | "citeseer" | "pubmed") as dataset]:
            raw = _read_planetoid(request, dataset)
        case ["amazon" | "coauthor", _] if request.name in _SHCHUR_FILES:
            raw = _read_shchur(request)
        case ["reddit"]:
            raw = _read_reddit(request)
        case [dataset] if dataset.startswith("ogbn-"):
            raw = _read_ogb(request, dataset)
        case ["synthetic", ("sbm" | "rmat") as kind]:
            raw = _read_generated(request, kind)
        case ["pyg", _, *_]:
            raw = _read_pyg(request)
        case _:
            raw = _read_own(request)
    return raw


def holds_graph(path: Path) -> Look | None:
    """What says that a file or folder is one graph: its keys, or its tables."""
    if path.is_dir():
        stems = ("nodes", "edges")
        tables = [[each.name for each in path.glob(f"{stem}.*") if each.name.endswith(SUFFIXES)] for stem in stems]
        if all(tables):
            return named(f"it has {tables[0][0]} and {tables[1][0]}")
        if ogb_hetero.is_ogb_hetero(path):
            return named(f"it has {ogb_hetero.TRIPLETS}, as OGB's heterogeneous sets")
        return shaped(f"it has {tables[1][0]}") if tables[1] else None
    if path.suffix != ".npz" or not path.is_file() or "edge_index" not in npz_keys(path):
        return None
    return shaped("it has the key edge_index")


def _check(request: ReadRequest) -> None:
    path = request.from_path
    if path is not None and not path.exists():
        raise UserError(f"{path} does not exist", fix="give a path that does with --from")
    if request.options and not request.name.startswith("synthetic/"):
        raise UserError(
            f"{request.name} is not generated and takes no options", fix=f"drop {', '.join(request.options)}"
        )


def _forced_seed(request: ReadRequest) -> int | None:
    return request.split_seed if request.random_split else None


def _read_debian(request: ReadRequest) -> LabelledGraph:
    path = request.from_path
    packages = read_shipped() if path is None else read_compact(path)
    return LabelledGraph(
        edge_index=packages.edge_index,
        features=sparse(packages.x_indptr, packages.x_indices, packages.x_counts, packages.num_words),
        labels=packages.labels,
        split=packages.split,
        class_names=packages.class_names,
        name=request.stored_name,
        source="Debian package lists: " + ("the file shipped with graphmill" if path is None else path.name),
        synthetic=False,
        split_note="temporal: train in bullseye, val new in bookworm, test later",
    )


def _read_planetoid(request: ReadRequest, dataset: str) -> LabelledGraph:
    names = planetoid.file_names(dataset)
    if request.from_path is None:
        folder = request.downloads / request.name
        for file in names:
            fetch(f"{planetoid.URL}/{file}", folder / file, layout=known(request.name).layout)
    else:
        folder = _folder_with(request.from_path, names, (_PYG_FOLDERS[dataset], dataset), request.name)
    return planetoid.read_planetoid(folder, dataset, request.stored_name)


def _read_shchur(request: ReadRequest) -> LabelledGraph:
    file = _SHCHUR_FILES[request.name]
    if request.from_path is None:
        path = request.downloads / request.name / file
        fetch(f"{raw_npz.SHCHUR_URL}/{file}", path, layout=known(request.name).layout)
    elif request.from_path.is_file():
        path = request.from_path
    else:
        path = _folder_with(request.from_path, (file,), (request.name.split("/")[1].capitalize(),), request.name) / file
    return raw_npz.read_shchur(path, request.stored_name, split_seed=request.split_seed)


def _read_reddit(request: ReadRequest) -> LabelledGraph:
    if request.from_path is not None:
        folder = _folder_with(request.from_path, raw_npz.REDDIT_FILES, ("Reddit", "reddit"), request.name)
        return raw_npz.read_reddit(folder, request.stored_name)
    folder = request.downloads / request.name
    archive = folder / "reddit.zip"
    if not all((folder / file).is_file() for file in raw_npz.REDDIT_FILES):
        fetch(raw_npz.REDDIT_URL, archive, layout=known(request.name).layout)
        unpack(archive, folder, raw_npz.REDDIT_FILES)
        archive.unlink()
    return raw_npz.read_reddit(folder, request.stored_name)


def _read_ogb(request: ReadRequest, dataset: str) -> LabelledGraph:
    if request.from_path is not None:
        folder = ogb.find_ogb_folder(request.from_path, dataset)
        if ogb_hetero.is_ogb_hetero(folder):
            return ogb_hetero.read_ogb_hetero(folder, dataset, request.stored_name)
        if ogb.is_ogb_binary(folder):
            return ogb.read_ogb_binary(folder, dataset, request.stored_name, request.downloads)
        return ogb.read_ogb(folder, dataset, request.stored_name)
    layout = known(request.name).layout
    if dataset not in ogb.DOWNLOADS:
        raise UserError(
            f"{request.name} is not downloaded by graphmill", fix=f"give --from PATH, where PATH is {layout}"
        )
    short = ogb.DOWNLOADS[dataset]
    folder = request.downloads / request.name
    archive = folder / f"{short}.zip"
    members = ogb.archive_members(dataset)
    if not all((folder / member).is_file() for member in members):
        fetch(f"{ogb.URL}/{short}.zip", archive, layout=layout)
        unpack(archive, folder, members)
        archive.unlink()
    return ogb.read_ogb(folder / short, dataset, request.stored_name)


def _read_generated(request: ReadRequest, kind: Literal["sbm", "rmat"]) -> LabelledGraph:
    if request.from_path is not None:
        raise UserError(
            f"{request.name} is generated and reads nothing from {request.from_path}", fix="leave --from out"
        )
    return generate(kind, request.options, request.stored_name)


def _read_pyg(request: ReadRequest) -> LabelledGraph:
    if request.from_path is not None:
        raise UserError(
            f"{request.name} with --from would let PyG unpickle {request.from_path}, and unpickling runs code",
            fix="leave --from out, so that PyG downloads the files afresh, or write a .npz and give that",
        )
    return read_pyg_dataset(request.name, request.stored_name, split_seed=_forced_seed(request))


def _published_in(path: Path) -> str | None:
    """The dataset of the catalogue whose own files lie in `path`, or one or two folders below it."""
    files = {
        **{name: (file,) for name, file in _SHCHUR_FILES.items()},
        **{f"planetoid/{name}": planetoid.file_names(name) for name in _PYG_FOLDERS},
        "reddit": raw_npz.REDDIT_FILES,
    }
    for name, needed in files.items():
        if path.name in needed and len(needed) == 1:
            return name
        folders = [each.parent for depth in ("", "*/", "*/*/") for each in path.glob(f"{depth}{needed[0]}")]
        if any(all((folder / file).is_file() for file in needed) for folder in folders):
            return name
    return None


def _read_own(request: ReadRequest) -> LabelledGraph:
    """Read the user's own graph, which has any name that is not known."""
    path = request.from_path
    if path is None:
        known(request.name)
        raise UserError(f"{request.name} needs --from", fix=f"give --from PATH, where PATH is {OTHER_LAYOUTS}")
    if path.is_dir() and any((path / f"edges{suffix}").is_file() for suffix in SUFFIXES):
        return read_edge_list(path, request.stored_name, split_seed=_forced_seed(request))
    if ogb_hetero.is_ogb_hetero(path):
        return ogb_hetero.read_ogb_hetero(path, path.name, request.stored_name)
    published = _published_in(path)
    if published is not None:
        raise UserError(
            f"{path} holds the files of {published}, and {request.name!r} names a graph of your own",
            fix=f"graphmill prepare {published} --from {shlex.quote(str(path))} --as {request.stored_name}",
        )
    if path.suffix == ".npz":  # it lacks edge_index: let the reader report it
        return read_npz_graph(path, request.stored_name, scratch=request.downloads)
    raise UserError(
        f"{path} is in no layout that graphmill reads for {request.name!r}",
        fix=f"give {OTHER_LAYOUTS}; where it is something else than one graph, say so with --task",
    )


def _folder_with(path: Path, files: tuple[str, ...], subfolders: tuple[str, ...], dataset: str) -> Path:
    """The folder that holds all `files`: PATH, PATH/raw, or PyG's PATH/<name>/raw."""
    candidates = [
        path,
        path / "raw",
        *(path / folder / "raw" for folder in subfolders),
        *(path / f for f in subfolders),
    ]
    missing: list[str] = []
    for folder in candidates:
        absent = [file for file in files if not (folder / file).is_file()]
        if not absent:
            return folder
        if not missing or len(absent) < len(missing):
            missing = absent
    raise UserError(f"{path} lacks {', '.join(missing)}", fix=f"give {known(dataset).layout}")
