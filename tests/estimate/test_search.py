"""The search for the largest batch that fits: few attempts, whatever memory does with size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.estimate.search import CLOSE, MOST_ATTEMPTS, predicted_mib, search
from graphmill.spec.batch import TriedSize


def tried(peak_of, least, most, limit, like=lambda size: size):
    """What is known of each size; one whose peak is far above the limit runs out of memory, and tells no peak.

    Sizes of which `like` gives the same number are tried once, but for the one that decides.
    """
    asked = []

    def try_size(size):
        assert least <= size <= most
        asked.append(like(size))
        peak = peak_of(like(size))
        return TriedSize(size=size, peak_mib=peak if peak <= 1.25 * limit else None, fits=peak <= limit), limit

    known, by_batches, told = search(try_size, like, least, most)
    assert told == limit
    assert sorted(by_batches) == sorted(set(asked))
    assert all(asked.count(each) <= 2 for each in asked)
    return known


@given(
    st.floats(100, 600),
    st.floats(1e-3, 50),
    st.sampled_from([0.5, 0.8, 1, 1.2, 2]),
    st.floats(0.999, 1.001),
    st.sampled_from([(8, 8192), (1, 8192), (8, 8), (17, 300), (1, 1)]),
    st.sampled_from([1024.0, 2048.0, 700.0]),
)
def test_the_largest_that_fits_is_found(base, slope, power, noise, bounds, limit):
    least, most = bounds

    def peak_of(size):
        return base + slope * size**power * (noise if size % 2 else 1 / noise)

    attempts = tried(peak_of, least, most, limit)
    assert len(attempts) <= MOST_ATTEMPTS
    fitting = [attempt.size for attempt in attempts if attempt.fits]
    if not fitting:
        assert peak_of(least) > limit
        return
    found = max(fitting)
    failed = min((attempt.size for attempt in attempts if not attempt.fits), default=None)
    assert found == most if failed is None else found < failed <= max(found + 1, found * CLOSE)


def test_a_straight_line_takes_few_attempts():
    assert len(tried(lambda size: 300 + 0.5 * size, 8, 8192, 1024.0)) <= 7


def test_one_noisy_peak_does_not_decide():
    """The first try of any size from 40 on takes 65 MiB more than it does again (third look III, 10)."""
    seen = set()

    def peak_of(size):
        noise = 65 if size >= 40 and size not in seen else 0
        seen.add(size)
        return 300 + 6 * size + noise

    attempts = tried(peak_of, 8, 200, 600.0)
    assert max(attempt.size for attempt in attempts if attempt.fits) == pytest.approx(50, rel=CLOSE - 1)


def test_what_runs_out_of_memory_is_not_tried_again():
    asked = []

    def try_size(size):
        asked.append(size)
        return TriedSize(size=size, peak_mib=None if size > 20 else 100.0, fits=size <= 20), 500.0

    search(try_size, lambda size: size, 8, 100)
    assert len(asked) == len(set(asked))


def test_a_step_is_found_without_peaks():
    attempts = tried(lambda size: 100.0 if size <= 777 else math.inf, 8, 8192, 1024.0)
    assert max(attempt.size for attempt in attempts if attempt.fits) == pytest.approx(777, rel=CLOSE - 1)


@given(st.integers(600, 20_000), st.floats(0.01, 5), st.sampled_from([1024.0, 2048.0, 700.0]))
def test_sizes_that_cut_the_data_alike_are_tried_once(num_seeds, slope, limit):
    """As many batches of an epoch: they are as large, whatever they might hold."""

    def of_batches(number):
        return 300 + slope * num_seeds / number

    attempts = tried(of_batches, 8, num_seeds, limit, like=lambda size: -(-num_seeds // size))
    assert len({-(-num_seeds // attempt.size) for attempt in attempts}) <= MOST_ATTEMPTS
    fitting = [attempt.size for attempt in attempts if attempt.fits]
    if fitting and max(fitting) < num_seeds:
        failed = min(attempt.size for attempt in attempts if not attempt.fits)
        assert failed <= max(max(fitting) + 1, max(fitting) * CLOSE)


def test_a_prediction_lies_on_the_line_between_its_neighbours():
    attempts = {size: TriedSize(size=size, peak_mib=10 * size, fits=True) for size in (10, 20)}
    assert [predicted_mib(attempts, size) for size in (5, 10, 15, 20, 30)] == [50, 100, 150, 200, 300]
    assert predicted_mib({10: attempts[10]}, 3) == 100
