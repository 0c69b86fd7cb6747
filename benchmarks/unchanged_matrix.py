"""What `unchanged.py` runs: prepared data, recipes shortened, ranks, schemes, options, interrupted runs, two hosts.

Names of keys and options as the latest code spells them stand in SPELLINGS, beside how earlier code did: nothing else
here depends on the commit.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

How = Literal["train", "kill", "stop", "slurm"]
Settings = dict[str, Any]

# Key as it is written in this file: its spellings, any of which a commit may know; the first that it knows is used.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "train.lr": ("train.lr", "train.optimizer.lr"),
    "train.weight_decay": ("train.weight_decay", "train.optimizer.weight_decay"),
    "train.max_grad_norm": ("train.max_grad_norm", "train.optimizer.max_grad_norm", "train.optimizer.clip_norm"),
    "train.lr_schedule": ("train.lr_schedule", "train.optimizer.schedule.kind", "train.optimizer.schedule"),
    "train.lr_milestones": ("train.lr_milestones", "train.optimizer.schedule.milestones"),
    "train.lr_gamma": ("train.lr_gamma", "train.optimizer.schedule.gamma"),
}
# The same for options of `graphmill prepare`: an option, or a key of its `-o`.
PREPARE_SPELLINGS: dict[str, tuple[str, str]] = {
    "adjacency": ("--adjacency", "adjacency"),
    "random_split": ("--random-split", "random_split=true"),
}


@dataclass(frozen=True, slots=True)
class Data:
    """A dataset to prepare. `source` is a file of the folder of raw data; None: it is embedded or generated."""

    name: str
    source: str | None = None
    keep_rows: int | None = None  # time steps, so that a run takes seconds
    store_as: str | None = None
    options: dict[str, str] = field(default_factory=dict)  # of the generator
    adjacency: str | None = None
    random_split: bool = False

    @property
    def stored_name(self) -> str:
        return self.store_as or self.name


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `threshold_steps`: with kill and stop, it is interrupted once a checkpoint holds so many steps."""

    key: str
    recipe: str
    ranks: int
    settings: Settings
    how: How = "train"
    threshold_steps: int = 0

    @property
    def run_id(self) -> str:
        return self.key.replace("/", "--")


DATA = (
    Data("debian-packages"),
    Data("planetoid/cora", "nodes/cora.npz"),
    Data("planetoid/pubmed", "nodes/pubmed.npz"),
    Data("wordnet31", "nodes/wordnet31.npz"),
    Data("metr-la-10", "traffic/metr_la_10sensors_full.npz", keep_rows=6000),  # two weeks to train on
    Data("metr-la-week", "traffic/metr_la_207sensors_week1.npz", keep_rows=400),
    Data("metr-la", "traffic/metr_la_207sensors_week1.npz", keep_rows=250),
    Data("bangkok", "traffic/bangkok_link_travel_time.npz", keep_rows=250),
    Data("synthetic/traffic", options={"num_steps": "1500"}),
    Data("synthetic/nearest"),
    Data("synthetic/motifs"),
    Data("synthetic/can"),
    Data("synthetic/assignment"),
    Data("tu/enzymes", "raw_layouts/TU/ENZYMES.zip"),
    # prepared only: other raw layouts, other options
    Data("planetoid/citeseer", "nodes/citeseer.npz"),
    Data("planetoid/cora", "raw_layouts/Cora/raw", store_as="cora-raw"),
    Data("amazon/photo", "raw_layouts/Photo/raw"),
    Data("cora-own-split", "nodes/cora.npz", random_split=True),
    Data("metr-la-h5", "traffic/metr-la-week1.h5", adjacency="traffic/adj_mx.pkl"),
    Data("synthetic/sbm", options={"num_nodes": "2000", "num_edges": "10000"}),
    Data("synthetic/rmat", options={"num_nodes": "2048", "num_edges": "10000"}),
)

