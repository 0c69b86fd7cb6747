"""What the schemes do to parameters, against arithmetic written out: real ranks, known gradients, plain SGD."""

import os
from pathlib import Path

import pytest
import torch
from ranks_of_a_program import told_by_ranks
from rounding import UNIT, Bounded, assert_within
from torch import Tensor

PROGRAM = Path(__file__).parent / "programs" / "toy.py"
RANKS, SEEDS, LR, MOMENTUM = 3, (2, 3, 0), 0.1, 0.5
ROUNDS = [False, True, False, False, True]
START = Bounded.of(torch.arange(6.0))

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What every rank reports, by scheme."""
    folder = tmp_path_factory.mktemp("toy")
    source = str(Path(__file__).parents[2] / "src")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
    found = told_by_ranks(PROGRAM, RANKS, folder, environ=environ, imports=["graphmill.sync.schemes"])
    return {scheme: [rank[scheme] for rank in found] for scheme in found[0]}


def gradient(rank: int, step: int) -> Bounded:
    """As toy.py computes it, with what its roundings may come to."""
    return (Bounded.of(torch.arange(6.0)) / 7 + rank + Bounded.of(-0.3 * step).rounded(2)) * SEEDS[rank]


class Sgd:
    """SGD with momentum, as torch defines it."""

    def __init__(self) -> None:
        self.values, self.velocity = START, None

    def step(self, grad: Bounded) -> None:
        self.velocity = grad if self.velocity is None else MOMENTUM * self.velocity + grad
        self.values = self.values - (LR * self.velocity).rounded()  # the rate is no float32 number


def values(results, scheme: str, rank: int = 0) -> Tensor:
    """Parameters after each step [num_steps, 6]."""
    return torch.tensor(results[scheme][rank]["values"], dtype=torch.float64)


def mean_over_seeds(steps: list[int]) -> Bounded:
    parts = stack([gradient(rank, step) / (len(steps) * sum(SEEDS)) for rank in range(RANKS) for step in steps])
    return parts.sum(0)  # in whatever order they are added up


def stack(parts: list[Bounded]) -> Bounded:
    return Bounded(torch.stack([each.value for each in parts]), torch.stack([each.slack for each in parts]))


def mean_of(parts: list[Bounded]) -> Bounded:
    return stack([each / len(parts) for each in parts]).sum(0)


def on_the_wire(change: Bounded, payload: torch.dtype) -> Bounded:
    """Rounded where it leaves a rank and wherever it is added to; in roundoffs of float32."""
    return change if payload == torch.float32 else change.rounded((1 + RANKS) * UNIT[payload] / UNIT[torch.float32])


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
    assert_within(values(results, "deferred"), stack(expected))
    assert results["deferred"][0]["synced"] == ROUNDS


def test_with_rounds_of_one_step_it_is_data_parallelism(results):
    alone, expected = Sgd(), []
    for step in range(5):
        alone.step(mean_over_seeds([step]))
        expected.append(alone.values)
    assert_within(values(results, "plain"), stack(expected))


def local_sgd(
    rounds: list[list[int]], outer, *, average_velocity: bool = False, payload: torch.dtype = torch.float32
) -> list[Bounded]:
    """Parameters after each round: each rank updates alone; `outer(anchor, mean change)` is where they meet.

    With `average_velocity` the mean of the velocities is the last entry.
    """
    ranks, anchor, met = [Sgd() for _ in SEEDS], START, []
    for steps in rounds:
        for number, rank in enumerate(ranks):
            for step in steps:
                if SEEDS[number]:
                    rank.step(gradient(number, step) / SEEDS[number])
        anchor = outer(anchor, mean_of([on_the_wire(rank.values - anchor, payload) for rank in ranks]))
        mean = mean_of([rank.velocity or Bounded.of(torch.zeros(6)) for rank in ranks])
        for rank in ranks:
            rank.values = anchor
            rank.velocity = mean if average_velocity else rank.velocity
        met.append(anchor)
    return [*met, mean] if average_velocity else met


def test_local_sgd_averages_the_parameters(results):
    expected = local_sgd([[0, 1], [2, 3, 4]], lambda anchor, change: anchor + change)
    assert_within(values(results, "local")[[1, 4]], stack(expected))
    assert results["local"][0]["values"][0] != results["local"][1]["values"][0], "between syncs each goes its own way"
    assert results["local"][2]["values"][0] == START.value.tolist(), "a rank without seeds stays where it is"


def test_averaged_moments_are_the_mean_of_the_ranks_moments(results):
    *met, velocity = local_sgd([[0, 1], [2, 3, 4]], lambda anchor, change: anchor + change, average_velocity=True)
    assert_within(values(results, "averaged")[[1, 4]], stack(met))
    for rank in results["averaged"]:
        assert_within(torch.tensor(rank["momentum"], dtype=torch.float64), velocity)
    assert results["averaged"][0]["values"][-1] != results["local"][0]["values"][-1]
    assert results["averaged"][0]["payload_bytes"] == 2 * (6 + 6 + 2) * 4, "parameters, velocity, buffers; twice"


def test_averaging_after_one_step_is_the_mean(results):
    """From the same start, one SGD step each and their mean: one step along the mean of the ranks' gradients."""
    mean_gradient = mean_of([*(gradient(rank, 0) / SEEDS[rank] for rank in (0, 1)), Bounded.of(torch.zeros(6))])
    assert_within(values(results, "every-step")[0], START - (LR * mean_gradient).rounded(4))
    expected = local_sgd([[step] for step in range(5)], lambda anchor, change: anchor + change)
    assert_within(values(results, "every-step"), stack(expected))


