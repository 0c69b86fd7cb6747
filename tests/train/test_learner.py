"""The optimizer's rate and state, and what a stats counts: functions of the position, carried over a resume."""

import math
from types import SimpleNamespace

import pytest
import torch
from rounding import Bounded, assert_near, assert_within
from torch import nn

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.manifest import Counters, SavedStats
from graphmill.spec.optimizer import learning_rate
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.sync.group import MIB, Group
from graphmill.sync.schemes import Step
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.learner import Learner
from graphmill.train.optimizer import limit_norm

CPU = torch.device("cpu")


def plan_of(**train) -> Plan:
    facts = GraphInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=False, num_nodes=100, num_edges=400, num_features=8,
        num_classes=3, num_train=60, has_sparse_features=False,
    )  # fmt: skip
    experiment = NodeClassificationExperiment.model_validate(
        {"train": {"epochs": 2, "batch_size": 10, "ranks": 1, **train}}
    )
    return resolve(experiment, machine=MachineInfo(num_cores=2, num_gpus=0), dataset=facts, run_id="run")


def learner_of(plan: Plan) -> Learner:
    torch.manual_seed(1)
    return Learner.build(plan, nn.Linear(4, 3), Group(0, 1, CPU))


def train(learner: Learner, steps: range) -> None:
    for step in steps:
        learner.replica.grads.copy_(torch.sin(torch.arange(15.0) + step))
        assert learner.update(Step(5, 5, closes_round=True), step)


def test_a_constant_rate():
    plan = plan_of(optimizer={"kind": "adam", "lr": 0.02})
    assert {learning_rate(plan.optimizer, plan.calendar, step) for step in range(plan.last_step)} == {0.02}


def test_a_cosine_rate_falls_from_the_planned_one_towards_zero():
    plan = plan_of(optimizer={"kind": "adam", "lr": 0.02, "schedule": {"kind": "cosine"}})
    rates = [learning_rate(plan.optimizer, plan.calendar, step) for step in range(plan.last_step)]
    assert rates[0] == 0.02
    assert rates == sorted(rates, reverse=True)
    assert rates[6] == 0.01, "half of it in the middle of 12 steps"
    last = Bounded.of(0.01) + 0.01 * Bounded.of(math.cos(math.pi * 11 / 12)).rounded(2)  # a product, a cosine
    assert_near(rates[-1], last.rounded(2), computed=torch.float64)


def test_a_rate_in_steps_falls_after_whole_epochs():
    plan = plan_of(
        epochs=5,
        optimizer={"kind": "adam", "lr": 0.08, "schedule": {"kind": "multistep", "milestones": [1, 3], "gamma": 0.5}},
    )
    assert plan.calendar.steps_in(0) == 6
    rates = [learning_rate(plan.optimizer, plan.calendar, step) for step in range(plan.last_step)]
    assert rates == [0.08] * 6 + [0.04] * 12 + [0.02] * 12


@pytest.mark.parametrize("sync", [{"scheme": "deferred_allreduce"}, {"scheme": "diloco"}, {"scheme": "local_sgd"}])
def test_every_scheme_limits_the_norm_of_the_mean_gradient(sync):
    learner = learner_of(plan_of(optimizer={"kind": "adam", "weight_decay": 0, "max_grad_norm": 0.5}, sync=sync))
    learner.replica.grads.copy_(torch.arange(15.0))
    learner.update(Step(5, 5, closes_round=True), 0)
    mean = torch.arange(15.0) / 5
    norm = math.sqrt(sum((value / 5) ** 2 for value in range(15)))
    limited = Bounded.of(mean).rounded(15 + 4) * 0.5 / norm  # the norm is of 15 squares
    # What limits adds 1e-6 to the norm, as torch does; 0.1 is 1 - 0.9 in float32.
    moment = Bounded(0.1 * limited.value * norm / (norm + 1e-6), 0.1 * limited.slack).rounded(4)
    assert_within(learner.state()["optimizer.exp_avg"], moment)


