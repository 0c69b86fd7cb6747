"""Forecasters: DCRNN (Li et al. 2018, arXiv 1707.01926), an encoder and a decoder of diffusion convolutional GRUs,
STID, or a user-defined model by dotted path, behind one interface that knows the scale of the readings.

`TrafficForecaster` is one outside training, as `graphmill.load` gives it.
"""

import math
from typing import assert_never

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.graph.keys import Purpose, key_of
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.plan import Plan
from graphmill.tasks.custom_model import construct, try_out
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.data.windows import WindowBatch, clock_of
from graphmill.tasks.traffic.nn.dcgru import CellAt, DcgruCell, RandomWalks
from graphmill.tasks.traffic.nn.season import SeasonMeans, last_readings
from graphmill.tasks.traffic.nn.stid import Stid
from graphmill.tasks.traffic.page import INPUT_CHANNELS, TrafficPlan, input_channels, is_seasonal
from graphmill.tasks.traffic.page.models import DcrnnSpec, StidSpec


class Dcrnn(nn.Module):
    """Readings of the last steps → readings of the next `horizon` steps, every sensor at once.

    Inputs and outputs are scaled; `Forecaster` takes them back to the unit of the data.
    """

    def __init__(
        self,
        walks: RandomWalks,
        *,
        horizon: int,
        rnn_units: int,
        num_layers: int,
        cl_decay_steps: float,
        seed: int,
        in_channels: int = INPUT_CHANNELS,
        has_season: bool = False,
    ) -> None:
        """`cl_decay_steps`: τ of the scheduled sampling; the share of true inputs is half at step τ · ln τ; 0: none.

        `has_season`: encoder and decoder read one more channel.
        """
        super().__init__()
        self.walks, self.horizon, self.units, self.seed = walks, horizon, rnn_units, seed
        self.cl_decay_steps = cl_decay_steps
        inner = [rnn_units] * (num_layers - 1)
        self.encoder = nn.ModuleList(self._cell(width) for width in [in_channels + has_season, *inner])
        self.decoder = nn.ModuleList(self._cell(width) for width in [1 + has_season, *inner])
        self.projection = nn.Linear(rnn_units, 1)
        self._reset_parameters()

    def forecast_zeros(self) -> None:
        """Let the first forecasts be 0."""
        nn.init.zeros_(self.projection.weight)

    def _cell(self, channels: int) -> DcgruCell:
        return DcgruCell(channels=channels, units=self.units, num_slots=self.walks.num_slots)

    def _reset_parameters(self) -> None:
        generator = torch.Generator().manual_seed(key_of(self.seed, Purpose.INITIAL_WEIGHTS) >> 1)
        for cell in [*self.encoder, *self.decoder]:
            assert isinstance(cell, DcgruCell)
            cell.reset_parameters(generator)
        nn.init.xavier_uniform_(self.projection.weight, generator=generator)
        nn.init.zeros_(self.projection.bias)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        is_known: Tensor | None = None,
        step: int = 0,
        means_ahead: Tensor | None = None,
    ) -> Tensor:
        """Scaled forecasts [num_windows, horizon, num_nodes].

        `inputs` [num_windows, num_inputs, num_nodes, channels]. In training the decoder is fed the true readings
        `targets` [num_windows, horizon, num_nodes] at a share of its steps that falls with the training step `step`,
        where they are known (`is_known`, the same shape); else, and always in evaluation, its own forecasts; beside
        these, where it has a season, the scaled means `means_ahead` (the same shape) of the step that is forecast.
        """
        encoder, decoder = self._at(self.encoder), self._at(self.decoder)
        windows, _, nodes, _ = inputs.shape
        states = [inputs.new_zeros(windows, nodes, self.units) for _ in encoder]
        for t in range(inputs.shape[1]):
            _advance(encoder, states, inputs[:, t])
        is_true = self.true_inputs(step) if self.training and targets is not None else [False] * self.horizon
        previous = inputs.new_zeros(windows, nodes)  # the GO symbol
        forecasts = []
        for t in range(self.horizon):
            read = [previous] if means_ahead is None else [previous, means_ahead[:, t]]
            forecast = self.projection(_advance(decoder, states, torch.stack(read, dim=-1))).squeeze(-1).float()
            forecasts.append(forecast)
            previous = forecast
            if is_true[t] and targets is not None and is_known is not None:
                previous = torch.where(is_known[:, t], targets[:, t], forecast)
        return torch.stack(forecasts, dim=1)

    def _at(self, cells: nn.ModuleList) -> list[CellAt]:
        return [cell.at(self.walks) for cell in cells if isinstance(cell, DcgruCell)]

    def true_share(self, step: int) -> float:
        """Probability that a decoder's input is the true reading: τ / (τ + exp(step / τ)), the inverse sigmoid."""
        if self.cl_decay_steps <= 0:
            return 0.0
        tau = self.cl_decay_steps
        return tau / (tau + math.exp(min(step / tau, 700.0)))

    def true_inputs(self, step: int) -> list[bool]:
        """Whether the input after each forecast is the true reading, one draw per decoder step for the whole batch.

        Keyed by (seed, step, decoder step): the same on every rank, for any number of ranks, after a resume.
        """
        share = self.true_share(step)
        keys = (key_of(self.seed, Purpose.SCHEDULED_SAMPLING, step, t) for t in range(self.horizon))
        return [key / 2**64 < share for key in keys]


