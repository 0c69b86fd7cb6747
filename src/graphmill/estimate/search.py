"""Which batch is the largest that fits into memory: where to try next. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from graphmill.spec.batch import TriedSize

MOST_ATTEMPTS: Final = 12
CLOSE: Final = 1.03  # sizes whose ratio is less are not told apart
_GROWTHS: Final = 4  # from the least size to the most, if all fit
_ABOUT: Final = 1.015  # a guess so close to a bound asks for the other bound


def search(
    try_size: Callable[[int], tuple[TriedSize, float]], num_batches: Callable[[int], int], least: int, most: int
) -> tuple[list[TriedSize], dict[int, TriedSize], float]:
    """Try sizes until the largest that fits is known.

    A peak is noisy: whether one more fits is not decided by a single one. The least size that did not fit, by a peak
    that was measured, is tried again, and the smaller peak counts.

    Args:
        try_size: tries a size, and tells the limit, MiB, beside the attempt.
        num_batches: into how many batches a size cuts the data; sizes of as many are tried once for all.
        least: smallest size.
        most: largest.

    Returns:
        What is known of each size, what was tried by number of batches, and the limit, MiB.
    """
    batches_of, tried, again, limit = dict[int, int](), dict[int, TriedSize](), set[int](), 0.0
    while True:
        known = [tried[batches].model_copy(update={"size": size}) for size, batches in batches_of.items()]
        size = next_size(known, len(tried), least, most, limit)
        if size is None:
            refused = min((attempt for attempt in known if not attempt.fits), key=lambda each: each.size, default=None)
            if refused is None or refused.peak_mib is None or batches_of[refused.size] in again:
                return known, tried, limit
            size = refused.size
            again.add(batches_of[size])
        batches = batches_of[size] = num_batches(size)
        before = tried.get(batches)
        if before is None or batches in again:
            attempt, limit = try_size(size)
            tried[batches] = attempt if before is None or attempt.fits else before


def next_size(attempts: Sequence[TriedSize], num_tried: int, least: int, most: int, limit_mib: float) -> int | None:
    """Which size to try after `attempts`; None: the largest that fits is known, to 3 % or to 1.

    `num_tried` of the attempts were tried, and the others are known to be as these: only the former are few.

    The first sizes grow by a constant factor; then the bracket of the limit is halved (in the ratio of its ends), or
    cut where a line through the measured peaks meets the limit, if enough attempts are left to halve it afterwards.
    """
    if not attempts:
        return least
    low = max((attempt.size for attempt in attempts if attempt.fits), default=None)
    high = min((attempt.size for attempt in attempts if not attempt.fits), default=None)
    if low is None or low >= most or num_tried >= MOST_ATTEMPTS:
        return None
    guess = _where_it_meets(attempts, limit_mib)
    if high is None:
        bound = min(most, math.ceil(low * max(2.0, (most / least) ** (1 / _GROWTHS))))
        return bound if guess is None or guess >= bound else _size_between(guess, low, bound + 1)
    if high <= max(low + 1, low * CLOSE):
        return None
    halvings = math.ceil(math.log2(math.log(high / low) / math.log(CLOSE)))
    if guess is None or num_tried + max(1, halvings) >= MOST_ATTEMPTS:
        guess = math.sqrt(low * high)
    return _size_between(guess, low, high)


def _size_between(guess: float, low: int, high: int) -> int:
    """A size between the two; if the guess is close to one of them, a size that differs from it just enough."""
    if guess <= low * _ABOUT:
        guess = low * CLOSE
    elif guess >= high / _ABOUT:
        guess = high / CLOSE
    return min(high - 1, max(low + 1, round(guess)))


def _where_it_meets(attempts: Sequence[TriedSize], limit_mib: float) -> float | None:
    """The size at which a line through the two measured peaks nearest the limit meets it."""
    known = [(attempt.peak_mib, attempt.size) for attempt in attempts if attempt.peak_mib is not None]
    if len(known) < 2:
        return None
    (peak, size), (other, other_size) = sorted(known, key=lambda point: abs(point[0] - limit_mib))[:2]
    if size == other_size or (peak - other) * (size - other_size) <= 0:
        return None
    return size + (limit_mib - peak) * (size - other_size) / (peak - other)


def predicted_mib(attempts: Mapping[float, TriedSize], size: float) -> float:
    """What a batch of `size` would hold, by a straight line between the nearest sizes that were measured: at least one.

    >>> tried = {size: Attempt(size=size, peak_mib=100 + size, fits=True) for size in (10, 20, 40)}
    >>> predicted_mib(tried, 30), predicted_mib(tried, 20), predicted_mib(tried, 50)
    (130.0, 120.0, 150.0)
    """
    known = sorted((each, attempt.peak_mib) for each, attempt in attempts.items() if attempt.peak_mib is not None)
    if len(known) == 1:
        return known[0][1]
    above = next((index for index, (each, _) in enumerate(known) if each >= size), len(known) - 1)
    (low, low_peak), (high, high_peak) = known[max(0, above - 1)], known[max(1, above)]
    return low_peak + (size - low) * (high_peak - low_peak) / (high - low)