def test_a_small_gradient_is_left_as_it_is():
    parameter = nn.Parameter(torch.zeros(15))
    for norm in (0.1, 3.0):
        grads = torch.sin(torch.arange(15.0))
        grads *= norm / grads.norm()
        parameter.grad = grads.clone()
        nn.utils.clip_grad_norm_([parameter], 1.0)
        limit_norm(grads, 1.0)
        assert_within(grads, Bounded.of(parameter.grad).rounded(2 * 15 + 4))  # two norms, of 15 squares each
        assert_near(float(grads.norm()), Bounded.of(norm if norm < 1 else norm / (norm + 1e-6)).rounded(3 * 15 + 8))


def test_it_is_adam():
    """Flat or in parts, the same updates as torch's own Adam."""
    plan = plan_of(optimizer={"kind": "adam", "lr": 0.01, "weight_decay": 0.1, "eps": 1e-4})
    learner = learner_of(plan)
    torch.manual_seed(1)
    reference = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(reference.parameters(), lr=0.01, weight_decay=0.1, eps=1e-4, fused=True)
    for step in range(5):
        gradient = torch.sin(torch.arange(15.0) + step)
        reference.weight.grad, reference.bias.grad = (gradient[:12] / 5).view(3, 4).clone(), gradient[12:] / 5
        optimizer.step()
    train(learner, range(5))
    flat = torch.cat([reference.weight.detach().reshape(-1), reference.bias.detach()])
    assert torch.equal(learner.replica.values, flat)


@pytest.mark.parametrize("sync", [{"scheme": "deferred_allreduce"}, {"scheme": "diloco"}, {"scheme": "local_sgd"}])
def test_a_learner_goes_on_where_another_stood(sync):
    plan = plan_of(optimizer={"kind": "adam", "schedule": {"kind": "cosine"}}, sync=sync)
    undisturbed, first, second = learner_of(plan), learner_of(plan), learner_of(plan)
    train(undisturbed, range(8))
    train(first, range(5))
    model = {name: tensor.clone() for name, tensor in first.replica.named_tensors()}
    second.load(Weights(model, None, "the first"), {name: tensor.clone() for name, tensor in first.state().items()})
    train(second, range(5, 8))
    assert torch.equal(second.replica.values, undisturbed.replica.values)
    assert second.state().keys() == undisturbed.state().keys()
    assert all(torch.equal(second.state()[name], tensor) for name, tensor in undisturbed.state().items())


def test_its_state_is_whole_before_the_first_step():
    state = learner_of(plan_of()).state()
    assert sorted(state) == ["optimizer.exp_avg", "optimizer.exp_avg_sq", "optimizer.step"]
    assert not any(tensor.any() for tensor in state.values())


def ledger_of(plan: Plan, **fields) -> EpochStats:
    given = {"num_parameters": 1000, "interface": None, "attempt": 1, "num_hosts": 1, **fields}
    return EpochStats(plan=plan, group=Group(0, plan.ranks, CPU), **given)


@pytest.fixture
def clock(monkeypatch):
    """A stats's clock that is set by hand."""
    hands = SimpleNamespace(now=100.0)
    monkeypatch.setattr(
        "graphmill.train.epoch_stats.time",
        SimpleNamespace(perf_counter=lambda: hands.now, time=lambda: 1e9 + hands.now),
    )
    monkeypatch.setattr("graphmill.runtime.spans.perf_counter", lambda: hands.now)
    return hands


def test_a_row_tells_of_its_epoch_alone():
    stats = ledger_of(plan_of())
    seconds = stats.group.spans.seconds
    seconds["sample"], seconds["gather"] = 5.0, 7.0
    stats.before_epoch = Counters(num_syncs=6, payload_bytes=6 * MIB)
    stats.earlier = Counters(num_syncs=4, payload_bytes=4 * MIB)
    stats.begin_epoch()
    seconds["sample"], seconds["gather"] = 5.5, 7.25
    stats.group.traffic.num_syncs, stats.group.traffic.payload_bytes = 5, 5 * MIB
    row = stats.facts(epoch=1, steps_done=9, loss=3.0, num_seeds=(30, 90))
    assert (row["epoch"], row["epoch_steps"], row["steps_done"], row["loss"]) == (2, 3, 9, 3.0)
    assert (row["num_syncs"], row["num_syncs_cum"]) == (3, 9)
    assert (row["measured_mib_epoch"], row["measured_mib_cum"]) == (3.0, 9.0)
    assert (row["sample_s"], row["gather_s"]) == (0.5, 0.25)
    assert row["modelled_mib_epoch_fp32"] == 3 * 4000 / MIB
    assert row["modelled_mib_cum_fp16"] == 9 * 2000 / MIB
    assert row["interface_mib_cum"] is None
    assert row["seeds_per_s"] == 30 / row["train_s"]