def test_of_unequal_shares_deferred_allreduce_weighs_seeds_local_sgd_and_diloco_ranks(results):
    """After a remainder of one step of a round of two: shares of 2, 3 and 0 seeds."""
    by_seeds = START - (LR * mean_over_seeds([0])).rounded()
    each = [gradient(rank, 0) / seeds if seeds else Bounded.of(torch.zeros(6)) for rank, seeds in enumerate(SEEDS)]
    by_ranks = START - (LR * mean_of(each)).rounded(4)
    assert_within(values(results, "deferred-rest"), stack([by_seeds]))
    for scheme in ("local-rest", "diloco-rest"):  # DiLoCo's outer step is one of rate 1 here, without momentum
        assert_within(values(results, scheme), stack([by_ranks]))
    assert (by_seeds.value - by_ranks.value).abs().min() > 0.01


def test_diloco_takes_a_nesterov_step_along_the_mean_change(results):
    velocity = Bounded.of(torch.zeros(6))

    def outer(anchor: Bounded, change: Bounded) -> Bounded:
        nonlocal velocity
        velocity = (0.9 * velocity).rounded() + change
        return anchor + (0.7 * (change + (0.9 * velocity).rounded())).rounded()

    assert_within(values(results, "diloco")[[1, 4]], stack(local_sgd([[0, 1], [2, 3, 4]], outer)))
    assert results["diloco"][0]["state"] == ["outer_velocity", "steps_done"]


@pytest.mark.parametrize(("scheme", "full"), [("half", "local"), ("bfloat", "deferred")])
def test_a_16_bit_payload_moves_half_the_bytes_and_about_as_far(results, scheme, full):
    if scheme == "half":
        met = local_sgd([[0, 1], [2, 3, 4]], lambda anchor, change: anchor + change, payload=torch.float16)
    else:
        alone, met = Sgd(), []
        for steps in ([0, 1], [2, 3, 4]):
            parts = [stack([gradient(rank, step) for step in steps]).sum(0) for rank in range(RANKS)]
            each = [on_the_wire(part / (len(steps) * sum(SEEDS)), torch.bfloat16) for part in parts]
            alone.step(stack(each).sum(0))
            met.append(alone.values)
    assert_within(values(results, scheme)[[1, 4]], stack(met))
    assert results[scheme][0]["values"][-1] != results[full][0]["values"][-1]
    buffers = 2 * 2 * 4  # two syncs, two values in fp32
    assert results[full][0]["payload_bytes"] == 2 * 6 * 4 + buffers
    assert results[scheme][0]["payload_bytes"] == 2 * 6 * 2 + buffers