# Recipe: what shortens it. Each runs with 1 and 2 ranks under every scheme.
RECIPES: dict[str, Settings] = {
    "cora-sage": {"train.epochs": 6, "train.batch_size": 16},
    "pubmed-sage": {"train.epochs": 4, "train.batch_size": 8},
    "debian-packages-sage": {"train.epochs": 2, "train.batch_size": 512, "dataset.train_limit": 8192},
    "debian-packages-gcn": {"dataset.name": "planetoid/cora", "train.batch_size": 16},
    "wordnet31-sage": {"train.epochs": 2, "train.batch_size": 512, "dataset.train_limit": 8192},
    "reddit-sage": {"dataset.name": "planetoid/pubmed", "train.max_steps": 24, "train.batch_size": 8},
    "traffic-demo": {"train.epochs": 2, "dataset.train_limit": 512, "train.batch_size": 32},
    "traffic-metr-la-10": {"train.epochs": 2, "dataset.train_limit": 512, "train.batch_size": 32},
    "traffic-metr-la-week": {"train.epochs": 2, "dataset.train_limit": 64, "train.batch_size": 8},
    "traffic-metr-la": {"train.epochs": 2, "dataset.train_limit": 32, "train.batch_size": 4},
    "traffic-bangkok": {"train.epochs": 2, "dataset.train_limit": 64, "train.batch_size": 8},
    "traffic-stid": {"train.epochs": 2, "dataset.train_limit": 512, "train.batch_size": 32},
    "debian-packages-sign": {"train.epochs": 2},
    "links-demo": {"train.epochs": 2},
    "motifs-gin": {"train.epochs": 2},
    "enzymes-gin": {"train.epochs": 2},
    "can-gat": {"train.epochs": 2},
    "can-vgae": {"train.epochs": 2},
    "assignment-one-gnn": {"train.epochs": 2},
}
SCHEMES: dict[str, Settings] = {
    "deferred_allreduce": {"train.sync.scheme": "deferred_allreduce"},
    "local_sgd": {"train.sync.scheme": "local_sgd", "train.sync.every": 3},
    "diloco": {"train.sync.scheme": "diloco", "train.sync.every": 3},
}
# What no recipe asks for, on the two smallest recipes.
CORA_OPTIONS: dict[str, Settings] = {
    "deferred-k4": {"train.sync.scheme": "deferred_allreduce", "train.sync.every": 4},
    "local-sgd-fp16": {"train.sync.scheme": "local_sgd", "train.sync.every": 2, "train.sync.payload": "fp16"},
    "diloco-bf16": {"train.sync.scheme": "diloco", "train.sync.every": 2, "train.sync.payload": "bf16"},
    "local-sgd-warmup": {
        "train.sync.scheme": "local_sgd",
        "train.sync.every": 4,
        "train.sync.warmup_steps": 3,
        "train.sync.average_optimizer_state": True,
    },
    "bf16": {"train.precision": "bf16"},
    "two-threads": {"train.threads": 2},
    "no-prefetch": {"train.prefetch": 0},
    "directed-as-stored": {"dataset.undirected": False, "dataset.features": "as_stored"},
    "clipped-cosine": {"train.max_grad_norm": 0.5, "train.lr_schedule": "cosine"},
    "multistep": {"train.lr_schedule": "multistep", "train.lr_milestones": [2, 4], "train.lr_gamma": 0.5},
    "max-steps": {"train.epochs": None, "train.max_steps": 34},
    "evaluate-at-end": {"train.evaluate_every_epochs": 0},
    "three-layers": {"model.num_layers": 3, "train.num_neighbors": [5, 5, -1]},
}
TRAFFIC_OPTIONS: dict[str, Settings] = {
    "deferred-k4": {"train.sync.scheme": "deferred_allreduce", "train.sync.every": 4},
    "bf16": {"train.precision": "bf16"},
    "prefetch": {"train.prefetch": 2},
    "identity-graph": {"dataset.graph": "identity", "dataset.history": 6, "dataset.horizon": 3},
    "multistep": {"train.lr_schedule": "multistep", "train.lr_milestones": [1], "train.lr_gamma": 0.3},
}
SKIPPED = {
    "reddit-sage on reddit": "the data are not in the folder of raw data; its settings run on planetoid/pubmed",
    "traffic-metr-la on all of METR-LA": "only one week of the 207 sensors is there; it runs on the first steps of it",
    "traffic-* on all time steps": "the first steps only, so that the whole matrix takes minutes",
    "debian-packages-gcn under every scheme": "its own data take minutes a run: one run on them, the others on cora",
    "study-*": "grids of runs of the recipes above",
}


