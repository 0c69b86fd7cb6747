"""Who draws of a graph that lies for a GPU: measured, or as asked; the batches are the same."""

import pytest
import torch
from device_graphs import ALONE, budget, device_access, kernels_by, plan_of, spec_of

from graphmill.access.draws import NUM_MEASURED, EitherSampler, SettledDraws, faster
from graphmill.access.opening import open_access
from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.page.sizes import refuse_gpu_graph


def batches(access):
    return [
        (each.node_ids.clone(), each.inputs.x.clone(), *((b.indptr - b.indptr[0]).clone() for b in each.blocks))
        for each in access.batches(1, 0)
    ]


@pytest.mark.parametrize("by", ["native", "shim"])
@pytest.mark.parametrize("asked", ["device", "cpu", "measured"])
def test_batches_are_the_same_whoever_draws(data, asked, by):
    """Also after a measurement, which makes batches of the first epoch."""
    spec, store = spec_of(data)
    expected = open_access(spec, store, ALONE)
    expected.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    assert expected.settle_draws() is None
    access = device_access(spec, store, budget(spec, store, 100), kernels_by(by), group=ALONE, draws=asked)
    access.begin(store.labels, form="self_and_mean", dtype=torch.float32)
    draws = access.settle_draws()
    assert draws.by == access.sampler.by
    assert draws.asked == asked
    if asked == "measured":
        assert (draws.by == "device") is (draws.device_s <= draws.cpu_s)
        assert "(medians of 5)" in draws.describe()
    else:
        assert draws == SettledDraws(asked, asked)
        assert draws.describe() == f"neighbourhoods are drawn by the {asked}, as train.gpu_draws says"
    pairs = zip(batches(access), batches(expected), strict=True)
    assert all(torch.equal(a, b) for found, its in pairs for a, b in zip(found, its, strict=True))


def test_each_way_makes_the_same_first_batches_in_turn():
    asked, sampler = [], EitherSampler({"device": None, "cpu": None}, "measured")

    def make(step):
        asked.append((sampler.by, step))
        first = len(asked) <= 2
        return {"device": 9.0 if first else 1.0, "cpu": 0.0 if first else 2.0}[sampler.by]

    assert sampler.settle(make, 4, None) == SettledDraws("device", "measured", 1.0, 2.0)
    assert asked == [(way, turn % 4) for turn in range(1 + NUM_MEASURED) for way in ("device", "cpu")]


@pytest.mark.parametrize(("asked", "by"), [("measured", "cpu"), ("device", "device")])
def test_an_attempt_that_resumes_draws_as_the_one_before_unless_it_is_asked_for(asked, by):
    """Nothing is measured: there is nothing that could make a batch."""
    sampler = EitherSampler({"device": None, "cpu": None}, asked)
    settled = sampler.settle(None, 4, "cpu")
    assert (settled, sampler.by) == (SettledDraws(by, asked), by)
    assert ("as this run began" in settled.describe()) is (asked == "measured")


@pytest.mark.parametrize(
    ("device_s", "cpu_s", "expected"),
    [
        ([1, 1, 9], [2, 2, 2], "device"),
        ([3, 3, 1], [2, 2, 2], "cpu"),
        ([2, 2, 2], [2, 2, 2], "device"),
    ],
)
def test_the_faster_median_is_taken(device_s, cpu_s, expected):
    assert faster(device_s, cpu_s) == expected


@pytest.mark.parametrize(
    ("device", "fix"),
    [("cuda", "set train.gpu_graph_gib, or leave train.gpu_draws out"), ("cpu", "leave train.gpu_draws out")],
)
def test_draws_of_no_graph_are_refused(data, device, fix):
    """What is offered can be done: a graph of a run on the CPU cannot lie for a GPU."""
    experiment = NodeClassificationExperiment.model_validate(
        {"dataset": {"name": "sbm"}, "train": {"epochs": 1, "gpu_draws": "cpu", "device": device}}
    )
    with pytest.raises(UserError, match=r"train\.gpu_draws is cpu") as caught:
        refuse_gpu_graph(plan_of(data).task, experiment)
    assert caught.value.fix == fix
