"""A run that another number of ranks continues takes the same steps: the same global batches, cut otherwise."""

import signal
from pathlib import Path

import pytest

from graphmill.record.documents import Outcome
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.verify.events import read_event_log

pytestmark = pytest.mark.distributed

CLOSE = 1e-5  # of losses of a step
NUM_SEEDS = 140
TURNS = ((4, 60), (2, 60), (3, 60), (1, 0))
"""(ranks, before which change of the file system the last of them kills itself; 0: never)"""


def plan_of(planned, run_id: str, **train) -> Plan:
    """7 steps of each rank an epoch, each of 20 seeds; the shares of 3 ranks are 7, 7 and 6."""
    return planned(run_id, **{"ranks": 4, "epochs": 4, "batch_size": 5, "checkpoint": {"every_steps": 1}, **train})


def trained(zygote, plan: Plan, root: Path, turns=((0, 0),)) -> RunFolder:
    """A run that each number of ranks in turn continues; 0: as many as planned."""
    folder = RunFolder.create(plan, root)
    for number, (ranks, die_at) in enumerate(turns):
        world = world_of(plan, ranks=ranks or plan.ranks, hosts=1)
        pids = zygote.start(folder, resume=number > 0, die_at=die_at, world=world)
        codes = zygote.wait(pids, patience_s=3 if die_at else None)
        assert codes[-1] == (-signal.SIGKILL if die_at else 0), zygote.said(folder)
    return folder


def step_losses(folder: RunFolder, num_seeds: int = 20) -> list[float]:
    """The mean loss of every round of the run as it ended: what the sums of all ranks have grown by."""
    plan, attempts = folder.read_plan(), folder.attempts()
    most = max(attempt.world.ranks for attempt in attempts)
    logs = [read_event_log(folder, rank) for rank in range(most)]
    starts = [(start.steps_done, start.world_size) for start in logs[0].starts]
    losses = []
    for steps in sorted(logs[0].syncs):
        ranks = [world for first, world in starts if first < steps][-1]
        total = sum(log.syncs[steps].loss_sum for log in logs[:ranks])
        is_first = plan.calendar.position(steps - 1).step == 0
        losses.append(total - (0 if is_first else before))
        before = total
    return [loss / num_seeds for loss in losses]


@pytest.fixture(scope="module")
def undisturbed(planned, zygote, tmp_path_factory) -> RunFolder:
    """Four ranks from the first step to the last."""
    return trained(zygote, plan_of(planned, "same"), tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def elastic(planned, zygote, tmp_path_factory) -> RunFolder:
    """The same run, killed three times in the middle of an epoch, and continued by 2, by 3, and by 1."""
    return trained(zygote, plan_of(planned, "same"), tmp_path_factory.mktemp("elastic"), TURNS)


def test_every_step_loses_what_it_would_have_lost(undisturbed, elastic):
    print(elastic.read_outcome().elastic)
    expected, found = step_losses(undisturbed), step_losses(elastic)
    assert len(found) == len(expected) == 28
    print(max(abs(one - other) for one, other in zip(expected, found, strict=True)))
    assert max(abs(one - other) for one, other in zip(expected, found, strict=True)) <= CLOSE