def test_books_carry_a_ledger_over_an_attempt(clock):
    stats = ledger_of(plan_of())
    stats.begin_epoch()
    clock.now += 7.5
    stats.loss_sum = 12.5
    stats.group.traffic.num_syncs = 3
    stats.before_epoch = Counters(num_syncs=1)
    books = stats.saved(4, mid_epoch=True)
    assert books.epoch_s == 7.5
    assert stats.saved(4, mid_epoch=False).epoch_s == 0
    resumed = ledger_of(plan_of())
    resumed.reopen(books)
    resumed.begin_attempt()
    resumed.begin_epoch()
    resumed.group.traffic.num_syncs = 2
    assert resumed.loss_sum == 12.5
    assert resumed.counters().num_syncs == 5
    clock.now += 0.25
    assert resumed.elapsed_s() == 7.75
    row = resumed.facts(epoch=0, steps_done=6, loss=3.0, num_seeds=(60, 60))
    assert (row["num_syncs"], row["num_syncs_cum"]) == (4, 5), (
        "of the epoch: those of both attempts, but none before it"
    )


def test_what_an_epoch_was_spent_on_is_of_all_its_attempts(clock):
    """Its time is: so shares of it explain as much of it, however often it was cut."""
    stats = ledger_of(plan_of())
    for attempt in range(3):
        stats.begin_epoch()
        for _ in stats.timed(iter(range(2))):
            with stats.computing():
                clock.now += 3
                stats.group.spans.seconds["sync"] += 1
        stats.group.spans.seconds["sample"] += 0.5
        if attempt < 2:
            books = SavedStats.model_validate_json(stats.saved(2, mid_epoch=True).model_dump_json())
            stats = ledger_of(plan_of())
            stats.reopen(books)
    row = stats.facts(epoch=0, steps_done=6, loss=3.0, num_seeds=(60, 60))
    assert (row["train_s"], row["compute_s"], row["sync_s"], row["sample_s"]) == (18, 12, 6, 1.5)
    stats.end_epoch()
    stats.begin_epoch()
    clock.now += 1
    row = stats.facts(epoch=1, steps_done=9, loss=3.0, num_seeds=(30, 90))
    assert (row["train_s"], row["compute_s"], row["sync_s"]) == (1, 0, 0)


@pytest.mark.parametrize(("ranks", "num_agreed", "said"), [(2, 3, True), (2, 2, False), (1, 3, None)])
def test_replicas_agree_where_every_sync_of_the_epoch_was_compared(ranks, num_agreed, said):
    stats = ledger_of(plan_of(ranks=ranks))
    stats.reopen(
        SavedStats(
            loss_sum=0,
            epoch_s=1,
            counters=Counters(num_syncs=6, num_agreed=6),
            before_epoch=Counters(num_syncs=4, num_agreed=4),
            spent_s={},
        )
    )
    stats.begin_epoch()
    stats.group.traffic.num_syncs, stats.num_agreed = 3, num_agreed
    row = stats.facts(epoch=1, steps_done=9, loss=3.0, num_seeds=(30, 90))
    assert (row["num_syncs"], row["replicas_agree"]) == (5, said)


def test_waiting_and_computing_are_told_apart(clock):
    stats = ledger_of(plan_of())
    stats.begin_epoch()

    def slow():
        for number in range(3):
            clock.now += 2
            yield number

    for _ in stats.timed(slow()):
        with stats.computing():
            clock.now += 1
            stats.group.spans.seconds["sync"] += 0.25
    row = stats.facts(epoch=0, steps_done=3, loss=3.0, num_seeds=(30, 30))
    assert (row["wait_s"], row["sync_s"]) == (6, 0.75)
    assert row["compute_s"] == 3 * 0.75, "time in collectives counts as synchronising"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run(loss):
    stats = ledger_of(plan_of())
    stats.begin_epoch()
    stats.loss_sum = loss
    with pytest.raises(UserError, match="has diverged"):
        stats.saved(3, mid_epoch=True)
    with pytest.raises(UserError, match="by step 6"):
        stats.facts(epoch=0, steps_done=6, loss=loss, num_seeds=(60, 60))


