"""What the schemes do to parameters, against arithmetic written out: real ranks, known gradients, plain SGD."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from waiting import HANG_S

PROGRAM = Path(__file__).parent / "programs" / "toy.py"
RANKS, SEEDS, LR, MOMENTUM = 3, (2, 3, 0), 0.1, 0.5
ROUNDS = [False, True, False, False, True]
START = torch.arange(6.0, dtype=torch.float64)

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What every rank reports, by scheme."""
    folder = tmp_path_factory.mktemp("toy")
    source = str(Path(__file__).parents[2] / "src")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
    environ |= {
        "WORLD_SIZE": str(RANKS),
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), source))),
    }
    command = [sys.executable, PROGRAM, folder / "meeting", folder]
    ranks = [subprocess.Popen(command, env={**environ, "RANK": str(rank)}) for rank in range(RANKS)]
    try:
        assert [rank.wait(timeout=HANG_S) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
    return {scheme: [rank[scheme] for rank in found] for scheme in found[0]}


def gradient(rank: int, step: int) -> Tensor:
    return SEEDS[rank] * (torch.arange(6.0, dtype=torch.float64) / 7 + rank - 0.3 * step)


class Sgd:
    """SGD with momentum, as torch defines it."""

    def __init__(self) -> None:
        self.values, self.velocity = START.clone(), None

    def step(self, grad: Tensor) -> None:
        self.velocity = grad if self.velocity is None else MOMENTUM * self.velocity + grad
        self.values = self.values - LR * self.velocity


def values(results, scheme: str, rank: int = 0) -> Tensor:
    """Parameters after each step [num_steps, 6]."""
    return torch.tensor(results[scheme][rank]["values"], dtype=torch.float64)


def mean_over_seeds(steps: list[int]) -> Tensor:
    total = sum(gradient(rank, step) for rank in range(RANKS) for step in steps)
    return total / (len(steps) * sum(SEEDS))


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "scheme", ["deferred", "plain", "local", "averaged", "every-step", "diloco", "half", "bfloat", "warm", "counting"]
)
def test_all_ranks_end_with_the_same_bits(results, scheme):
    assert all(rank["agree"] for rank in results[scheme])
    assert results[scheme][0]["values"][-1] == results[scheme][1]["values"][-1] == results[scheme][2]["values"][-1]
    assert [rank["statistic"] for rank in results[scheme]] == [[1.0, 1.0]] * 3, "buffers are averaged"
    assert all(not any(rank["grads"]) for rank in results[scheme])


def test_deferred_allreduce_is_one_update_with_the_mean_over_all_seeds_of_the_round(results):
    alone, expected = Sgd(), []
    for steps in ([0, 1], [2, 3, 4]):
        expected += [alone.values] * (len(steps) - 1)
        alone.step(mean_over_seeds(steps))
        expected.append(alone.values)
    close(values(results, "deferred"), torch.stack(expected))
    assert results["deferred"][0]["synced"] == ROUNDS


def test_with_rounds_of_one_step_it_is_data_parallelism(results):
    alone, expected = Sgd(), []
    for step in range(5):
        alone.step(mean_over_seeds([step]))
        expected.append(alone.values)
    close(values(results, "plain"), torch.stack(expected))


def local_sgd(rounds: list[list[int]], outer, *, average_velocity: bool = False) -> list[Tensor]:
    """Parameters after each round: each rank updates alone; `outer(anchor, mean change)` is where they meet.

    With `average_velocity` the mean of the velocities is the last entry.
    """
    ranks, anchor, met = [Sgd() for _ in SEEDS], START.clone(), []
    for steps in rounds:
        for number, rank in enumerate(ranks):
            for step in steps:
                if SEEDS[number]:
                    rank.step(gradient(number, step) / SEEDS[number])
        anchor = outer(anchor, sum(rank.values - anchor for rank in ranks) / RANKS)
        mean = sum(rank.velocity if rank.velocity is not None else torch.zeros(6) for rank in ranks) / RANKS
        for rank in ranks:
            rank.values = anchor.clone()
            rank.velocity = mean if average_velocity else rank.velocity
        met.append(anchor)
    return [*met, mean] if average_velocity else met


