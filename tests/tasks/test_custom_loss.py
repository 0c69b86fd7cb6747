"""A user-defined loss: what it is called with, that it adds up, and what does not fit in one sentence."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds, Seeds
from graphmill.spec.experiment import CustomLossSpec
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task, task_class
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation, prepare_store
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficPrepareOptions

CPU = torch.device("cpu")
ALONE = Group(0, 1, CPU)
CROSS_ENTROPY = {"kind": "custom", "target": "torch.nn.functional.cross_entropy", "options": {"reduction": "none"}}
AS_A_CLASS = {"kind": "custom", "target": "torch.nn.CrossEntropyLoss", "options": {"reduction": "none"}}
ABSOLUTE = {"kind": "custom", "target": "torch.nn.functional.l1_loss", "options": {"reduction": "none"}}

LOSSES = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy

NUMBER = 3


def mean(outputs, truths):
    return (outputs.sum(-1) - truths).mean() if outputs.dim() == 2 else (outputs - truths).mean()


def whole(outputs, truths):
    return torch.zeros_like(truths, dtype=torch.int64)


def constant(outputs, truths):
    return torch.ones(truths.shape)


def root(outputs, truths):
    return (outputs[:, 0] - outputs[:, 0].detach()).sqrt()


def nothing(outputs, truths):
    pass


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(3))

    def forward(self, outputs, truths):
        return outputs[:, 0]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=folder, save_as="sbm", options={"num_nodes": 200, "num_edges": 900, "features": 6})
    readings = TrafficPrepareOptions(num_sensors=5, num_steps=600, missing_share=0.2)
    prepare_store(TRAFFIC, Preparation("synthetic/traffic", folder, readings))
    (folder / "ownlosses.py").write_text(LOSSES)
    programs = str(Path(__file__).parents[1] / "integration" / "programs")
    sys.path[:0] = [str(folder), programs]
    yield folder
    sys.path.remove(str(folder))
    sys.path.remove(programs)
    for name in ("ownlosses", "strange_losses"):
        sys.modules.pop(name, None)


def nodes(root, loss):
    experiment = NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": "sbm"},
            "model": {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2},
            "train": {"epochs": 1, "batch_size": 50, "num_neighbors": [3, 3], "loss": loss, "prefetch": 0},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def windows(root, loss):
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 4, "horizon": 3},
            "model": {"kind": "dcrnn", "rnn_units": 4, "num_layers": 1},
            "train": {"epochs": 1, "batch_size": 8, "loss": loss},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def check(plan):
    task_class(plan).check_model(plan, plan.task)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("ownlosses.mean", {}, r"makes one number \(\[\]\) .*\n.*the loss of each item, \["),
        ("ownlosses.whole", {}, r"makes whole numbers \(torch\.int64\)"),
        ("ownlosses.constant", {}, "depend on no output"),
        ("ownlosses.root", {}, "or its gradient, is not finite"),
        ("ownlosses.nothing", {}, r"makes nothing \(None\)"),
        ("ownlosses.Centres", {}, "has parameters, which a loss cannot train"),
        ("ownlosses.NUMBER", {}, r"train\.loss\.target 'ownlosses\.NUMBER' is a int, which cannot be called"),
        ("ownlosses.focul", {}, "ownlosses has no 'focul'"),
        ("nowhere.loss", {}, r"train\.loss\.target 'nowhere\.loss': .*cannot be imported"),
        ("focal", {}, r"train\.loss\.target 'focal' is not a dotted path"),
        ("strange_losses.focal", {"gama": 1}, r"TypeError: .*gama"),
        ("torch.nn.CrossEntropyLoss", {"red": 1}, r"train\.loss\.options \['red'\]"),
        ("torch.hub.load", {}, "names a part of torch"),
    ],
)
def test_a_loss_that_does_not_fit_is_one_sentence(root, target, options, message):
    with pytest.raises(UserError, match=message):
        check(nodes(root, {"kind": "custom", "target": target, "options": options}))


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, AS_A_CLASS, {"kind": "custom", "target": "strange_losses:focal"}])
def test_a_loss_that_fits_passes(root, loss):
    check(nodes(root, loss))


def test_a_loss_of_forecasts_is_tried_on_windows(root):
    check(windows(root, {"kind": "custom", "target": "strange_losses.far_ones_less"}))
    with pytest.raises(UserError, match=r"makes one number \(\[\]\) .*\n.*\[2, 3, 5\]"):
        check(windows(root, {"kind": "custom", "target": "ownlosses.mean"}))


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, AS_A_CLASS])
def test_cross_entropy_by_dotted_path_is_the_built_in_one(root, loss):
    """Losses of steps and of a split, and gradients."""
    own, built_in = (build_task(nodes(root, each), ALONE) for each in (loss, {"kind": "cross_entropy"}))
    for mine, theirs in zip(own.batches(0, 0), built_in.batches(0, 0), strict=True):
        losses = [task.loss_sum(batch) for task, batch in ((own, mine), (built_in, theirs))]
        torch.testing.assert_close(losses[0], losses[1])
        for each in losses:
            each.backward()
    gradients = [[parameter.grad for parameter in task.model.parameters()] for task in (own, built_in)]
    torch.testing.assert_close(gradients[0], gradients[1])
    assert own.evaluate("val").loss == pytest.approx(built_in.evaluate("val").loss, rel=1e-6)
    assert own.evaluate("val").values == built_in.evaluate("val").values


def test_absolute_errors_by_dotted_path_are_the_built_in_ones(root):
    """Missing readings count nowhere, although the loss is shown numbers in their place."""
    own, built_in = (build_task(windows(root, each), ALONE) for each in (ABSOLUTE, {"kind": "mae"}))
    for mine, theirs in zip(own.batches(0, 0), built_in.batches(0, 0), strict=True):
        assert not mine.is_known.all()
        torch.testing.assert_close(own.loss_sum(mine), built_in.loss_sum(theirs))
        break
    assert own.evaluate("val").loss == pytest.approx(built_in.evaluate("val").values["mae"], rel=1e-6)


@given(epoch=st.integers(0, 9), step=st.integers(0, 9), rank=st.integers(0, 3), before=st.integers(0, 2**62))
def test_what_a_loss_draws_depends_on_the_step_alone(epoch, step, rank, before):
    """So a resumed run draws what it would have drawn, whatever was drawn before."""
    spec = CustomLossSpec(kind="custom", target="torch.nn.functional.cross_entropy", options={"reduction": "none"})
    loss = CustomLoss.of(spec, seed=7, rank=rank, device=CPU)
    draws = []

    def drawing(outputs, truths):
        draws.append(torch.rand(3).tolist())
        return outputs[:, 0]

    own = CustomLoss("mine.drawing", drawing, loss.seed, loss.rank)
    outputs, truths = torch.ones(2, 3, requires_grad=True), torch.zeros(2, dtype=torch.int64)
    ids = SeedIds(np.arange(2))
    for state in (before, 1):
        torch.manual_seed(state)
        own.sum(Seeds(epoch, step, ids), outputs, truths)
    own.sum(Seeds(epoch, step + 1, ids), outputs, truths)
    own.sum(EvaluationSeeds(ids), outputs, truths)
    assert draws[0] == draws[1]
    assert len({tuple(each) for each in draws}) == 3
