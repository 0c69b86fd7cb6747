"""A sampling service on a real Slurm: both roles on every host, and hosts that only train beside hosts that sample."""

import csv
import json
from pathlib import Path

import pytest

from graphmill.record.events import Start, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import read_staged

SITE = ("--site", "devcluster", "--time", "10", "--staging", "host_local")
QUANTITIES = ("loss", "val_micro_f1", "steps_done")


def numbers(run: Path) -> list[list[str]]:
    with (run / "metrics.csv").open() as file:
        return [[row[name] for name in QUANTITIES] for row in csv.DictReader(file)]


def started_on(run: RunFolder) -> dict[str, str]:
    """The host of each process, by the stem of its files."""
    return {path.stem: events_in(path, Start)[-1].hostname for path in sorted(run.events_dir.glob("*.jsonl"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("samplers", "hosts", "copies"),
    [
        pytest.param(2, 2, ["", ""], id="both roles on each of two hosts"),
        pytest.param(1, 3, [".labels", ".labels", ""], id="two hosts train, one samples"),
    ],
)
def test_it_trains_what_ranks_alone_do(cluster, tmp_path, toy, samplers, hosts, copies):
    roles = ("-O", f"roles.samplers={samplers}", "-O", "roles.trainers=2", "--hosts", str(hosts))
    submitted = cluster.graphmill("submit", toy, *SITE, *roles, "--run-id", "served", cwd=tmp_path)
    assert submitted.code == 0, submitted.err
    view = cluster.wait_for(tmp_path, "served", "done", "failed", "bad_request")
    assert view["state"] == "done", view["detail"]
    run = RunFolder(tmp_path / "logs" / "served")
    where = started_on(run)
    assert list(where) == ["rank_0", "rank_1", *(f"sampler_{number}" for number in range(samplers))]
    assert len({where["rank_0"], where["rank_1"]}) == 2
    assert len(set(where.values())) == hosts
    staged = sorted(read_staged(run), key=lambda copy: copy.hostname)
    assert [Path(copy.to).name.partition("-")[2][12:] for copy in staged] == copies
    assert not list(run.path.glob("process_*"))
    alone = cluster.graphmill("train", toy, "--ranks", "2", "--run-id", "alone", cwd=tmp_path)
    assert alone.code == 0, alone.err
    assert numbers(run.path) == numbers(tmp_path / "logs" / "alone")
    checked = cluster.graphmill("verify", "served", "--json", cwd=tmp_path)
    assert checked.code == 0, checked.out
    script = (run.path / "job.sbatch").read_text()
    assert f"#SBATCH --ntasks-per-node={(2 + samplers) // hosts}" in script
    job = json.loads((run.path / "job.json").read_text())
    assert (job["samplers"], job["gpus_per_host"]) == (samplers, 0)
