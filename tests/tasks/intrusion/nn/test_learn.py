"""What is learnt from besides labels: an autoencoder's own losses, a teacher, a curriculum, and the fusion of two."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.plan import MachineInfo
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.intrusion.data.prepare import GENERATED, prepare_requested
from graphmill.tasks.intrusion.fusion import Stacking
from graphmill.tasks.intrusion.nn.ids import ids_of, row_of
from graphmill.tasks.intrusion.nn.learn import Curriculum, Teacher
from graphmill.tasks.intrusion.page import KIND, CapturePrepareOptions, IntrusionExperiment
from graphmill.tasks.intrusion.page.models import CanGatSpec, CanVgaeSpec, CurriculumSpec, DistillSpec
from graphmill.tasks.intrusion.task import Intrusion
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation

ORIGIN = Origin(run_id="run", task=KIND.name, dataset=GENERATED, step=0, epoch=0, plan_hash="", measures={})
GAT = {"kind": "gat", "scale": "small", "hidden_channels": 4, "heads": 2, "dropout": 0.0, "id_dropout": 0.0}
VGAE = {"kind": "vgae", "scale": "small", "hidden_channels": 16, "heads": 2, "dropout": 0.0, "id_dropout": 0.0}
ON = {"gat": "all", "vgae": "benign", "fusion": "validation"}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("can")
    prepare_requested(Preparation(GENERATED, root, CapturePrepareOptions(seconds=20)))
    return root


def plan_of(root, model, *, ranks=1, **train):
    experiment = IntrusionExperiment.model_validate(
        {
            "dataset": {"name": GENERATED, "train_on": ON[model["kind"]], "blocks": 2},
            "model": model,
            "train": {"epochs": 2, "batch_size": 12, "ranks": ranks, "threads": 1, "device": "cpu", **train},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id="run", machine=machine)


def task_of(root, model, *, rank=0, ranks=1, **train) -> Intrusion:
    built = build_task(plan_of(root, model, ranks=ranks, **train), Group(rank, ranks, torch.device("cpu")))
    assert isinstance(built, Intrusion)
    return built


def weights_of(task: Intrusion) -> Weights:
    with torch.no_grad():
        task.model.inner.ids.table.normal_()
    return Weights.of(task.model.state_dict(), ORIGIN)


def gradient(one: Intrusion, batch) -> torch.Tensor:
    one.model.double().zero_grad()
    one.loss_sum(replace(batch, x=batch.x.double(), edge_attr=batch.edge_attr.double())).backward()
    return torch.cat([each.grad.flatten() for each in one.model.parameters() if each.grad is not None])


def test_the_autoencoders_losses_are_those_of_the_digest(root):
    """Of a window alone, in float64 with plain torch: means over its nodes."""
    one = task_of(root, VGAE)
    one.model.eval()
    batch = one.feed.chosen(np.array([3]))
    made = one.model.inner(batch)
    ids = row_of(ids_of(batch.x), 256)
    follows = torch.zeros(len(batch.x), 256)
    for source, target in batch.edge_index.T.tolist():
        follows[source, ids[target]] = 1
    expected = F.mse_loss(made.features, batch.x[:, 2:]) + 0.1 * F.cross_entropy(made.ids, ids)
    expected += 0.05 * F.binary_cross_entropy_with_logits(made.following, follows)
    kl = -0.5 * (1 + made.logvar - made.mean**2 - made.logvar.exp()).mean()
    torch.testing.assert_close(one.model.inner.losses(batch, made), (expected + 0.01 * kl).reshape(1))
    assert made.features.min() >= 0
    assert made.features.max() <= 1


@pytest.mark.parametrize("score", ["mean", "max"])
def test_a_windows_score_does_not_depend_on_its_batch(root, score):
    one = task_of(root, {**VGAE, "score": score})
    one.model.eval()
    alone = torch.cat([one.model.scores(one.feed.chosen(np.array([window]))) for window in range(9)])
    torch.testing.assert_close(alone, one.model.scores(one.feed.chosen(np.arange(9))), rtol=1e-4, atol=1e-4)
    batch = one.feed.chosen(np.arange(9))
    errors = one.model.inner.errors(batch, one.model.inner(batch)).double()
    parts = torch.split(errors, batch.node_offsets.diff().tolist())
    expected = torch.stack([part.mean() if score == "mean" else part.max() for part in parts])
    expected += one.model.inner.reference.of_windows(batch)
    torch.testing.assert_close(one.model.scores(batch), expected.log())


@pytest.mark.slow  # over a minute
def test_an_id_that_was_never_seen_is_given_back_worse(root):
    """After some training on benign windows alone."""
    one = task_of(root, VGAE, epochs=20)
    optimizer = torch.optim.Adam([each for each in one.model.parameters() if each.requires_grad], lr=0.01)
    for epoch in range(20):
        for batch in one.batches(epoch, 0):
            optimizer.zero_grad()
            one.loss_sum(batch).backward()
            optimizer.step()
    one.model.eval()
    known = one.feed.chosen(one.train_ids[:20])
    strange = known.x.clone()
    strange[::10, 0] += 1.0  # another id, of the same kind
    with torch.no_grad():
        before, after = (one.model.scores(replace(known, x=x)).mean() for x in (known.x, strange))
    assert after > before


def test_training_draws_noise_that_belongs_to_the_step(root):
    one = task_of(root, VGAE)
    batches = one.batches(0, 0)
    batch, other = next(batches), next(batches)
    first = one.loss_sum(batch).item()
    one.loss_sum(other)
    assert one.loss_sum(batch).item() == first


@pytest.mark.parametrize("kind", ["gat", "vgae"])
def test_parameters_are_counted_with_a_teacher(root, kind):
    models = {"gat": GAT, "vgae": VGAE}
    for teacher in ({}, {"scale": "small"}):
        distill = {"teacher": {"kind": kind, **teacher}}
        plan = plan_of(root, {"kind": kind, "scale": "small"}, distill=distill)
        made = build_task(plan, Group(0, 1, torch.device("cpu"))).model
        counted = sum(each.numel() for each in made.parameters() if each.requires_grad)
        assert KIND.sizes(plan.task, StepShape(12, "cpu", "fp32")).num_parameters == counted
    plan = plan_of(root, models[kind])
    made = build_task(plan, Group(0, 1, torch.device("cpu"))).model
    counted = sum(each.numel() for each in made.parameters() if each.requires_grad)
    assert KIND.sizes(plan.task, StepShape(12, "cpu", "fp32")).num_parameters == counted


def test_a_student_that_is_its_teacher_learns_nothing_from_it(root):
    """Temperature or not: the divergence is 0, and so is its gradient."""
    one = task_of(root, GAT, distill={"teacher": GAT, "alpha": 1.0})
    one.use_sources({"teacher": weights_of(one)})
    one.model.eval()
    loss = one.loss_sum(one.feed.chosen(np.arange(9)))
    assert abs(loss.item()) <= 9 * 16 * 2**-20
    loss.backward()
    assert max(each.grad.abs().max() for each in one.model.parameters() if each.grad is not None) <= 1e-4


def test_without_alpha_the_labels_alone_count(root):
    teacher = weights_of(task_of(root, GAT, seed=9))
    plain, taught = task_of(root, GAT), task_of(root, GAT, distill={"teacher": GAT, "alpha": 0.0})
    taught.use_sources({"teacher": teacher})
    batch = next(iter(plain.batches(0, 0)))
    assert torch.equal(plain.loss_sum(batch), taught.loss_sum(batch))


def test_the_teachers_term_is_t_squared_kl():
    logits, taught = torch.tensor([[0.3, -0.2]]), torch.tensor([[1.0, 2.0]])
    teacher = Teacher(DistillSpec(alpha=0.7, temperature=4.0), lambda batch: taught)
    p, q = (F.softmax(each / 4, dim=1) for each in (taught, logits))
    expected = 0.7 * 16 * (p * (p / q).log()).sum(dim=1) + 0.3 * torch.tensor([5.0])
    torch.testing.assert_close(teacher.of_logits(None, logits, torch.tensor([5.0])), expected)


def test_an_autoencoder_learns_from_a_wider_one(root):
    wide = {**VGAE, "hidden_channels": 32, "latent_channels": 24}
    one = task_of(root, VGAE, distill={"teacher": wide})
    assert one.model.projection.weight.shape == (24, 16)
    one.use_sources({"teacher": weights_of(task_of(root, wide))})
    one.loss_sum(next(one.feed.batches(0, 0))).backward()
    assert one.model.projection.weight.grad.abs().max() > 0
    assert all(each.grad is None for each in one.teacher.model.parameters())


def test_a_run_without_its_teacher_says_so(root):
    one = task_of(root, GAT, distill={"teacher": GAT})
    with pytest.raises(UserError, match=r"sources\.teacher"):
        next(iter(one.batches(0, 0)))
    with pytest.raises(UserError, match="scale large"):
        task_of(root, GAT, distill={}).use_sources({"teacher": weights_of(one)})


@settings(deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 400), st.integers(1, 30),
    st.tuples(st.floats(0.1, 20), st.floats(0.1, 20)), st.tuples(st.floats(0, 100), st.floats(0, 100)),
)  # fmt: skip
def test_a_curriculum_counts_what_was_asked_for(attacked, benign, epochs, ratio, percentile):
    """All attacks; as many benign windows as the ratio says, or all; none easier than one that is left out need be."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(attacked + benign)
    made = Curriculum(
        spec=CurriculumSpec(ratio=ratio, percentile=percentile),
        attacked=np.sort(ids[:attacked]), benign=np.sort(ids[attacked:]), difficulty=rng.random(benign),
        num_graphs=len(ids), num_epochs=epochs, seed=1,
    )  # fmt: skip
    for epoch in (0, epochs - 1):
        share = epoch / max(1, epochs - 1)
        wanted = min(benign, round((ratio[0] + share * (ratio[1] - ratio[0])) * attacked))
        counts = made.counts(epoch).copy()
        assert counts[made.attacked].all()
        assert counts[made.benign].sum() == wanted
        at = percentile[0] + share * (percentile[1] - percentile[0])
        pool = max(wanted, benign - int(benign * at / 100))
        hardest = np.sort(made.difficulty)[benign - pool :]
        assert wanted == 0 or made.difficulty[counts[made.benign]].min() >= hardest[0]
        assert np.array_equal(made.counts(epoch), counts)


