"""STID: it knows its sensors and its clock, needs no graph, and does not depend on how windows are shared out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import UNIT

from graphmill.base.errors import UserError
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.spec.modelled import modelled
from graphmill.spec.plan import MachineInfo
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.nn.stid import Stid
from graphmill.tasks.traffic.page import TrafficExperiment
from graphmill.tasks.traffic.task import Traffic

SMALL = {"kind": "stid", "embed_dim": 4, "num_layers": 2}
SEEDS = Seeds(1, 3, SeedIds(np.array([40, 7, 300, 100])))


def task(store: TrafficStore, model: dict[str, object] = SMALL) -> Traffic:
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": str(store.path), "history": 6, "horizon": 4},
            "model": model,
            "train": {"epochs": 4, "batch_size": 12, "seed": 3, "threads": 2},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    plan = plan_experiment(experiment, dataset_root=store.path.parent, run_id="run", machine=machine)
    built = build_task(plan, Group(0, 1, torch.device("cpu")))
    assert isinstance(built, Traffic)
    return built


@pytest.mark.parametrize("model", [SMALL, {"kind": "stid"}])
def test_its_size_is_as_planned(store: TrafficStore, model: dict[str, object]) -> None:
    one = task(store, model)
    trained = sum(each.numel() for each in one.model.parameters() if each.requires_grad)
    assert modelled(one.plan).num_parameters == trained


def test_a_window_has_one_mask_whatever_batch_it_is_in(store: TrafficStore) -> None:
    """Dropout is keyed by window and sensor: any share of a batch, on any rank, forecasts what the whole does."""
    one = task(store)

    def forecasts(ids: np.ndarray, step: int) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = one.model(one.windows.batch(Seeds(1, 3, SeedIds(ids))), step)
        return out

    whole = forecasts(SEEDS.ids, 9)
    assert torch.equal(whole, forecasts(SEEDS.ids, 9))
    parts = torch.cat([forecasts(SEEDS.ids[rows], 9) for rows in (slice(0, 1), slice(1, 4))])
    products = 3 + 2 * 2 + 1  # one after another, each of at most 24 terms
    assert (whole - parts).abs().max() <= UNIT[torch.float32] * products * 2 * (24 + 2) * whole.abs().max()
    assert (whole - forecasts(SEEDS.ids, 10)).abs().max() > 0.01, "another step, another mask"


def test_it_knows_each_sensor_and_the_clock() -> None:
    """Only the rows of the sensor, of the slot of the last step, and of its weekday learn."""
    net = Stid(
        num_sensors=3, interval_s=300, history=2, horizon=1, embed_dim=4, num_layers=1, dropout=0.0, seed=0
    ).eval()
    inputs = torch.zeros(1, 2, 3, 4)
    slot, weekday = 201, 5
    inputs[..., 2], inputs[..., 3] = slot * 300 / 86_400, weekday / 7
    net(inputs, np.array([0]))[:, :, 1].sum().backward()
    for parameter, row in ((net.sensors, 1), (net.times, slot), (net.weekdays, weekday)):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [row]


@pytest.mark.parametrize("interval_s", [7, 60, 300, 1800, 3600, 86_400, 7 * 86_400])
def test_every_step_of_a_day_has_a_slot_of_its_own(interval_s: int) -> None:
    seconds = torch.arange(0, 86_400, interval_s)
    clock = (seconds.double() / 86_400).float()
    slots = (clock * 86_400).round().long() // interval_s
    assert slots.tolist() == list(range(len(seconds)))


def test_others_sensors_are_refused(store: TrafficStore, tmp_path: Path) -> None:
    own = task(store).task_plan
    raw = generate(num_sensors=8, num_steps=576)
    same = write_traffic(raw, tmp_path / "same")
    assert Traffic.on_other_data(own, same).dataset.num_sensors == 8
    others = replace(raw.series, sensor_ids=raw.series.sensor_ids[::-1])
    with pytest.raises(UserError, match="has others, or another order"):
        Traffic.on_other_data(own, write_traffic(replace(raw, series=others), tmp_path / "others"))


@pytest.mark.slow
def test_it_learns(store: TrafficStore) -> None:
    one = task(store, {"kind": "stid", "embed_dim": 16})
    before = one.evaluate("val").values["mae"]
    optimizer = torch.optim.Adam(one.model.parameters(), lr=0.005)
    for epoch in range(3):
        for batch in one.batches(epoch, 0):
            optimizer.zero_grad()
            (one.loss_sum(batch) / one.weights(epoch, batch.seeds.step)[0]).backward()
            optimizer.step()
    assert one.evaluate("val").values["mae"] < 0.5 * before
