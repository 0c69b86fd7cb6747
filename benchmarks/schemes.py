"""Accuracy and bytes of the synchronisation schemes, from one study: `graphmill study run study-debian-schemes`.

    python benchmarks/schemes.py [--study study-debian-schemes] [--dataset-root DIR] [--logs-root DIR]

Runs what is not done yet, then reads metrics.csv and outcome.json of every cell. Modelled bytes are syncs ×
parameters × 4; payload is what one rank handed to collectives; interface is what the host received on the interface
that gloo uses, headers and all ranks included."""

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder, find_runs
from graphmill.spec.plan import Plan
from harness import Ledger, print_table, write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="study-debian-schemes")
    parser.add_argument("--name", default="debian-schemes", help="the study's name: its folder below the logs root")
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs")
    options = parser.parse_args()
    command = [sys.executable, "-m", "graphmill.cli", "study", "run", options.study]
    with Ledger(Path(options.logs_root) / options.name) as ledger:
        subprocess.run([*command, "--dataset-root", options.dataset_root, "--logs-root", options.logs_root], check=True)
    cells = defaultdict(list)
    for run in find_runs(Path(options.logs_root) / options.name):
        plan = run.read_plan()
        cells[plan.sync.scheme, plan.sync.every].append((run, plan))
    rows = [row(scheme, k, runs) for (scheme, k), runs in sorted(cells.items())]
    table = [[str(value) if not isinstance(value, float) else f"{value:.4g}" for value in r.values()] for r in rows]
    print_table(options.study, list(rows[0]), table)
    plan = next(iter(cells.values()))[0][1]
    write_result(
        "schemes",
        {
            "dataset": plan.dataset.name,
            "ranks": plan.ranks,
            "epochs": plan.calendar.num_epochs,
            "foreign_cores": ledger.foreign_cores(),
            "rows": rows,
        },
        ledger.origin,
    )


def row(scheme: str, k: int, runs: list[tuple[RunFolder, Plan]]) -> dict[str, object]:
    """One scheme at one k: means over seeds; bytes are equal for all seeds but the interface's."""
    last = [read_metrics(run.metrics_path)[-1] for run, _ in runs]
    tests = [outcome.test["micro_f1"] for run, _ in runs if (outcome := run.read_outcome()) and outcome.test]
    if len(tests) != len(runs):
        raise SystemExit(f"a run of {scheme}, k = {k} did not finish")
    mean = lambda name: statistics.mean(float(line[name]) for line in last)  # noqa: E731
    return {
        "scheme": scheme,
        "k": k,
        "val": mean("best_val_micro_f1"),
        "test": statistics.mean(tests),
        "test_sd": statistics.stdev(tests) if len(tests) > 1 else None,
        "seeds": len(runs),
        "syncs": int(mean("num_syncs_cum")),
        "modelled_mib": mean("modelled_mib_cum_fp32"),
        "payload_mib": mean("measured_mib_cum"),
        "interface_mib": mean("interface_mib_cum"),
        "replicas_agree": all(
            line["replicas_agree"] == "true" for run, _ in runs for line in read_metrics(run.metrics_path)
        ),
    }


if __name__ == "__main__":
    main()
