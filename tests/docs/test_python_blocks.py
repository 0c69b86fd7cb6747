"""Every Python block of README and docs is run, in the order of its page, in a folder with what the page has at hand.

`AT_HAND` says for each page what that is: files in the working folder, and the names that a reader is said to have. A
block that begins with `# folder/name.py` is written there and imported, as its page says.
"""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from labelled_stores import made_store, split_made
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE
from typer.testing import CliRunner

from graphmill.cli.app import commands
from graphmill.tasks.node_classification.data.store import LabelledGraphStore

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"# ((?:\w+/)*\w+)\.py\n")
Names = dict[str, Any]

pytestmark = pytest.mark.distributed


def blocks_of(page: str) -> list[str]:
    return PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))


def nothing() -> Names:
    return {}


def a_data() -> Names:
    edge_index, mask = torch.randint(0, 40, (2, 120)), torch.arange(40) < 20
    return {"data": Data(x=torch.rand(40, 4), y=torch.arange(40) % 3, edge_index=edge_index, train_mask=mask)}


def edges_with_features() -> Names:
    return {"x": torch.rand(40, 64), "edge_index": torch.randint(0, 40, (2, 120)), "edge_attr": torch.rand(120, 11)}


def two_types() -> Names:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(30, 4), torch.rand(10, 4)
    data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(60) % 10, torch.arange(60) % 30])
    data["paper", "cites", "paper"].edge_index = torch.randint(0, 30, (2, 60))
    mask = torch.arange(30) < 20
    return {"hetero_data": data, "train_mask": mask, "model": lambda x, edge_index: x}


def wordnet() -> Names:
    np.savez("wordnet31.npz", edge_index=np.ones((2, 3)), edge_type=np.arange(3), edge_type_symbols=["@", "~", "+"])
    return {}


def four_parts() -> Names:
    """One process stands for all ranks: the page's script is the same for each."""
    folder = Path("datasets/parts/debian-packages/4-kaminpar")
    split_made(made_store(Path("whole").resolve()), folder.resolve(), num_parts=4)
    return {"model": GraphSAGE(3, 8, num_layers=2, out_channels=3)}


def a_run_of_nodes() -> Names:
    command("prepare", "synthetic/sbm", "-o", "num_nodes=300", "-o", "num_edges=1500", "-o", "features=8")
    Path("sage.yaml").write_text(
        "name: cora-sage\ndataset: {name: synthetic/sbm}\nmodel: {hidden_channels: 8}\n"
        "train: {epochs: 20, batch_size: 60, num_neighbors: [4, 4], threads: 1}\n"
    )
    command("train", "sage.yaml", "--run-id", "cora-sage-1")
    command("predict", "logs/cora-sage-1", "--output", "test.parquet")
    store = LabelledGraphStore.open(Path("data/synthetic/sbm"))
    return {"x": torch.from_numpy(np.array(store.features.x)), "edge_index": torch.randint(0, 300, (2, 900))}


def an_experiment() -> Names:
    command("prepare", "synthetic/sbm", "-o", "num_nodes=300", "-o", "num_edges=1500", "-o", "features=8")
    Path("my-graph.yaml").write_text(
        "name: my-graph\ndataset: {name: synthetic/sbm}\nmodel: {hidden_channels: 8}\n"
        "train: {epochs: 5, batch_size: 60, num_neighbors: [4, 4], threads: 1}\n"
    )
    return {}


def a_run_of_potentials() -> Names:
    command("prepare", "synthetic/assignment", "-o", "sizes=[8]", "-o", "instances=20")
    command("train", "assignment-one-gnn", "--run-id", "RUN", "-O", "train.epochs=2")
    return {"costs": np.random.default_rng(0).random((8, 8))}


AT_HAND: dict[str, Callable[[], Names]] = {
    "README.md": a_data,
    "docs/howto/assignment-buckets.md": a_run_of_potentials,
    "docs/howto/assignment-solver.md": nothing,
    "docs/howto/heterogeneous-graphs.md": two_types,
    "docs/howto/larger-than-a-host.md": four_parts,
    "docs/howto/link-prediction.md": nothing,
    "docs/howto/own-graph.md": nothing,
    "docs/howto/own-graphs.md": nothing,
    "docs/howto/own-loss.md": nothing,
    "docs/howto/own-model.md": edges_with_features,
    "docs/howto/own-series.md": nothing,
    "docs/howto/own-task.md": nothing,
    "docs/howto/pyg-loaders.md": nothing,
    "docs/howto/python.md": an_experiment,
    "docs/howto/relations.md": wordnet,
    "docs/howto/use-the-model.md": a_run_of_nodes,
    "docs/reference/attention.md": nothing,
}
# They train and evaluate, as tests of tests/api and of the commands do.
TRAINING = ("docs/howto/assignment-buckets.md", "docs/howto/python.md", "docs/howto/use-the-model.md")
EXPORTED = "seconds of torch.export: tests/integration/test_use_the_model.py runs it, on a run that it has"
NOT_RUN = {  # (page, number of the block): why not here
    ("docs/howto/python.md", 3): "needs a Slurm: tests/cluster/jobs/test_submit_from_python.py submits and waits",
    ("docs/howto/assignment-solver.md", 3): "test_assignment_solver.py runs it with the others, on a run it trains",
    ("docs/howto/use-the-model.md", 2): EXPORTED,
    ("docs/howto/use-the-model.md", 3): EXPORTED,
}


def command(*words: str) -> None:
    done = CliRunner().invoke(commands(list(words)), words)
    assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty folder to work in, as a script's: modules of it are imported, and one process is a rank."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", 0)):
        monkeypatch.setenv(name, str(value))
    modules = set(sys.modules)
    with torch.random.fork_rng():
        yield tmp_path
    if dist.is_initialized():
        dist.destroy_process_group()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run_block(code: str, names: Names, where: str) -> str:
    """What it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if module := MODULE.match(code):
            path = Path(f"{module[1]}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(code, encoding="utf-8")
            importlib.import_module(module[1].replace("/", "."))
        else:
            exec(compile(code, where, "exec"), names)  # our own page
    return printed.getvalue()


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in TRAINING else []) for page in AT_HAND]
)
def test_the_blocks_of_a_page_run_in_order(page, desk):
    names = AT_HAND[page]()
    for number, code in enumerate(blocks_of(page)):
        if (page, number) not in NOT_RUN:
            printed = run_block(code, names, f"{page}, Python block {number}")
            for answer in re.findall(r"^print\(.*\)  # ([\d{].*)$", code, re.MULTILINE):
                assert answer in printed, f"{page} shows {answer!r}, and the block prints {printed!r}"


def test_every_page_with_python_is_run():
    pages = {str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]}
    assert {page for page in pages if blocks_of(page)} == AT_HAND.keys()
    assert all(reason and number < len(blocks_of(page)) for (page, number), reason in NOT_RUN.items())


def test_a_block_that_does_not_run_is_seen(desk):
    with pytest.raises(ImportError, match="write_store"):
        run_block("from graphmill.graph.store import write_store", {}, "an older own-graph.md")
