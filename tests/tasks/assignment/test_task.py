"""The task: gradients that add up over ranks, sizes that share an epoch, measures, weights that leave."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.base.errors import AbsentDataError, UserError
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.assignment.data.batches import PreparedInstance
from graphmill.tasks.assignment.nn.metrics import column_potentials, judged, row_potentials
from graphmill.tasks.assignment.page import KIND, AssignmentExperiment
from graphmill.tasks.assignment.task import Assignment
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment

EPS = 2**-23
MACHINE = MachineInfo(num_cores=2, num_gpus=0)
ORIGIN = Origin(run_id="run", task=KIND.name, dataset="mine", step=0, epoch=0, plan_hash="", measures={})


def plan_of(store, *, ranks: int = 1, model=None, dataset=None, **train) -> Plan:
    experiment = AssignmentExperiment.model_validate(
        {
            "dataset": {"name": str(store.path), **(dataset or {})},
            "model": model or {"kind": "one_gnn", "hidden_channels": 8, "rounds": 2, "soft_sweeps": 2},
            "train": {"epochs": 2, "batch_size": 6, "seed": 3, "ranks": ranks, "threads": 1, "device": "cpu", **train},
        }
    )
    return plan_experiment(experiment, dataset_root=Path("/"), run_id="run", machine=MACHINE)


def task(store, *, rank: int = 0, ranks: int = 1, **more) -> Assignment:
    built = build_task(plan_of(store, ranks=ranks, **more), Group(rank, ranks, torch.device("cpu")))
    assert isinstance(built, Assignment)
    for parameter in built.model.parameters():  # heads begin with zeros
        parameter.data += 0.05
    return built


def gradient(one: Assignment, epoch: int, step: int) -> torch.Tensor:
    one.model.zero_grad()
    batch = next(iter(one.batches(epoch, step)))
    if batch.num_seeds:
        one.loss_sum(batch).backward()
    return torch.cat(
        [(0 * each.detach() if each.grad is None else each.grad).flatten() for each in one.model.parameters()]
    )


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        (None, "fp32"),
        (None, "bf16"),
        ({"kind": "dual_gnn", "hidden_channels": 8, "num_layers": 1, "dropout": 0.0}, "fp32"),
    ],
)
def test_what_a_model_sees_first_is_made_with_the_batch_and_changes_no_bit(small, model, precision):
    """By the thread that makes batches, outside of the model's mixed precision."""
    one = task(small, model=model, precision=precision)
    for batch in one.batches(0, 0):
        assert batch.first is not None
        made, left = one.loss_sum(batch), one.loss_sum(replace(batch, first=None))
        assert torch.equal(made, left)
        own = one.model.inner.first_of(batch.instances)
        assert all(torch.equal(getattr(own, name), getattr(batch.first, name)) for name in own.__slots__)


@pytest.mark.parametrize("model", [None, {"kind": "dual_gnn", "hidden_channels": 8, "num_layers": 1, "dropout": 0.0}])
@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_ranks_add_up(small, ranks, model):
    one = task(small, model=model)
    shares = [task(small, rank=rank, ranks=ranks, batch_size=6 // ranks, model=model) for rank in range(ranks)]
    for step in (0, one.plan.last_step // 2 - 1):
        alone, found = gradient(one, 1, step), sum(gradient(share, 1, step) for share in shares)
        # Losses are made in float32: 2⁻²³ of every instance's, through its layers.
        assert float((found - alone).norm()) <= 6 * EPS * 100 * float(alone.norm())
        assert sum(one.weights(1, step)) == sum(shares[0].weights(1, step))


def test_an_epoch_has_every_instance_once_in_batches_of_one_size(small):
    one = task(small)
    sizes = small.array("sizes")
    for epoch in range(2):
        seen = [batch.seeds.ids for batch in one.batches(epoch, 0)]
        assert len(seen) == one.plan.calendar.steps_in(epoch)
        assert sorted(np.concatenate(seen)) == small.instances("train").tolist()
        assert all(len(set(sizes[ids])) == 1 for ids in seen)
    again = [batch.seeds.ids.tolist() for batch in one.batches(0, 2)]
    assert again == [batch.seeds.ids.tolist() for batch in one.batches(0, 0)][2:]


def test_earlier_sizes_are_learnt_again(small):
    dataset = {"sizes": [17], "replay": {"sizes": [6], "share": 0.25}}
    one = task(small, dataset=dataset)
    learnt = len(small.instances("train", (17,)))
    assert one.plan.dataset.num_train == learnt
    drawn = []
    for epoch in range(2):
        seen = np.concatenate([batch.seeds.ids for batch in one.batches(epoch, 0)])
        is_old = np.isin(seen, small.instances("train", (6,)))
        assert sorted(seen[~is_old]) == small.instances("train", (17,)).tolist()
        assert is_old.sum() == round(learnt / 3) == one.schedule.num_seeds - learnt
        drawn.append(set(seen[is_old]))
    assert drawn[0] != drawn[1]
    assert one.evaluate("val").num_seeds == len(small.instances("val", (17,)))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"sizes": [17, 512]}, "dataset.sizes asks for 512, .* its sizes are 6, 17"),
        ({"families": ["uniform", "unheard"]}, "no instance of unheard"),
        ({"sizes": [17], "replay": {"sizes": [6], "share": 0.9}}, "size 6, and mine has"),
    ],
)
def test_what_is_not_there_is_refused(small, dataset, message):
    with pytest.raises(UserError, match=message) as caught:
        plan_of(small, dataset=dataset)
    assert isinstance(caught.value, AbsentDataError) == ("replay" not in dataset)


