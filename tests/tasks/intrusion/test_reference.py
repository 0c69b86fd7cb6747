"""What benign traffic holds, and how far windows are from it: counted by hand, pair by pair."""

from collections import Counter

import numpy as np
import torch

from graphmill.tasks.intrusion.data.frames import EXTENDED, Frames
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from graphmill.tasks.intrusion.detector import _batch
from graphmill.tasks.intrusion.nn.reference import NUM_IDS, Reference
from graphmill.tasks.intrusion.reference import BenignTraffic, ids_of_pairs, pair_keys

SIZE = 20
IDS = [0x10, 0x20, 0x30, 0x7FF, int(EXTENDED) | 0x12345]


def windows(ids, payload):
    count = len(ids)
    frames = Frames(
        np.arange(count) * 1.0,
        np.array(ids, np.uint32),
        np.array(payload, np.uint8),
        np.full(count, 8, np.uint8),
        np.zeros(count, np.int8),
    )
    return joined_graphs(list(graphs_of([frames], Leftover(), size=SIZE, stride=SIZE)))


def traffic(num_windows, seed=0, ids=IDS):
    rng = np.random.default_rng(seed)
    count = SIZE * num_windows + 1
    return rng.choice(ids, count), rng.integers(50, 200, (count, 8))


def counts_of(ids, number):
    """Of one window: how often one id follows another."""
    own = ids[number * SIZE : (number + 1) * SIZE + 1]
    return Counter(zip(own[:-1].tolist(), own[1:].tolist(), strict=True))


def test_means_and_bounds_are_those_of_the_benign_windows():
    ids, payload = traffic(6)
    is_benign = np.array([True, False, True, True, False, True])
    known = BenignTraffic.fit(windows(ids, payload), is_benign)
    chosen = np.flatnonzero(is_benign)
    total = sum((counts_of(ids, number) for number in chosen), Counter())
    pairs = [tuple(pair) for pair in ids_of_pairs(known.pairs).T.tolist()]
    assert sorted(pairs) == sorted(total)
    assert np.abs(known.count - [total[pair] / 4 for pair in pairs]).max() <= 2**-11  # means are rounded to 2⁻¹⁰
    for identity, low, high in zip(known.ids.tolist(), known.low, known.high, strict=True):
        means = []
        for number in chosen:
            here = slice(number * SIZE, (number + 1) * SIZE)
            means.append(payload[here][ids[here] == identity].mean(axis=0) / 255)
        np.testing.assert_allclose(low, np.min(means, axis=0), rtol=1e-6)
        np.testing.assert_allclose(high, np.max(means, axis=0), rtol=1e-6)
    assert known.ids.tolist() == sorted(set(known.ids.tolist())) == sorted(IDS)


def test_many_windows_at_once_or_few_are_the_same(monkeypatch):
    graphs = windows(*traffic(9))
    is_benign = np.arange(9) % 4 != 0
    whole = BenignTraffic.fit(graphs, is_benign)
    monkeypatch.setattr("graphmill.tasks.intrusion.reference._AT_ONCE", 2)
    parts = BenignTraffic.fit(graphs, is_benign)
    for name in ("pairs", "count", "ids", "low", "high"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_without_a_benign_window_nothing_is_known_and_it_is_said(caplog):
    assert len(BenignTraffic.fit(windows(*traffic(2)), np.zeros(2, bool)).pairs) == 0
    assert "no training window is benign" in caplog.text


def deviation_of(identity, own, usual, low, high, means):
    """By the words of `Reference`, of one id of a window with the counts `own`."""
    sides = []
    for end in (0, 1):
        there = sum(count for pair, count in own.items() if pair[end] == identity)
        expected = sum(count for pair, count in usual.items() if pair[end] == identity)
        same = sum(min(count, usual.get(pair, 0)) for pair, count in own.items() if pair[end] == identity)
        sides.append((max(expected - same, there - expected), expected, there))
    scale = max(1, sides[0][1], sides[1][1]) ** 0.5
    beyond = 0 if low is None else max(0, float(np.max(np.maximum(low - means, means - high))))
    return min(sides[0][0], sides[1][0]) / scale + beyond * sides[0][2] ** 0.5


def test_deviations_are_those_of_their_definition():
    ids, payload = traffic(8)
    known = BenignTraffic.fit(windows(ids, payload), np.ones(8, bool))
    reference = Reference(known)
    others, bytes_of_others = traffic(5, seed=1, ids=[*IDS[1:], 0x5])  # one id is new, one is gone
    bytes_of_others[25:30] = 255
    graphs = windows(others, bytes_of_others)
    found = reference(_batch(graphs)).numpy()
    usual = dict(zip(map(tuple, ids_of_pairs(known.pairs).T.tolist()), known.count, strict=True))
    window = np.repeat(np.arange(len(graphs)), graphs.num_nodes)
    expected = []
    for number, identity, x in zip(window, graphs.node_ids.tolist(), graphs.x, strict=True):
        at = np.flatnonzero(known.ids == identity)
        bounds = (known.low[at[0]], known.high[at[0]]) if len(at) else (None, None)
        expected.append(deviation_of(identity, counts_of(others, number), usual, *bounds, x[:8]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # bounds and features are float32
    gone = usual_frames(usual, IDS[0])
    of_windows = [max(*np.array(expected)[window == number], gone) for number in range(len(graphs))]
    np.testing.assert_allclose(reference.of_windows(_batch(graphs)).numpy(), of_windows, rtol=1e-5)


def usual_frames(usual, identity):
    """Deviation of an id that a window lacks."""
    sides = [sum(count for pair, count in usual.items() if pair[end] == identity) for end in (0, 1)]
    return min(sides) / max(1, *sides) ** 0.5


def test_what_is_missing_is_told_by_pair():
    ids, payload = traffic(8)
    known = BenignTraffic.fit(windows(ids, payload), np.ones(8, bool))
    others, bytes_of_others = traffic(3, seed=2)
    missing = Reference(known).missing(_batch(windows(others, bytes_of_others)))[:, : len(known.pairs)].numpy()
    pairs = list(map(tuple, ids_of_pairs(known.pairs).T.tolist()))
    for number in range(3):
        own = counts_of(others, number)
        expected = [max(0, count - own[pair]) for pair, count in zip(pairs, known.count, strict=True)]
        np.testing.assert_allclose(missing[number], expected)


def test_the_most_frequent_are_kept_and_it_is_said(caplog):
    rng = np.random.default_rng(0)
    keys = pair_keys(np.arange(1, NUM_IDS + 40), np.full(NUM_IDS + 39, 1))
    count = rng.permutation(len(keys)) + 1.0
    bounds = np.zeros((len(keys), 8), np.float32)
    known = BenignTraffic(keys, count, np.arange(1, NUM_IDS + 40), bounds, bounds)
    reference = Reference(known)
    assert f"{NUM_IDS + 39:,} ids" in caplog.text
    kept = reference.ids[:-1]
    assert set(kept.tolist()) == set((np.argsort(-count)[: NUM_IDS - 1] + 1).tolist())
    assert bool((kept.diff() > 0).all())


def test_what_was_not_fitted_is_filled_by_weights():
    ids, payload = traffic(4)
    reference, blank = Reference(BenignTraffic.fit(windows(ids, payload), np.ones(4, bool))), Reference.unknown()
    blank.load_state_dict(reference.state_dict())
    batch = _batch(windows(*traffic(3, seed=3)))
    assert torch.equal(blank(batch), reference(batch))
    assert not any(each.requires_grad for each in reference.parameters())