def test_progress_in_a_log_is_one_line_per_epoch(capsys):
    from graphmill.train.run_log import Progress

    progress = Progress(plan_of(ranks=2), shown=True)
    progress.resume(3)
    progress.step(0, 1, 10)
    row = {
        "epoch": 1,
        "loss": 1.25,
        "val_micro_f1": 0.5,
        "best_val_micro_f1": 0.75,
        "seeds_per_s": 1234.5,
        "train_s": 2.0,
    }
    progress.epoch({**row, "num_syncs": 6, "measured_mib_epoch": 1.5})
    progress.close()
    Progress(plan_of(), shown=False).say("a silent rank")
    line = "epoch 1/2  loss 1.2500  val micro-F1 0.5000  best 0.7500  1,234 nodes/s  2.0 s  6 syncs  1.5 MiB\n"
    assert capsys.readouterr().out == line


def test_a_journal_tells_what_it_passes_over(tmp_path):
    from graphmill.record.events import DamagedCheckpoint, EventWriter, events_in
    from graphmill.train.run_log import RunLog

    said: list[str] = []
    with EventWriter(tmp_path / "rank_0.jsonl", rank=0) as events:
        run_log = RunLog(None, 0, events, SimpleNamespace(say=said.append), "node_classification")
        run_log.damaged("step_0000000005", "manifest.json is damaged")
    (event,) = events_in(tmp_path / "rank_0.jsonl", DamagedCheckpoint)
    assert (event.checkpoint, event.problem) == ("step_0000000005", "manifest.json is damaged")
    assert said == ["step_0000000005 is damaged and passed over: manifest.json is damaged"]


OPTIMIZERS = [
    {"kind": "adam", "lr": 0.02, "weight_decay": 0.1},
    {"kind": "adamw", "lr": 0.02, "weight_decay": 0.1, "betas": [0.8, 0.9]},
    {"kind": "sgd", "lr": 0.02, "weight_decay": 0.1},
    {"kind": "sgd", "lr": 0.02, "weight_decay": 0, "momentum": 0.9, "nesterov": True},
    {"kind": "sgd", "lr": 0.02, "weight_decay": 0, "momentum": 0.5, "schedule": {"kind": "linear", "warmup_steps": 3}},
]
TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_torchs_to_the_bit(optimizer):
    """On the model's own parameters, as many as vector instructions take at a time, so that no kernel has a tail."""
    plan = plan_of(optimizer=optimizer)
    torch.manual_seed(1)
    ours, reference = nn.Linear(16, 32), nn.Linear(16, 32)
    reference.load_state_dict(ours.state_dict())
    learner = Learner.build(plan, ours, Group(0, 1, CPU))
    settings = {name: value for name, value in optimizer.items() if name not in ("kind", "schedule")}
    theirs = TORCH[optimizer["kind"]](reference.parameters(), fused=True, **settings)
    for step in range(6):
        gradient = torch.sin(torch.arange(544.0) + step)
        learner.replica.grads.copy_(gradient)
        learner.update(Step(1, 1, closes_round=True), step)
        reference.weight.grad, reference.bias.grad = gradient[:512].view(32, 16).clone(), gradient[512:].clone()
        theirs.param_groups[0]["lr"] = learning_rate(plan.optimizer, plan.calendar, step)
        theirs.step()
    assert torch.equal(ours.weight, reference.weight)
    assert torch.equal(ours.bias, reference.bias)