def test_a_limit_is_apportioned(small):
    limited = plan_of(small, dataset={"train_limit": 30})
    assert sum(limited.task.counts) == 30 == limited.dataset.num_train
    whole = [bucket.num_train for bucket in limited.task.dataset.buckets]
    assert np.allclose(limited.task.counts, 30 * np.array(whole) / sum(whole), atol=1)


@pytest.mark.parametrize("loss", [{}, {"supervised": 0.5}])
def test_a_formula_counts_the_parameters(small, loss):
    models = [
        {"kind": "one_gnn"},
        {
            "kind": "one_gnn",
            "hidden_channels": 5,
            "num_layers": 3,
            "rounds": 1,
            "topk": 2,
            "soft_sweeps": 0,
            "dropout": 0.1,
        },
    ]
    models += [
        {"kind": "dual_gnn"},
        {"kind": "dual_gnn", "hidden_channels": 12, "heads": 3, "num_layers": 2, "topk": 3},
    ]
    for model in models:
        one = build_task(plan_of(small, model=model, loss=loss), Group(0, 1, torch.device("cpu")))
        counted = sum(each.numel() for each in one.model.parameters())
        assert KIND.sizes(one.plan.task, StepShape(6, "cpu", "fp32")).num_parameters == counted
        batch = next(iter(one.batches(0, 0)))
        assert one.loss_sum(batch).isfinite()


@pytest.mark.parametrize("shape", [(5, 5), (4, 7)])
def test_potentials_are_judged_exactly(shape):
    rng = np.random.default_rng(0)
    costs = rng.random(shape)
    u = row_potentials(costs, np.zeros(shape[1]))
    v = column_potentials(costs, u)
    assert (u[:, None] + v <= costs + 1e-15).all()
    found = judged(costs, u, v, 2.0, u)
    assert found.gap == pytest.approx((2.0 - u.sum() - v.sum()) / 2.0)
    assert found.is_feasible
    assert not judged(costs, u + 1e-9, v, 2.0, u).is_feasible
    is_free = shape[0] == shape[1]  # in a square problem potentials may be shifted; else what is left over may gain
    assert judged(costs, u - 1.0, v + 1.0, 2.0, u).is_feasible == is_free
    assert judged(costs - costs, 0 * u, 0 * v, 0.0, u).gap == 0.0
    assert judged(costs, 0 * u, 0 * v, 0.0, u).gap == 0.0
    assert judged(costs, u - 1, v, 0.0, u).gap > 0


def test_measures_and_baselines(small):
    one = task(small)
    found = one.evaluate("val")
    assert found.num_seeds == len(small.instances("val"))
    assert found.values["feasible"] == 1.0
    names = [each.name for each in KIND.baselines.methods]
    scores = {each.baseline: each.values for each in score_baselines(one.task_plan, names, ("val",))}
    assert scores["oracle"]["dual_gap"] == pytest.approx(0.0, abs=1e-12)
    assert scores["oracle"]["u_mae"] == pytest.approx(0.0, abs=1e-12)
    assert found.values["dual_gap"] <= scores["row_minima"]["dual_gap"] + 1e-6
    assert scores["row_minima"]["dual_gap"] < scores["zero"]["dual_gap"]
    assert all(each["feasible"] == 1.0 for each in scores.values())


def test_predictions_are_what_is_evaluated(small):
    one = task(small)
    found = one.predict(["test"], embeddings=False)
    values = found.values
    gaps = []
    for i in small.instances("test"):
        mine = values["instance"] == i
        rows, columns = (mine & (values["side"] == side) for side in ("row", "column"))
        problem = PreparedInstance.of(small, int(i))
        u, v = values["predicted"][rows], values["predicted"][columns]
        assert np.array_equal(values["optimal"][rows], small.u(int(i)))
        assert ((u[:, None] + v) <= small.cost(int(i)) + 1e-12 * np.abs(small.cost(int(i))).max()).all()
        gaps.append(
            judged(problem.costs, *((v, u) if problem.is_transposed else (u, v)), problem.optimum, problem.u).gap
        )
    assert np.median(gaps) == pytest.approx(one.evaluate("test").values["dual_gap"], abs=1e-9)


def test_weights_leave(small, tmp_path):
    one = task(small)
    loaded = Assignment.inference_model(one.plan, Weights.of(one.model.state_dict(), ORIGIN)).eval()
    values = one.predict(["test"], embeddings=False).values
    for i in small.instances("test")[::7]:
        u, v = loaded(small.cost(int(i)))
        mine = values["instance"] == i
        made = values["predicted"][mine]
        # Alone and in a batch sums are of other lengths; a square's potentials are known up to a constant.
        scale = float(np.abs(made).max()) + 1e-9
        assert np.ptp(u.numpy() - made[values["side"][mine] == "row"]) <= 2000 * EPS * scale
        assert np.ptp(v.numpy() - made[values["side"][mine] == "column"]) <= 2000 * EPS * scale
        assert u.dtype == v.dtype == torch.float64
    with pytest.raises(ValueError, match="NaN"):
        loaded(np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="rows, columns"):
        loaded(np.zeros(3))


def test_a_model_of_ones_own(small, tmp_path, monkeypatch):
    (tmp_path / "my_lap.py").write_text(
        "from torch import nn\n"
        "class Mine(nn.Module):\n"
        "    def __init__(self, in_channels, out_channels):\n"
        "        super().__init__()\n"
        "        self.out = nn.Linear(in_channels, out_channels)\n"
        "    def forward(self, columns, costs):\n"
        "        return self.out(columns)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = {"kind": "custom", "target": "my_lap.Mine"}
    one = task(small, model=model)
    Assignment.check_model(one.plan, one.task_plan)
    assert one.evaluate("val").values["feasible"] == 1.0
    assert gradient(one, 0, 0).any()
    sys.modules.pop("my_lap")
