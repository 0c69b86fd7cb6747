"""Traffic forecasting as the loop sees it: batches, a loss, measures."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import EvaluationSeeds, SeedIds, Seeds
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.weights import Weights
from graphmill.sample.feed import feed
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.stores import open_planned
from graphmill.tasks.task import Measures, Predictions
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.data.windows import TrafficWindows, WindowBatch
from graphmill.tasks.traffic.nn.metrics import check_judgement, custom_loss, empty_tally, measures, tally
from graphmill.tasks.traffic.nn.model import Forecaster, TrafficForecaster, build_model, check_model
from graphmill.tasks.traffic.page import TrafficDatasetSpec, TrafficPlan, is_seasonal, windows_at_once
from graphmill.tasks.traffic.page.models import HuberSpec, MaeSpec, MseSpec, StidSpec


@dataclass(slots=True)
class Traffic:
    """One rank's share of the forecasting problem that a plan describes."""

    plan: Plan
    task_plan: TrafficPlan
    group: Group
    windows: TrafficWindows = field(init=False)
    num_known: NDArray[np.int64] = field(init=False)  # [num_steps]: see TrafficWindows.num_known
    model: Forecaster = field(init=False)
    schedule: SeedSchedule = field(init=False)
    custom_loss: CustomLoss | None = field(init=False)  # None: one of the built-in ones
    custom_measures: CustomMeasures = field(init=False)

    def __post_init__(self) -> None:
        plan, task_plan = self.plan, self.task_plan
        store = open_planned(TrafficStore, task_plan.dataset)
        self.windows = TrafficWindows(store, task_plan.history, task_plan.horizon)
        self.num_known = self.windows.num_known()
        self.model = build_model(plan, task_plan, store, rank=self.group.rank).to(self.group.device)
        starts = drawn(self.windows.of("train"), task_plan.dataset.num_train, plan.seed)
        self.schedule = SeedSchedule.equal(starts, plan.batches, plan.seed).among(self.group.world_size)
        self.custom_loss = custom_loss(plan, task_plan, self.group)
        self.custom_measures = CustomMeasures.of(plan)

    def batches(self, epoch: int, first_step: int) -> Generator[WindowBatch]:
        """The batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        with closing(prefetch(lambda: self._make(epoch, first_step), self.plan.prefetch)) as batches:
            yield from feed(batches, self.group.device, self.group.spans)

    def weights(self, epoch: int, step: int) -> tuple[int, ...]:
        """Readings to be forecast that are not missing, of every rank."""
        return tuple(int(self.num_known[share].sum()) for share in self.schedule.shares(epoch, step))

    def loss_sum(self, batch: WindowBatch) -> Tensor:
        """The plan's loss, summed over the readings of a batch that are not missing."""
        if not isinstance(batch.seeds, Seeds):
            raise TypeError("a loss is of a training step, and this batch is of an evaluation")
        step = self.plan.calendar.steps_done(batch.seeds.epoch, batch.seeds.step)
        is_mixed = self.plan.precision == "bf16"
        with torch.autocast(self.group.device.type, torch.bfloat16, enabled=is_mixed):
            forecasts = self.model(batch, step)
        return self._error_sum(forecasts, batch)

    def _error_sum(self, forecasts: Tensor, batch: WindowBatch) -> Tensor:
        errors = torch.where(batch.is_known, forecasts - batch.targets, 0.0)
        match self.task_plan.loss:
            case CustomLossSpec():
                assert self.custom_loss is not None
                forecasts = forecasts.float()
                # A missing reading is what is forecast, so that its loss is a number, and so is the gradient of it.
                readings = torch.where(batch.is_known, batch.targets, forecasts.detach())
                return self.custom_loss.sum(batch.seeds, forecasts, readings, counts=batch.is_known)
            case MaeSpec():
                return errors.abs().sum()
            case MseSpec():
                return errors.square().sum()
            case HuberSpec(delta=delta):
                return F.huber_loss(errors, torch.zeros_like(errors), reduction="sum", delta=delta)
            case _:
                assert_never(self.task_plan.loss)

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split, each window counted once; the same on every rank, and all ranks must call it."""
        self.model.eval()
        starts = self.windows.of(split)
        shares = np.array_split(starts, self.group.world_size)
        mine = shares[self.group.rank]
        at_once = windows_at_once(self.task_plan.dataset.num_sensors)
        total, loss = empty_tally(self.task_plan.horizon), torch.zeros(2, dtype=torch.float64)  # its sum, its terms
        sums = torch.zeros(len(self.plan.measures), 2, dtype=torch.float64)  # of the user's own
        with torch.no_grad():
            for begin in range(0, len(shares[0]), at_once):  # the first share is never the smaller
                pause()
                seeds = EvaluationSeeds(SeedIds(mine[begin : begin + at_once]))
                if len(seeds.ids):
                    batch = self.windows.batch(seeds).to(self.group.device)
                    forecasts = self.model(batch)
                    total += tally(forecasts, batch.targets, batch.is_known)
                    sums += self.custom_measures.of_part(forecasts, batch.targets)
                    loss += torch.stack([self._error_sum(forecasts, batch).double(), batch.is_known.sum()]).cpu()
        self.model.train()
        values = measures(self.group.sum_numbers(total), self.task_plan.dataset.interval_s)
        loss = self.group.sum_numbers(loss)
        mean = values["mae"] if isinstance(self.task_plan.loss, MaeSpec) else float(loss[0] / loss[1].clamp(min=1))
        values |= self._custom_measures_of(sums, split)
        return Measures(loss=mean, values=values, num_seeds=len(starts))

    def _custom_measures_of(self, sums: Tensor, split: Split) -> dict[str, float]:
        if not self.custom_measures:
            return {}
        values = self.custom_measures.quotients(self.group.sum_numbers(sums))
        return self.custom_measures.by_name(values, split, tells=self.group.rank == 0)

    def predict(self, splits: Sequence[Split] | None, *, embeddings: bool) -> Predictions:
        """Forecasts and readings (masked: missing) of every window of the splits, in order of time.

        By window_start (time of the first step that is looked back on), horizon (1: the next step) and sensor.
        """
        if self.group.world_size > 1:
            raise ValueError("predictions are made in one process")
        if embeddings:
            raise UserError("a forecaster has no embeddings", fix="leave --embeddings out")
        parts = [(split, self.windows.of(split)) for split in SPLITS if splits is None or split in splits]
        starts = np.concatenate([part for _, part in parts])
        forecasts, readings = self._forecasts(starts)
        times = np.asarray(self.windows.store.timestamps)
        ahead = np.arange(self.task_plan.history, self.task_plan.history + self.task_plan.horizon)
        return Predictions(
            {
                "window_start": times[starts],
                "horizon": np.arange(1, self.task_plan.horizon + 1),
                "sensor": np.array(self.windows.store.metadata.sensor_ids),
            },
            {
                "split": np.concatenate([np.full(len(part), split, dtype="U5") for split, part in parts]),
                "time": times[starts[:, None] + ahead],
                "forecast": forecasts,
                "reading": np.ma.masked_array(readings, np.isnan(readings), fill_value=np.nan),
            },
        )

    @staticmethod
    def check_model(plan: Plan, task_plan: TrafficPlan) -> None:
        """`UserError` if what the user defined does not fit the plan; by two made-up windows."""
        check_model(plan, task_plan, open_planned(TrafficStore, task_plan.dataset))
        check_judgement(plan, task_plan)

    @staticmethod
    def on_other_data(task_plan: TrafficPlan, store: TrafficStore) -> TrafficPlan:
        """The plan section over other readings at the same interval and in the same unit: of any sensors, or, for a
        model that knows its sensors one by one, of the same.
        """
        lengths = {"history": task_plan.history, "horizon": task_plan.horizon}
        spec = TrafficDatasetSpec(name=store.metadata.name, season=task_plan.season, **lengths)
        found, known = store.info(spec), task_plan.dataset
        for what, here, there in (
            ("an interval in s", found.interval_s, known.interval_s),
            ("readings in", found.unit, known.unit),
        ):
            if here != there:
                raise UserError(
                    f"{found.name} has {what} of {here}, and the model was trained on {known.name} with {there}",
                    fix="give readings at the same interval and in the same unit",
                )
        if found.sensors != known.sensors and (isinstance(task_plan.model, StidSpec) or is_seasonal(task_plan.season)):
            key = "model.kind=stid" if isinstance(task_plan.model, StidSpec) else f"dataset.season={task_plan.season}"
            raise UserError(
                f"{key} knows the sensors of {known.name}, and {found.name} has others, or another order",
                fix="give readings of the same sensors in the same order",
            )
        return task_plan.model_copy(update={"dataset": found})

    @staticmethod
    def inference_model(plan: Plan, weights: Weights) -> nn.Module:
        """Trained model, called as model(readings, times). The road graph is that of the prepared data in the plan."""
        task_plan = plan.task
        assert isinstance(task_plan, TrafficPlan)
        store = open_planned(TrafficStore, task_plan.dataset)
        model = build_model(plan, task_plan, store, rank=0)
        weights.load_all_into(model, name=f"the model of {plan.run_id}")
        known = store.metadata
        return TrafficForecaster(
            model,
            history=task_plan.history,
            horizon=task_plan.horizon,
            num_sensors=known.num_sensors,
            is_zero_missing=known.missing == "zeros",
        )

    @torch.no_grad()
    def _forecasts(self, starts: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Forecasts and readings [num_windows, horizon, num_sensors], as `evaluate` makes them."""
        self.model.eval()
        forecasts, readings = [], []
        at_once = windows_at_once(self.task_plan.dataset.num_sensors)
        for begin in range(0, len(starts), at_once):
            batch = self.windows.batch(EvaluationSeeds(SeedIds(starts[begin : begin + at_once])))
            forecasts.append(self.model(batch.to(self.group.device)).cpu())
            readings.append(batch.targets)
        self.model.train()
        return torch.cat(forecasts).numpy(), torch.cat(readings).numpy()

    def _make(self, epoch: int, first_step: int) -> Iterator[WindowBatch]:
        for step in range(first_step, self.plan.calendar.steps_in(epoch)):
            with self.group.spans("gather"):
                batch = self.windows.batch(self.schedule.seeds(epoch, step, self.group.rank))
            yield batch
