"""Sets of `defaults.py`: where each comes from, what is asked of it and nothing else, and what a search tries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Arrays = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """An experiment that says what it must, and the space of a search over it."""

    experiment: Mapping[str, Any]  # beside dataset.name
    space: Mapping[str, Any]
    trials: int = 12


@dataclass(frozen=True, slots=True)
class DataSet:
    """Where prepared data come from: a file below --data, arrays made here, or a name that `prepare` knows."""

    asked: Asked
    source: str | Callable[[], Arrays] = ""
    words: tuple[str, ...] = ()  # of `graphmill prepare`
    known_as: str = ""  # what `prepare` calls it; "": the set's own name
    dataset: Mapping[str, Any] = field(default_factory=dict)  # of the experiment, beside the name


_RATE = {"low": 1.0e-3, "high": 3.0e-2, "log": True}
_DECAY = [0.0, 5.0e-4, 5.0e-3]
_SIGN = {"kind": "sign"}
NODES = Asked(
    {"model": {"kind": "graphsage"}},
    {
        "model": [
            {"kind": "graphsage"},
            {"kind": "graphsage", "hidden_channels": 64, "dropout": 0.8},
            _SIGN,
            {**_SIGN, "dropout": 0.8},
            {**_SIGN, "label_propagation": True},
        ],
        "train.optimizer.lr": _RATE,
        "train.optimizer.weight_decay": _DECAY,
    },
)
LARGE = replace(NODES, trials=6)
GRAPHS = Asked(
    {"task": "graph_classification"},
    {
        "model": [{"kind": "gin"}, {"kind": "gin", "norm": "batch"}, {"kind": "gat"}, {"kind": "gatv2"}],
        "dataset.features": ["auto", "as_stored"],
        "train.optimizer.lr": _RATE,
        "train.batch_size": [32, 128],
    },
    trials=6,
)
SERIES = Asked(
    {"task": "traffic", "train": {"epochs": 6}},
    {
        "model": [{"kind": "dcrnn", "rnn_units": 32}, {"kind": "stid"}],
        "dataset.season": ["auto", "none", "last", "day"],
        "train.optimizer.lr": {"low": 2.0e-3, "high": 2.0e-2, "log": True},
    },
    trials=6,
)
CAPTURES = Asked(
    {"task": "intrusion"},
    {"model.kind": ["gat", "gatv2"], "model.dropout": [0.0, 0.2], "train.optimizer.lr": _RATE},
    trials=4,
)
LINKS = Asked(
    {"task": "link_prediction"},
    {
        "dataset.features": ["auto", "as_stored"],
        "negatives.count": [16, 64],
        "train.loss.kind": ["softmax", "bce"],
        "train.optimizer.lr": {"low": 3.0e-4, "high": 1.0e-2, "log": True},
    },
    trials=6,
)  # not head.kind=mlp: it ranked Cora and CiteSeer no better than dot, in five times the time
COSTS = Asked(
    {"task": "assignment"},
    {"model.rounds": [2, 3, 4], "model.hidden_channels": [16, 32, 64], "train.optimizer.lr": _RATE},
    trials=4,
)


def _nodes(name: str) -> Arrays:
    """A graph of 6,000 nodes in 6 classes; a tenth is for training, a tenth for validation."""
    rng = np.random.default_rng(0)
    num_nodes, num_classes = 6_000, 6
    y = rng.integers(0, num_classes, num_nodes)
    x = rng.normal(size=(num_nodes, 24)).astype(np.float32)
    order = rng.permutation(num_nodes)
    split = np.full(num_nodes, 2)
    split[order[:600]], split[order[600:1200]] = 0, 1
    source = rng.integers(0, num_nodes, 24_000)
    target = rng.integers(0, num_nodes, 24_000)
    if name in ("scales", "regions"):  # nine in ten edges within a class
        within = rng.random(24_000) < 0.9
        by_class = np.argsort(y, kind="stable")
        first, count = np.searchsorted(y[by_class], np.arange(num_classes)), np.bincount(y, minlength=num_classes)
        same_class = by_class[first[y[source]] + rng.integers(0, count[y[source]])]
        target = np.where(within, same_class, target)
    if name != "regions":
        x[:, :num_classes] += 1.5 * np.eye(num_classes, dtype=np.float32)[y]
    if name == "scales":
        x *= np.float32(10) ** rng.uniform(-2, 3, 24).astype(np.float32)
    return {"edge_index": np.stack([source, target]), "x": x, "y": y, "split": split}


def _graphs(name: str) -> Arrays:
    """900 graphs in 3 classes: told apart by the mean of features, or by the number of edges."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    num_nodes = rng.integers(10, 40, len(y))
    num_edges = num_nodes * (2 + (y if name == "densities" else 1)) + rng.integers(0, 8, len(y))
    x = rng.normal(size=(num_nodes.sum(), 8)).astype(np.float32)
    if name == "means":
        x[:, 0] += 0.3 * np.repeat(y, num_nodes)
    edge_index = rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum()))
    return {"num_nodes": num_nodes, "num_edges": num_edges, "edge_index": edge_index, "x": x, "y": y}