def test_gradients_of_ranks_add_up_under_a_curriculum(root):
    asked = {"curriculum": {"score": "random", "ratio": [0.3, 0.5]}}
    model = {**GAT, "attention": "reference"}
    one = task_of(root, model, **asked)
    one.use_sources({})
    alone = gradient(one, next(iter(one.batches(1, 0))))
    shares = [task_of(root, model, rank=rank, ranks=2, batch_size=6, **asked) for rank in range(2)]
    for share in shares:
        share.use_sources({})
    found = sum(gradient(share, next(iter(share.batches(1, 0)))) for share in shares)
    assert float((found - alone).norm()) <= 12 * 2**-24 * 100 * float(alone.norm())
    weights = [task.weights(1, 0) for task in (one, *shares)]
    assert sum(weights[0]) == sum(weights[1]) == sum(weights[2])
    assert sum(weights[0]) < 12


@pytest.mark.parametrize("loss", [{}, {"class_weights": "balanced"}])
def test_captures_count_alike_if_they_are_balanced(root, loss):
    """Also under a curriculum and with classes balanced: its own weight is a factor; the ranks' gradients add up."""
    asked = {"capture_weights": "balanced", "loss": {"kind": "cross_entropy", **loss}}
    model = {**GAT, "attention": "reference"}
    one = task_of(root, model, **asked)
    captures = one.store.capture[one.train_ids]
    totals = np.bincount(captures, one.balance[one.train_ids])
    np.testing.assert_allclose(totals, len(one.train_ids) / 4)  # generated captures are of unequal lengths
    assert len(set(np.bincount(captures))) > 1
    alone = gradient(one, next(iter(one.batches(1, 0))))
    shares = [task_of(root, model, rank=rank, ranks=2, batch_size=6, **asked) for rank in range(2)]
    found = sum(gradient(share, next(iter(share.batches(1, 0)))) for share in shares)
    assert float((found - alone).norm()) <= 12 * 2**-24 * 100 * float(alone.norm())
    ids = one.schedule.seeds(1, 0, 0).ids
    classes = np.ones(2) if one.loss.class_weights is None else one.loss.class_weights.numpy()
    assert one.weights(1, 0) == pytest.approx((float((classes[one.labels[ids]] * one.balance[ids]).sum()),))
    plain = task_of(root, model, loss=asked["loss"])
    assert not torch.equal(gradient(plain, next(iter(plain.batches(1, 0)))), alone)


