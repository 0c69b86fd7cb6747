"""Traffic forecasts as a script with torch-geometric-temporal does it: DCRNN, the best weights tested.

    python plain_traffic.py READINGS.npz EPOCHS BATCH UNITS FOLDER

READINGS has `values` [num_steps, num_sensors], `timestamps` (seconds) and `adj`. FOLDER is where `pip install
--no-deps --target FOLDER torch-geometric-temporal` put it: its file of the cell is loaded, for the package wants more
dependencies. The cell is called as its own BatchedDCRNN calls it, with the graph of a whole batch made once. Prints
{"val": …, "test": …}, mean absolute errors.
"""

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

INPUTS, HORIZON, CHANNELS, LAYERS, STEPS = 12, 12, 2, 2, 2


def load_peer(folder: Path) -> ModuleType:
    """The file of the cell alone."""
    path = folder / "torch_geometric_temporal" / "nn" / "recurrent" / "dcrnn.py"
    spec = importlib.util.spec_from_file_location("peer_dcrnn", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # PyG looks it up by name
    spec.loader.exec_module(module)
    return module


class PeerDcrnn(nn.Module):
    """Encoder and decoder around the peer's cell; rows of a batch stand one after the other, as it wants."""

    def __init__(self, peer: ModuleType, adjacency: np.ndarray, batch: int, units: int) -> None:
        super().__init__()
        self.batch, self.nodes, self.units = batch, len(adjacency), units
        self.encoder = nn.ModuleList(peer.BatchedDCRNN(c, units, STEPS + 1) for c in (CHANNELS, units))
        self.decoder = nn.ModuleList(peer.BatchedDCRNN(c, units, STEPS + 1) for c in (1, units))
        self.projection = nn.Linear(units, 1)
        rows, columns = np.nonzero(adjacency)
        edges = torch.from_numpy(np.stack([rows, columns]))
        self.edges = torch.cat([edges + number * self.nodes for number in range(batch)], dim=1)
        self.weights = torch.from_numpy(adjacency[rows, columns]).float().repeat(batch)
        self.is_cached = False

    def cell(self, cell: Any, x: Tensor, h: Tensor) -> Tensor:
        graph, cached = (self.edges, self.weights), self.is_cached
        z = cell._calculate_update_gate(x, *graph, h, cached)
        r = cell._calculate_reset_gate(x, *graph, h, cached)
        return cell._calculate_hidden_state(z, h, cell._calculate_candidate_state(x, *graph, h, r, cached))

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.batch * self.nodes
        states = [inputs.new_zeros(rows, self.units) for _ in self.encoder]
        for t in range(inputs.shape[1]):
            self.advance(self.encoder, states, inputs[:, t].reshape(rows, -1))
        previous, forecasts = inputs.new_zeros(rows, 1), []
        for _ in range(HORIZON):
            previous = self.projection(self.advance(self.decoder, states, previous))
            forecasts.append(previous.view(self.batch, self.nodes))
            self.is_cached = True  # every cell has made its normalised edges by now
        return torch.stack(forecasts, dim=1)

    def advance(self, cells: nn.ModuleList, states: list[Tensor], x: Tensor) -> Tensor:
        for number, cell in enumerate(cells):
            states[number] = x = self.cell(cell, x, states[number])
        return x


def main() -> None:
    path, epochs, batch_size, units, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
    torch.manual_seed(0)
    given = np.load(path)
    values = torch.from_numpy(given["values"]).float()
    of_day = given["timestamps"] % 86_400 / 86_400
    starts = torch.arange(len(values) - INPUTS - HORIZON + 1)
    num_train, num_test = round(0.7 * len(starts)), round(0.2 * len(starts))
    train, val, test = starts[:num_train], starts[num_train:-num_test], starts[-num_test:]
    mean, std = values[: num_train + INPUTS].mean(), values[: num_train + INPUTS].std()
    day = torch.from_numpy(of_day).float()[:, None].expand_as(values)
    readings = torch.stack([(values - mean) / std, day], dim=2)
    model = PeerDcrnn(load_peer(folder), given["adj"], batch_size, units)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def errors(chosen: Tensor) -> Tensor:
        """Absolute errors of a batch of windows; a short one is filled up, for the cell's graph is a whole batch's."""
        windows = torch.cat([chosen, chosen[:1].expand(batch_size - len(chosen))])
        x = readings[windows[:, None] + torch.arange(INPUTS)]
        y = values[windows[:, None] + torch.arange(INPUTS, INPUTS + HORIZON)]
        return (model(x) * std + mean - y).abs()[: len(chosen)]

    @torch.no_grad()
    def mae(windows: Tensor) -> float:
        found = [errors(chosen).mean(dim=(1, 2)) for chosen in windows.split(batch_size)]
        return float(torch.cat(found).mean())

    best, weights = float("inf"), model.state_dict()
    for _ in range(epochs):
        for chosen in train[torch.randperm(len(train))].split(batch_size):
            optimizer.zero_grad()
            errors(chosen).mean().backward()
            optimizer.step()
        if (score := mae(val)) < best:
            best, weights = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    print(json.dumps({"val": best, "test": mae(test)}))


if __name__ == "__main__":
    main()
