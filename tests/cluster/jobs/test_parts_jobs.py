"""A graph in parts on a real Slurm: partitioned by a job, staged to the hosts that need its parts, trained there."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from waiting import wait_until

from graphmill.record.events import Start, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import read_staged

SITE = ("--site", "devcluster", "--time", "10")
QUANTITIES = ("loss", "val_micro_f1", "steps_done")  # the validation loss is summed in the order of the owners


def numbers(run: Path) -> list[list[str]]:
    with (run / "metrics.csv").open() as file:
        return [[row[name] for name in QUANTITIES] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_each_host_needs_its_own_parts_only(cluster, tmp_path, toy):
    root = tmp_path / "data"
    shutil.copytree(cluster.environ["GRAPHMILL_DATA_ROOT"], root)
    where = {"cwd": tmp_path, "GRAPHMILL_DATA_ROOT": str(root)}
    partition = ("graphmill", "partition", "synthetic/sbm", "--num-parts", "4", "--method", "ldg")
    near = ("--staging", "host_local", "--data", "synthetic/sbm")
    asked = json.loads(cluster.graphmill("submit", "--run", "--json", *SITE, *near, "--", *partition, **where).out)
    assert cluster.wait_for(tmp_path, asked["run"], "done", "failed")["state"] == "done"
    parts = root / "parts" / "synthetic" / "sbm" / "4-ldg"
    of_parts = ("-O", f"dataset.name={parts}", "-O", "partition.seeds=equal")  # as of a graph that is stored whole
    train = ("submit", toy, *SITE, *of_parts, "--hosts", "2", "--staging", "host_local")
    submitted = cluster.graphmill(*train, "--run-id", "parted", **where)
    assert submitted.code == 0, submitted.err
    view = cluster.wait_for(tmp_path, "parted", "done", "failed", "bad_request")
    assert view["state"] == "done", view["detail"]
    run = RunFolder(tmp_path / "logs" / "parted")
    copies = [Path(staged.to).name.partition(".")[2] for staged in read_staged(run)]
    assert copies == ["parts_0-1.topology", "parts_2-3.topology"]
    read = [events_in(run.events_path(rank), Start)[-1].data for rank in (0, 1)]
    assert read == [staged.to for staged in read_staged(run)]
    whole = cluster.graphmill("train", toy, "--ranks", "2", "--run-id", "whole", **where)
    assert whole.code == 0, whole.err
    assert numbers(run.path) == numbers(tmp_path / "logs" / "whole")


@pytest.mark.slow
def test_three_hosts_continue_what_four_began(cluster, tmp_path, toy):
    """A host is lost: the three that are left share four parts unevenly, each stages its share and trains on."""
    where = {"cwd": tmp_path, "GRAPHMILL_DATA_ROOT": str(root := tmp_path / "data")}
    shutil.copytree(cluster.environ["GRAPHMILL_DATA_ROOT"], root)
    partition = ("partition", "synthetic/sbm", "--num-parts", "4", "--method", "ldg")
    assert cluster.graphmill(*partition, **where).code == 0
    parts = root / "parts" / "synthetic" / "sbm" / "4-ldg"
    asked = ("sync.scheme=deferred_allreduce", "epochs=60", "checkpoint.every_steps=1", "evaluate_every_epochs=0")
    options = [word for each in asked for word in ("-O", f"train.{each}")]
    options += ["-O", f"dataset.name={parts}", "-O", "partition.topology=partitioned"]
    options += ["-O", "partition.cache.policy=none", "--staging", "host_local", "--hosts", "4"]
    submitted = cluster.graphmill("submit", toy, *SITE, *options, "--run-id", "run", **where)
    assert submitted.code == 0, submitted.err
    run = RunFolder(tmp_path / "logs" / "run")
    wait_until(lambda: any(run.checkpoints_dir.glob("step_*")), "a checkpoint")
    assert cluster.graphmill("stop", "run", **where).code == 0
    cluster.wait_for(tmp_path, "run", "stopped")
    resumed = cluster.graphmill("submit", "--resume", run.path, "--hosts", "3", "--ranks", "3", **where)
    assert resumed.code == 0, resumed.err
    view = cluster.wait_for(tmp_path, "run", "done", "failed", "bad_request")
    assert view["state"] == "done", view["detail"]
    assert run.read_outcome().elastic.startswith("ranks: 4 to step")
    copies = {Path(staged.to).name.partition(".")[2] for staged in read_staged(run)}
    assert {"parts_0", "parts_1", "parts_2-3"} <= copies