def test_a_fusion_begins_as_the_stacking_of_its_members(root):
    small = {"gat": GAT, "vgae": VGAE}
    members = {name: task_of(root, model) for name, model in small.items()}
    one = task_of(root, {"kind": "fusion", **small})
    before = {name: weights_of(task) for name, task in members.items()}
    one.use_sources(before)
    labels = np.asarray(one.labels)[one.train_ids]
    assert set(one.codes[one.train_ids]) == {1}  # validation windows
    scores = {}
    for name, task in members.items():
        task.model.eval()
        scores[name] = task.model.scores(task.feed.chosen(one.train_ids)).detach().numpy()
    expected = Stacking.fit(scores, labels == 1).probability(scores)
    one.model.eval()
    found = one.model.scores(one.feed.chosen(one.train_ids)).detach()
    np.testing.assert_allclose(found.sigmoid(), expected, rtol=1e-3, atol=1e-5)
    one.model.train()
    one.loss_sum(next(one.feed.batches(0, 0))).backward()
    trained = {name for name, each in one.model.named_parameters() if each.grad is not None}
    assert trained == {"inner.head.weight", "inner.head.bias"}
    assert not one.model.inner.gat.training


@pytest.mark.parametrize(
    ("model", "train", "says"),
    [
        ({"kind": "vgae"}, {}, "dataset.train_on=benign"),
        ({"kind": "fusion"}, {}, "dataset.train_on=validation"),
        ({"kind": "gat"}, {"distill": {"teacher": {"kind": "vgae"}}}, "distil a classifier"),
        ({"kind": "gat", "id_rows": 3}, {}, "not a power of 2"),
    ],
)
def test_what_does_not_go_together(root, model, train, says):
    def plan():
        asked = {"dataset": {"name": GENERATED}, "model": model, "train": {"epochs": 1, **train}}
        machine = MachineInfo(num_cores=2, num_gpus=0)
        experiment = IntrusionExperiment.model_validate(asked)
        return plan_experiment(experiment, dataset_root=root, run_id="run", machine=machine)

    with pytest.raises((UserError, ValueError), match=says):
        plan()


