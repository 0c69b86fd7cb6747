"""`presample`, and runs that read what it wrote: the same weights, another run's schedule refused."""

import json
import os

import pytest
from safetensors.torch import load_file

from graphmill.record.run_folder import RunFolder
from graphmill.spec.differences import configuration


@pytest.fixture
def ran(graphmill, toy):
    """Runs a command that starts ranks."""

    def run(*words: str) -> None:
        done = graphmill(*words)
        assert done.code == 0, done.err

    return run


GAT = ("-O", "model={kind: gat, hidden_channels: 4, heads: 2, num_layers: 2}")


@pytest.mark.distributed
@pytest.mark.parametrize(
    "model", [pytest.param((), id="graphsage", marks=pytest.mark.slow), pytest.param(GAT, id="gat")]
)
def test_a_run_that_reads_its_epochs_ends_with_the_same_weights(ran, graphmill, tmp_path, model):
    words = ("toy.yaml", "--ranks", "2", *model, "-O", "train.epochs=2", "-O", "train.baselines=false")
    assert graphmill("presample", *words, "--output", "sampled").code == 0
    ran("train", *words, "--run-id", "read", "-O", "train.presampled=sampled")
    ran("train", *words, "--run-id", "drawn")
    assert_same_weights(tmp_path / "logs")
    read, drawn = (RunFolder.open(tmp_path / "logs" / name) for name in ("read", "drawn"))
    assert read.read_plan().task.presampled == str(tmp_path / "sampled")
    assert configuration(read.read_plan()) == configuration(drawn.read_plan()), "where epochs lie is no choice"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("seeds", ["equal", "owner"])
def test_a_graph_in_parts_reads_its_epochs_too(ran, graphmill, tmp_path, seeds):
    """No hop of the topology, which is partitioned, is asked for; features are fetched as ever."""
    done = graphmill("partition", "synthetic/sbm", "--num-parts", "2", "--method", "ldg", "--name", f"two-{seeds}")
    assert done.code == 0, done.err
    parts = f"{os.environ['GRAPHMILL_DATA_ROOT']}/parts/synthetic/sbm/two-{seeds}"
    partition = f"partition={{topology: partitioned, placement: per_rank, seeds: {seeds}, cache: {{policy: none}}}}"
    words = ("toy.yaml", "--ranks", "2", "-O", f"dataset.name={parts}", "-O", partition, "-O", "train.epochs=2")
    assert graphmill("presample", *words, "--output", "sampled").code == 0
    ran("train", *words, "--run-id", "read", "-O", "train.presampled=sampled")
    ran("train", *words, "--run-id", "drawn")
    assert_same_weights(tmp_path / "logs")
    whole = graphmill("plan", "toy.yaml", "--ranks", "2", "-O", "train.epochs=2", "-O", "train.presampled=sampled")
    assert whole.code == 0, "the whole graph has the same global batches, and those of owners are cut anew"


@pytest.mark.slow
@pytest.mark.distributed
def test_other_ranks_read_the_same_global_batches(ran, graphmill, tmp_path):
    words = ("toy.yaml", "-O", "train.epochs=2")
    wide, narrow = ("--ranks", "2"), ("--ranks", "3", "-O", "train.batch_size=40")  # 120 seeds at once
    assert graphmill("presample", *words, *wide, "--output", "sampled").code == 0
    ran("train", *words, *narrow, "--run-id", "read", "-O", "train.presampled=sampled")
    ran("train", *words, *narrow, "--run-id", "drawn")
    assert_same_weights(tmp_path / "logs")
    gat = graphmill("presample", *words, *wide, *GAT, "--output", "gat")
    assert gat.code == 0, gat.err
    refused = graphmill("plan", *words, *narrow, *GAT, "-O", "train.presampled=gat")
    assert refused.code == 2
    assert "depend on what else is in a rank's batch" in refused.err


def assert_same_weights(logs):
    one, other = (load_file(*(logs / name / "checkpoints").glob("*/model.safetensors")) for name in ("read", "drawn"))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


def test_it_tells_what_it_wrote_and_goes_on_with_it(graphmill, toy, tmp_path):
    words = ("presample", toy, "--ranks", "2", "--output", "sampled", "--json")
    foreseen = json.loads(graphmill(*words, "--epochs", "3", "--dry-run").out)
    assert not (tmp_path / "sampled").exists()
    first = json.loads(graphmill(*words, "--epochs", "2").out)
    again = json.loads(graphmill(*words, "--epochs", "3").out)
    assert (foreseen["epochs_to_sample"], first["epochs_sampled"], again["epochs_sampled"]) == (3, 2, 1)
    assert again["epochs_kept"] == 2
    assert first["batches"] == 2 * first["steps_per_epoch"] * 2
    sizes = [path.stat().st_size for path in sorted((tmp_path / "sampled").glob("epoch_*"))]
    assert first["bytes_written"] == sum(sizes[:2])
    assert again["bytes_written"] == sizes[2]
    assert first["bytes_per_batch"] == first["bytes_written"] // first["batches"]
    kept = json.loads(graphmill(*words, "--epochs", "3").out)
    assert (kept["epochs_sampled"], kept["bytes_written"], kept["bytes_per_batch"]) == (0, 0, None)


