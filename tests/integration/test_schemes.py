"""Every scheme with real ranks: replicas agree after every sync, bytes are what the formula says, nobody hangs."""

import math
from collections.abc import Callable

import pytest
from slow_cases import with_slow

from graphmill.record.manifest import Manifest
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WEIGHTS_FILE, WeightsFile
from graphmill.spec.plan import Plan

pytestmark = pytest.mark.distributed

SCHEMES = {"deferred_allreduce": {}, "local_sgd": {}, "diloco": {}}
EVERY = (1, 2, 3, 8, 16)
PAYLOADS = {"fp32": 4, "fp16": 2, "bf16": 2}
CELLS = [(scheme, every, payload) for scheme in SCHEMES for every in EVERY for payload in PAYLOADS]
# Each scheme, length of a round and payload; and what other runs are compared with.
FAST = [
    ("deferred_allreduce", 1, "fp32"),
    *((scheme, 3, "fp32") for scheme in SCHEMES),
    ("local_sgd", 2, "bf16"),
    ("diloco", 8, "fp16"),
    ("deferred_allreduce", 16, "bf16"),
]
STEPS = 7  # per epoch: 140 training nodes, 2 ranks, batches of 10; neither 2, 3, 8 nor 16 divides it


def name(scheme: str, every: int, payload: str) -> str:
    return f"{scheme}-k{every}-{payload}"


def weights(folder, last_checkpoint) -> str:
    return WeightsFile.read(last_checkpoint(folder) / WEIGHTS_FILE).compute_checksum()


CASES = [pytest.param(cell, id=name(*cell), marks=[] if cell in FAST else [pytest.mark.slow]) for cell in CELLS]


class Trained:
    """Finished runs by run id, each trained when it is first asked for."""

    def __init__(self, plans: list[Plan], train_all: Callable[[list[Plan]], dict[str, RunFolder]]) -> None:
        self.plans, self.train_all = {plan.run_id: plan for plan in plans}, train_all
        self.folders: dict[str, RunFolder] = {}

    def __getitem__(self, run_id: str) -> RunFolder:
        if run_id not in self.folders:
            self.folders |= self.train_all([self.plans[run_id]])
        return self.folders[run_id]


@pytest.fixture(scope="module")
def cells(planned, train_all):
    """All schemes, rounds and payloads with two ranks, and what is compared with them."""
    lean = {"ranks": 2, "evaluate_every_epochs": 0, "checkpoint": {"every_epochs": 0}}
    plans = [
        planned(name(*cell), **lean, sync={"scheme": cell[0], "every": cell[1], "payload": cell[2]}) for cell in CELLS
    ]
    plain = {"scheme": "diloco", "every": 3, "outer_lr": 1.0, "outer_momentum": 0.0}
    averaged = {"scheme": "local_sgd", "every": 3, "average_optimizer_state": True}
    plans += [
        planned("plain-diloco", **lean, sync=plain),
        planned("averaged", **lean, sync=averaged),
        planned("warmed-up", **lean, sync={"scheme": "local_sgd", "every": 4, "warmup_steps": 5}),
        planned("all-warm-up", **lean, sync={"scheme": "local_sgd", "every": 4, "warmup_steps": 14}),
        planned("cut-short", **lean, epochs=None, max_steps=22, sync={"scheme": "local_sgd", "every": 3}),
    ]
    return Trained(plans, train_all)


@pytest.mark.parametrize("cell", CASES)
def test_replicas_agree_after_every_sync(cells, syncs, last_checkpoint, cell):
    folder = cells[name(*cell)]
    first, second = syncs(folder)
    of_epoch = sorted({min(step, STEPS) for step in range(cell[1], STEPS + cell[1], cell[1])})
    assert [event.steps_done for event in first] == [*of_epoch, *(STEPS + step for step in of_epoch)]
    assert [event.parameter_hash for event in first] == [event.parameter_hash for event in second]
    assert all(event.replicas_agree for event in (*first, *second))
    assert len({event.parameter_hash for event in first}) == len(first), "every round changed something"
    assert Manifest.read(last_checkpoint(folder)).parameter_hash == first[-1].parameter_hash
    assert {row["replicas_agree"] for row in read_metrics(folder.metrics_path)} == {"true"}


@pytest.mark.parametrize("cell", CASES)
def test_measured_bytes_are_those_of_the_formula(cells, syncs, cell):
    _, every, payload = cell
    folder = cells[name(*cell)]
    num_parameters = parameters_of(folder)
    per_epoch = math.ceil(STEPS / every)
    for rank in syncs(folder):
        assert [event.payload_bytes for event in rank] == [
            number * num_parameters * PAYLOADS[payload] for number in range(1, 2 * per_epoch + 1)
        ]
    mib = num_parameters / 2**20
    for epoch, row in enumerate(read_metrics(folder.metrics_path), start=1):
        assert float(row["measured_mib_epoch"]) == per_epoch * mib * PAYLOADS[payload]
        assert float(row["measured_mib_cum"]) == epoch * per_epoch * mib * PAYLOADS[payload]
        assert float(row["modelled_mib_cum_fp32"]) == pytest.approx(epoch * per_epoch * mib * 4)
        assert (int(row["num_syncs"]), int(row["num_syncs_cum"])) == (per_epoch, epoch * per_epoch)
        assert float(row["interface_mib_epoch"]) > 0