def _series(name: str) -> Arrays:
    """Hourly readings of 12 sensors over 10 weeks: a noisy week, or a random walk."""
    rng = np.random.default_rng(0)
    num_steps, num_sensors, hours = 24 * 7 * 10, 12, 24 * 7
    steps = np.arange(num_steps)
    if name == "walks":
        values = 100 + np.cumsum(rng.normal(size=(num_steps, num_sensors)), axis=0)
    else:
        day = 1 + np.sin(2 * np.pi * (np.arange(hours)[:, None] % 24 - 8) / 24)
        week = 200 * np.exp(rng.normal(0, 0.6, (hours, num_sensors))) * day
        noise = np.zeros((num_steps, num_sensors))
        for step in range(1, num_steps):
            noise[step] = 0.85 * noise[step - 1] + rng.normal(0, 0.12, num_sensors)
        values = week[steps % hours] * np.exp(noise) * (1 + 0.1 * np.sin(2 * np.pi * steps / (24 * 70)))[:, None]
    timestamps = np.datetime64("2024-01-01", "s") + steps * np.timedelta64(1, "h")
    return {
        "values": values.astype(np.float32),
        "timestamps": timestamps,
        "sensor_ids": np.array([f"s{number}" for number in range(num_sensors)]),
    }


def _links(name: str) -> Arrays:
    """3,000 nodes with 16 random features: 12,000 links within blocks of 30 nodes, or to nodes that have many."""
    rng = np.random.default_rng(0)
    num_nodes, num_links, size = 3_000, 12_000, 30
    source = rng.integers(0, num_nodes, num_links)
    if name == "blocks":
        target = source // size * size + rng.integers(0, size, num_links)
    else:
        target = (num_nodes * rng.random(num_links) ** 4).astype(np.int64)
    linked = source != target
    return {
        "edge_index": np.stack([source, target])[:, linked],
        "x": rng.normal(size=(num_nodes, 16)).astype(np.float32),
    }


def _drawn(make: Callable[[str], Arrays], name: str) -> Callable[[], Arrays]:
    return lambda: make(name)


_SPLIT = ("--task", "link_prediction", "-o", "random_split=true")
_HOURLY = {"history": 24, "horizon": 12, "graph": "identity"}
SETS: dict[str, dict[str, DataSet]] = {
    "nodes": {
        **{name: DataSet(NODES, f"nodes/{name}.npz") for name in ("cora", "citeseer", "pubmed")},
        **{name: DataSet(LARGE, f"nodes/{name}.npz") for name in ("debian_packages", "wordnet31")},
        "photo": DataSet(
            NODES, "raw_layouts/Photo/raw/amazon_electronics_photo.npz", ("--random-split",), known_as="amazon/photo"
        ),
        **{name: DataSet(NODES, _drawn(_nodes, name)) for name in ("scales", "regions", "loners")},
    },
    "graphs": {
        "enzymes": DataSet(GRAPHS, "raw_layouts/TU/ENZYMES.zip", known_as="tu/enzymes"),
        "proteins": DataSet(GRAPHS, "raw_layouts/TU/PROTEINS.zip", known_as="tu/proteins"),
        "motifs": DataSet(GRAPHS, known_as="synthetic/motifs"),
        **{name: DataSet(GRAPHS, _drawn(_graphs, name)) for name in ("means", "densities")},
    },
    "series": {
        "metr_la_10": DataSet(SERIES, "traffic/metr-la-10sensors.h5", ("--adjacency", "traffic/adj_mx.pkl")),
        "metr_la_week": DataSet(SERIES, "traffic/metr-la-week1.h5", ("--adjacency", "traffic/adj_mx.pkl")),
        "bangkok": DataSet(SERIES, "traffic/bangkok_link_travel_time.npz"),
        "ring_road": DataSet(SERIES, known_as="synthetic/traffic", words=("--task", "traffic")),
        **{
            name: DataSet(SERIES, _drawn(_series, name), ("-o", "missing=nan"), dataset=_HOURLY)
            for name in ("weeks", "walks")
        },
    },
    "captures": {
        "dos_1": DataSet(
            CAPTURES,
            "can/can-train-and-test/set_01/train_01/DoS-1.csv.gz",
            ("--task", "intrusion"),
            dataset={"blocks": 10},
        ),
        **{
            name: DataSet(CAPTURES, f"can/road/{file}_masquerade.npz", ("--task", "intrusion"), dataset={"blocks": 10})
            for name, file in {
                "road_correlated_1": "correlated_signal_attack_1",
                "road_correlated_2": "correlated_signal_attack_2",
                "road_correlated_3": "correlated_signal_attack_3",
                "road_speedometer": "max_speedometer_attack_2",
            }.items()
        },
        **{
            f"made_{seed}": DataSet(CAPTURES, known_as="synthetic/can", words=("-o", f"seed={seed}"))
            for seed in (0, 1, 2)
        },
    },
    "links": {
        **{f"{name}_links": DataSet(LINKS, f"nodes/{name}.npz", _SPLIT) for name in ("cora", "citeseer", "pubmed")},
        "nearest": DataSet(LINKS, known_as="synthetic/nearest"),
        **{name: DataSet(LINKS, _drawn(_links, name), _SPLIT) for name in ("blocks", "hubs")},
    },
    "costs": {
        "orlib": DataSet(COSTS, "lap/orlib_assign.npz", ("--task", "assignment"), known_as="assignment/orlib"),
        **{
            family: DataSet(
                COSTS,
                known_as="synthetic/assignment",
                words=("-o", f"families=[{family}]", "-o", "sizes=[64]", "-o", "instances=200"),
            )
            for family in ("uniform", "metric", "clustered")
        },
    },
}
