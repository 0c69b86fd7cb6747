"""What a trained run is for: its model in Python, its predictions in a file, its measures on other data."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from command_line import run_here
from rounding import Bounded, assert_within, magnitude

import graphmill
from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures
from graphmill.record.manifest import Manifest
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.page import TrafficExperiment
from graphmill.train.evaluate import evaluate, open_run
from graphmill.train.evaluate import main as evaluate_program
from graphmill.train.predict import main as predict_program
from graphmill.train.predict import predict
from graphmill.train.where_data_are import DataChoice, plan_over

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def cora(planned, train_all):
    """At such a rate its last epoch is not its best."""
    folder = train_all(
        [planned("cora-run", ranks=1, epochs=4, optimizer={"kind": "adam", "lr": 0.3, "weight_decay": 0})]
    )["cora-run"]
    assert folder.read_outcome().best["epoch"] < 4, "else best and last are the same weights"
    return folder


@pytest.fixture(scope="module")
def traffic_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("traffic")
    prepare_traffic("synthetic/traffic", root=root)
    return root


@pytest.fixture(scope="module")
def traffic(traffic_root, train_all):
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 4, "horizon": 3},
            "model": {"kind": "dcrnn", "rnn_units": 8, "num_layers": 1},
            "train": {"ranks": 1, "threads": 1, "epochs": 1, "batch_size": 64, "max_steps": 6, "baselines": False},
        }
    )
    return train_all([plan_experiment(experiment, dataset_root=traffic_root, run_id="traffic-run")])["traffic-run"]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def graph_of(path: Path):
    """Features and edges as a user of PyG has them: any order of edges, both directions."""
    store = LabelledGraphStore.open(path)
    topology = store.topology(undirected=True)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edges = np.stack([np.asarray(topology.indices, dtype=np.int64), targets])
    edges = torch.from_numpy(edges[:, np.random.default_rng(3).permutation(edges.shape[1])])
    features = store.features
    if not isinstance(features, SparseFeatures):
        return torch.from_numpy(np.array(features.x)), edges
    parts = (torch.from_numpy(np.array(each)) for each in (features.indptr, features.indices, features.values))
    return torch.sparse_csr_tensor(*parts, size=(features.num_nodes, features.num_features)), edges


@pytest.mark.parametrize("which", ["best", "last"])
def test_the_loaded_model_gives_the_logits_of_evaluate_to_the_bit(cora, which, one_thread):
    run = open_run(cora, which)
    torch.set_num_threads(1)
    expected = run.task.predict(None, embeddings=True)
    model = graphmill.load(cora.path, weights=which)
    assert not model.training
    x, edge_index = graph_of(Path(run.plan.dataset.path))
    with torch.no_grad():
        logits, embeddings = model(x, edge_index), model.embed(x, edge_index)
    assert torch.equal(logits, torch.from_numpy(expected.values["logit"]))
    assert torch.equal(embeddings, torch.from_numpy(expected.values["embedding"]))
    dense = x.to_dense() if x.layout == torch.sparse_csr else x
    layers, degree = model.model.layers, int(torch.bincount(edge_index[1]).max())
    roundings = sum(2 * (layer.in_channels + 2) + degree for layer in layers)  # two products, a mean, a bias
    exact = Bounded(logits.double(), 2 * roundings * magnitude(model, dense, edge_index))  # both ways are rounded
    assert_within(model(dense, edge_index), exact)


def test_a_model_of_standardised_features_gives_the_logits_of_evaluate_to_the_bit(data_root, train_all, one_thread):
    """Two ranks trained it; the statistics are in its weights, and are those of the training nodes."""
    experiment = NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": "tiny", "features": "standardised"},
            "model": {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2},
            "train": {
                "ranks": 2,
                "threads": 1,
                "epochs": 3,
                "batch_size": 1,
                "num_neighbors": [3, 3],
                "baselines": False,
            },
        }
    )
    folder = train_all([plan_experiment(experiment, dataset_root=data_root, run_id="standardised")])["standardised"]
    run, model = open_run(folder, "best"), graphmill.load(folder.path)
    torch.set_num_threads(1)
    x, edge_index = graph_of(Path(run.plan.dataset.path))
    with torch.no_grad():
        logits = model(x, edge_index)
    assert torch.equal(logits, torch.from_numpy(run.task.predict(None, embeddings=False).values["logit"]))
    mean = x[run.task.access.store.nodes_in("train")].double().mean(dim=0).float()
    assert torch.equal(model.model.standardise.mean, mean)


def test_wrong_inputs_are_refused_before_native_code_sees_them(cora):
    model = graphmill.load(str(cora.path))
    x, edge_index = graph_of(Path(cora.read_plan().dataset.path))
    for wrong_x, wrong_edges in (
        (x.to_dense()[:, 1:], edge_index),
        (x, edge_index + 1),
        (x, edge_index[0]),
        (x, -edge_index),
        (x, edge_index.float()),
        (x, edge_index.T),
        (x.to_dense().tolist(), edge_index),
        (x.to_dense().to_sparse(), edge_index),
        (x, edge_index.tolist()),
    ):
        with pytest.raises(ValueError, match=r"edge_index|x is") as refused:
            model(wrong_x, wrong_edges)
        assert isinstance(refused.value, UserError)


def test_the_snippets_of_the_how_to_run_and_an_exported_program_is_the_model(cora, tmp_path, monkeypatch, one_thread):
    """All that begin with a model in memory, in the order of the page."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "use-the-model.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    of_a_model = [text for text in snippets if "edge_index" in text or "embeddings" in text]
    assert len(of_a_model) == 4
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "cora-sage-1").symlink_to(cora.path)
    x, edge_index = graph_of(Path(cora.read_plan().dataset.path))
    names = {"x": x.to_dense() if x.layout == torch.sparse_csr else x, "edge_index": edge_index}
    for text in of_a_model:
        exec(compile(text, "use-the-model.md", "exec"), names)  # our own page
    assert len(names["nearest"]) == 5
    exported, model, x = names["model"], graphmill.load(cora.path), names["x"]
    few = edge_index[:, (edge_index < 50).all(dim=0)]
    with torch.no_grad():
        assert torch.equal(names["logits"], model(x, edge_index))
        assert torch.equal(exported(x[:50], few), model(x[:50], few)), "any graph"
        with pytest.raises(RuntimeError, match="no row for"):
            exported(x[:50], edge_index)


