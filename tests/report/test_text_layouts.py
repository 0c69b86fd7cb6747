"""Records of a run as other programs write them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.events import Epoch, EventWriter
from graphmill.record.run_folder import RunFolder
from graphmill.report.text_layouts import as_text


@pytest.fixture
def run(tmp_path: Path, make_plan) -> RunFolder:
    plan = make_plan()
    data = plan.dataset.model_copy(update={"name": "ogbn-products", "path": "/data/ogbn-products"})
    task = plan.task.model_copy(update={"dataset": data})
    return RunFolder.create(plan.model_copy(update={"task": task, "ranks": 4, "hosts": 2}), tmp_path)


def record(run: RunFolder, rank: int, *losses: float, first: int = 1) -> None:
    with EventWriter(run.events_path(rank), rank=rank) as events:
        for epoch, loss in enumerate(losses, start=first):
            events.write(
                Epoch(epoch=epoch, steps_done=3 * epoch, loss=loss, num_seeds=9, train_s=0.5 + rank, clocks={})
            )


def test_dist_sage_sup(run: RunFolder, golden: Callable[[str, str], None]):
    for rank in range(4):
        record(run, rank, 2.5 + rank, 1.25 + rank)
    record(run, 1, 1.0, 0.5, first=2)  # resumed: its second epoch again
    done = Outcome(status="done", exit_code=0, epochs=3, steps_per_rank=9, test={"micro_f1": 0.76543}, wall_s=1.0)
    run.write_outcome(done)
    golden("report/dist_sage_sup.txt", as_text(run, "dist-sage-sup"))


def test_what_is_not_recorded_is_not_shown(run: RunFolder):
    text = as_text(run, "dist-sage-sup")
    assert text.endswith("--- Launching training processes ...\n")
    assert "Trainer" not in text


def test_an_unknown_layout_is_refused(run: RunFolder):
    with pytest.raises(UserError, match="dist-sage"):
        as_text(run, "dist-sage")
