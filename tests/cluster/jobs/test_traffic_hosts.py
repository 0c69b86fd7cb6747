"""Traffic on Slurm hosts with addresses of their own: what one host computes, from submit to verify."""

import json

import pytest
from rounding import drift

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.traffic.data.prepare import prepare_traffic

GLOBAL_BATCH = 24
EXPERIMENT = """
task: traffic
dataset: {name: synthetic/traffic, history: 6, horizon: 6}
model: {kind: dcrnn, rnn_units: 8, num_layers: 2, cl_decay_steps: 10}
train: {epochs: 3, threads: 1}
slurm: {site: devcluster, time: 10}
"""


@pytest.mark.slow
def test_hosts_see_what_one_host_sees(cluster, tmp_path):
    options = {"num_sensors": 6, "num_steps": 400, "missing_share": 0.2}
    prepare_traffic("synthetic/traffic", root=tmp_path / "data", options=options)
    (tmp_path / "forecast.yaml").write_text(EXPERIMENT)
    rows = {}
    for hosts in (1, 2, 4):
        run, size = f"on-{hosts}", ("--hosts", str(hosts), "--batch_size", str(GLOBAL_BATCH // hosts))
        done = cluster.graphmill(
            "submit", "forecast.yaml", *size, "--dataset-root", "data", "--run-id", run, cwd=tmp_path
        )
        assert done.code == 0, done.err
        watched = cluster.graphmill("watch", run, "--interval", "1", cwd=tmp_path)
        assert watched.code == 0, watched.out + watched.err
        rows[hosts] = read_metrics(RunFolder(tmp_path / "logs" / run).metrics_path)
    for hosts in (2, 4):
        assert [row["num_hosts"] for row in rows[hosts]] == [str(hosts)] * 3
        updates = int(rows[1][-1]["steps_done"])
        for one, other in zip(rows[1], rows[hosts], strict=True):
            for column in ("loss", "val_loss", "val_mae", "val_rmse"):
                found, expected = float(other[column]), float(one[column])
                # The longest sum of an update: over the targets of a global batch, 6 steps of 6 sensors each.
                assert abs(found - expected) <= drift(expected, terms=GLOBAL_BATCH * 6 * 6, updates=updates)
            assert other["num_seeds"] == one["num_seeds"]

    verified = cluster.graphmill("verify", "on-4", "--json", cwd=tmp_path)
    assert verified.code == 0, verified.out + verified.err
    judged = cluster.graphmill("bottleneck", "on-4", "--json", cwd=tmp_path)
    assert judged.code == 0, judged.err
    phases = json.loads(RunFolder(tmp_path / "logs" / "on-4").epilog_path.read_text())["phases"]
    told = {name: sum(float(row[name]) for row in rows[4]) for name in ("compute_s", "wait_s", "sync_s")}
    assert [phases["compute_s"], phases["wait_s"], phases["sync_s"]] == pytest.approx(list(told.values()))
    assert phases["total_s"] > phases["compute_s"] > 0
