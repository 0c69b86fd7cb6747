"""The parts of on_gpu.py that prove: facts, tests, equality, resume; and the table of all parts."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import torch
import torch.nn.functional as F

from attention import best_of
from gpu_epochs import device_of, model_of, products, reddit, step
from gpu_made import PRODUCTS, MadeStore, access_to, made, plan_of
from graphmill.base.errors import UserError
from graphmill.record.manifest import Manifest
from graphmill.spec.plan import Plan
from graphmill.sync.pause import never_pause

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
Found = dict[str, object]


def facts(rehearse: bool) -> Found:
    """The card, and how fast it copies and multiplies."""
    device = device_of(rehearse)
    versions = {name: metadata.version(name) for name in ("torch", "triton", "torch-geometric") if _has(name)}
    found: Found = {"python": platform.python_version(), **versions, "card": "cpu"}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "card": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_gib": properties.total_memory / 2**30,
        }
    count, side = (1 << 20, 256) if rehearse else (1 << 28, 8192)
    one, other = torch.zeros(count, device=device), torch.zeros(count, device=device)
    locked = torch.zeros(count, pin_memory=device.type == "cuda")
    found["copy_bytes_per_s"] = 8 * count / best_of(_waited(lambda: other.copy_(one), device))
    found["to_device_bytes_per_s"] = 4 * count / best_of(_waited(lambda: one.copy_(locked, non_blocking=True), device))
    for name, dtype, is_rounded in (("fp32", torch.float32, False), ("tf32", torch.float32, True),
                                    ("bf16", torch.bfloat16, False)):  # fmt: skip
        torch.backends.cuda.matmul.allow_tf32 = is_rounded
        a, b = torch.randn(side, side, device=device, dtype=dtype), torch.randn(side, side, device=device, dtype=dtype)
        found[f"{name}_flop_per_s"] = 2 * side**3 / best_of(_waited(partial(torch.matmul, a, b), device))
    return found


def _has(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _waited(run: Callable[[], object], device: torch.device) -> Callable[[], None]:
    def waited() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return waited


def tests(rehearse: bool) -> Found:
    """Those that are skipped without a GPU, and those that pretend one; a rehearsal collects them only."""
    known = sorted(TESTS.rglob("test_*.py"))
    files = [path for path in known if "skipif(not torch.cuda.is_available()" in path.read_text(encoding="utf-8")]
    files += [TESTS / "access" / "test_device.py", TESTS / "tasks" / "test_on_device.py"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["--collect-only", "-n", "0"] if rehearse else [f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *map(str, files)]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        found: Found = {"files": [str(path.relative_to(TESTS)) for path in files], "status": done.returncode}
        if report.exists():
            suites = list(ElementTree.parse(report).getroot().iter("testsuite"))  # pytest has just written it
            for name in ("tests", "failures", "errors", "skipped"):
                found[name] = sum(int(suite.attrib[name]) for suite in suites)
    if done.returncode:
        found["failed"] = f"pytest ended with {done.returncode}"
        found["log"] = done.stdout.splitlines()[-40:]
    return found


def equality(rehearse: bool) -> Found:
    """Batches of the CPU, copied to the device, and drawn on the device; the first losses of both; exact inference."""
    device, shape = device_of(rehearse), PRODUCTS.divided(2000 if rehearse else 50)
    store, plan = made(shape), plan_of(shape, batch_size=16 if rehearse else 512)
    cpu = torch.device("cpu")
    expected = _fingerprints(access_to(store, plan, cpu, None), store)
    found: Found = {"batches": len(expected)}
    rows = 4 * shape.num_features * (shape.num_nodes // 3)
    split = 12 * shape.num_nodes + 8 * (shape.num_nodes + 1) + 4 * shape.num_edges + rows
    ways = {"copied": None, "drawn on the device": 1 << 32, "drawn, rows in two places": split}
    for name, graph_bytes in ways.items():
        try:
            made_there = _fingerprints(access_to(store, plan, device, graph_bytes), store)
        except UserError as error:
            found[name] = f"left out: {error.message}"
            continue
        found[name] = made_there == expected
    found |= _exact(store, plan, device, split)
    one, other = _losses(store, plan, cpu), _losses(store, plan, device)
    found["losses"] = {"cpu": one, "device": other}
    worst = max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))
    found["largest_difference_of_losses"] = worst
    if any(each is False for each in found.values()) or not worst <= 1e-3:
        found["failed"] = "the device's batches or losses are others"
    return found


def _exact(store: MadeStore, plan: Plan, device: torch.device, split: int) -> Found:
    """Whether logits are the same where the CPU gathers rows and where the device does, and what both take."""
    model, logits = model_of(plan).to(device).eval(), {}
    found: Found = {}
    for name, graph_bytes in {"by the CPU": None, "on the device": 1 << 32, "in two places": split}.items():
        try:
            access = access_to(store, plan, device, graph_bytes)
        except UserError as error:
            found[f"exact, {name}"] = f"left out: {error.message}"
            continue
        access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
        began = time.perf_counter()
        logits[name] = access.exact(model, store.train, never_pause, hops=2, num_columns=1)[1]
        found[f"exact_s, {name}"] = time.perf_counter() - began
    of_cpu = logits.pop("by the CPU")
    return found | {f"exact, {name}": torch.equal(each, of_cpu) for name, each in logits.items()}


def _fingerprints(access, store: MadeStore) -> list[str]:
    """Of every batch of two epochs; blocks from 0, with their own edges only, as a GPU has them."""
    access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    found = []
    for epoch in range(2):
        for batch in access.batches(epoch, 0):
            digest = hashlib.sha256()
            blocks = [(b.indptr - b.indptr[0], b.indices[b.indptr[0] : b.indptr[-1]]) for b in batch.blocks]
            tensors = [batch.node_ids, batch.inputs.x, batch.labels, *(tensor for both in blocks for tensor in both)]
            for tensor in tensors:
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
            found.append(digest.hexdigest())
    return found


def _losses(store: MadeStore, plan: Plan, device: torch.device) -> list[float]:
    """Of the first steps, from the same weights and with the same draws of dropout."""
    access, model = access_to(store, plan, device, None), model_of(plan).to(device)
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.05), []
    access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    for _, batch in zip(range(8), access.batches(0, 0), strict=False):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch), batch.labels)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


EXPERIMENT = """name: resumed
dataset: {name: synthetic/sbm, features: as_stored}
model: {hidden_channels: 64, num_layers: 2}
train:
  {epochs: 2, batch_size: 64, num_neighbors: [10, 5], device: DEVICE, baselines: false, checkpoint: {every_steps: 5}}
