"""Experiments, options and keys: what people mistype, and what lies out of range."""

from pathlib import Path
from typing import Any

from rows.mishap import Mishap


def key(override: str, *says: str, **more: Any) -> Mishap:
    return Mishap(f"key: {override}", f"plan toy.yaml -O '{override}'", says, **more)


def typed(words: str, *says: str, **more: Any) -> Mishap:
    return Mishap(f"typed: {words}", words, says, **more)


def wrote(name: str, text: str, *says: str, words: str = "plan my.yaml", **more: Any) -> Mishap:
    def make(folder: Path) -> None:
        (folder / "my.yaml").write_text(text)

    return Mishap(f"yaml: {name}", words, says, make, **more)


def study(name: str, text: str, *says: str, **more: Any) -> Mishap:
    return wrote(name, text, *says, words="study run my.yaml --dry-run", **more)


def pipeline(name: str, text: str, *says: str, **more: Any) -> Mishap:
    return wrote(name, text, *says, words="pipeline run my.yaml --dry-run", **more)


def hosts(name: str, text: str | None, *says: str) -> Mishap:
    def make(folder: Path) -> None:
        if text is not None:
            (folder / "hosts.yaml").write_text(text)

    return Mishap(f"hosts: {name}", "launch toy.yaml --hosts hosts.yaml --dry-run", says, make)


TOY = "dataset: {name: synthetic/sbm}\n"
BASE = "name: s\nexperiment: toy.yaml\n"