class Small(nn.Module):
    """Two layers: groups are no single segment of the flat vector."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)


def small_learner(model: nn.Module | None = None, **optimizer) -> Learner:
    torch.manual_seed(1)
    plan = plan_of(optimizer={"kind": "adamw", "lr": 0.02, "weight_decay": 0.1, **optimizer})
    return Learner.build(plan, model or Small(), Group(0, 1, CPU))


def push(learner: Learner, steps: range) -> None:
    for step in steps:
        learner.replica.grads.copy_(torch.sin(torch.arange(float(learner.replica.num_parameters)) + step))
        learner.update(Step(5, 5, closes_round=True), step)


GROUPS = {
    "biases": {"parameters": ["*.bias"], "decay_factor": 0},
    "head": {"parameters": ["second.*"], "lr_factor": 0.5},
}


def test_groups_are_torchs():
    """The first group that a parameter matches has it."""
    learner = small_learner(groups=GROUPS)
    torch.manual_seed(1)
    reference = Small()
    names = dict(reference.named_parameters())
    theirs = torch.optim.AdamW(
        [
            {"params": [names["first.weight"]], "lr": 0.02, "weight_decay": 0.1},
            {"params": [names["first.bias"], names["second.bias"]], "lr": 0.02, "weight_decay": 0.0},
            {"params": [names["second.weight"]], "lr": 0.01, "weight_decay": 0.1},
        ],
        fused=True,
    )
    for step in range(5):
        gradient = torch.sin(torch.arange(23.0) + step) / 5
        for name, place in learner.replica.places.items():
            names[name].grad = gradient[place].view_as(names[name]).clone()
        theirs.step()
    push(learner, range(5))
    for name, tensor in learner.replica.model.named_parameters():
        assert torch.equal(tensor, names[name]), name


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, {"kind": "adam", "groups": GROUPS}])
def test_every_optimizer_resumes_to_the_bit(optimizer):
    schedule = {"schedule": {"kind": "cosine", "warmup_steps": 4, "final_factor": 0.1}, **optimizer}
    undisturbed, first, second = (small_learner(**schedule) for _ in range(3))
    push(undisturbed, range(8))
    push(first, range(5))
    state = {name: tensor.clone() for name, tensor in first.state().items()}
    second.replica.values.copy_(first.replica.values)
    second.optimizer.load({name.removeprefix("optimizer."): tensor for name, tensor in state.items()})
    push(second, range(5, 8))
    assert torch.equal(second.replica.values, undisturbed.replica.values)
    assert all(torch.equal(second.state()[name], tensor) for name, tensor in undisturbed.state().items())


def test_frozen_parameters_are_left_as_they_are():
    """They are no part of what is exchanged and hashed, and stand in the weights with the others."""
    model = Small()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learner = small_learner(model, frozen=["first.*"])
    assert learner.replica.num_parameters == 8
    assert list(learner.replica.places) == ["second.weight", "second.bias"]
    push(learner, range(3))
    after = dict(learner.replica.named_tensors())
    assert after.keys() == before.keys()
    assert [name for name in after if torch.equal(after[name], before[name])] == ["first.weight", "first.bias"]


@pytest.mark.parametrize(
    ("optimizer", "key"),
    [
        ({"frozen": ["first.weigth"]}, "train.optimizer.frozen"),
        ({"groups": {"none": {"parameters": ["*.bias", "norm*"]}}}, "train.optimizer.groups.none.parameters"),
        ({"frozen": ["first.*"], "groups": {"it": {"parameters": ["first.*"]}}}, "train.optimizer.groups.it"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused_with_the_names(optimizer, key):
    with pytest.raises(UserError, match=key) as caught:
        small_learner(**optimizer)
    assert "second.weight, second.bias" in caught.value.message


def test_nothing_left_to_train_is_refused():
    with pytest.raises(UserError, match=r"train\.optimizer\.frozen"):
        small_learner(frozen=["*"])


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear"])
def test_the_rate_rises_over_the_warmup_and_ends_where_it_should(kind):
    schedule = {"kind": kind, "warmup_steps": 4, **({} if kind == "constant" else {"final_factor": 0.25})}
    plan = plan_of(optimizer={"kind": "adam", "lr": 0.04, "schedule": schedule})
    rates = [learning_rate(plan.optimizer, plan.calendar, step) for step in range(plan.last_step)]
    assert rates[:5] == [0.04 * 1 / 4, 0.04 * 2 / 4, 0.04 * 3 / 4, 0.04, 0.04]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    end = learning_rate(plan.optimizer, plan.calendar, plan.last_step)
    assert end == (0.04 if kind == "constant" else 0.01)


def test_a_warmup_longer_than_the_run_is_refused():
    with pytest.raises(UserError, match="warmup_steps is 12"):
        plan_of(optimizer={"kind": "adam", "schedule": {"kind": "constant", "warmup_steps": 12}})
