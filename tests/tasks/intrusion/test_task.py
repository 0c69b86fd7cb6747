"""The task: gradients that add up over ranks, a threshold that goes with the weights, scores that leave as they are."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_text import csv_of
from sklearn.linear_model import LogisticRegression
from torch_geometric.nn import GATConv as TheirGAT
from torch_geometric.nn import global_mean_pool

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.intrusion.data.generate import captures
from graphmill.tasks.intrusion.data.prepare import GENERATED, prepare_requested
from graphmill.tasks.intrusion.data.store import ids_of_columns
from graphmill.tasks.intrusion.nn.gat import log_odds
from graphmill.tasks.intrusion.nn.ids import NUM_ID_COLUMNS, HashedIds, ids_of, row_of
from graphmill.tasks.intrusion.page import KIND, CapturePrepareOptions, IntrusionExperiment
from graphmill.tasks.intrusion.reference import BenignTraffic
from graphmill.tasks.intrusion.task import Intrusion
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation

ORIGIN = Origin(run_id="run", task=KIND.name, dataset=GENERATED, step=0, epoch=0, plan_hash="", measures={})
SMALL = {"kind": "gat", "scale": "small", "hidden_channels": 4, "heads": 2, "dropout": 0.0, "id_dropout": 0.0}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("can")
    prepare_requested(Preparation(GENERATED, root, CapturePrepareOptions(seconds=30)))
    return root


def plan_of(root: Path, *, ranks: int = 1, model=None, dataset=None, task=None, **train) -> Plan:
    experiment = IntrusionExperiment.model_validate(
        {
            "task": {"kind": "intrusion", **(task or {})},
            "dataset": {"name": GENERATED, **(dataset or {})},
            "model": {**SMALL, **(model or {})},
            "train": {"epochs": 2, "batch_size": 12, "seed": 3, "ranks": ranks, "threads": 1, "device": "cpu", **train},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id="run", machine=machine)


def task_of(root: Path, *, rank: int = 0, ranks: int = 1, **more) -> Intrusion:
    built = build_task(plan_of(root, ranks=ranks, **more), Group(rank, ranks, torch.device("cpu")))
    assert isinstance(built, Intrusion)
    return built


def gradient(one: Intrusion, batch) -> torch.Tensor:
    """In float64, so that what is left of a difference is no rounding."""
    one.model.double().zero_grad()
    one.loss_sum(replace(batch, x=batch.x.double(), edge_attr=batch.edge_attr.double())).backward()
    return torch.cat([each.grad.flatten() for each in one.model.parameters() if each.grad is not None])


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_ranks_add_up(root, ranks):
    one = task_of(root, model={"attention": "reference"})
    alone = gradient(one, next(iter(one.batches(1, 0))))
    more = {"ranks": ranks, "batch_size": 12 // ranks, "model": {"attention": "reference"}}
    shares = [task_of(root, rank=rank, **more) for rank in range(ranks)]
    found = sum(gradient(share, next(iter(share.batches(1, 0)))) for share in shares)
    # Losses and standardised features are made in float32: 2⁻²⁴ of each of 12 windows' logits.
    assert float((found - alone).norm()) <= 12 * 2**-24 * 100 * float(alone.norm())


def test_a_formula_counts_the_parameters(root):
    models = [{}, {"scale": "large"}, {"edge_features": False}, {"fc_layers": 1, "id_rows": 8}, {"kind": "gatv2"}]
    for model in models:
        plan = plan_of(root, model=model)
        made = build_task(plan, Group(0, 1, torch.device("cpu"))).model
        counted = sum(each.numel() for each in made.parameters() if each.requires_grad)
        assert KIND.sizes(plan.task, StepShape(12, "cpu", "fp32")).num_parameters == counted


def test_the_model_is_that_of_pyg(root):
    """PyG's own layers with our weights; jumping knowledge, mean and linear layers written out."""
    one = task_of(root)
    one.model.eval()
    inner, batch = one.model.inner, one.feed.chosen(np.arange(20))
    with torch.no_grad():
        inner.ids.table.normal_()
    graph = torch.repeat_interleave(torch.arange(20), batch.node_offsets.diff())
    h = torch.cat([inner.ids(ids_of(batch.x)), inner.nodes(batch.x[:, NUM_ID_COLUMNS:])], dim=1)
    read_out = []
    for layer in inner.layers:
        theirs = TheirGAT(h.shape[1], 4, 2, edge_dim=11)
        theirs.load_state_dict(layer.state_dict())
        h = theirs(h, batch.edge_index, inner.edges(batch.edge_attr)).relu()
        read_out.append(global_mean_pool(h, graph))
    found = torch.cat(read_out, dim=1)
    for layer in inner.stack[:-1]:
        found = layer(found).relu()
    logits = inner.stack[-1](found)
    logits[:, 1] += inner.by_reference(inner.reference.of_windows(batch).float().unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(one.model(batch), logits, rtol=1e-4, atol=1e-4)


def test_the_references_term_begins_as_logistic_regression_on_deviations(root):
    """Held by a hundredth of scikit-learn's penalty: C = 100."""
    one = task_of(root)
    term, batch = one.model.inner.by_reference, one.feed.chosen(one.train_ids)
    deviations = one.model.inner.reference.of_windows(batch).numpy()[:, None]
    scaled = (deviations - deviations.mean()) / deviations.std()
    expected = LogisticRegression(C=100.0, tol=1e-9).fit(scaled, one.labels[one.train_ids]).decision_function(scaled)
    found = term(torch.from_numpy(deviations).float()).detach().numpy()[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_what_is_benign_is_known_of_the_training_windows_alone(root):
    one = task_of(root, dataset={"test_captures": ["fuzzing"], "val_captures": ["dos"]})
    known = BenignTraffic.fit(one.store.windows(), (one.codes == 0) & (np.asarray(one.labels) == 0))
    assert one.model.inner.reference.known_pairs.tolist() == known.pairs.tolist()
    assert len(known.pairs) < len(BenignTraffic.fit(one.store.windows(), one.codes >= 0).pairs)


def test_attention_of_the_ids_of_a_window(root):
    """As PyG's layers give it on the same weights; of an autoencoder all layers are written, of a fusion none."""
    one = task_of(root)
    inner, batch = one.model.inner, one.feed.chosen(np.array([5]))
    ids = ids_of(batch.x)
    h = torch.cat([inner.ids(ids), inner.nodes(batch.x[:, NUM_ID_COLUMNS:])], dim=1)
    expected = []
    for layer in inner.layers:
        theirs = TheirGAT(h.shape[1], 4, 2, edge_dim=11)
        theirs.load_state_dict(layer.state_dict())
        attr = inner.edges(batch.edge_attr)
        h, (edges, alpha) = theirs(h, batch.edge_index, attr, return_attention_weights=True)
        expected.append(dict(zip(map(tuple, ids[edges].t().tolist()), alpha.tolist(), strict=True)))
        h = h.relu()
    found = one.attention(None)
    assert (found.names, found.heads) == (("window", "source", "target"), 2)
    windows = set()
    for part in found.parts:
        windows |= set(part.ids[0].tolist())
        at = part.ids[0] == 5
        rows = zip(part.ids[1][at].tolist(), part.ids[2][at].tolist(), part.alpha[at], strict=True)
        for source, target, alpha in rows:
            assert alpha.tolist() == pytest.approx(expected[part.layer].pop((source, target)), abs=1e-4)
    assert not any(expected)
    assert windows == set(range(len(one.codes)))
    vgae = {"kind": "vgae", "scale": "small", "hidden_channels": 16, "heads": 2}
    of_vgae = build_task(plan_of_model(root, vgae, "benign"), Group(0, 1, torch.device("cpu"))).attention(["val"])
    assert {part.layer for part in of_vgae.parts} == {0, 1, 2, 3}
    fusion = build_task(plan_of_model(root, {"kind": "fusion"}, "validation"), Group(0, 1, torch.device("cpu")))
    with pytest.raises(UserError, match="fusion has no attention"):
        fusion.attention(None)


def plan_of_model(root: Path, model: dict, train_on: str) -> Plan:
    experiment = IntrusionExperiment.model_validate(
        {
            "task": {"kind": "intrusion"},
            "dataset": {"name": GENERATED, "train_on": train_on},
            "model": model,
            "train": {"epochs": 1, "threads": 1, "device": "cpu", "ranks": 1},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run", machine=MachineInfo(num_cores=2, num_gpus=0))


def test_features_are_standardised_by_the_training_windows_alone(root):
    one = task_of(root, dataset={"test_captures": ["fuzzing"], "val_captures": ["dos"]})
    graphs = one.feed.collector.graphs
    is_train = one.codes == 0
    nodes = np.repeat(is_train, np.diff(graphs.node_offsets))
    edges = np.repeat(is_train, np.diff(graphs.edge_offsets))
    np.testing.assert_allclose(one.model.inner.nodes.mean, graphs.x[nodes, 2:].mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one.model.inner.edges.mean, graphs.edge_attr[edges].mean(axis=0), rtol=1e-4)


def test_ids_come_out_as_they_went_in(root):
    one = task_of(root)
    x = one.feed.collector.graphs.x
    assert np.array_equal(ids_of(torch.from_numpy(x[:50].copy())).numpy(), ids_of_columns(x[:50]).astype(np.int64))


def test_ids_share_rows_by_chance_alone():
    """Of all 2048 short ids in 1024 rows: two rows are shared by a pair with chance 2 / 1024², twice that with both
    orders; of 2.1 million pairs about 4 or 8 are expected, and 40 are more than chance.
    """
    rows = torch.stack([row_of(torch.arange(2048), 1024, probe) for probe in (0, 1)], dim=1).sort(dim=1).values
    assert int(rows.min()) >= 0
    assert int(rows.max()) < 1024
    _, counts = torch.unique(rows, dim=0, return_counts=True)
    assert int((counts * (counts - 1) // 2).sum()) <= 40


def test_an_id_that_was_never_seen_is_like_a_hidden_one():
    hashed = HashedIds(64, 4, hidden=1.0)
    with torch.no_grad():
        hashed.table.normal_()
    assert not hashed(torch.arange(10)).any()  # while training, with probability 1
    assert hashed.eval()(torch.arange(10)).any()
    assert not HashedIds(64, 4, hidden=0.5).eval()(torch.arange(10)).any()


def test_the_threshold_is_chosen_on_validation_and_goes_with_the_weights(root):
    one = task_of(root)
    before = one.evaluate("test")
    assert np.isnan(list(before.values.values())).all()  # nothing was chosen yet
    val = one.evaluate("val")
    threshold = val.values["threshold"]
    assert float(one.model.threshold) == threshold
    other = task_of(root)
    other.model.load_state_dict(one.model.state_dict())
    assert other.evaluate("test").values == one.evaluate("test").values
    assert other.evaluate("test").values["threshold"] == threshold


def test_a_given_threshold_is_kept(root):
    one = task_of(root, task={"threshold": 0.25})
    assert {one.evaluate(split).values["threshold"] for split in ("train", "val", "test")} == {0.25}


def test_a_threshold_cannot_be_chosen_on_one_kind_of_windows(root):
    with pytest.raises(UserError, match="no threshold can be chosen"):
        plan_of(root, dataset={"val_captures": ["benign"]})
    plan_of(root, dataset={"val_captures": ["benign"]}, task={"threshold": 0.0})


def test_a_wanted_rate_of_false_alarms_chooses_the_threshold(root):
    one = task_of(root, dataset={"blocks": 2}, task={"false_alarms_per_hour": 1500.0})
    found = one.evaluate("val").values
    benign = found["false_alarms_per_hour"]
    val = one.codes == 1
    hours = sum(np.diff(one.store.times[val & (one.labels == 0), :2])) / 3600
    assert 0 < benign <= 1500 < benign + 1 / float(hours[0]) + 15  # windows lie 1 % apart
    assert float(one.model.threshold) == found["threshold"]


def test_a_rate_of_false_alarms_needs_no_attack_but_times(root):
    plan_of(root, dataset={"val_captures": ["benign"]}, task={"false_alarms_per_hour": 1500.0})
    with pytest.raises(ValueError, match="both set the threshold"):
        plan_of(root, task={"false_alarms_per_hour": 6.0, "threshold": 1.0})
    one = task_of(root, dataset={"blocks": 2}, task={"false_alarms_per_hour": 0.1})
    with pytest.raises(UserError, match="too few to count"):
        next(one.batches(0, 0))


def test_predictions_are_what_was_evaluated(root):
    one = task_of(root)
    found = one.evaluate("val").values
    made = one.predict(["val"], embeddings=True)
    alarms, labels = made.values["prediction"], made.values["label"]
    hits = (alarms & labels).sum()
    assert found["f1"] == pytest.approx(2 * hits / (alarms.sum() + labels.sum()))
    assert set(made.values["split"]) == {"val"}
    assert len(one.predict(None, embeddings=False).values["score"]) == len(one.codes)


def test_it_leaves_as_plain_pytorch(root):
    one = task_of(root)
    with torch.no_grad():
        one.model.inner.ids.table.normal_()
    weights = Weights.of(one.model.state_dict(), ORIGIN)
    loaded = Intrusion.inference_model(one.plan, weights).eval()
    one.model.eval()
    batch = one.feed.chosen(np.arange(7))
    graph = torch.repeat_interleave(torch.arange(7), batch.node_offsets.diff())
    found = loaded(batch.x[:, 2:], batch.edge_index, graph, batch.edge_attr, ids_of(batch.x))
    torch.testing.assert_close(found, one.model.scores(batch), rtol=1e-5, atol=1e-5)


def test_a_stream_is_judged_as_its_windows_were(root):
    """The scores of `detect` are those of `predict`, to rounding: other windows are in the batch."""
    one = task_of(root)
    one.evaluate("val")
    scores = one.predict(None, embeddings=False)
    weights = Weights.of(one.model.state_dict(), ORIGIN)
    detector = Intrusion.detector(one.plan, weights)
    frames = dict(captures(30, 0))["dos"][:3000]
    stream = io.BufferedReader(io.BytesIO(csv_of(frames).encode()))
    told = list(detector.verdicts(stream, "dos", layout="auto", threshold=detector.threshold))
    whole = len(told) - 1  # behind the last window there is another frame in the capture than in the stream: none
    of_dos = scores.values["score"][scores.values["capture"] == "dos"][:whole]
    assert whole == 29
    np.testing.assert_allclose([verdict.score for verdict in told[:whole]], of_dos, rtol=1e-3, atol=1e-4)


def test_the_statistic_stands_beside(root):
    own = plan_of(root).task
    found = {score.split: score.values for score in score_baselines(own, ["rates"], ("val", "test"))}
    assert found["val"]["f1"] > 0.9  # floods and unknown ids change counts
    assert set(found["val"]) == {measure.name for measure in KIND.measures}


def test_scores_rise_where_probabilities_are_one():
    assert (log_odds(torch.tensor([[0.0, 50.0], [0.0, 51.0]])).diff() > 0).all()


@pytest.mark.parametrize("model", [{"dropout": 0.5, "id_dropout": 0.5}, {"kind": "gatv2", "dropout": 0.5}])
def test_windows_are_judged_without_what_training_draws(root, model):
    """Dropout and hidden ids in validation would choose another threshold and another best checkpoint."""
    noisy, plain = (task_of(root, model={**model, **changes}) for changes in ({}, {"dropout": 0.0, "id_dropout": 0.0}))
    plain.model.load_state_dict(noisy.model.state_dict())
    for split in ("val", "test"):
        assert noisy.evaluate(split).facts() == plain.evaluate(split).facts()
    assert noisy.model.training, "it trains on"