ROWS = [
    key("train.epochs=0", "train.epochs", "0", "whole number > 0"),
    key("train.epochs=two", "train.epochs", "two"),
    key("train.epcohs=2", "epcohs", "did you mean", "epochs"),
    key("train.batch_size=-4", "train.batch_size", "-4"),
    key("train.batchsize=4", "batchsize", "batch_size"),
    key("train.seed=-1", "train.seed", "-1"),
    key("train.ranks=0", "train.ranks", "0"),
    key("train.ranks=1000", "1000", "ranks"),
    key("train.num_neighbors=[4]", "num_neighbors", "num_layers"),
    key("train.num_neighbors=[]", "num_neighbors"),
    key("train.optimizer.lr=0", "train.optimizer.lr", "0"),
    key("train.optimizer.lr=fast", "train.optimizer.lr", "fast"),
    key("train.optimizer.lr=.inf", "train.optimizer.lr", "inf"),
    key("train.optimizer.kind=adamm", "adamm", "adam"),
    key("train.optimizer.schedule.kind=cosin", "cosin", "cosine"),
    key("train.optimizer.weight_decay=-1", "weight_decay", "-1"),
    key("train.learning_rate=0.1", "learning_rate", "train.optimizer.lr"),
    key("train.sync.scheme=localsgd", "localsgd", "local_sgd"),
    key("train.sync.every=0", "train.sync.every", "0"),
    key("train.sync.payload=fp8", "payload", "fp8"),
    key("train.precision=float16", "precision", "float16"),
    key("train.device=gpu", "device", "gpu"),
    key("train.device=cuda", "cuda"),
    key("train.threads=0", "train.threads", "0"),
    key("train.hang_timeout_s=-1", "hang_timeout_s", "-1"),
    key("train.profile_steps=9", "profile_steps", "train.profile=true"),
    key("model.hidden_channels=0", "hidden_channels", "0"),
    key("model.hidden_dim=8", "hidden_dim", "hidden_channels"),
    key("model.dropout=1.5", "dropout", "1.5"),
    key("model.num_layers=0", "num_layers", "0"),
    key("model.kind=gcn", "model.kind", "gcn"),
    key("model.kind=custom", "target"),
    key("dataset.name=cora", "cora", "graphmill datasets"),
    key("dataset.name=synthetic/smb", "synthetic/smb", "synthetic/sbm"),
    key("dataset.features=standardized", "standardized", "row_normalised"),
    key("dataset.horizon=3", "horizon"),
    key("task.kind=traffik", "traffik", "traffic"),
    key("init_from=none", "init_from", "none"),
    typed("plan toy.yml", "toy.yml"),
    typed("plan cora-saeg", "cora-saeg", "cora-sage"),
    typed("plan toy.yaml --optimizer adam", "--optimizer"),
    typed("plan traffic-demo --hidden-dim 8", "--hidden-dim"),
    typed("train toy.yaml --master_port 1", "--master_port"),
    typed("train toy.yaml --epoch 3", "--epoch", "--epochs"),
    typed("train toy.yaml --num_neighbors ten", "num_neighbors", "25 10"),
    typed("train toy.yaml --run-id ..", ".."),
    typed("train toy.yaml --init-from none", "--init-from"),
    typed("train --extend nothing --epochs 4", "nothing"),
    typed("trainn toy.yaml", "trainn", "train"),
    typed("export nothing --to tensorbord", "tensorbord", "tensorboard"),
    typed("compare nothing", "nothing"),
    typed("report nothing -o report.html", "nothing"),
    typed("baseline synthetic/smb", "synthetic/smb"),
    typed("baseline synthetic/sbm -O dataset.horizon=3", "horizon"),
    typed("predict nothing -o p.csv", "nothing"),
    typed("evaluate nothing --dataset-root none", "nothing"),
    typed("site probe --sight x", "--sight"),
    typed("script toy.yaml --site nowhere", "nowhere"),
    typed("stage synthetic/smb --to x", "synthetic/smb"),
    typed("inspect toy.yaml", "toy.yaml"),
    typed("inspect ogbn-products", "ogbn-products", "graphmill prepare ogbn-products"),
    typed("merge --layout own", "own"),
    typed("recipes extra", "extra"),
    typed("bottleneck nothing", "nothing"),
    typed("logs nothing", "nothing"),
    typed("shell nothing", "nothing"),
    typed("pull nothing", "nothing"),
    typed("scaling nothing", "nothing"),
    typed("bench sampel", "sampel"),
    wrote("a tab", "train:\n\tepochs: 1\n", "my.yaml:2:1", "tab"),
    wrote("a key twice", TOY + "train: {epochs: 1}\ntrain: {epochs: 2}\n", "train", "lines 2 and 3"),
    wrote("no bracket", "train: {epochs: 1\n", "my.yaml", "line"),
    wrote("several mistakes", "train: {epohcs: 1, lrr: 2}\nmodle: {}\n", "epohcs", "lrr", "modle"),
    wrote("a study that is planned", BASE + "vary: {train.seed: [1]}\n", "study run"),
    study("an unknown key", BASE + "vary: {train.sede: [1, 2]}\n", "train.sede", "train.seed"),
    study("a value that is none", BASE + "vary: {train.seed: [1, two]}\n", "two"),
    study("one value, not a list", BASE + "vary: {train.seed: 1}\n", "vary.train.seed is 1", "list"),
    study("an empty list", BASE + "vary: {train.seed: []}\n", "train.seed"),
    study("the same value twice", BASE + "vary: {train.seed: [1, 1]}\n", "train.seed", "twice"),
    pipeline("no stage", "name: p\nstages: []\n", "stages"),
    pipeline("an experiment", TOY, "stages"),
    pipeline(
        "whose stages have other keys", "name: p\nexperiment: toy.yaml\nstages: [{name: a, after: [b]}]\n", "after"
    ),
    hosts("no file", None, "hosts.yaml"),
    hosts("empty", "", "hosts.yaml"),
    hosts("a list of nothing", "hosts: []\n", "hosts"),
    hosts("an unknown key", "hosts: [{adress: a}]\n", "adress", "address"),
    hosts("a host twice", "hosts: [{address: a}, {address: a}]\n", "a"),
    hosts("a port of words", "hosts: [{address: a, port: ssh}]\n", "port", "ssh"),
]
