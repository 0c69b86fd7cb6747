"""Graphs in parts: options of their training, and folders that are not as they were."""

import shutil
from collections.abc import Callable
from pathlib import Path

from labelled_stores import made_store, split_made

from rows.experiments import key
from rows.mishap import Mishap

PARTS = Path("data/parts/mine/3-ldg")
MINE = "dataset: {name: parts/mine/3-ldg}\ntrain: {epochs: 1, ranks: 1, batch_size: 8, num_neighbors: [2, 2]}\n"


def parted(words: str, *says: str, change: Callable[[Path], object] = lambda folder: None, **more: object) -> Mishap:
    """Of a graph in 3 parts, to the folder of which something happened."""

    def make(folder: Path) -> None:
        store = made_store(folder / "data" / "mine")
        split_made(store, folder / PARTS)
        (folder / "my.yaml").write_text(MINE)
        change(folder / PARTS)

    return Mishap(f"parts: {words}: {says[0]}", f"{words} --dataset-root data", says, make, **more)


def lost(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.rmtree(folder / name)


def flipped(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return change


ROWS = [
    key("partition.cache.polcy=vip", "polcy", "did you mean", "policy"),
    key("partition.cache.policy=vipp", "vipp", "none, degree, hotness, vip, presample, lookahead"),
    key("partition.cache.ratio=2", "partition.cache.ratio", "2", "≤ 1"),
    key("partition.cache.mib=-1", "partition.cache.mib", "-1"),
    key("partition.cache.window=4", "partition.cache.window", "lookahead", "vip"),
    key("partition.cache={policy: lookahead, epochs: 2}", "partition.cache.epochs", "lookahead"),
    key("partition.topology=whole", "partition.topology", "replicated, partitioned"),
    key("partition.seeds=owners", "partition.seeds", "owner"),
    key("partition.placement=host", "partition.placement", "per_host, per_rank"),
    key("partition.num_parts=4", "partition.num_parts", "known: cache, placement, seeds, topology"),
    key("partition.seeds=equal", "partition.seeds", "not partitioned", "graphmill partition"),
    key("dataset.name=parts/synthetic/sbm/4-kaminpar", "parts/synthetic/sbm", "--num-parts 4"),
    parted("plan my.yaml -O partition.placement=per_rank --ranks 2", "parts/mine/3-ldg", status=0),
    parted("plan my.yaml -O dataset.name=parts/mine/4-metis", "graphmill partition mine --num-parts 4 --method metis"),
    parted("plan my.yaml -O dataset.name=parts/mine/3-ldg/x", "parts/mine/3-ldg/x"),
    parted("plan my.yaml -O dataset.name=parts/mine/3-ldgg", "there are 3-ldg", "dataset.name=parts/mine/3-ldg"),
    parted("train my.yaml", "part 1", "graphmill stage", change=lost("part_00001"), leaves=("logs",)),
    parted("plan my.yaml", "node_book", change=lost("node_book")),
    parted("inspect parts/mine/3-ldg --check", "part_00002/y", change=flipped("part_00002/y.npy")),
    parted("partition mine --num-parts 3 --method metiss", "metiss", "--method metis"),
    parted("partition mine --num-parts 2 --name 3-ldg", "another partition", "is 3 there and 2 here", "--force"),
    parted("partition mine --num-parts 3 --method ldg --fanouts 4", "--fanouts is none there and 4 here", "--force"),
    parted("partition parts/mine/3-ldg --num-parts 2", "parts of", "partition the whole graph"),
]