def test_local_sgd_averages_the_parameters(results):
    expected = local_sgd([[0, 1], [2, 3, 4]], lambda anchor, change: anchor + change)
    close(values(results, "local")[[1, 4]], torch.stack(expected))
    assert results["local"][0]["values"][0] != results["local"][1]["values"][0], "between syncs each goes its own way"
    assert results["local"][2]["values"][0] == START.tolist(), "a rank without seeds stays where it is"


def test_averaged_moments_are_the_mean_of_the_ranks_moments(results):
    *met, velocity = local_sgd([[0, 1], [2, 3, 4]], lambda anchor, change: anchor + change, average_velocity=True)
    close(values(results, "averaged")[[1, 4]], torch.stack(met))
    for rank in results["averaged"]:
        close(torch.tensor(rank["momentum"], dtype=torch.float64), velocity)
    assert results["averaged"][0]["values"][-1] != results["local"][0]["values"][-1]
    assert results["averaged"][0]["payload_bytes"] == 2 * (6 + 6 + 2) * 4, "parameters, velocity, buffers; twice"


def test_averaging_after_one_step_is_the_mean(results):
    """From the same start, one SGD step each and their mean: one step along the mean of the ranks' gradients."""
    mean_gradient = sum(gradient(rank, 0) / SEEDS[rank] for rank in (0, 1)) / RANKS
    close(values(results, "every-step")[0], START - LR * mean_gradient)
    expected = local_sgd([[step] for step in range(5)], lambda anchor, change: anchor + change)
    close(values(results, "every-step"), torch.stack(expected))


def test_diloco_takes_a_nesterov_step_along_the_mean_change(results):
    velocity = torch.zeros(6, dtype=torch.float64)

    def outer(anchor: Tensor, change: Tensor) -> Tensor:
        nonlocal velocity
        velocity = 0.9 * velocity + change
        return anchor + 0.7 * (change + 0.9 * velocity)

    close(values(results, "diloco")[[1, 4]], torch.stack(local_sgd([[0, 1], [2, 3, 4]], outer)))
    assert results["diloco"][0]["state"] == ["outer_velocity", "steps_done"]


@pytest.mark.parametrize(("scheme", "full", "tolerance"), [("half", "local", 2e-3), ("bfloat", "deferred", 1e-2)])
def test_a_16_bit_payload_moves_half_the_bytes_and_about_as_far(results, scheme, full, tolerance):
    close(values(results, scheme)[[1, 4]], values(results, full)[[1, 4]], tolerance)
    assert results[scheme][0]["values"][-1] != results[full][0]["values"][-1]
    buffers = 2 * 2 * 4  # two syncs, two values in fp32
    assert results[full][0]["payload_bytes"] == 2 * 6 * 4 + buffers
    assert results[scheme][0]["payload_bytes"] == 2 * 6 * 2 + buffers


def test_the_warm_up_is_data_parallelism_and_then_rounds_begin(results):
    close(values(results, "warm")[:3], values(results, "plain")[:3])
    assert results["warm"][0]["synced"] == [True, True, True, False, True]
    assert results["warm"][0]["num_syncs"] == 4
    assert results["warm"][0]["values"][3] != results["warm"][1]["values"][3]


@pytest.mark.parametrize("scheme", ["counting", "counting-deferred"])
def test_of_whole_numbers_every_rank_takes_the_largest(results, scheme):
    for found in results[scheme]:
        assert found["counters"] == [[10 * (RANKS - 1), 2**40], [True, False]]
        assert found["agree"]


def test_collectives_of_the_group(results):
    for rank, found in enumerate(results["collectives"]):
        assert found["rows"] == [[0.0, 0.0]] * 2 + [[2.0, 2.0]] * 3, rank
        assert found["total"] == [3.0, 3.0]
        assert found["numbers"] == [[other, 2**62 + other, -(2**63)] for other in range(RANKS)]
        assert found["reduced"] == [9.0] * 5
        assert found["payload_bytes"] == 20
        assert found["control_bytes"] == 24
        assert found["waited"]