def test_the_loaded_forecaster_gives_the_forecasts_of_evaluate_to_the_bit(traffic, one_thread):
    run = open_run(traffic, "best")
    torch.set_num_threads(1)
    expected = run.task.predict(["test"], embeddings=False)
    model = graphmill.load(traffic.path)
    store = TrafficStore.open(Path(run.plan.dataset.path))
    starts = np.searchsorted(store.timestamps, expected.axes["window_start"])[:300]
    steps = starts[:, None] + np.arange(4)
    with torch.no_grad():
        forecasts = model(torch.from_numpy(store.values[steps]), torch.from_numpy(store.timestamps[steps]))
    assert torch.equal(forecasts, torch.from_numpy(expected.values["forecast"][:300]))
    with pytest.raises(ValueError, match=r"\[300, 3\], not \[300, 4\]"):
        model(torch.from_numpy(store.values[steps]), torch.from_numpy(store.timestamps[steps])[:, :3])


def read(path: Path) -> polars.DataFrame:
    return polars.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else polars.read_parquet(path)


def shown(value: float) -> str:
    return f"{value:.12g}"


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_a_stranger_computes_the_reported_measures_of_nodes(cora, tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    predict(open_run(cora, "best"), "test", path, embeddings=False)
    reported = evaluate(cora, split="test", which="best")
    if suffix == "npz":
        with np.load(path) as file:
            label, prediction, logits = file["label"], file["prediction"], file["logit"].astype(float)
    else:
        table = read(path)
        label, prediction = table["label"].to_numpy(), table["prediction"].to_numpy()
        logits = table.select(polars.col("^logit_.*$")).to_numpy().astype(float)
        assert table["split"].unique().to_list() == ["test"]
        assert table["node"].is_sorted()
    assert len(label) == reported["num_seeds"]
    assert np.array_equal(logits.argmax(axis=1), prediction)
    assert (label == prediction).mean() == reported["micro_f1"]
    highest = logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    loss = (log_sums - logits[np.arange(len(label)), label]).mean()
    assert shown(loss) == shown(reported["loss"])


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_a_stranger_computes_the_reported_measures_of_forecasts(traffic, tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    facts = predict(open_run(traffic, "best"), "test", path, embeddings=False)
    reported = evaluate(traffic, split="test", which="best")
    if suffix == "npz":
        with np.load(path) as file:
            forecast, reading = file["forecast"].ravel(), file["reading"].ravel()
            assert file["forecast"].shape == (len(file["window_start"]), len(file["horizon"]), len(file["sensor"]))
        known = ~np.isnan(reading)
    else:
        table = read(path)
        assert table.columns == ["window_start", "horizon", "sensor", "split", "time", "forecast", "reading"]
        assert table.select("window_start", "horizon", "sensor").is_unique().all()
        assert ((table["time"] - table["window_start"]) == (table["horizon"] + 3) * 300).all()
        known = table["reading"].is_not_null().to_numpy()
        forecast, reading = table["forecast"].to_numpy(), table["reading"].to_numpy()
    assert len(forecast) == facts["rows"]
    error = forecast[known].astype(np.float32) - reading[known].astype(np.float32)
    error = error.astype(float)
    assert shown(np.abs(error).mean()) == shown(reported["mae"])
    assert shown(np.sqrt((error**2).mean())) == shown(reported["rmse"])
    assert shown(100 * np.abs(error / reading[known].astype(float)).mean()) == shown(reported["mape"])


def test_all_nodes_with_what_is_not_known_as_null(cora, tmp_path):
    facts = predict(open_run(cora, "last"), "all", tmp_path / "all.parquet", embeddings=True)
    table, store = read(tmp_path / "all.parquet"), LabelledGraphStore.open(Path(cora.read_plan().dataset.path))
    assert facts["rows"] == table.height == store.metadata.num_nodes
    assert table["node"].to_list() == list(range(table.height))
    assert table["label"].null_count() == int((store.labels == -1).sum())
    assert table.columns.count("embedding_7") == 1
    assert {name: n for name, n in table["split"].value_counts().iter_rows() if name != "none"} == {
        split: len(store.nodes_in(split)) for split in ("train", "val", "test")
    }


@pytest.fixture
def called(capsys, caplog):
    """`called(program, *words)`: its exit status, what it printed and what it said, in this process."""

    def call(program, *words: object) -> tuple[int, str, str]:
        code = program([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err + caplog.text

    return call


def test_the_commands_on_moved_data_and_on_others(cora, data_root, tmp_path, called):
    expected = evaluate(cora, split="val", which="best")
    moved = tmp_path / "data"
    shutil.copytree(data_root, moved)
    run = tmp_path / "pulled"
    shutil.copytree(cora.path, run)
    plan = json.loads((run / "plan.json").read_text())
    elsewhere = plan_over(cora.read_plan(), DataChoice(None, moved), {})
    assert elsewhere.dataset.path == str(moved / "cora")
    done = run_here("evaluate", run, "--split", "val", "--dataset-root", moved, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == expected
    code, _, said = called(evaluate_program, run, "--dataset", "tiny", "--dataset-root", moved)
    assert code == 2
    known = plan["task"]["dataset"]  # the stand-in for cora has as many features as tiny, and more classes
    name, of_tiny = ("num_features", 12) if known["num_features"] != 12 else ("num_classes", 4)
    for number in (known[name], of_tiny):
        assert str(number) in said
    code, _, said = called(predict_program, run, "--output", tmp_path / "x.txt")
    assert code == 2
    assert ".parquet" in said
    done = run_here("predict", run, "--split", "val", "--output", tmp_path / "x.npz", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == expected["num_seeds"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the run would be evaluated on the GPU")
def test_a_run_of_gpus_is_evaluated_on_the_cpu_if_asked(cora, tmp_path, called):
    """Not without being asked; what the error says to type works."""
    expected = evaluate(cora, split="val", which="best")
    run = tmp_path / "pulled"
    shutil.copytree(cora.path, run)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "device": "cuda"}))
    for saved in run.glob("checkpoints/step_*"):  # as if it had been trained by this plan
        manifest = Manifest.read(saved)
        manifest.model_copy(update={"plan_hash": RunFolder.open(run).plan_hash()}).write(saved)
    code, _, said = called(evaluate_program, run, "--split", "val")
    assert code == 2
    assert "planned for GPUs" in said
    assert "--device cpu" in said
    done = run_here("evaluate", run, "--split", "val", "--json", "--device", "cpu")
    assert done.code == 0, done.err
    assert json.loads(done.out) == expected
    code, _, said = called(predict_program, run, "--device", "cpu", "--output", tmp_path / "x.npz")
    assert code == 0, said
    done = run_here("predict", run, "--device", "gpu", "--output", tmp_path / "y.npz")
    assert "--device gpu is not one of cpu, cuda" in done.err


def test_data_that_are_gone_and_others_of_the_same_name_are_refused(cora, data_root, tmp_path):
    plan = cora.read_plan()
    gone = plan.reading_from(str(tmp_path / "gone"))
    with pytest.raises(UserError, match="gone"):
        plan_over(gone, DataChoice(), {"GRAPHMILL_DATA_ROOT": str(tmp_path)})
    assert plan_over(gone, DataChoice(), {"GRAPHMILL_DATA_ROOT": str(data_root)}).dataset.path == str(
        data_root / "cora"
    )
    (tmp_path / "root").mkdir()
    shutil.copytree(data_root / "tiny", tmp_path / "root" / "cora")
    with pytest.raises(UserError, match=r"features|checksum"):
        plan_over(plan, DataChoice(None, tmp_path / "root"), {})


def test_a_file_is_whole_or_absent(cora, tmp_path):
    run = open_run(cora, "best")
    with pytest.raises(UserError, match=r"\.xlsx"):
        predict(run, "test", tmp_path / "x.xlsx", embeddings=False)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(OSError, match="folder"):
        predict(run, "test", tmp_path / "folder.parquet", embeddings=False)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.parquet"]