class AnyForecaster(nn.Module):
    """A model that is called as model(x, edge_index, edge_weight), as PyTorch Geometric Temporal's are.

    `x` [num_windows, history, num_nodes, 4 or, with a season, 5] → [num_windows, horizon, num_nodes], a last dimension
    of 1 allowed.
    Its own dropout draws from torch's generator, which is seeded by (seed, step, rank) before every training step.
    """

    def __init__(
        self, inner: nn.Module, edge_index: Tensor, edge_weight: Tensor, *, horizon: int, seed: int, rank: int
    ) -> None:
        super().__init__()
        self.inner, self.horizon, self.seed, self.rank = inner, horizon, seed, rank
        self.edges = (edge_index, edge_weight)  # not buffers: they are the store's, not the checkpoint's

    def forward(self, inputs: Tensor, step: int) -> Tensor:
        """Scaled forecasts [num_windows, horizon, num_nodes]."""
        if self.training:
            torch.manual_seed(key_of(self.seed, Purpose.DROPOUT, step, self.rank) >> 1)
        if self.edges[0].device != inputs.device:  # copied once
            self.edges = (self.edges[0].to(inputs.device), self.edges[1].to(inputs.device))
        out: Tensor = self.inner(inputs, *self.edges).float()
        wanted = (len(inputs), self.horizon, inputs.shape[2])
        if out.shape not in (wanted, (*wanted, 1)):
            raise UserError(
                f"{type(self.inner).__name__} made {list(out.shape)} from {list(inputs.shape)}",
                fix=f"let it make {list(wanted)}: windows, horizon, sensors",
            )
        return out.view(wanted)


class Forecaster(nn.Module):
    """A model of scaled readings, or of their differences to the last ones or to the means of a season, and the scale
    it was trained on.

    `mean` and `std` of the training readings are frozen parameters: a checkpoint holds them, and no sync touches them.
    A buffer would be averaged at every sync, and over three ranks (m + m + m) ÷ 3 is not always m.
    """

    def __init__(
        self,
        net: Dcrnn | Stid | AnyForecaster,
        *,
        mean: float,
        std: float,
        season: SeasonMeans | None = None,
        from_last: bool = False,
    ) -> None:
        """`from_last`: it reads and forecasts differences to the last reading of each sensor."""
        super().__init__()
        self.from_last = from_last
        self.net, self.season = net, season
        self.mean = nn.Parameter(torch.tensor(mean, dtype=torch.float32), requires_grad=False)
        self.std = nn.Parameter(torch.tensor(std, dtype=torch.float32), requires_grad=False)

    def forward(self, batch: WindowBatch, step: int = 0) -> Tensor:
        """Forecasts [num_windows, horizon, num_sensors] in the unit of the data; `step`: the training step."""
        history = batch.clock.shape[1]
        origin = last_readings(batch.readings[:, :history], self.mean) if self.from_last else self.mean
        inputs, ahead = batch.inputs(origin, self.std), None
        if self.season is not None:
            means = self.season(batch.clock, batch.targets.shape[1])
            differences = (batch.readings[:, :history] - means[:, :history]) / self.std
            inputs = torch.cat([inputs, differences.nan_to_num(nan=0.0).unsqueeze(3)], dim=3)
            origin = means[:, history:]
            ahead = (origin - self.mean) / self.std
        forecasts: Tensor
        match self.net:
            case Stid():
                forecasts = self.net(inputs, batch.seeds.ids, step, ahead)
            case Dcrnn():
                forecasts = self.net(inputs, (batch.targets - origin) / self.std, batch.is_known, step, ahead)
            case _:
                forecasts = self.net(inputs, step)
        return forecasts * self.std + origin


