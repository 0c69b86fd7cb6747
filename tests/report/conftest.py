"""A generator of plausible metrics.csv files. Everything it makes is test data, and says so in `dataset`."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.record.metrics import format_cell, write_metrics
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.node_classification.page import SYNC_ABLATION

PARAM_MIB = 1.257


def run_rows(
    *,
    scheme: str = "deferred_allreduce",
    k: int = 1,
    seed: int = 1,
    world_size: int = 4,
    epochs: int = 12,
    steps_per_epoch: int = 38,
    dataset: str = "test-data",
    synthetic: bool = False,
    run_id: str | None = None,
    payload: str = "fp32",
    attempt: int = 1,
    ceiling: float = 0.84,
) -> list[dict]:
    """The rows of one run that looks like training: it saturates, later and a little lower for larger k."""
    noise = random.Random(f"{scheme} {k} {seed} {world_size} {dataset}")
    lift = noise.gauss(0, 0.0015) - 0.0006 * math.log2(k) * (2 if scheme == "diloco" else 1)
    syncs_per_epoch = math.ceil(steps_per_epoch / k)
    width = {"fp32": 1.0, "fp16": 0.5, "bf16": 0.5}[payload]
    rows, best, best_macro = [], 0.0, 0.0
    for epoch in range(1, epochs + 1):
        progress = epoch / (1 + 0.18 * math.log2(k))
        micro = (
            ceiling + lift - 0.22 * math.exp(-progress / 1.3) - 0.03 * math.exp(-progress / 4) + noise.gauss(0, 0.001)
        )
        best, best_macro = max(best, micro), max(best_macro, micro - 0.09)
        syncs = syncs_per_epoch * epoch
        row = {
            "run_id": run_id or f"test/{dataset}-{scheme}-{payload}-w{world_size}-k{k}-s{seed}",
            "sync_every": k, "epoch": epoch, "loss": 0.55 + 2.2 * math.exp(-progress), "val_micro_f1": micro,
            "val_macro_f1": micro - 0.09, "best_val_micro_f1": best, "best_val_macro_f1": best_macro,
            "val_macro_f1_all_classes": micro - 0.11, "best_val_macro_f1_all_classes": best_macro - 0.02,
            "steps_done": steps_per_epoch * epoch, "epoch_steps": steps_per_epoch,
            "global_steps": steps_per_epoch * epoch * world_size,
            "num_seeds": 38000, "num_seeds_cum": 38000 * epoch,
            "target_global_steps": steps_per_epoch * epochs * world_size, "world_size": world_size,
            "train_s": 4.0 + noise.random(), "num_syncs": syncs_per_epoch,
            "sync_scheme": scheme, "seed": seed, "num_hosts": 1, "dataset": dataset, "synthetic": synthetic,
            "payload": payload, "val_loss": 0.6, "seeds_per_s": 38000 / 4.5, "sample_s": 0.5, "gather_s": 0.3,
            "wait_s": 0.1, "compute_s": 3.0, "sync_s": 0.4, "eval_s": 0.6, "num_syncs_cum": syncs,
            "measured_mib_epoch": syncs_per_epoch * PARAM_MIB * width, "measured_mib_cum": syncs * PARAM_MIB * width,
            "interface_mib_epoch": syncs_per_epoch * PARAM_MIB * width * 6.1,
            "interface_mib_cum": syncs * PARAM_MIB * width * 6.1, "replicas_agree": True, "peak_rss_mib": 812.5,
            "attempt": attempt,
        }  # fmt: skip
        for name, size in (("fp16", 0.5), ("fp32", 1.0), ("fp64", 2.0)):
            row[f"modelled_mib_per_sync_{name}"] = PARAM_MIB * size
            row[f"modelled_mib_epoch_{name}"] = PARAM_MIB * size * syncs_per_epoch
            row[f"modelled_mib_cum_{name}"] = PARAM_MIB * size * syncs
        rows.append(row)
    return rows


def study_rows(
    *,
    schemes: Sequence[str] = ("deferred_allreduce", "local_sgd"),
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    seeds: Sequence[int] = (1, 2, 3),
    **options,
) -> list[dict]:
    """The rows of a whole study."""
    return [
        row
        for scheme in schemes
        for k in ks
        for seed in seeds
        for row in run_rows(scheme=scheme, k=k, seed=seed, **options)
    ]


def write_runs(logs: Path, rows: Sequence[dict]) -> list[Path]:
    """One metrics.csv per run_id, as the runs themselves would leave them."""
    runs: dict[str, list[dict]] = {}
    for row in rows:
        runs.setdefault(row["run_id"], []).append(row)
    for run_id, of_run in runs.items():
        write_metrics(logs / run_id / "metrics.csv", of_run, NODES.columns)
    return [logs / run_id / "metrics.csv" for run_id in runs]


def write_sync_ablation(path: Path, rows: Sequence[dict]) -> None:
    """A metrics.csv as the original's sweep wrote it: its 26 columns, and one file for all k."""
    lines = [",".join(SYNC_ABLATION.columns)]
    lines += [",".join(format_cell(row[name]) for name in SYNC_ABLATION.columns.values()) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def plausible() -> SimpleNamespace:
    """The functions above; with importlib's import mode a test cannot import its conftest."""
    return SimpleNamespace(
        run_rows=run_rows,
        study_rows=study_rows,
        write_runs=write_runs,
        write_sync_ablation=write_sync_ablation,
    )


@pytest.fixture
def metrics_csv(tmp_path: Path) -> Path:
    """A merged table of a study of two schemes, five k and three seeds."""
    path = tmp_path / "results" / "metrics.csv"
    write_metrics(path, study_rows(), NODES.columns)
    return path


assert set(run_rows(epochs=1)[0]) <= set(NODES.columns)