def test_without_output_another_seed_has_another_folder(graphmill, toy, tmp_path):
    root = ("--dataset-root", os.environ["GRAPHMILL_DATA_ROOT"])
    folders = {
        json.loads(graphmill("presample", toy, "--dry-run", "--json", *root, "-O", f"train.seed={seed}").out)["folder"]
        for seed in (1, 2)
    }
    assert len(folders) == 2
    assert all(folder.startswith(f"{root[1]}/presampled/") for folder in folders)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-O", "train.seed=77"), "train.seed is 77 here"),
        (("--ranks", "3"), "train.ranks is 3 here and 2 there"),
        (("-O", "train.num_neighbors=[4, 3]"), "train.num_neighbors is [4, 3] here and [4, 4] there"),
        (("-O", "dataset.undirected=false"), "dataset.undirected is False here and True there"),
        (("-O", "train.batch_size=9"), "train.batch_size is 9 here"),
    ],
)
def test_a_plan_of_another_run_is_refused(graphmill, toy, words, says):
    assert graphmill("presample", toy, "--ranks", "2", "--epochs", "1", "--output", "sampled").code == 0
    known = ("-O", "train.epochs=1", "-O", "train.presampled=sampled")
    assert graphmill("plan", toy, "--ranks", "2", *known).code == 0
    ranks = () if "--ranks" in words else ("--ranks", "2")
    done = graphmill("plan", toy, *ranks, *known, *words)
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(
    ("epochs", "folder", "says"),
    [
        (9, "sampled", "does not hold epoch 1 and 7 more"),
        (1, "elsewhere", "elsewhere holds no presampled schedule"),
    ],
)
def test_a_plan_of_epochs_that_are_not_there_is_refused(graphmill, toy, epochs, folder, says):
    assert graphmill("presample", toy, "--ranks", "2", "--epochs", "1", "--output", "sampled").code == 0
    wanted = ("-O", f"train.epochs={epochs}", "-O", f"train.presampled={folder}")
    done = graphmill("plan", toy, "--ranks", "2", *wanted)
    assert done.code == 2
    assert says in done.err


def test_a_task_that_samples_nothing(graphmill, tmp_path):
    done = graphmill("presample", "motifs-gin")
    assert done.code == 2


def test_what_is_not_prepared_cannot_be_sampled(graphmill, tmp_path):
    done = graphmill("presample", "reddit-sage", "--dataset-root", tmp_path)
    assert done.code == 2
    assert "reddit is not prepared" in done.err


def test_a_folder_is_inspected(graphmill, toy, tmp_path):
    assert graphmill("presample", "toy.yaml", "--ranks", "2", "--epochs", "2", "--output", "sampled").code == 0
    told = json.loads(graphmill("inspect", "sampled", "--json").out)
    assert (told["epochs"], told["missing_epochs"], told["ranks"]) == (2, [], 2)
    assert told["bytes"] == sum(file.stat().st_size for file in (tmp_path / "sampled").glob("*.schedule"))
    (tmp_path / "sampled/epoch_00000.schedule").unlink()
    shown = graphmill("inspect", "sampled")
    assert (shown.code, "missing epochs" in shown.out) == (0, True)


def test_a_folder_is_checked(graphmill, toy, tmp_path):
    """Every batch is compared with its checksum, and every file with the schedule; a seed is no quantity."""
    seed = ("-O", "train.seed=12345")
    assert graphmill("presample", toy, "--ranks", "2", "--epochs", "2", *seed, "--output", "sampled").code == 0
    checked = graphmill("inspect", "sampled", "--check")
    assert (checked.code, "as they should be" in checked.out, " 12345\n" in checked.out) == (0, True, True)
    assert json.loads(graphmill("inspect", "sampled", "--check", "--json").out)["checked"]
    first, second = (tmp_path / f"sampled/epoch_0000{number}.schedule" for number in range(2))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    refused = graphmill("inspect", "sampled", "--check")
    assert (refused.code, "epoch_00000.schedule is damaged: the batch of step" in refused.err) == (2, True)
    first.write_bytes(second.read_bytes())
    assert "another schedule, or epoch" in graphmill("inspect", "sampled", "--check").err
    first.write_bytes(b"GMSCHED1")
    assert "its header cannot be read" in graphmill("inspect", "sampled", "--check").err