def parameters_of(folder) -> int:
    """By formula, from the plan: self and neighbour weight and bias of two layers."""
    plan = folder.read_plan()
    hidden, classes = plan.task.model.hidden_channels, plan.dataset.num_classes
    return 2 * plan.dataset.num_features * hidden + hidden + 2 * hidden * classes + classes


def test_ranks_really_go_their_own_way_between_syncs(cells, last_checkpoint):
    """Else all the agreement above would say nothing."""

    def moments(run: str) -> list[bytes]:
        return [(last_checkpoint(cells[run]) / f"rank_{rank}.safetensors").read_bytes() for rank in (0, 1)]

    for scheme in ("local_sgd", "diloco"):
        one, other = moments(name(scheme, 3, "fp32"))
        assert one != other
    one, other = moments(name("deferred_allreduce", 3, "fp32"))
    assert one == other


def test_diloco_with_a_plain_outer_step_is_local_sgd(cells, last_checkpoint):
    assert weights(cells["plain-diloco"], last_checkpoint) == weights(
        cells[name("local_sgd", 3, "fp32")], last_checkpoint
    )
    assert weights(cells["plain-diloco"], last_checkpoint) != weights(cells[name("diloco", 3, "fp32")], last_checkpoint)


def test_a_run_that_is_all_warm_up_is_data_parallelism(cells, last_checkpoint):
    plain = cells[name("deferred_allreduce", 1, "fp32")]
    assert weights(cells["all-warm-up"], last_checkpoint) == weights(plain, last_checkpoint)


def test_every_step_of_the_warm_up_is_a_sync(cells, syncs):
    for rank in syncs(cells["warmed-up"]):
        assert [event.steps_done for event in rank] == [1, 2, 3, 4, 5, 7, 11, 14]
        assert all(event.replicas_agree for event in rank)


def test_averaged_moments_are_payload_too(cells, syncs, last_checkpoint):
    folder = cells["averaged"]
    num_parameters = parameters_of(folder)
    first, second = syncs(folder)
    assert [e.parameter_hash for e in first] == [e.parameter_hash for e in second]
    assert first[-1].payload_bytes == 6 * 3 * num_parameters * 4
    one, other = ((last_checkpoint(folder) / f"rank_{rank}.safetensors").read_bytes() for rank in (0, 1))
    assert one == other, "with their moments averaged the ranks agree as wholes"


def test_a_run_cut_short_mid_round_ends_with_a_sync(cells, syncs):
    """max_steps counts steps over all ranks: 11 of each, an epoch of 7 and 4 more, the last round of one step."""
    folder = cells["cut-short"]
    for rank in syncs(folder):
        assert [event.steps_done for event in rank] == [3, 6, 7, 10, 11]
    rows = read_metrics(folder.metrics_path)
    assert [row["epoch_steps"] for row in rows] == ["7", "4"]
    assert [row["num_seeds"] for row in rows] == ["140", "80"]
    assert folder.read_outcome().steps_per_rank == 11


RARE = {
    "deferred": {"scheme": "deferred_allreduce", "every": 2},
    "local": {"scheme": "local_sgd", "every": 2, "payload": "bf16"},
    "averaged": {"scheme": "local_sgd", "every": 1, "average_optimizer_state": True},
    "warm": {"scheme": "local_sgd", "every": 3, "warmup_steps": 2, "average_optimizer_state": True},
    "diloco": {"scheme": "diloco", "every": 16, "payload": "fp16"},
}


@pytest.fixture(scope="module")
def rare(planned, train_all):
    """Three ranks where seeds are rare: two in the last batch of cora, two in all of `tiny`."""
    cora = [planned(f"cora-{key}", ranks=3, batch_size=46, sync=sync) for key, sync in RARE.items()]
    tiny = [planned(f"tiny-{key}", dataset="tiny", ranks=3, epochs=5, sync=sync) for key, sync in RARE.items()]
    stranger = {"kind": "custom", "target": "strange_models.Normalised"}
    return Trained([*cora, *tiny, planned("stranger", ranks=3, batch_size=46, model=stranger)], train_all)


@pytest.mark.parametrize(
    ("key", "dataset", "num_train"),
    with_slow(
        [(key, *data) for key in RARE for data in (("cora", "140"), ("tiny", "2"))],
        fast=[("deferred", "tiny", "2"), ("warm", "tiny", "2"), ("diloco", "tiny", "2"), ("local", "cora", "140")],
    ),
)
def test_ranks_without_seeds_keep_up_and_agree(rare, syncs, key, dataset, num_train):
    """Also a rank that never has any: it takes part in every exchange, and has moments though it never updates."""
    folder = rare[f"{dataset}-{key}"]
    hashes = [[event.parameter_hash for event in rank] for rank in syncs(folder)]
    assert hashes[0] == hashes[1] == hashes[2] != []
    assert {row["num_seeds"] for row in read_metrics(folder.metrics_path)} == {num_train}
    assert folder.read_outcome().status == "done"


def test_a_strangers_model_never_sees_an_empty_batch(rare, syncs):
    """Batch normalisation, for one, refuses to be trained on nothing."""
    hashes = [[event.parameter_hash for event in rank] for rank in syncs(rare["stranger"])]
    assert hashes[0] == hashes[1] == hashes[2] != []