def cases(*, slurm: bool) -> list[Case]:
    """Every run of the matrix, longest last."""
    found = [
        Case(f"{recipe}/{ranks}-ranks/{scheme}", recipe, ranks, short | settings)
        for recipe, short in RECIPES.items()
        for ranks in (1, 2)
        for scheme, settings in SCHEMES.items()
    ]
    found += _options("cora-sage", CORA_OPTIONS) + _options("traffic-demo", TRAFFIC_OPTIONS)
    found += [Case("cora-sage/3-ranks/local_sgd", "cora-sage", 3, RECIPES["cora-sage"] | SCHEMES["local_sgd"])]
    found += _interrupted("cora-sage", 2, 40, SCHEMES["local_sgd"] | {"train.batch_size": 2, "train.epochs": 4})
    found += _interrupted("cora-sage", 1, 40, {"train.sync.every": 4, "train.batch_size": 4, "train.epochs": 4})
    found += _interrupted("traffic-demo", 2, 20, RECIPES["traffic-demo"] | SCHEMES["diloco"] | {"train.batch_size": 16})
    own = {"dataset.train_limit": 256, "train.epochs": 1, "train.batch_size": 64}
    found += [Case("debian-packages-gcn/own-data", "debian-packages-gcn", 1, own)]
    return found + (_two_hosts() if slurm else [])


def _options(recipe: str, options: dict[str, Settings]) -> list[Case]:
    return [
        Case(f"{recipe}/options/{name}", recipe, 2, RECIPES[recipe] | settings) for name, settings in options.items()
    ]


def _interrupted(recipe: str, ranks: int, threshold_steps: int, settings: Settings) -> list[Case]:
    """The same run left alone, killed, and asked to stop; the last two are resumed until they are done."""
    every = settings | {"train.checkpoint.every_steps": 1}
    ways: dict[str, How] = {"left-alone": "train", "killed": "kill", "stopped": "stop"}
    return [
        Case(f"{recipe}/resumed-{ranks}-ranks/{name}", recipe, ranks, every, how, threshold_steps)
        for name, how in ways.items()
    ]


def _two_hosts() -> list[Case]:
    hosts = {"slurm.site": "devcluster", "slurm.hosts": 2, "slurm.mem": "1500M", "slurm.time": 20}
    schemes = {"cora-sage": "local_sgd", "debian-packages-sage": "deferred_allreduce", "traffic-demo": "diloco"}
    return [
        Case(f"{recipe}/2-hosts/{scheme}", recipe, 2, RECIPES[recipe] | SCHEMES[scheme] | hosts, "slurm")
        for recipe, scheme in schemes.items()
    ]


def raw_file(data: Data, raw_root: Path, work: Path) -> Path:
    """The raw data of `data`; cut to its first time steps where that is asked for."""
    assert data.source is not None
    source = raw_root / data.source
    if data.keep_rows is None:
        return source
    cut = work / "raw" / f"{data.stored_name}.npz"
    if not cut.exists():
        cut.parent.mkdir(parents=True, exist_ok=True)
        with np.load(source, allow_pickle=False) as arrays:
            rows = {"values", "timestamps"}
            np.savez(cut, **{name: arrays[name][: data.keep_rows] if name in rows else arrays[name] for name in arrays})
    return cut
