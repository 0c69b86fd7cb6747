"""Windows are indices; batches are exactly the readings they point at."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rounding import Bounded, assert_within

from graphmill.base.errors import UserError
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import TrafficStore, window_starts, write_traffic
from graphmill.tasks.traffic.data.windows import TrafficWindows
from graphmill.tasks.traffic.page import TrafficDatasetSpec


def test_published_split(tmp_path: Path, shared: Path) -> None:
    """DCRNN's 23,974 / 3,425 / 6,850 windows of METR-LA's 34,272 steps."""
    raw = generate(num_sensors=2, num_steps=34272)
    assert TrafficWindows(write_traffic(raw, tmp_path / "s"), 12, 12).counts == (23974, 3425, 6850)


def test_splits_are_in_time_and_whole(store: TrafficStore) -> None:
    windows = TrafficWindows(store, 12, 12)
    parts = [windows.of(split) for split in ("train", "val", "test")]
    assert tuple(map(len, parts)) == windows.counts
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(576 - 23))


def test_a_batch_holds_the_readings_of_its_windows(store: TrafficStore) -> None:
    windows = TrafficWindows(store, 6, 3)
    batch = windows.batch(Seeds(0, 0, SeedIds(np.array([40, 7, 300]))))
    metadata = store.metadata
    inputs = batch.inputs(torch.tensor(metadata.mean), torch.tensor(metadata.std))
    for row, start in enumerate((40, 7, 300)):
        raw = store.values[start : start + 9]
        known = ~np.isnan(raw)
        mean = Bounded.of(metadata.mean).rounded()  # to float32, and so is the deviation
        scaled = ((Bounded.of(torch.tensor(raw)) - mean) / metadata.std).rounded()
        scaled = scaled.moved(lambda x, known=known: torch.where(torch.from_numpy(known), x, 0))
        assert_within(inputs[row, ..., 0], scaled[:6])
        np.testing.assert_array_equal(inputs[row, ..., 1], known[:6])
        np.testing.assert_array_equal(batch.targets[row], raw[6:])
        np.testing.assert_array_equal(batch.is_known[row], known[6:])
        seconds = store.timestamps[start : start + 6]
        np.testing.assert_array_equal(inputs[row, :, 0, 2], (seconds % 86400 / 86400).astype(np.float32))
        assert (inputs[row, ..., 2] == inputs[row, :, :1, 2]).all()


def test_the_clock(tmp_path: Path) -> None:
    raw = generate(num_sensors=2, num_steps=100, interval_s=3600)
    times = np.datetime64("2024-02-28T22:00:00", "s").astype(np.int64) + 3600 * np.arange(100)  # a Wednesday
    store = write_traffic(replace(raw, series=replace(raw.series, timestamps=times)), tmp_path / "s")
    windows = TrafficWindows(store, 3, 1)
    assert windows.clock[0, 0] == np.float32(22 / 24)
    np.testing.assert_array_equal(windows.clock[:3, 1], np.array([2 / 7, 2 / 7, 3 / 7], np.float32))


@given(st.lists(st.sampled_from([300, 300, 300, 600, 7]), min_size=0, max_size=40), st.integers(2, 6))
def test_no_window_lies_across_a_gap_and_none_is_left_out(steps: list[int], length: int) -> None:
    times = np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    expected = [i for i in range(len(times) - length + 1) if all(s == 300 for s in steps[i : i + length - 1])]
    assert window_starts(times, 300, length).tolist() == expected


def test_nights_left_out(shared: Path, tmp_path: Path) -> None:
    from graphmill.tasks.traffic.data.prepare import prepare_traffic

    store = prepare_traffic(
        "b", root=tmp_path, from_path=shared / "bangkok_link_travel_time.npz", options={"unit": "s"}
    )
    assert store.metadata.interval_s == 1800
    assert store.metadata.num_gaps == 173
    windows = TrafficWindows(store, 12, 1)
    steps = windows.starts[:, None] + np.arange(13)
    assert (np.diff(store.timestamps[steps]) == 1800).all()


def test_too_few_steps(tmp_path: Path) -> None:
    store = write_traffic(generate(num_sensors=2, num_steps=26), tmp_path / "s")
    with pytest.raises(UserError, match=r"3 windows of 12 \+ 12 steps, which make 2 for training, 0 for validation"):
        store.info(TrafficDatasetSpec())
    with pytest.raises(UserError, match="0 windows"):
        store.info(TrafficDatasetSpec(history=20))


def test_known_targets_are_counted(store: TrafficStore) -> None:
    windows = TrafficWindows(store, 6, 3)
    counts = windows.num_known()
    for start in (0, 100, int(windows.starts[-1])):
        assert counts[start] == np.count_nonzero(~np.isnan(store.values[start + 6 : start + 9]))
    assert (counts[windows.starts[-1] + 1 :] == 0).all()


def test_nothing_is_materialised(store: TrafficStore) -> None:
    """The readings are mapped, and a window costs its index."""
    windows = TrafficWindows(store, 12, 12)
    assert isinstance(windows.values.base, np.memmap) or isinstance(windows.values, np.memmap)
    assert windows.starts.nbytes == 8 * len(windows.starts)