def test_students_are_a_tenth_of_their_teachers():
    for family in (CanGatSpec, lambda **sizes: CanVgaeSpec(kind="vgae", **sizes)):
        assert family(scale="large").num_parameters >= 10 * family(scale="small").num_parameters


@pytest.mark.parametrize(("ratio", "said"), [((1.0, 10.0), "from epoch 3 of 4 on every window counts"), ((1, 2), "")])
def test_a_curriculum_that_leaves_nothing_out_says_so(caplog, ratio, said):
    with caplog.at_level("INFO"):
        made = Curriculum(
            spec=CurriculumSpec(ratio=ratio, percentile=(0.0, 0.0)), attacked=np.arange(40),
            benign=np.arange(40, 240), difficulty=np.linspace(0, 1, 200), num_graphs=240, num_epochs=4, seed=1,
        )  # fmt: skip
    everything = [epoch for epoch in range(4) if made.counts(epoch).all()]
    assert everything == ([2, 3] if said else [])
    assert (said in caplog.text) if said else (caplog.text == "")


def test_a_curriculum_draws_other_benign_windows_in_each_epoch():
    made = Curriculum(
        spec=CurriculumSpec(ratio=(1.0, 1.0), percentile=(0.0, 0.0)), attacked=np.arange(20),
        benign=np.arange(20, 220), difficulty=np.linspace(0, 1, 200), num_graphs=220, num_epochs=6, seed=1,
    )  # fmt: skip
    drawn = [frozenset(np.flatnonzero(made.counts(epoch)).tolist()) for epoch in range(6)]
    assert len(set(drawn)) == 6
    assert len(frozenset().union(*drawn)) > 80, "of 200, by six draws of 20"


def test_an_autoencoder_is_judged_without_noise(root):
    one = task_of(root, {**VGAE, "dropout": 0.5, "id_dropout": 0.5})
    plain = task_of(root, VGAE)
    plain.model.load_state_dict(one.model.state_dict())
    assert one.evaluate("val").facts() == plain.evaluate("val").facts()