def build_model(plan: Plan, task_plan: TrafficPlan, store: TrafficStore, *, rank: int) -> Forecaster:
    """The plan's model with its initial weights, the same on every rank."""
    metadata = store.metadata
    edge_index, edge_weight = store.edge_index, store.edge_weight
    if task_plan.graph == "identity":
        loops = np.arange(metadata.num_sensors, dtype=np.int32)
        edge_index, edge_weight = np.stack([loops, loops]), np.ones(metadata.num_sensors, dtype=np.float32)
    net: Dcrnn | Stid | AnyForecaster
    has_season = is_seasonal(task_plan.season)
    match task_plan.model:
        case DcrnnSpec() as spec:
            walks = RandomWalks.of(edge_index, edge_weight, metadata.num_sensors, spec.max_diffusion_step)
            net = Dcrnn(
                walks,
                horizon=task_plan.horizon,
                rnn_units=spec.rnn_units,
                num_layers=spec.num_layers,
                cl_decay_steps=spec.cl_decay_steps,
                seed=plan.seed,
                has_season=has_season,
            )
        case StidSpec() as spec:
            net = Stid(
                num_sensors=metadata.num_sensors,
                interval_s=metadata.interval_s,
                history=task_plan.history,
                horizon=task_plan.horizon,
                embed_dim=spec.embed_dim,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                seed=plan.seed,
                has_season=has_season,
            )
        case CustomModelSpec() as spec:
            torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
            inner = construct(spec, {"in_channels": input_channels(task_plan.season), "out_channels": 1})
            edges = (torch.from_numpy(edge_index.astype(np.int64)), torch.from_numpy(np.array(edge_weight)))
            net = AnyForecaster(inner, *edges, horizon=task_plan.horizon, seed=plan.seed, rank=rank)
        case _:
            assert_never(task_plan.model)
    season = SeasonMeans.of(store, task_plan.season) if has_season else None
    if task_plan.season != "none" and not isinstance(net, AnyForecaster):
        net.forecast_zeros()
    return Forecaster(net, mean=metadata.mean, std=metadata.std, season=season, from_last=task_plan.season == "last")


def check_model(plan: Plan, task_plan: TrafficPlan, store: TrafficStore) -> None:
    """Make the plan's model if it is a user-defined one, try it on two made-up windows, and throw it away.

    Raises `UserError` where it does not fit.
    """
    if not isinstance(task_plan.model, CustomModelSpec):
        return
    net, sensors = build_model(plan, task_plan, store, rank=0).net.to(plan.device), store.metadata.num_sensors
    assert isinstance(net, AnyForecaster)
    x = torch.randn(2, task_plan.history, sensors, input_channels(task_plan.season))
    wanted = (2, task_plan.horizon, sensors)
    named = {"x": x, "edge_index": net.edges[0], "edge_weight": net.edges[1]}
    arguments = {name: tensor.to(plan.device) for name, tensor in named.items()}
    try_out(task_plan.model.target, net.inner, arguments, [wanted, (*wanted, 1)])


def _advance(cells: list[CellAt], states: list[Tensor], x: Tensor) -> Tensor:
    """One step through all layers: `states` are replaced; the last one is returned."""
    for number, cell in enumerate(cells):
        states[number] = x = cell(x, states[number])
    return x


class TrafficForecaster(nn.Module):
    """A trained forecaster with its scale and its road graph.

    On the CPU in one thread its forecasts are those of `graphmill evaluate`, bit for bit.
    """

    def __init__(
        self, model: Forecaster, *, history: int, horizon: int, num_sensors: int, is_zero_missing: bool
    ) -> None:
        """`is_zero_missing`: as the data that it was trained on were prepared (missing=zeros)."""
        super().__init__()
        self.model, self.history, self.horizon, self.num_sensors = model, history, horizon, num_sensors
        self.is_zero_missing = is_zero_missing

    def forward(self, readings: Tensor, times: Tensor) -> Tensor:
        """Forecasts float32 [num_windows, horizon, num_sensors] in the unit of the data.

        Args:
            readings: float32 [num_windows, history, num_sensors] in the unit of the data; NaN: missing; so is
                0, if it was in the data that the model was trained on (missing=zeros).
            times: int64 [num_windows, history]: when they were read, seconds since 1970 in local time.

        Raises:
            ValueError: a shape does not fit.
        """
        wanted = (self.history, self.num_sensors)
        if readings.dim() != 3 or readings.shape[1:] != wanted:
            raise InvalidInputError(
                f"readings is {list(readings.shape)}, not [num_windows, {wanted[0]}, {wanted[1]}]",
                fix=f"give {wanted[0]} readings of each of the {wanted[1]} sensors it was trained on",
            )
        if times.shape != readings.shape[:2]:
            raise InvalidInputError(
                f"times is {list(times.shape)}, not {list(readings.shape[:2])}", fix="give the time of each reading"
            )
        known = readings.float()
        if self.is_zero_missing:
            known = torch.where(known == 0, torch.nan, known)
        ahead = known.new_full((len(readings), self.horizon, self.num_sensors), torch.nan)  # to be forecast: not known
        clock = torch.from_numpy(clock_of(times.cpu().numpy())).to(readings.device)
        seeds = EvaluationSeeds(SeedIds(np.arange(len(readings))))
        forecasts: Tensor = self.model(WindowBatch(seeds, torch.cat([known, ahead], dim=1), clock))
        return forecasts