def test_sums_that_half_precision_cannot_hold_are_means_before_they_are_sent(results):
    """Over ranks, steps and seeds: more than 65504 in all, and far below that for each seed."""
    assert torch.stack([gradient(rank, step).value for rank in (0, 1) for step in (0, 1)]).sum(0).max() > 65504 / 2**14
    assert values(results, "large").isfinite().all()


def test_the_warm_up_is_data_parallelism_and_then_rounds_begin(results):
    assert torch.equal(values(results, "warm")[:3], values(results, "plain")[:3])
    assert results["warm"][0]["synced"] == [True, True, True, False, True]
    assert results["warm"][0]["num_syncs"] == 4
    assert results["warm"][0]["values"][3] != results["warm"][1]["values"][3]


@pytest.mark.parametrize("scheme", ["counting", "counting-deferred"])
def test_buffers_are_averaged_and_of_whole_numbers_every_rank_takes_the_largest(results, scheme):
    for found in results[scheme]:
        assert found["buffers"] == [[1.0, 1.0], [[1.0, 2.0, 3.0], [1.0, -1.0, 4.0]], 2.0**40 + 1]
        assert found["counters"] == [[10 * (RANKS - 1), 2**40], [True, False], 100]
        assert found["agree"]


@pytest.mark.parametrize("way", ["pieces", "unread-last", "pieces-half"])
def test_gradients_that_go_out_in_pieces_add_up_to_the_same(results, way):
    """Of whole numbers, whose sums are exact in any order."""
    whole = results["whole" if way != "unread-last" else "unread-last-whole"][0]
    assert whole["num_pieces"] == 1
    assert max(whole["given"][-1]) > 1
    for rank in results[way]:
        assert rank["num_pieces"] == (3 if way == "pieces-half" else 5)
        assert rank["given"] == whole["given"]
        assert rank["payload_bytes"] == whole["payload_bytes"] / (2 if way == "pieces-half" else 1) > 0


def test_pieces_go_out_during_backward_where_it_makes_them_known(results):
    """In the last step of a round; a rank without seeds sends as many pieces, and none overtakes the one before it."""
    for rank, found in enumerate(results["pieces"]):
        for step, begun in enumerate(found["begun"]):
            assert begun == ([] if step in (0, 3) else [*[step % RANKS != rank] * 4, False])
    for found in (*results["unread-last"], *results["unread-last-whole"]):
        assert not any(sent for begun in found["begun"] for sent in begun)
    assert [rank["begun"] for rank in results["whole"]] == [[[], [False], [False], [], [False]]] * RANKS


def test_collectives_of_the_group(results):
    for rank, found in enumerate(results["collectives"]):
        assert found["rows"] == [[0.0, 0.0]] * 2 + [[2.0, 2.0]] * 3, rank
        assert found["total"] == [3.0, 3.0]
        assert found["numbers"] == [[other, 2**62 + other, -(2**63)] for other in range(RANKS)]
        assert found["reduced"] == [9.0] * 5
        assert found["payload_bytes"] == 20
        assert found["control_bytes"] == 24
        assert found["waited"]


def test_groups_exchange_among_their_own_ranks(results):
    of_pair = {"own": [4.0] * 3, "everyone": [3.0] * 3, "numbers": [[0], [2]], "rows": [0.0, 2.0, 2.0]}
    alone = {"own": [1.0] * 3, "everyone": [3.0] * 3, "numbers": [], "rows": []}
    assert results["two-groups"] == [of_pair, alone, of_pair]
