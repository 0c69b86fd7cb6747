"""The size that was found before is taken for what it depends on, and for nothing else."""

import pytest

from graphmill.estimate.batch_size import BatchSizes, _Search
from graphmill.estimate.cache import FOLDER
from graphmill.spec.modelled import modelled
from graphmill.tasks.node_classification.page import NodeClassificationExperiment

BATCH = {"mode": "static", "memory": "1G", "min": 8, "max": 40, "target": 0.85}
TRAIN = {"ranks": 1, "epochs": 2, "num_neighbors": [3, 3], "threads": 1, "device": "cpu"}


@pytest.fixture
def num_kept(tmp_path, planner):
    """How many sizes are kept once that of such a run has been looked for."""

    def find(model: dict[str, object] | None = None, batch: dict[str, object] | None = None, **train: object) -> int:
        asked = {
            "train": {**TRAIN, **train, "batch": {**BATCH, **(batch or {})}},
            "model": {"kind": "graphsage", **(model or {})},
        }
        experiment = NodeClassificationExperiment.model_validate(asked)
        BatchSizes(tmp_path).find(experiment, lambda each: planner(each, "run"))
        return len(list((tmp_path / FOLDER).iterdir()))

    return find


@pytest.mark.parametrize("other", [{"memory": "2G"}, {"target": 0.5}, {"min": 9}, {"max": 39}], ids=str)
def test_each_bound_has_a_size_of_its_own(num_kept, other):
    assert num_kept() == 1
    assert num_kept(batch=other) == 2


def test_so_has_another_model_but_not_a_longer_run_or_other_draws(num_kept):
    assert num_kept() == 1
    assert num_kept(epochs=9) == num_kept(seed=5) == 1
    assert num_kept(model={"hidden_channels": 16}) == 2
    assert num_kept(num_neighbors=[2, 2]) == 3
    assert num_kept(ranks=2) == 4, "the exchange between ranks is held, too"


def test_what_ranks_exchange_must_fit_as_well(planner):
    asked = {"train": {**TRAIN, "ranks": 2, "batch": BATCH}, "model": {"kind": "graphsage"}}
    looking = _Search.of(NodeClassificationExperiment.model_validate(asked), lambda each: planner(each, "run"))
    exchanged = 2 * 4 * modelled(looking.full_plan).num_parameters / 2**20
    assert exchanged > 0.01
    in_one_process = {"peak_mib": 100.0, "num_steps": 1, "wall_s": 1.0}
    assert looking._attempt(8, 100 + 1.01 * exchanged, in_one_process).fits
    assert not looking._attempt(8, 100 + 0.99 * exchanged, in_one_process).fits
