"""Generated instances: each a function of its key, of the family that it says, with an exact answer."""

import itertools

import numpy as np
import pytest
from assignment_problems import prepared

from graphmill.base.errors import UserError
from graphmill.tasks.assignment.data.families import CODES, FORBIDDEN, SQUARE, rng_of
from graphmill.tasks.assignment.data.generate import GATE, GeneratedInstances, sequence
from graphmill.tasks.assignment.data.oracle import breach, not_an_assignment
from graphmill.tasks.assignment.page.data import FAMILIES, AssignmentPrepareOptions


def options(**keys):
    return AssignmentPrepareOptions(**keys)


def test_each_family_has_a_number_of_its_own():
    assert set(CODES) == set(FAMILIES) == {*SQUARE, "tracking"}
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 2, 3, 33])
def test_an_instance_is_a_function_of_its_key(family, size):
    few = GeneratedInstances(options(families=(family,), sizes=(size,), instances=3))
    many = GeneratedInstances(options(sizes=(size,), instances=3, seed=0))
    at = next(number for number in range(len(many)) if many.name_of(number) == f"{family}/{size}/2")
    one, again, other = few.instance(2), many.instance(at), few.instance(1)
    assert np.array_equal(one.costs, again.costs)
    assert one.about == again.about
    assert one.fingerprint() == again.fingerprint()
    if size > 1:
        assert not np.array_equal(one.costs, other.costs)
    assert not_an_assignment(one.shape, one.columns) is None
    assert breach(one.costs, one.columns, one.u, one.v) is None
    assert GeneratedInstances(options(families=(family,), sizes=(size,), seed=1)).instance(2).costs is not one.costs


@pytest.mark.parametrize("family", sorted(SQUARE))
def test_square_families_are_finite_and_as_they_say(family):
    costs = SQUARE[family](40, rng_of(0, family, 40, 0))
    assert costs.shape == (40, 40)
    assert np.isfinite(costs).all()
    assert costs.min() >= 0
    others = SQUARE[family](40, rng_of(1, family, 40, 0))
    assert not np.array_equal(costs, others)


def test_what_families_are_known_by():
    def made(family, n=60):
        return SQUARE[family](n, rng_of(3, family, n, 0))

    kept = made("sparse") < FORBIDDEN
    assert 0.25 < kept.mean() < 0.4
    assert np.diag(made("metric")).min() > 0  # two point sets: the identity is no trivial optimum
    levels = np.unique(np.round(made("tie"), 5))
    assert len(levels) == 5
    routes = made("transportation")
    assert len(np.unique(routes, axis=0)) < 20  # units of one site are alike
    values = np.linalg.svd(made("low_rank", 100), compute_uv=False)
    assert values[0] > 5 * values[-1]


def test_frames_follow_each_other():
    frames = sequence(0, 40, 0, 30)
    assert np.array_equal(sequence(0, 40, 0, 10)[9].expected, frames[9].expected)
    for frame in frames:
        costs = frame.costs()
        rows = len(frame.expected)
        assert costs.shape == (rows, len(frame.detected) + rows)
        finite = np.isfinite(costs)
        assert costs[finite].max() <= GATE**2
        assert finite.any(axis=1).all()
        assert finite[:, -rows:].sum() == rows
        assert finite.mean() < 0.5
    # Tracks go and come; those that stay keep their numbers, and move a little.
    for one, other in itertools.pairwise(frames):
        both = np.intersect1d(one.tracks, other.tracks)
        assert len(both) > 0.8 * len(one.tracks)
        moved = one.expected[np.isin(one.tracks, both)] - other.expected[np.isin(other.tracks, both)]
        assert np.abs(moved).max() < 1
    assert set(frames[0].tracks) != set(frames[-1].tracks)
    # Most tracks are found again close to where they are expected.
    matched = []
    for number in range(30):
        instance = GeneratedInstances(options(families=("tracking",), sizes=(40,), instances=30, frames=30)).instance(
            number
        )
        detected = instance.shape[1] - instance.shape[0]
        matched.append((instance.columns < detected).mean())
        assert (instance.about.sequence, instance.about.frame) == (0, number)
    assert np.mean(matched) > 0.7


def test_noise_is_added_to_some_and_recorded():
    plain = GeneratedInstances(options(families=("sparse",), sizes=(12,), instances=40))
    noisy = GeneratedInstances(options(families=("sparse",), sizes=(12,), instances=40, noise_std=0.15, noise_prob=0.5))
    changed = 0
    for number in range(40):
        one, other = plain.instance(number), noisy.instance(number)
        differs = not np.array_equal(one.costs, other.costs)
        assert other.about.noise_std == (0.15 if differs else 0.0)
        assert np.array_equal(one.costs == FORBIDDEN, other.costs == FORBIDDEN)
        changed += differs
    assert 8 <= changed <= 32


def test_counts_of_sizes_and_families():
    asked = options(families=("tie", "uniform"), instances=4, sizes=(8, 5), instances_map=("8:2", "tie/8:7"))
    assert list(asked.counts().items()) == [
        (("uniform", 5), 4),
        (("tie", 5), 4),
        (("uniform", 8), 2),
        (("tie", 8), 7),
    ]
    assert {size for _, size in options(instances_map=("512:3",)).counts()} == {512}
    for wrong in (
        {"instances_map": ("8",)},
        {"instances_map": ("tee/8:1",)},
        {"sizes": (4,), "instances_map": ("8:1",)},
    ):
        with pytest.raises(ValueError, match="instances_map"):
            options(**wrong)


def test_float32_costs_have_answers_of_their_own():
    source = GeneratedInstances(options(families=("uniform",), sizes=(30,), dtype="float32"))
    found = source.instance(0)
    assert found.costs.dtype == np.float32
    assert breach(found.costs, found.columns, found.u, found.v) is None


def test_options_that_clash_are_refused(tmp_path):
    with pytest.raises(UserError, match="takes no duals"):
        prepared(tmp_path, duals="solve")
    with pytest.raises(UserError, match="takes no seed"):
        prepared(tmp_path, tmp_path, seed=3)