"""
MADE = ("-o", "num_nodes=1000", "-o", "num_edges=9000", "-o", "features=32")


def resume(rehearse: bool) -> Found:
    """The final weights of a run that is killed with its launcher and resumed, and of one that is not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = EXPERIMENT.replace("DEVICE", "cpu" if rehearse else "cuda")
        (folder / "experiment.yaml").write_text(text)
        _graphmill(folder, "prepare", "synthetic/sbm", *MADE)
        _graphmill(folder, "train", "experiment.yaml", "--run-id", "whole")
        dies = {"DIES_BEFORE_STEP": "12", "PYTHONPATH": f"{TESTS / 'plugins' / 'dies_before'}"}
        killed = _graphmill(folder, "train", "experiment.yaml", "--run-id", "killed", status=-9, **dies)
        _graphmill(folder, "train", "--resume", "logs/killed")
        weights = {run: _final_weights(folder / "logs" / run) for run in ("whole", "killed")}
    found: Found = {"killed_with": killed, "weights": weights, "equal": weights["whole"] == weights["killed"]}
    if not found["equal"]:
        found["failed"] = "the resumed run has other weights"
    return found


def _graphmill(folder: Path, *words: str, status: int = 0, **environ: str) -> int:
    """Run a command in the folder. The status that it must end with."""
    paths = os.pathsep.join(filter(None, (environ.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))))
    known = {**os.environ, "GRAPHMILL_DATA_ROOT": str(folder / "data"), **environ}
    known |= {"PYTHONPATH": paths} if paths else {}
    command = [sys.executable, "-m", "graphmill.cli", *words]
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)
    if done.returncode != status:
        raise SystemExit(
            f"{' '.join(words)} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    return done.returncode


def _final_weights(run: Path) -> str:
    """The hash of parameters and buffers after the last step, as its checkpoint has it."""
    manifests = [Manifest.read(path) for path in run.glob("checkpoints/step_*")]
    return max(manifests, key=lambda each: each.steps_done).parameter_hash


def attention(rehearse: bool) -> Found:
    """attention_on_gpu.py, whose own results are taken over."""
    small = [
        "--device",
        "cpu",
        "--edges",
        "2000",
        "--rounds",
        "2",
        "--no-compile",
        "--precisions",
        "fp32",
        "--kinds",
        "gat",
    ]
    words = small if rehearse else ["--edges", "1000000", "--rounds", "5"]
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "GRAPHMILL_BENCHMARK_RESULTS": folder}
        command = [sys.executable, str(HERE / "attention_on_gpu.py"), *words]
        subprocess.run(command, env=environ, check=True)  # its tables are in this part's log
        entries = json.loads(Path(folder, "attention_on_gpu.json").read_text())["entries"]
    return {"entries": {name: entry["result"] for name, entry in entries.items()}}


FUNCTIONS: dict[str, Callable[[bool], Found]] = {
    "facts": facts,
    "tests": tests,
    "equality": equality,
    "resume": resume,
    "step": step,
    "reddit": reddit,
    "products": products,
    "attention": attention,
}
